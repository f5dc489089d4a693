"""The cgroup of an activation: made with its bundles, removed when it has ended, read in between.

Every process of the activation is born in it, see `actors.enter_elf`. A worker that has no cgroup of its own (see
docs/cgroups.md) makes none, and says so in its status. Reading takes no lock and waits for no step.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from actors.bundle.activation_tree import enter_path
from actors.cgroups import cgroup_name, enter_words, leaves_for, limits_for
from statemachine.problem import Problem, ProblemError, Step
from statemachine.reasons import Reason

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from actors.assignment import Container
    from actors.ports import CgroupUsage
    from actors.steps.stage import Stage

EMPTY_S: Final = 10.0
"""Seconds for a cgroup to be empty whose processes were killed and waited for."""


async def make_leaf(stage: Stage, activation: Path, containers: Sequence[Container], *, step: Step) -> None:
    """Make the cgroup of an activation; nothing where the worker has none.

    Raises:
        ProblemError: CgroupUnavailable; nothing of it is there.
    """
    if stage.cgroups is None:
        return
    name = cgroup_name(stage.assignment.uid, activation.name)
    try:
        await stage.ports.cgroups.make(name, leaves=leaves_for(containers), limits=limits_for(containers))
    except OSError as error:
        message = f"the cgroup {name} cannot be made: {error.strerror or error}"
        raise ProblemError(_problem(step, Reason.CGROUP_UNAVAILABLE, name, message)) from error


def words_into(stage: Stage, activation: Path, leaf: str) -> tuple[str, ...]:
    """What comes before a command that begins processes of an activation; nothing where there is no cgroup."""
    if stage.cgroups is None:
        return ()
    name = cgroup_name(stage.assignment.uid, activation.name)
    return enter_words(enter_path(activation), stage.cgroups, name, leaf)


async def remove_leaf(stage: Stage, activation: Path) -> None:
    """Remove the cgroup of an activation that has ended, if there is one. Call it shielded.

    Raises:
        ProblemError: StepDeadlineExceeded, something in it does not end; CgroupUnavailable.
    """
    if stage.cgroups is None:
        return
    name = cgroup_name(stage.assignment.uid, activation.name)
    try:
        await stage.ports.cgroups.remove(name, deadline_s=EMPTY_S)
    except TimeoutError as error:
        message = f"something in the cgroup {name} is still there after {EMPTY_S:g} s"
        raise ProblemError(_problem(Step.TEARDOWN, Reason.STEP_DEADLINE_EXCEEDED, name, message)) from error
    except OSError as error:
        message = f"the cgroup {name} cannot be removed: {error.strerror or error}"
        raise ProblemError(_problem(Step.TEARDOWN, Reason.CGROUP_UNAVAILABLE, name, message)) from error


async def usage(stage: Stage) -> CgroupUsage | None:
    """What the live activation has used since it began; None where nothing is measured, or not yet, or not any more.

    Numbers of one activation are never told for those of the next.

    Raises:
        OSError: it cannot be read.
    """
    activation = stage.activation
    if stage.cgroups is None or activation is None:
        return None
    try:
        found = await stage.ports.cgroups.usage(cgroup_name(stage.assignment.uid, activation.name))
    except FileNotFoundError:
        return None
    return found if stage.activation == activation else None


async def oom_kills(stage: Stage) -> int | None:
    """How many processes of the live activation ended because its memory was used up; None when that is not known.

    To be asked when a sandbox has died, before it is torn down: its cgroup goes with it.
    """
    try:
        found = await usage(stage)
    except OSError:
        return None
    return None if found is None else found.oom_kills


def _problem(step: Step, reason: Reason, name: str, message: str) -> Problem:
    return Problem(step=step, reason=reason, subject=name, message=message)
