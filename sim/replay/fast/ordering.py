"""What each order of the fleet does in the fast engine: lives begin, are asked for things, end with their workers."""

from __future__ import annotations

import math
from collections.abc import Callable
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final

import attrs

from sim.fleet.facts import (
    AddWorker,
    DrainWorker,
    ForgetActor,
    Inject,
    Moved,
    RemoveWorker,
    ResumeActor,
    SnapshotFrom,
    StartActor,
    StopActor,
    SuspendActor,
    WorkerGone,
    WorkerReady,
)
from sim.replay.accounting import WAIT
from sim.replay.fast.faults import FAULTS
from sim.replay.fast.lives import NEVER, Life, Node, Saved
from sim.replay.fast.performing import COLD, drain, drained, suspend_next
from sim.replay.fast.uploading import drop_upload
from statemachine.actor import OnDrain
from statemachine.events import StopRequested, SuspendRequested
from statemachine.reasons import Reason
from statemachine.states import INACTIVE, State

if TYPE_CHECKING:
    from sim.replay.fast.kernel import Kernel

_SUSPEND: Final = SuspendRequested()
_STOP: Final = StopRequested()
REUSED: Final = (_SUSPEND, _STOP)

# ---- workers


def _add_worker(kernel: Kernel, order: AddWorker) -> None:
    record = order.record
    kernel.nodes[record.worker] = Node(record, list(range(record.gpus)))
    kernel.account.worker_up(kernel.at_s, record.worker, record.gpus, record.model or "")
    node = kernel.nodes[record.worker]

    def ready() -> None:
        if kernel.nodes.get(record.worker) is node:
            node.spec_s = kernel.at_s + kernel.chances.generate_s()
            kernel.tell(WorkerReady(kernel.at_s, record.worker))

    kernel.after(kernel.chances.worker_start_s(), None, ready)


def _drain_worker(kernel: Kernel, order: DrainWorker) -> None:
    """Whoever runs is suspended, so many at a time; whatever else goes on ends at once."""
    node = kernel.nodes[order.worker]
    stops = kernel.config.drain.on_drain == "stop"
    for life in sorted(node.lives.values(), key=attrgetter("actor")):
        if not stops and life.memory.state is State.RUNNING:
            node.to_suspend.append(life)
        else:
            kernel.feed(life, drain(life, OnDrain.STOP if stops else OnDrain.SUSPEND))
    suspend_next(kernel, node)


def _remove_worker(kernel: Kernel, order: RemoveWorker) -> None:
    node = kernel.nodes.pop(order.worker, None)
    if node is None:
        return  # it was drained and removed already, in the same moment
    for life in node.lives.values():
        life.is_gone = True
        life.answer = life.deadline = life.work = life.cleanup = NEVER
        kernel.drop_transfer(life, up=True)
        kernel.drop_transfer(life, up=False)
        if kernel.serving.get(life.actor) is life:
            del kernel.serving[life.actor]
    if node.holders:
        kernel.account.held(kernel.at_s, order.worker, -len(node.holders))
    kernel.account.worker_down(kernel.at_s, order.worker)
    kernel.tell(WorkerGone(kernel.at_s, order.worker))


# ---- actors


def _start_actor(kernel: Kernel, order: StartActor) -> None:
    node = kernel.nodes.get(order.worker)
    if node is None:
        return  # it went in the same moment; the fleet is told
    life = node.lives.get(order.actor)
    if life is None and order.snapshot_from is SnapshotFrom.STORE and kernel.is_store_down:
        _refuse(kernel, node, order)
    elif life is None:
        _begin(kernel, node, order)
    elif life.memory.state in INACTIVE:
        _activate(kernel, life, order)
    else:
        life.successor = order  # what is left of an earlier life is being ended
        kernel.feed(life, COLD)


def _refuse(kernel: Kernel, node: Node, order: StartActor) -> None:
    """A worker looks for the snapshot before it takes on an actor; the fleet tries again, as with one that is there."""
    node.refused[order.actor] = order
    _count_begin(kernel, order)
    kernel.account.failed(str(Reason.STORE_UNREACHABLE))
    kernel.tell(Moved(kernel.at_s, order.actor, order.worker, State.FAILED, Reason.STORE_UNREACHABLE))


def _count_begin(kernel: Kernel, order: StartActor | ResumeActor) -> float:
    waited_s = kernel.at_s - order.asked_s
    kernel.waits.add(waited_s)
    kernel.account.began(order.snapshot_from)
    return waited_s


def _begin(kernel: Kernel, node: Node, order: StartActor) -> None:
    assignment = order.assignment
    origin = kernel.stored.get(order.actor) if order.snapshot_from is SnapshotFrom.STORE else None
    way = kernel.paths.begun(assignment, kernel.config.actors, origin.copy.snapshot if origin else None)
    life = Life(
        assignment=assignment,
        node=node,
        point=way.after,
        memory=way.after.memory,
        gpus=assignment.gpus,
        asked_s=order.asked_s,
        saves=0 if origin is None else int(origin.copy.snapshot.created_at),
    )
    node.lives[order.actor] = life
    _prepare(kernel, life, order, origin)
    kernel.take(life, way)


def _resume_actor(kernel: Kernel, order: ResumeActor) -> None:
    life = _life(kernel, order)
    if life is not None:
        _activate(kernel, life, order)
        return
    node = kernel.nodes.get(order.worker)
    start = None if node is None else node.refused.pop(order.actor, None)
    if start is not None:
        _start_actor(kernel, attrs.evolve(start, snapshot_from=order.snapshot_from, asked_s=order.asked_s))


def _activate(kernel: Kernel, life: Life, order: StartActor | ResumeActor) -> None:
    """A life that rests is to run."""
    origin: Saved | None = None
    if order.snapshot_from is SnapshotFrom.LOCAL:
        origin = life.saved
    elif order.snapshot_from is SnapshotFrom.STORE:
        origin = kernel.stored.get(order.actor)
    _prepare(kernel, life, order, origin)
    kernel.feed(life, origin.copy.activate if origin is not None else COLD)


def _prepare(kernel: Kernel, life: Life, order: StartActor | ResumeActor, origin: Saved | None) -> None:
    """An activation begins: what it is from, and how much work is left in that."""
    other = kernel.serving.get(order.actor)
    kernel.account.check(
        "OneLife",
        holds=other is None or other is life or other.memory.state in INACTIVE,
        otherwise=lambda: f"{order.actor} was sent to {order.worker}, and is active on {other.worker if other else ''}",
    )
    kernel.serving[order.actor] = life
    for_s = life.assignment.for_s
    life.origin = origin
    life.left_s = origin.left_s if origin is not None else math.inf if for_s is None else for_s
    life.asked_s = order.asked_s
    life.steps = {WAIT: _count_begin(kernel, order)}


def _suspend_actor(kernel: Kernel, order: SuspendActor) -> None:
    life = _life(kernel, order)
    if life is not None:
        kernel.feed(life, _SUSPEND)


def _stop_actor(kernel: Kernel, order: StopActor) -> None:
    life = _life(kernel, order)
    node = kernel.nodes.get(order.worker)
    if life is not None:
        kernel.feed(life, _STOP)
    elif node is not None and node.refused.pop(order.actor, None) is not None:
        kernel.tell(Moved(kernel.at_s, order.actor, order.worker, State.TERMINATED))


def _life(kernel: Kernel, order: ResumeActor | SuspendActor | StopActor) -> Life | None:
    """Whom an order is about; None when it has ended, or its worker went, in the same moment."""
    node = kernel.nodes.get(order.worker)
    return None if node is None else node.lives.get(order.actor)


def _forget_actor(kernel: Kernel, order: ForgetActor) -> None:
    kernel.stored.pop(order.actor, None)
    kernel.serving.pop(order.actor, None)


def _ends(kernel: Kernel, life: Life, _was: State) -> None:
    """A life has come to Terminated: nothing is left of it here, and one that waited for that begins."""
    kernel.account.check(
        "CapacityGivenBack",
        holds=not life.granted,
        otherwise=lambda: f"{life.actor} has ended with GPUs {life.granted} of {life.worker}",
    )
    life.is_gone = True
    life.cleanup = NEVER
    node = life.node
    drop_upload(kernel, life)
    drained(kernel, life)
    del node.lives[life.actor]
    node.copies_bytes -= node.copies.pop(life.actor, 0.0)
    if life.successor is not None:
        order, life.successor = life.successor, None
        kernel.after(0.0, None, lambda: _start_actor(kernel, order))


def _inject(kernel: Kernel, order: Inject) -> None:
    fault = FAULTS.get(order.record.fault)
    if fault is None:
        kernel.account.unknown(order.record.fault)
    else:
        kernel.account.planned(order.record.fault, fired=fault(kernel, order.record))


CARRY_OUT: Final[dict[type, Callable[[Kernel, Any], None]]] = {
    AddWorker: _add_worker,
    DrainWorker: _drain_worker,
    RemoveWorker: _remove_worker,
    StartActor: _start_actor,
    ResumeActor: _resume_actor,
    SuspendActor: _suspend_actor,
    StopActor: _stop_actor,
    ForgetActor: _forget_actor,
    Inject: _inject,
}
END: Final = {State.TERMINATED: _ends}
