"""The worker's cgroup: taken in hand once at the start, told in the status, and swept of what earlier lives left."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Any

import attrs
import structlog

from actors.bundle.activation_tree import enter_path
from actors.cgroups import activation_in
from actors.ports import CgroupsUnavailableError
from actors.steps.leaf import EMPTY_S
from statemachine.problem import Problem, ProblemError, Step
from statemachine.reasons import Reason
from supervisor.settings import CgroupsWanted

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path

    from actors.ports import Delegation, Ports

_log = structlog.get_logger("greenroom.cgroups")


class Mode(enum.StrEnum):
    """What becomes of limits and usage."""

    ENFORCED = "enforced"
    """Every activation has a cgroup, and cpu and memory are limited and measured."""
    LEAVES = "leaves"
    """Every activation has a cgroup, and not all of it is limited and measured."""
    OFF = "off"
    """There is none: the pod's limits hold for all actors together."""


@attrs.frozen(kw_only=True)
class WorkerCgroups:
    """What the worker has made of its cgroup.

    Attributes:
        delegation: where activations get theirs; None where they get none.
        reason: the reason why not everything is enforced; None when it is, or is not wanted.
        message: that in one sentence.
    """

    delegation: Delegation | None = None
    reason: Reason | None = None
    message: str = ""

    @property
    def mode(self) -> Mode:
        """In one word."""
        if self.delegation is None:
            return Mode.OFF
        return Mode.LEAVES if self.delegation.missing else Mode.ENFORCED

    def as_json(self) -> dict[str, Any]:
        """Its part of the worker's status."""
        controllers = () if self.delegation is None else self.delegation.controllers
        return {
            "mode": str(self.mode),
            "controllers": list(controllers),
            "reason": None if self.reason is None else str(self.reason),
            "message": self.message,
        }

    async def sweep(self, ports: Ports, sandboxes: Path) -> None:
        """Remove the cgroup of every activation that has no directory any more, with whatever still lives in it.

        It is provably ours: below a cgroup that is this worker's alone, by a name that only a worker gives. What cannot
        be removed is told, and costs nobody anything but the room.
        """
        if self.delegation is None:
            await self._tell_out_of_reach(ports, sandboxes)
            return
        try:
            names = await ports.cgroups.names()
            activations = set(await ports.files.list_directory(sandboxes)) if names else set()
        except OSError as error:
            _tell(str(sandboxes), error)
            return
        for name in names:
            if activation_in(name) not in activations:
                await _remove(ports, name)

    async def sweep_after(self, ports: Ports, activations: Collection[str]) -> None:
        """Remove the cgroups of these activations, which have ended; as `sweep`, but beside others that begin."""
        if self.delegation is None or not activations:
            return
        try:
            names = await ports.cgroups.names()
        except OSError as error:
            _tell("cgroups", error)
            return
        for name in names:
            if activation_in(name) in activations:
                await _remove(ports, name)

    async def _tell_out_of_reach(self, ports: Ports, sandboxes: Path) -> None:
        """Tell what stays: what an earlier life began in a cgroup is taken over by one that has none to remove it."""
        try:
            for activation in await ports.files.list_directory(sandboxes):
                if await ports.files.stat(enter_path(sandboxes / activation)) is not None:
                    message = f"its cgroup stays when it ends, as this worker has none of its own: {self.message}"
                    _log.warning("unswept", subject=activation, reason=str(Reason.CGROUP_UNAVAILABLE), message=message)
        except FileNotFoundError:
            return  # nothing was ever begun here
        except OSError as error:
            _tell(str(sandboxes), error)


NO_CGROUPS = WorkerCgroups(message="none are wanted")


async def take_in_hand(ports: Ports, wanted: CgroupsWanted) -> WorkerCgroups:
    """Divide the worker's own cgroup, as far as it is there and is wanted, and tell once what came of it.

    Raises:
        ProblemError: CgroupUnavailable, where it is required.
    """
    if wanted is CgroupsWanted.OFF:
        return NO_CGROUPS
    found = await _look(ports)
    if wanted is CgroupsWanted.REQUIRE and found.mode is not Mode.ENFORCED:
        message = f"limits cannot be enforced: {found.message}"
        raise ProblemError(
            Problem(step=Step.SUPERVISE, reason=Reason.CGROUP_UNAVAILABLE, subject="worker", message=message)
        )
    told = {name: value for name, value in found.as_json().items() if value}
    (_log.info if found.mode is Mode.ENFORCED else _log.warning)("cgroups", **told)
    return found


async def _look(ports: Ports) -> WorkerCgroups:
    try:
        delegation = await ports.cgroups.delegate()
    except CgroupsUnavailableError as error:
        return WorkerCgroups(reason=Reason.CGROUP_UNAVAILABLE, message=str(error))
    except OSError as error:
        return WorkerCgroups(reason=Reason.CGROUP_UNAVAILABLE, message=error.strerror or str(error))
    if not delegation.missing:
        return WorkerCgroups(delegation=delegation)
    message = "; ".join(f"{name} is not limited: {why}" for name, why in delegation.missing)
    return WorkerCgroups(delegation=delegation, reason=Reason.CGROUP_UNAVAILABLE, message=message)


async def _remove(ports: Ports, name: str) -> None:
    try:
        await ports.cgroups.remove(name, deadline_s=EMPTY_S)
    except (TimeoutError, OSError) as error:
        _tell(name, error)


def _tell(name: str, error: OSError) -> None:
    message = error.strerror or str(error) or "something in it does not end"
    _log.error("unswept", subject=name, reason=str(Reason.CGROUP_UNAVAILABLE), message=message)
