"""Updates: named pure functions that say what a row changes in the machine's memory, besides the state."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import attrs

from .actor import Actor, ContainerFate, Ending, OnDrain, Pending, Resource, Snapshot
from .events import (
    Activate,
    ContainerExited,
    DeadlineExceeded,
    DrainRequested,
    Event,
    GpuLost,
    Recovered,
    RestoreRefused,
    RolledBack,
    SandboxDied,
    SnapshotProven,
    SnapshotUploaded,
    StepFailed,
    SuspendRefused,
    UploadFailed,
)
from .problem import Problem, Step
from .reasons import Reason

Change = Callable[[Actor, Event], Actor]


@attrs.frozen
class Update:
    """A change of memory with a name."""

    name: str
    apply: Change


def _problem_of(event: Event) -> Problem | None:
    carriers = (
        RestoreRefused,
        SuspendRefused,
        StepFailed,
        DeadlineExceeded,
        SandboxDied,
        GpuLost,
        Recovered,
        DrainRequested,
        UploadFailed,
    )
    return event.problem if isinstance(event, carriers) else None


_MILD: Final = frozenset({Reason.COMPLETED, Reason.WORKER_DRAINING, Reason.SNAPSHOT_NOT_UPLOADED})
"""Reasons that tell why an actor ends, or of its snapshot, but no trouble of its own: a real one replaces them."""


def _keep_first(actor: Actor, event: Event) -> Actor:
    first = actor.problem
    if first is None or first.reason in _MILD:
        first = _problem_of(event) or first
    return actor.but(problem=first)


def _new_cause(actor: Actor, event: Event) -> Actor:
    # Whatever follows the loss of a GPU is taken for its consequence.
    return actor if actor.lost_gpus else actor.but(problem=_problem_of(event))


def _begin(actor: Actor, event: Event) -> Actor:
    if not isinstance(event, Activate):
        return actor
    return actor.but(
        origin=_as_known(event.source, actor.last_good),
        asked_by=event.by,
        on_difference=event.on_difference,
        pending=None,
        ending=Ending.FAILED,
        lost_gpus=(),
        tries=0,
        problem=None,
        containers=fates_after(actor, event.source),
    )


def _as_known(source: Snapshot | None, known: Snapshot | None) -> Snapshot | None:
    # Whoever asks may have looked before its upload was told.
    if source is None or known is None or known.stored_uri is None or source.id != known.id:
        return source
    return source if source.stored_uri is not None else attrs.evolve(source, stored_uri=known.stored_uri)


def fates_after(actor: Actor, source: Snapshot | None) -> tuple[ContainerFate, ...]:
    """All containers alive, but for those that had ended before the snapshot was taken."""
    exited = dict(source.exited) if source else {}
    return tuple(ContainerFate(name=fate.name, exit_code=exited.get(fate.name)) for fate in actor.containers)


def _count_exit(actor: Actor, event: Event) -> Actor:
    if not isinstance(event, ContainerExited):
        return actor
    fates = tuple(
        attrs.evolve(fate, exit_code=event.exit_code) if fate.name == event.container else fate
        for fate in actor.containers
    )
    return actor.but(containers=fates)


def _blame_container(actor: Actor, _event: Event) -> Actor:
    failed = next((fate for fate in actor.containers if fate.exit_code), None)
    if failed is None:
        return actor
    problem = Problem(
        step=Step.SUPERVISE,
        reason=Reason.CONTAINER_FAILED,
        subject=failed.name,
        message=f"container {failed.name} exited with code {failed.exit_code}",
    )
    return actor.but(problem=problem)


_COMPLETED: Final = Problem(
    step=Step.SUPERVISE, reason=Reason.COMPLETED, subject="containers", message="every container exited with code 0"
)


def _praise(actor: Actor, _event: Event) -> Actor:
    return actor.but(problem=_COMPLETED)


def _blame_thaw(actor: Actor, event: Event) -> Actor:
    cause = _problem_of(event)
    first = f"; it was frozen because of a suspend that ended with {actor.problem}" if actor.problem else ""
    problem = Problem(
        step=Step.THAW,
        reason=Reason.COULD_NOT_THAW,
        subject=cause.subject if cause else "sandbox",
        message=f"the sandbox could not be thawed: {cause.message if cause else 'unknown'}{first}",
        detail=cause.detail if cause else "",
    )
    return actor.but(problem=problem)


def _try_again(actor: Actor, _event: Event) -> Actor:
    return actor.but(ending=Ending.FAILED, problem=None, containers=fates_after(actor, actor.origin))


def _keep_drain(actor: Actor, event: Event) -> Actor:
    by_suspend = isinstance(event, DrainRequested) and event.on_drain is OnDrain.SUSPEND
    # Once it has to be stopped (a suspend for the drain failed), a second drain does not try to suspend again.
    by_stop = not by_suspend or actor.pending is Pending.DRAIN_BY_STOP
    return actor.but(pending=Pending.DRAIN_BY_STOP if by_stop else Pending.DRAIN_BY_SUSPEND)


def _forget_drain(actor: Actor, _event: Event) -> Actor:
    # The process that was draining is gone; the one that recovers does not drain.
    drains = actor.pending in {Pending.DRAIN_BY_SUSPEND, Pending.DRAIN_BY_STOP}
    return actor.but(pending=None) if drains else actor


def _promote(actor: Actor, event: Event) -> Actor:
    if not isinstance(event, SnapshotProven):
        return actor
    ended = {**dict(event.snapshot.exited), **{fate.name: fate.exit_code for fate in actor.containers if fate.ended}}
    fates = tuple(ContainerFate(name=fate.name, exit_code=ended.get(fate.name)) for fate in actor.containers)
    return actor.but(origin=event.snapshot, last_good=event.snapshot, problem=None, containers=fates)


def _keep_saved(actor: Actor, event: Event) -> Actor:
    saved = event.saved if isinstance(event, RolledBack) else None
    return actor.but(last_good=saved or actor.last_good)


def _adopt_origin(actor: Actor, _event: Event) -> Actor:
    return actor.but(last_good=actor.origin or actor.last_good)


_CLEANUPS: Final = frozenset({Step.RELEASE, Step.TEARDOWN})


def _forget_cleanup(actor: Actor, _event: Event) -> Actor:
    by_cleanup = actor.problem is not None and actor.problem.step in _CLEANUPS
    return actor.but(problem=None) if by_cleanup else actor


def _answer_by_cleanup(actor: Actor, _event: Event) -> Actor:
    # Said for as long as nobody asks again: that the cleanup comes about later does not follow the request.
    problem = actor.problem
    if problem is None or problem.step not in _CLEANUPS:
        return actor
    message = f"Running was asked for, and what was left could not be undone first: {problem.message}"
    return actor.but(problem=attrs.evolve(problem, step=Step.SUPERVISE, message=message))


def _keep_stored(actor: Actor, event: Event) -> Actor:
    if not isinstance(event, SnapshotUploaded):
        return actor
    told = without_upload_trouble(actor) if _is_of(actor.last_good, event) else actor
    return told.but(origin=_stored(actor.origin, event), last_good=_stored(actor.last_good, event))


def _stored(snapshot: Snapshot | None, event: SnapshotUploaded) -> Snapshot | None:
    return attrs.evolve(snapshot, stored_uri=event.uri) if snapshot and _is_of(snapshot, event) else snapshot


def _is_of(snapshot: Snapshot | None, event: SnapshotUploaded) -> bool:
    return snapshot is not None and snapshot.id == event.snapshot


def without_upload_trouble(actor: Actor) -> Actor:
    """The memory of an actor of which it is found out anew whether its snapshot reaches a store."""
    if actor.problem is None or actor.problem.reason is not Reason.SNAPSHOT_NOT_UPLOADED:
        return actor
    return actor.but(problem=None)


def _lose_gpu(actor: Actor, event: Event) -> Actor:
    if not isinstance(event, GpuLost):
        return actor
    if event.gpu in actor.lost_gpus:
        return actor
    problem = actor.problem if actor.lost_gpus else event.problem
    return actor.but(lost_gpus=(*actor.lost_gpus, event.gpu), problem=problem)


def _pend(pending: Pending | None) -> Change:
    return lambda actor, _event: actor if actor.pending is pending else actor.but(pending=pending)


def _end(ending: Ending) -> Change:
    return lambda actor, _event: actor if actor.ending is ending else actor.but(ending=ending)


def _keep(kept: frozenset[Resource]) -> Change:
    return lambda actor, _event: actor.but(held=tuple(held for held in actor.held if held in kept))


FirstCause: Final = Update("FirstCause", _keep_first)
NewCause: Final = Update("NewCause", _new_cause)
NoProblem: Final = Update(
    "NoProblem", lambda actor, _event: actor if actor.problem is None else actor.but(problem=None)
)
Begin: Final = Update("Begin", _begin)
CountExit: Final = Update("CountExit", _count_exit)
BlameContainer: Final = Update("BlameContainer", _blame_container)
BlameThaw: Final = Update("BlameThaw", _blame_thaw)
Completed: Final = Update("Completed", _praise)
CountTry: Final = Update("CountTry", lambda actor, _event: actor.but(tries=actor.tries + 1))
TryAgain: Final = Update("TryAgain", _try_again)
Promote: Final = Update("Promote", _promote)
KeepSaved: Final = Update("KeepSaved", _keep_saved)
AdoptOrigin: Final = Update("AdoptOrigin", _adopt_origin)
ForgetCleanup: Final = Update("ForgetCleanup", _forget_cleanup)
AnswerByCleanup: Final = Update("AnswerByCleanup", _answer_by_cleanup)
KeepStored: Final = Update("KeepStored", _keep_stored)
TellUpload: Final = Update("TellUpload", lambda actor, event: actor.but(problem=_problem_of(event)))
LoseGpu: Final = Update("LoseGpu", _lose_gpu)
KeepRun: Final = Update("KeepRun", _pend(Pending.RUN))
KeepSuspend: Final = Update("KeepSuspend", _pend(Pending.SUSPEND))
KeepTerminate: Final = Update("KeepTerminate", _pend(Pending.TERMINATE))
KeepDrain: Final = Update("KeepDrain", _keep_drain)
StopIfThawed: Final = Update("StopIfThawed", _pend(Pending.DRAIN_BY_STOP))
ForgetDrain: Final = Update("ForgetDrain", _forget_drain)
ForgetPending: Final = Update("ForgetPending", _pend(None))
EndFailed: Final = Update("EndFailed", _end(Ending.FAILED))
EndAtOrigin: Final = Update("EndAtOrigin", _end(Ending.ORIGIN))
EndSuspended: Final = Update("EndSuspended", _end(Ending.SUSPENDED))
EndBackingOff: Final = Update("EndBackingOff", _end(Ending.BACKING_OFF))
EndTerminated: Final = Update("EndTerminated", _end(Ending.TERMINATED))
HoldNothing: Final = Update("HoldNothing", _keep(frozenset()))
HoldGrantOnly: Final = Update("HoldGrantOnly", _keep(frozenset({Resource.GRANT})))
HoldNoSandbox: Final = Update("HoldNoSandbox", _keep(frozenset(Resource) - {Resource.SANDBOX}))
HoldNoUnproven: Final = Update("HoldNoUnproven", _keep(frozenset(Resource) - {Resource.UNPROVEN_SNAPSHOT}))
