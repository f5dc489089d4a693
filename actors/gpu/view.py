"""What the monitor's facts come to: an inventory, or the reason why there is none.

Whoever wants the GPUs has to ask `inventory_of`, which has no answer but an inventory that NVML gave: a failure, a
monitor that died and one that has not spoken yet are reasons, and none of them can be taken for a pod without GPUs.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Final

import attrs

from statemachine.problem import Problem, ProblemError, Step
from statemachine.reasons import Reason

from .facts import ErrorFact, Fact, InventoryFact, ProcessesFact, XidFact
from .inventory import Inventory
from .xids import LOSING

if TYPE_CHECKING:
    from collections.abc import Mapping

_LOSING_ERRORS: Final = frozenset({"NVML_ERROR_GPU_IS_LOST", "NVML_ERROR_RESET_REQUIRED", "NVML_ERROR_UNKNOWN"})


def _unchangeable(processes: Mapping[str, tuple[int, ...]]) -> Mapping[str, tuple[int, ...]]:
    return MappingProxyType(dict(processes))


@attrs.frozen(kw_only=True)
class NvmlAnswers:
    """NVML answers.

    Attributes:
        driver: the driver's version.
        inventory: every GPU that was ever seen since the monitor's first word.
        processes: the compute processes on each GPU, by its UUID; a GPU of which none were told is not in it, which is
            not the same as having none.
        unread: one error for each GPU that NVML counts and cannot name; to be shown, as nobody can be granted one.
    """

    driver: str
    inventory: Inventory
    processes: Mapping[str, tuple[int, ...]] = attrs.field(factory=dict, converter=_unchangeable, hash=False)
    unread: tuple[str, ...] = ()


@attrs.frozen(kw_only=True)
class NvmlFails:
    """NVML does not answer.

    Attributes:
        why: one sentence, NVML's own name of the error in it.
        last: what it had answered before; for showing it, and for knowing a lost GPU again.
    """

    why: str
    last: NvmlAnswers | None = None


View = NvmlAnswers | NvmlFails

SILENT: Final[View] = NvmlFails(why="the monitor has not spoken yet")
"""The view before the first fact."""


def after(view: View, fact: Fact) -> View:
    """The view after a fact."""
    match fact:
        case InventoryFact():
            return _after_inventory(view, fact)
        case ErrorFact(gpu=None):
            said = f": {fact.message}" if fact.message else ""
            return NvmlFails(why=f"{fact.call}: {fact.error}{said}", last=_last(view))
        case ErrorFact(gpu=str(uuid)):
            return _lose(view, uuid, fact.error) if fact.error in _LOSING_ERRORS else _forget_processes(view, uuid)
        case XidFact(gpu=str(uuid)):
            return _lose(view, uuid, f"XID {fact.xid}") if fact.xid in LOSING else view
        case ProcessesFact() if isinstance(view, NvmlAnswers):
            return attrs.evolve(view, processes={**view.processes, fact.gpu: fact.pids})
        case _:
            return view


def after_monitor_ended(view: View, why: str) -> View:
    """The view after the monitor ended, hung, or said what it cannot have said."""
    return NvmlFails(why=why, last=_last(view))


def inventory_of(view: View, *, step: Step) -> Inventory:
    """The GPUs.

    Raises:
        ProblemError: NvmlUnavailable.
    """
    if isinstance(view, NvmlAnswers):
        return view.inventory
    raise ProblemError(unanswered(view, step=step))


def unanswered(view: NvmlFails, *, step: Step) -> Problem:
    """NvmlUnavailable, with why."""
    message = f"NVML does not answer: {view.why}"
    return Problem(step=step, reason=Reason.NVML_UNAVAILABLE, subject="nvml", message=message)


def _last(view: View) -> NvmlAnswers | None:
    return view if isinstance(view, NvmlAnswers) else view.last


def _after_inventory(view: View, fact: InventoryFact) -> NvmlAnswers:
    last = _last(view)
    known = Inventory() if last is None else last.inventory
    inventory = known.succeeded_by(fact.inventory)
    # Processes that were told before a failure may be long gone; those of a GPU that is lost surely tell nothing.
    told = view.processes if isinstance(view, NvmlAnswers) else {}
    healthy = {gpu.uuid for gpu in inventory.gpus if gpu.lost is None}
    processes = {uuid: pids for uuid, pids in told.items() if uuid in healthy}
    return NvmlAnswers(driver=fact.driver, inventory=inventory, processes=processes, unread=fact.unread)


def _forget_processes(view: View, uuid: str) -> View:
    """Who computes on it cannot be told now; what was told before is no answer any more."""
    if isinstance(view, NvmlFails):
        return view
    return attrs.evolve(view, processes={gpu: pids for gpu, pids in view.processes.items() if gpu != uuid})


def _lose(view: View, uuid: str, cause: str) -> View:
    if isinstance(view, NvmlFails):
        return view
    return attrs.evolve(view, inventory=view.inventory.with_lost(uuid, cause))
