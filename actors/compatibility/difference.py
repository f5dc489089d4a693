"""One difference between a snapshot and the place where it is to be restored, and what that place is."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Final

import attrs

from statemachine.catalogue import CATALOGUE
from statemachine.problem import Problem, Step
from statemachine.reasons import Reason
from statemachine.wording import one_line

if TYPE_CHECKING:
    from collections.abc import Sequence

    from actors.gpu.inventory import Gpu
    from actors.manifest import Shape
    from actors.runsc.flags import GlobalFlags
    from actors.runsc.version import RuntimeVersion

ABSENT: Final = "absent"
_VALUE_CHARACTERS_MAX: Final = 300


class Force(enum.StrEnum):
    """Whether a restore may be tried although of a difference, when somebody insists."""

    POSSIBLE = "Possible"
    NEVER = "Never"
    """It could only fail, or give containers what was never theirs."""


def _value(text: str) -> str:
    return one_line(text, _VALUE_CHARACTERS_MAX)


@attrs.frozen(kw_only=True)
class Difference:
    """One thing that differs.

    Attributes:
        subject: what it is: `arch`, `flag --network`, `web: mount /data`.
        was: in the snapshot.
        now: here.
        reason: the word for it.
        force: whether it can be passed over.
    """

    subject: str = attrs.field(converter=_value)
    was: str = attrs.field(converter=_value)
    now: str = attrs.field(converter=_value)
    reason: Reason = Reason.SNAPSHOT_INCOMPATIBLE
    force: Force = Force.POSSIBLE

    def __str__(self) -> str:
        """A sentence with both values."""
        return f"{self.subject} was {self.was} in the snapshot, here it is {self.now}"


@attrs.frozen(kw_only=True)
class Injected:
    """What a container with a grant still gets beside what stands in its shape, by path in the container.

    Attributes:
        paths: of mounts and device nodes; None while nobody knows them, so that any may come.
    """

    paths: frozenset[str] | None = None

    def gives(self, path: str) -> bool:
        """Whether something may come at this path."""
        return self.paths is None or path in self.paths


@attrs.frozen(kw_only=True)
class ContainerHere:
    """One container of the actor, as it would be restored here.

    Attributes:
        name: its name.
        image_digest: of the assignment; None says nothing.
        shape: of its config.json; None says nothing: it has exited in the snapshot, or its bundle is not looked at.
        injected: what is still to be injected; None when the shape is whole.
        gpus: its grant, by ordinal.
    """

    name: str
    image_digest: str | None = None
    shape: Shape | None = None
    injected: Injected | None = None
    gpus: Sequence[Gpu] = ()


@attrs.frozen(kw_only=True)
class Here:
    """Where a snapshot would be restored.

    Attributes:
        runtime: the runsc's version.
        runsc_sha256: hex digest of that runsc.
        flags: the global flags that the sandbox would get.
        arch: this machine, as `uname -m` names it.
        cpu_features: of its processor; None when they are not known.
        driver: the NVIDIA driver's version; None without a GPU.
        containers: the actor's, in the order of declaration.
        volumes: names of its durable volumes.
    """

    runtime: RuntimeVersion
    runsc_sha256: str
    flags: GlobalFlags
    arch: str
    cpu_features: Sequence[str] | None
    driver: str | None
    containers: Sequence[ContainerHere]
    volumes: Sequence[str] = ()


def refusal(found: Sequence[Difference], *, step: Step = Step.RESTORE) -> Problem:
    """Why a restore is refused: the first difference, and all of them as its detail.

    Args:
        found: one or more.
        step: the step that the problem belongs to.
    """
    first = found[0]
    return Problem(
        step=step,
        reason=first.reason,
        subject=first.subject,
        message=str(first),
        hint=f"{CATALOGUE[first.reason].hint} {_of_force(found)}",
        detail="\n".join(map(str, found)) if len(found) > 1 else "",
    )


def _of_force(found: Sequence[Difference]) -> str:
    never = [each.subject for each in found if each.force is Force.NEVER]
    if never:
        return f"This cannot be forced: {', '.join(never)}."
    return "`greenroom resume UID --force` restores it all the same."
