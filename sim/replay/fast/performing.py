"""What each command does in the fast engine: it draws how long the step takes and how it ends, and feeds the answer."""

from __future__ import annotations

import math
from collections.abc import Callable
from heapq import heappush
from typing import TYPE_CHECKING, Any, Final

from sim.replay.fast.lives import NEVER, Life, Saved, exits_of, trouble_of
from sim.replay.fast.naming import TURNS
from sim.replay.fast.uploading import drop_upload, upload, uploaded
from statemachine import commands as c
from statemachine import events as e
from statemachine.actor import Claims, OnDrain, Pending, Resource
from statemachine.problem import Problem, Step
from statemachine.reasons import Reason
from statemachine.states import STEP_OF, State
from supervisor.draining import SUSPENDS_MAX

if TYPE_CHECKING:
    from sim.fleet.config import Failure
    from sim.replay.fast.kernel import Kernel
    from sim.replay.fast.lives import Node

CLEANUP_S: Final = 5.0
CLEANUP_MAX_S: Final = 60.0
"""As supervisor/cleanups.py: before the first try, doubled each time up to this."""
TRIES_MAX: Final = 100
"""Of one cleanup: a config in which they always fail must end all the same."""

COLD: Final = e.Activate()
_SPEC_GENERATED: Final = e.SpecGenerated()
_PARTITIONED: Final = e.GpusPartitioned()
_INJECTED: Final = e.EditsInjected()
_RESTORED: Final = e.SandboxRestored()

_ENDINGS: Final[dict[type, tuple[str, Callable[[], e.Event]]]] = {
    c.RecordAssignment: ("assign", e.AssignmentRecorded),
    c.DetectGpus: ("detect", e.GpusDetected),
    c.InjectEdits: ("inject", lambda: _INJECTED),
    c.CreateSandbox: ("create", e.SandboxCreated),
    c.VerifyContainers: ("verify", e.ContainersVerified),
    c.ReleaseSandbox: ("release", e.SandboxReleased),
    c.Thaw: ("thaw", e.Thawed),
    c.StopContainers: ("stop", e.TornDown),
}
"""Command -> its latency, and the answer of a step that ends well; the other commands need a word more."""
ANSWERS: Final = {kind: (name, make()) for kind, (name, make) in _ENDINGS.items()}


def plain_of(name: str, answer: e.Event) -> Callable[[Kernel, Life, Any], None]:
    """What does a step that ends with always the same answer: `begin_step` and `_wait`, without their calls."""

    def perform(kernel: Kernel, life: Life, _command: c.Command) -> None:
        draw, _, trouble = kernel.chances.of[name]
        if trouble is not None:
            _wait(kernel, life, name, answer, kernel.begin_step(life))
            return
        takes_s, limit_s, at_s, what = draw(), life.point.limit_s, kernel.at_s, answer
        life.since_s, life.due_s, life.deadline = at_s, at_s + limit_s, NEVER
        if takes_s > limit_s:
            takes_s, what = limit_s, late(life)
        kernel.turn = life.answer = turn = kernel.turn + 1
        heappush(kernel.heap, (at_s + takes_s, turn, life, what))

    return perform


def _wait(  # noqa: PLR0917 - called for every step, where names would cost
    kernel: Kernel, life: Life, name: str, answer: e.Event, limit_s: float, mib: float = 0.0, least_s: float = 0.0
) -> None:
    """Let a step end: well, or as chance will have it; and never later than it may."""
    draw, per_mib_s, trouble = kernel.chances.of[name]
    takes_s = max(draw() + per_mib_s * mib, least_s)
    failure = None if trouble is None else trouble.meets()
    if failure is not None:
        takes_s, answer = (math.inf, answer) if failure.outcome == "hangs" else (takes_s, _failed(life, failure))
    if takes_s > limit_s:
        takes_s, answer = limit_s, late(life)
    life.answer = kernel.after(takes_s, life, answer)


def late(life: Life) -> e.Event:
    """The deadline of the present state."""
    state = life.memory.state
    message = f"{state} lasted longer than {life.memory.deadline_s:g} s"
    problem = Problem(step=STEP_OF[state], reason=Reason.STEP_DEADLINE_EXCEEDED, subject=life.actor, message=message)
    return e.DeadlineExceeded(problem=problem)


def _failed(life: Life, failure: Failure) -> e.Event:
    problem = trouble_of(life, failure.reason, f"{failure.step} was let fail, with probability {failure.probability:g}")
    if failure.outcome == "refused":
        return e.SuspendRefused(problem=problem) if failure.step == "suspend" else e.RestoreRefused(problem=problem)
    if failure.outcome == "sandbox-died":
        return e.StepFailed(problem=problem, sandbox=e.SandboxFate.DEAD)
    return e.StepFailed(problem=problem)


PLAIN: Final = {kind: plain_of(*way) for kind, way in ANSWERS.items()}


def _generate(kernel: Kernel, life: Life, _command: c.GenerateSpec) -> None:
    """It is made from the worker's start on: only who comes before that is done waits for it."""
    left_s = life.node.spec_s - kernel.at_s
    _wait(kernel, life, "generate_cached", _SPEC_GENERATED, kernel.begin_step(life), least_s=left_s)


def _partition(kernel: Kernel, life: Life, _command: c.PartitionGpus) -> None:
    limit_s = kernel.begin_step(life)
    if life.granted or kernel.grant(life):
        _wait(kernel, life, "partition", _PARTITIONED, limit_s)
    else:
        problem = trouble_of(life, Reason.INSUFFICIENT_GPUS, f"{life.worker} has fewer than {life.gpus} free GPUs")
        life.answer = kernel.after(0.0, life, e.StepFailed(problem=problem))


REUSED: Final = (COLD, *(answer for _, answer in ANSWERS.values()), _SPEC_GENERATED, _PARTITIONED, _INJECTED, _RESTORED)
"""Answers that are always the same."""


def _inject(kernel: Kernel, life: Life, command: c.InjectEdits) -> None:
    if not _fetch(kernel, life):
        PLAIN[c.InjectEdits](kernel, life, command)


def _restore(kernel: Kernel, life: Life, _command: c.RestoreSandbox) -> None:
    if life.memory.claims is Claims.GPUS or not _fetch(kernel, life):
        _restore_from_disk(kernel, life, kernel.begin_step(life))


def _restore_from_disk(kernel: Kernel, life: Life, limit_s: float) -> None:
    _wait(kernel, life, "restore", _RESTORED, limit_s, life.origin.size_mib if life.origin else 0.0)


def _fetch(kernel: Kernel, life: Life) -> bool:
    """Where the snapshot is in the store, the first step that needs it fetches it; says whether it does."""
    origin = life.memory.origin
    if origin is None or not origin.is_elsewhere or life.origin is None:
        return False
    limit_s = kernel.begin_step(life)
    life.deadline = kernel.after(limit_s, life, late(life))
    life.fetches = True
    size_mib = life.origin.size_mib

    def ask() -> None:
        if not life.fetches or life.is_gone:
            return
        if kernel.is_store_down:
            life.fetches, life.deadline = False, NEVER
            problem = trouble_of(life, Reason.STORE_UNREACHABLE, "the store does not answer")
            life.answer = kernel.after(0.0, life, e.StepFailed(problem=problem))
        else:
            kernel.carry(life, up=False, size_mib=size_mib)

    kernel.after(kernel.chances.request_s(), None, ask)
    return True


def carried(kernel: Kernel, life: Life, up: bool) -> None:  # noqa: FBT001 - of two ways it is one
    """A snapshot is where it was carried to."""
    if up:
        uploaded(kernel, life)
        return
    life.fetches = False
    left_s = life.due_s - kernel.at_s
    life.deadline = NEVER
    if life.memory.state is State.INJECTING:
        _wait(kernel, life, "inject", _INJECTED, left_s)
    else:
        _restore_from_disk(kernel, life, left_s)


def _save(kernel: Kernel, life: Life, _command: c.SaveSnapshot) -> None:
    life.uploads = 0
    drop_upload(kernel, life)
    size_mib = kernel.chances.size_mib(life.gpus)
    life.saves += 1
    name = kernel.names.of(life.saves % TURNS, exits_of(life))
    life.saving = Saved(name, name.here, size_mib, life.left_s)
    _wait(kernel, life, "suspend", name.proven, kernel.begin_step(life), size_mib)


def _release(kernel: Kernel, life: Life, command: c.ReleaseSandbox) -> None:
    if life.saving is not None:  # it is proven now
        life.saved, life.saving = life.saving, None
    PLAIN[c.ReleaseSandbox](kernel, life, command)


def _roll_back(kernel: Kernel, life: Life, _command: c.RollBack) -> None:
    life.saving = None
    verdict = e.OriginVerdict.NONE if life.memory.origin is None else e.OriginVerdict.GOOD
    _wait(kernel, life, "rollback", kernel.paths.reused(e.RolledBack(origin=verdict)), kernel.begin_step(life))


def _back_off(kernel: Kernel, life: Life, command: c.StartBackoff) -> None:
    kernel.begin_step(life)
    life.answer = kernel.after(command.delay_s, life, e.BackoffElapsed())


def _cancel(kernel: Kernel, life: Life, _command: c.CancelStep) -> None:
    life.answer = life.deadline = NEVER
    if life.fetches:
        life.fetches = False
        kernel.drop_transfer(life, up=False)


def _nothing(_kernel: Kernel, _life: Life, _command: c.Command) -> None:
    """WatchContainers needs nobody here, and BeginAnew is seen to when the life has come to Terminated."""


def _follow(kernel: Kernel, life: Life, command: c.FollowPending) -> None:
    kernel.follow_up.append((life, _request_for(life, command.pending)))


def _request_for(life: Life, pending: Pending) -> e.Event:
    match pending:
        case Pending.RUN:
            life.origin = life.saved
            return life.saved.copy.activate if life.saved else COLD
        case Pending.SUSPEND:
            return e.SuspendRequested()
        case Pending.TERMINATE:
            return e.StopRequested()
        case Pending.DRAIN_BY_SUSPEND:
            return drain(life, OnDrain.SUSPEND)
        case Pending.DRAIN_BY_STOP:
            return drain(life, OnDrain.STOP)


def drain(life: Life, how: OnDrain) -> e.Event:
    """The worker is shutting down."""
    message = f"{life.worker} is shutting down"
    problem = Problem(step=Step.SUPERVISE, reason=Reason.WORKER_DRAINING, subject=life.worker, message=message)
    return e.DrainRequested(on_drain=how, problem=problem)


def suspend_next(kernel: Kernel, node: Node) -> None:
    """Suspend those whose turn it is of a worker that is drained."""
    while node.to_suspend and len(node.suspending) < SUSPENDS_MAX:
        life = node.to_suspend.popleft()
        if life.memory.state is State.RUNNING and not life.is_gone:
            node.suspending.add(life.actor)
            kernel.feed(life, drain(life, OnDrain.SUSPEND))


def drained(kernel: Kernel, life: Life) -> None:
    """A life rests: if its worker is drained, it is the next one's turn."""
    node = life.node
    if node.suspending and life.actor in node.suspending:
        node.suspending.remove(life.actor)
        kernel.after(0.0, None, lambda: suspend_next(kernel, node))


# ---- where a life comes to


def _runs(kernel: Kernel, life: Life, was: State) -> None:
    at_s = kernel.at_s
    if was is State.VERIFYING:
        kernel.account.activated(at_s, life.asked_s, life.actor, life.worker, life.steps)
    life.runs_s = at_s
    life.suspended_s = math.nan
    life.steps = {}
    if life.left_s < math.inf:
        life.work = kernel.after(life.left_s, life, lambda: _work_is_done(kernel, life))


def _work_is_done(kernel: Kernel, life: Life) -> None:
    life.work = NEVER
    life.left_s = 0.0
    for name in life.memory.live:
        kernel.feed(life, kernel.paths.reused(e.ContainerExited(container=name, exit_code=0)))


def _is_being_suspended(kernel: Kernel, life: Life, _was: State) -> None:
    life.suspended_s = kernel.at_s


def _is_suspended(kernel: Kernel, life: Life, was: State) -> None:
    if was is State.RELEASING:
        if not math.isnan(life.suspended_s):
            kernel.account.suspends.add(kernel.at_s - life.suspended_s)
        upload(kernel, life)
    _rests(kernel, life, was)


def _rests(kernel: Kernel, life: Life, _was: State) -> None:
    life.steps = {}
    life.suspended_s = math.nan
    kernel.account.check(
        "CapacityGivenBack",
        holds=not life.granted or Resource.GRANT in life.memory.held,
        otherwise=lambda: f"{life.actor} came to {life.memory.state} with GPUs {life.granted} of {life.worker}",
    )
    drained(kernel, life)
    if not life.memory.held:
        life.cleanups = 0
    elif life.cleanups < TRIES_MAX:
        again_s = min(CLEANUP_S * 2.0**life.cleanups, CLEANUP_MAX_S)
        life.cleanups += 1
        life.cleanup = kernel.after(again_s, life, lambda: kernel.feed(life, e.CleanupDue()))


PERFORM: Final[dict[type, Callable[[Kernel, Life, Any], None]]] = {
    **PLAIN,
    c.GenerateSpec: _generate,
    c.PartitionGpus: _partition,
    c.InjectEdits: _inject,
    c.RestoreSandbox: _restore,
    c.SaveSnapshot: _save,
    c.ReleaseSandbox: _release,
    c.RollBack: _roll_back,
    c.StartBackoff: _back_off,
    c.CancelStep: _cancel,
    c.WatchContainers: _nothing,
    c.FollowPending: _follow,
    c.BeginAnew: _nothing,
}
ARRIVE: Final[dict[State, Callable[[Kernel, Life, State], None]]] = {
    State.RUNNING: _runs,
    State.SUSPENDING: _is_being_suspended,
    State.SUSPENDED: _is_suspended,
    State.FAILED: _rests,
}
"""Terminated is in `ordering`, which ends lives, as it begins them."""
