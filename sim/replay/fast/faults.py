"""The faults of a trace that the fast engine knows, by the names that `greenroom sim chaos` has for them.

What happens inside a step (a full disk, a call that lies) is the faithful engine's: that such a fault has not happened
here is noted in the result.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from actors.gpu.quarantine import DOUBTFUL_S, WELL_S
from actors.gpu.xids import XidPolicy, class_of
from sim.fleet.facts import GpusUsable
from sim.replay.fast.lives import NEVER, Life, Node, trouble_of
from statemachine.actor import Resource
from statemachine.events import Finding, GpuLost, Recovered, SandboxDied
from statemachine.reasons import Reason
from statemachine.states import INACTIVE, STARTING, State

if TYPE_CHECKING:
    from sim.replay.fast.kernel import Kernel
    from sim.traces.records import FaultRecord, Scalar

FOR_S: Final = 60.0
"""How long an outage lasts, where the trace does not say."""
FELL_OFF_THE_BUS: Final = 79
"""The XID, where the trace does not say which."""


def _kill_sandbox(kernel: Kernel, record: FaultRecord) -> bool:
    life = _met(kernel, record)
    if life is None or Resource.SANDBOX not in life.memory.held:
        return False
    problem = trouble_of(life, Reason.SANDBOX_DIED, "the sandbox was killed by a fault of the trace")
    if life.memory.state in STARTING and life.memory.state is not State.VERIFYING:
        return False  # the step that makes it would tell
    kernel.feed(life, SandboxDied(problem=problem))
    return True


def _lose_gpu(kernel: Kernel, record: FaultRecord) -> bool:
    """A GPU falls off the bus: nobody is granted it until it is back, and has been well for a while."""
    found = _gpu(kernel, record)
    if found is None:
        return False
    _take_away(kernel, *found, for_s=_seconds(record.args, "for_s", FOR_S) + WELL_S)
    return True


def _report_xid(kernel: Kernel, record: FaultRecord) -> bool:
    """A GPU reports an error; it depends on its number what follows, as in `actors.gpu.xids`."""
    found = _gpu(kernel, record)
    if found is None:
        return False
    node, ordinal = found
    policy = class_of(int(_seconds(record.args, "xid", FELL_OFF_THE_BUS))).policy
    if policy is XidPolicy.LOSE:
        _take_away(kernel, node, ordinal, for_s=DOUBTFUL_S + WELL_S)
    elif policy is XidPolicy.WITHHOLD and ordinal not in node.holders:
        _take_away(kernel, node, ordinal, for_s=DOUBTFUL_S)
    return True


def _take_away(kernel: Kernel, node: Node, ordinal: int, *, for_s: float) -> None:
    """Whoever holds a GPU loses it, and nobody else is granted it so long."""
    worker, until_s = node.record.worker, kernel.at_s + for_s
    node.lost[ordinal] = max(until_s, node.lost.get(ordinal, 0.0))
    node.lost_at_s = kernel.at_s
    if ordinal in node.free:
        node.free.remove(ordinal)
    kernel.tell(GpusUsable(kernel.at_s, worker, node.record.gpus - len(node.lost)))
    holder = node.holders.get(ordinal)
    if holder is not None:
        life = node.lives[holder]
        problem = trouble_of(life, Reason.GPU_LOST, f"GPU {ordinal} of {worker} was lost by a fault of the trace")
        kernel.feed(life, GpuLost(gpu=f"{worker}/{ordinal}", problem=problem))

    def is_back() -> None:
        if kernel.nodes.get(worker) is node and node.lost.get(ordinal) == until_s:
            del node.lost[ordinal]
            if ordinal not in node.holders:
                node.free = sorted((*node.free, ordinal))
            kernel.tell(GpusUsable(kernel.at_s, worker, node.record.gpus - len(node.lost)))

    kernel.after(for_s, None, is_back)


def _gpu(kernel: Kernel, record: FaultRecord) -> tuple[Node, int] | None:
    """The GPU that is meant: `gpu` of the worker, in the order of minors, or the first that the named actor holds."""
    life = kernel.serving.get(record.actor or "")
    node = kernel.nodes.get(record.worker or (life.worker if life is not None else ""))
    if record.actor is not None and "gpu" not in record.args:
        return (life.node, life.granted[0]) if life is not None and life.granted else None
    ordinal = int(_seconds(record.args, "gpu", 0.0))
    return (node, ordinal) if node is not None and ordinal < node.record.gpus else None


def _kill_worker(kernel: Kernel, record: FaultRecord) -> bool:
    """The supervisor is killed and starts again: what ran goes on, what was on its way is undone."""
    node = kernel.nodes.get(record.worker or "")
    if node is None:
        return False
    down_s = _seconds(record.args, "down_s", 0.0) + kernel.chances.recover_s()
    for life in list(node.lives.values()):
        if life.memory.state in INACTIVE:
            continue
        life.answer = life.deadline = NEVER
        life.fetches = False
        kernel.drop_transfer(life, up=False)
        life.due_s = kernel.at_s + down_s
        kernel.after(down_s, None, _recovering(kernel, life, life.memory.state))
    return True


def _recovering(kernel: Kernel, life: Life, state: State) -> Callable[[], None]:
    finding = Finding.HALF if state in STARTING else Finding.ALIVE

    def recovers() -> None:
        life.answer = life.deadline = NEVER
        problem = trouble_of(life, Reason.SUPERVISOR_RESTARTED, "the supervisor was killed by a fault of the trace")
        kernel.feed(life, Recovered(finding=finding, problem=problem))

    return recovers


def _store_outage(kernel: Kernel, record: FaultRecord) -> bool:
    kernel.stop_store(1)
    kernel.after(_seconds(record.args, "for_s", FOR_S), None, lambda: kernel.stop_store(-1))
    return True


def _met(kernel: Kernel, record: FaultRecord) -> Life | None:
    """Whom a fault is about: the actor that it names, or the first on its worker that holds anything."""
    if record.actor is not None:
        return kernel.serving.get(record.actor)
    node = kernel.nodes.get(record.worker or "")
    return None if node is None else next((life for life in node.lives.values() if life.memory.held), None)


def _seconds(args: Mapping[str, Scalar], name: str, default: float) -> float:
    value = args.get(name)
    return float(value) if isinstance(value, int | float) and value >= 0 else default


FAULTS: Final[Mapping[str, Callable[[Kernel, FaultRecord], bool]]] = MappingProxyType(
    {
        "kill-sandbox": _kill_sandbox,
        "lose-gpu": _lose_gpu,
        "xid": _report_xid,
        "kill-worker": _kill_worker,
        "store-outage": _store_outage,
    }
)
