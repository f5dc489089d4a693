"""The table: every state, every event, what follows. Read it top to bottom like a timetable.

A row's key is (state, event, guard). Per (state, event) exactly one guard holds. A cell is one of three things:
`go`: a transition with its commands and what is remembered; `ignore`: nothing happens, with the why; `refuse`: nothing
happens, and whoever asked gets the reason. There is no default: building the table fails
when a cell is missing.

Rules that the rows below rest on:
- A row that leaves a passing state otherwise than by the answer of its step begins with CancelStep; Recovered alone
  does not, because no step outlives the process.
- A row that orders a step starts the state's deadline anew; every other row that stays leaves it running.
- Whoever feeds events drops what a cancelled step still says, and the deadline of a state that was left; and once it
  drains, feeds no document but one that wants Terminated, and no Activate.
- What CREATES names is held from the command on; RollBack, StopContainers and ReleaseSandbox undo all that is held,
  newest first, but the grant stays over a backoff. An undo may meet what is not there (any more): that is no failure.
- The first cause of a trouble is kept (FirstCause). A trouble of its own replaces it (NewCause): why a suspend was
  refused is not why the sandbox died later. CouldNotThaw replaces it and names it.
- The last wish wins among documents; a command that overlaps is refused; a drain is overruled by a stop alone. Resting
  states keep nothing pending: they follow it (FollowPending), or have answered it.
- Terminated holds nothing: an end whose cleanup fails is Failed, and can be stopped again.
"""

from __future__ import annotations

from typing import Final

from . import events as e
from . import guards as g
from . import updates as u
from .cells import (
    ANEW,
    BACKOFF,
    CANCEL,
    CREATE,
    DETECT,
    FOLLOW,
    GENERATE,
    INJECT,
    PARTITION,
    RECORD,
    RELEASE,
    RESTORE,
    ROLL_BACK,
    SAVE,
    STOP,
    THAW,
    VERIFY,
    WATCH,
    Timetable,
)
from .reasons import Reason
from .states import FINAL, STARTING, State

S = State
_t = Timetable()

# Whatever was wanted before, now the end is.
_wished_end = (u.NoProblem, u.ForgetPending)
_told_end = (u.FirstCause, u.ForgetPending)

# ---- the way up: one step each
_to_suspended = g.SuspendPending & g.FromSnapshot
_t.go(S.ASSIGNED, e.AssignmentRecorded, S.SUSPENDED, when=_to_suspended & g.HoldsNothing, remember=(u.ForgetPending,))
# A try after a backoff still holds its grant.
_t.go(
    S.ASSIGNED, e.AssignmentRecorded, S.ROLLING_BACK, ROLL_BACK,
    when=_to_suspended & ~g.HoldsNothing, remember=(u.ForgetPending, u.EndSuspended),
)  # fmt: skip
_t.go(S.ASSIGNED, e.AssignmentRecorded, S.DETECTING, DETECT, when=~_to_suspended & g.ClaimsGpu)
_t.go(S.ASSIGNED, e.AssignmentRecorded, S.RESTORING, RESTORE, when=~_to_suspended & ~g.ClaimsGpu & g.FromSnapshot)
_t.go(S.ASSIGNED, e.AssignmentRecorded, S.CREATING, CREATE, when=~_to_suspended & ~g.ClaimsGpu & ~g.FromSnapshot)
_t.go(S.DETECTING, e.GpusDetected, S.GENERATING, GENERATE)
_t.go(S.GENERATING, e.SpecGenerated, S.PARTITIONING, PARTITION)
_t.go(S.PARTITIONING, e.GpusPartitioned, S.INJECTING, INJECT)
_t.go(S.INJECTING, e.EditsInjected, S.RESTORING, RESTORE, when=g.FromSnapshot)
_t.go(S.INJECTING, e.EditsInjected, S.CREATING, CREATE, when=~g.FromSnapshot)
_t.go(S.CREATING, e.SandboxCreated, S.VERIFYING, WATCH, VERIFY)
_t.go(S.RESTORING, e.SandboxRestored, S.VERIFYING, WATCH, VERIFY, remember=(u.AdoptOrigin,))
_t.go(S.VERIFYING, e.ContainersVerified, S.RUNNING, FOLLOW, when=g.HasPending, remember=(u.ForgetPending,))
_t.go(S.VERIFYING, e.ContainersVerified, S.RUNNING, when=~g.HasPending)

# ---- the way up: what goes wrong
# Inject looks at the snapshot as restore does, and refuses it likewise.
_t.go(
    S.INJECTING, e.RestoreRefused, S.ROLLING_BACK, ROLL_BACK,
    when=g.FromSnapshot, remember=(u.FirstCause, u.EndSuspended),
)  # fmt: skip
_t.ignore(S.INJECTING, e.RestoreRefused, "a cold start restores nothing", when=~g.FromSnapshot)
# Refused means that the step made nothing: without a grant there is nothing to undo.
_t.go(
    S.RESTORING, e.RestoreRefused, S.SUSPENDED,
    when=~g.HoldsGrant, remember=(u.FirstCause, u.HoldNothing, u.ForgetPending),
)  # fmt: skip
_t.go(
    S.RESTORING, e.RestoreRefused, S.ROLLING_BACK, ROLL_BACK,
    when=g.HoldsGrant, remember=(u.FirstCause, u.HoldNoSandbox, u.EndSuspended),
)  # fmt: skip
_t.go(STARTING, e.StepFailed, S.ROLLING_BACK, ROLL_BACK, remember=(u.FirstCause, u.EndAtOrigin))
_t.go(STARTING, e.DeadlineExceeded, S.ROLLING_BACK, CANCEL, ROLL_BACK, remember=(u.FirstCause, u.EndAtOrigin))
_t.go(STARTING, e.StopRequested, S.ROLLING_BACK, CANCEL, ROLL_BACK, remember=(*_wished_end, u.EndTerminated))
_t.go(STARTING, e.DrainRequested, S.ROLLING_BACK, CANCEL, ROLL_BACK, remember=(u.FirstCause, u.EndAtOrigin))
_t.go(STARTING, e.Recovered, S.ROLLING_BACK, ROLL_BACK, remember=(u.FirstCause, u.EndAtOrigin))
_t.go(STARTING, e.GpuLost, S.ROLLING_BACK, CANCEL, ROLL_BACK, when=g.HoldsGrant, remember=(u.FirstCause, u.EndAtOrigin))
_t.ignore(STARTING, e.GpuLost, "it holds no GPU yet; the partition looks for itself", when=~g.HoldsGrant)
_t.go(S.VERIFYING, e.SandboxDied, S.ROLLING_BACK, CANCEL, ROLL_BACK, remember=(u.FirstCause, u.EndAtOrigin))
_t.ignore(STARTING[:-1], e.SandboxDied, "the step that makes the sandbox reports its end itself")
_t.ignore(STARTING[:-1], e.ContainerExited, "no container is watched before the sandbox is up")
_t.refuse(STARTING, e.SuspendRequested, Reason.OPERATION_IN_PROGRESS, when=g.Overlaps)
_t.stay(STARTING, e.SuspendRequested, u.KeepSuspend, when=~g.Overlaps)
_t.stay(STARTING, e.Activate, u.ForgetPending)

# ---- containers that end, wherever they live
_last = g.ContainerLives & g.LastContainer
_completed = g.LastContainer & g.AllZero
_failed_last = g.LastContainer & ~g.AllZero
_counted = "this exit is counted already, or the actor has no container of that name"
for _state, _orders, _ending in (
    (S.VERIFYING, (CANCEL,), u.EndAtOrigin),
    (S.RUNNING, (), u.EndFailed),
):
    _t.stay(_state, e.ContainerExited, u.CountExit, when=g.ContainerLives & ~g.LastContainer)
    _t.go(
        _state, e.ContainerExited, S.STOPPING, *_orders, STOP,
        when=_last & g.AllZero, remember=(u.CountExit, u.Completed, u.ForgetPending),
    )  # fmt: skip
    _t.go(
        _state, e.ContainerExited, S.ROLLING_BACK, *_orders, ROLL_BACK,
        when=_last & ~g.AllZero & g.Restarts, remember=(u.CountExit, u.BlameContainer, u.EndBackingOff),
    )  # fmt: skip
    _t.go(
        _state, e.ContainerExited, S.ROLLING_BACK, *_orders, ROLL_BACK,
        when=_last & ~g.AllZero & ~g.Restarts, remember=(u.CountExit, u.BlameContainer, _ending),
    )  # fmt: skip
_t.stay((S.SUSPENDING, S.THAWING, S.STOPPING), e.ContainerExited, u.CountExit, when=g.ContainerLives)
_t.ignore(
    (S.VERIFYING, S.RUNNING, S.SUSPENDING, S.THAWING, S.STOPPING), e.ContainerExited, _counted, when=~g.ContainerLives
)
_t.ignore((S.RELEASING, S.ROLLING_BACK), e.ContainerExited, "the sandbox is being ended; its containers end with it")
_t.ignore((S.SUSPENDED, S.FAILED, S.BACKING_OFF, S.TERMINATED), e.ContainerExited, "no container of it lives any more")

# ---- Running
_t.ignore(S.RUNNING, e.Activate, "it runs already")
_t.go(S.RUNNING, e.SuspendRequested, S.SUSPENDING, SAVE, remember=(u.NoProblem,))
_t.go(S.RUNNING, e.StopRequested, S.STOPPING, STOP, remember=_wished_end)
_t.go(S.RUNNING, e.DrainRequested, S.SUSPENDING, SAVE, when=g.DrainSuspends, remember=(u.NoProblem, u.StopIfThawed))
_t.go(S.RUNNING, e.DrainRequested, S.STOPPING, STOP, when=~g.DrainSuspends, remember=(u.NewCause,))
_t.go(S.RUNNING, e.SandboxDied, S.ROLLING_BACK, ROLL_BACK, remember=(u.NewCause, u.EndFailed))
_t.go(S.RUNNING, e.GpuLost, S.ROLLING_BACK, ROLL_BACK, when=g.HoldsGrant, remember=(u.NewCause, u.EndFailed))
_t.ignore(S.RUNNING, e.GpuLost, "it holds no GPU", when=~g.HoldsGrant)
_t.go(S.RUNNING, e.Recovered, S.RUNNING, WATCH, when=g.FoundAlive)
_t.go(S.RUNNING, e.Recovered, S.ROLLING_BACK, ROLL_BACK, when=~g.FoundAlive, remember=(u.NewCause, u.EndFailed))

# ---- the way down: Suspending and Releasing
_t.go(S.SUSPENDING, e.SnapshotProven, S.RELEASING, RELEASE, remember=(u.Promote, u.HoldNoUnproven))
_t.go(S.SUSPENDING, e.SuspendRefused, S.THAWING, THAW, remember=(u.FirstCause,))
_t.go(S.SUSPENDING, e.StepFailed, S.THAWING, THAW, when=g.SandboxAlive, remember=(u.FirstCause,))
_t.go(S.SUSPENDING, e.StepFailed, S.ROLLING_BACK, ROLL_BACK, when=~g.SandboxAlive, remember=(u.FirstCause, u.EndFailed))
_t.go(S.SUSPENDING, e.DeadlineExceeded, S.THAWING, CANCEL, THAW, remember=(u.FirstCause,))
_t.go(S.SUSPENDING, e.SandboxDied, S.ROLLING_BACK, CANCEL, ROLL_BACK, remember=(u.FirstCause, u.EndFailed))
_t.go(S.SUSPENDING, e.StopRequested, S.STOPPING, CANCEL, STOP, remember=_wished_end)
_t.go(S.SUSPENDING, e.Recovered, S.THAWING, WATCH, THAW, when=g.FoundAlive, remember=(u.FirstCause, u.ForgetDrain))
_t.go(
    S.SUSPENDING, e.Recovered, S.ROLLING_BACK, ROLL_BACK,
    when=~g.FoundAlive, remember=(u.FirstCause, u.ForgetDrain, u.EndFailed),
)  # fmt: skip
_t.stay((S.SUSPENDING, S.THAWING), e.GpuLost, u.LoseGpu, when=g.HoldsGrant)
_t.ignore((S.SUSPENDING, S.THAWING), e.GpuLost, "it holds no GPU", when=~g.HoldsGrant)
_down = (S.SUSPENDING, S.RELEASING)
_stop_first = g.TerminatePending & g.ByCommand
_t.ignore(_down, e.SuspendRequested, "it is being suspended for the drain", when=g.DrainPending)
_t.stay(S.SUSPENDING, e.SuspendRequested, u.ForgetPending, when=~g.DrainPending)
_t.refuse(S.RELEASING, e.SuspendRequested, Reason.OPERATION_IN_PROGRESS, when=_stop_first)
_t.stay(S.RELEASING, e.SuspendRequested, u.ForgetPending, when=~g.DrainPending & ~_stop_first)
_t.refuse(_down, e.Activate, Reason.WORKER_DRAINING, when=g.DrainPending)
_t.refuse(_down, e.Activate, Reason.OPERATION_IN_PROGRESS, when=~g.DrainPending & g.ByCommand)
_t.stay(_down, e.Activate, u.KeepRun, when=~g.DrainPending & ~g.ByCommand)
_t.stay(S.SUSPENDING, e.DrainRequested, u.StopIfThawed, when=~g.DrainHurries)

for _event in (e.SandboxReleased, e.StepFailed, e.DeadlineExceeded):
    _cancel = (CANCEL,) if _event is e.DeadlineExceeded else ()
    _undone = (u.HoldNothing,) if _event is e.SandboxReleased else (u.FirstCause,)
    _t.go(S.RELEASING, _event, S.SUSPENDED, *_cancel, FOLLOW, when=g.HasPending, remember=(*_undone, u.ForgetPending))
    _t.go(S.RELEASING, _event, S.SUSPENDED, *_cancel, when=~g.HasPending, remember=_undone)
_t.stay(S.RELEASING, e.StopRequested, u.KeepTerminate)
_t.go(S.RELEASING, e.Recovered, S.RELEASING, RELEASE, remember=(u.ForgetDrain,))
_t.stay(S.RELEASING, e.DrainRequested, u.ForgetPending, when=g.RunPending)
_t.ignore(S.RELEASING, e.DrainRequested, "it is about to be Suspended, which is what a drain wants", when=~g.RunPending)
_t.ignore(S.RELEASING, e.SandboxDied, "its exit is expected: the snapshot is proven and the sandbox is being ended")
_t.ignore(S.RELEASING, e.GpuLost, "its GPUs are being given back")

# ---- back up: Thawing
_alive_after_thaw = ~g.LastContainer & ~g.GpuIsLost
_t.go(
    S.THAWING, e.Thawed, S.STOPPING, STOP,
    when=_completed, remember=(u.HoldNoUnproven, u.Completed, u.ForgetPending),
)  # fmt: skip
_t.go(
    S.THAWING, e.Thawed, S.ROLLING_BACK, ROLL_BACK,
    when=_failed_last & ~g.GpuIsLost & g.Restarts, remember=(u.HoldNoUnproven, u.BlameContainer, u.EndBackingOff),
)  # fmt: skip
_t.go(
    S.THAWING, e.Thawed, S.ROLLING_BACK, ROLL_BACK,
    when=_failed_last & ~g.GpuIsLost & ~g.Restarts, remember=(u.HoldNoUnproven, u.BlameContainer, u.EndFailed),
)  # fmt: skip
_t.go(
    S.THAWING, e.Thawed, S.ROLLING_BACK, ROLL_BACK,
    when=g.GpuIsLost & ~_completed, remember=(u.HoldNoUnproven, u.EndFailed),
)  # fmt: skip
_t.go(
    S.THAWING, e.Thawed, S.RUNNING, FOLLOW,
    when=_alive_after_thaw & g.HasPending, remember=(u.HoldNoUnproven, u.ForgetPending),
)  # fmt: skip
_t.go(S.THAWING, e.Thawed, S.RUNNING, when=_alive_after_thaw & ~g.HasPending, remember=(u.HoldNoUnproven,))
_t.go(S.THAWING, e.StepFailed, S.ROLLING_BACK, ROLL_BACK, remember=(u.BlameThaw, u.EndFailed))
_t.go(S.THAWING, e.DeadlineExceeded, S.ROLLING_BACK, CANCEL, ROLL_BACK, remember=(u.BlameThaw, u.EndFailed))
_t.go(S.THAWING, e.SandboxDied, S.ROLLING_BACK, CANCEL, ROLL_BACK, remember=(u.NewCause, u.EndFailed))
_t.go(S.THAWING, e.StopRequested, S.STOPPING, CANCEL, STOP, remember=_wished_end)
_t.go(S.THAWING, e.Recovered, S.THAWING, WATCH, THAW, when=g.FoundAlive, remember=(u.ForgetDrain,))
_t.go(
    S.THAWING, e.Recovered, S.ROLLING_BACK, ROLL_BACK,
    when=~g.FoundAlive, remember=(u.NewCause, u.ForgetDrain, u.EndFailed),
)  # fmt: skip
_t.refuse(S.THAWING, e.SuspendRequested, Reason.WORKER_DRAINING, when=g.DrainPending)
_t.refuse(S.THAWING, e.SuspendRequested, Reason.OPERATION_IN_PROGRESS, when=~g.DrainPending & g.ByCommand)
_t.stay(S.THAWING, e.SuspendRequested, u.KeepSuspend, when=~g.DrainPending & ~g.ByCommand)
_t.refuse(S.THAWING, e.Activate, Reason.WORKER_DRAINING, when=g.DrainPending)
_t.stay(S.THAWING, e.Activate, u.ForgetPending, when=~g.DrainPending)
_t.stay(S.THAWING, e.DrainRequested, u.KeepDrain, when=~g.DrainHurries)
_t.go((S.SUSPENDING, S.THAWING), e.DrainRequested, S.STOPPING, CANCEL, STOP, when=g.DrainHurries, remember=_told_end)

# ---- the end, wished for
_t.go(S.STOPPING, e.TornDown, S.TERMINATED, ANEW, when=g.HasSuccessor, remember=(u.HoldNothing, u.ForgetPending))
_t.go(S.STOPPING, e.TornDown, S.TERMINATED, when=~g.HasSuccessor, remember=(u.HoldNothing, u.ForgetPending))
_t.go(S.STOPPING, e.StepFailed, S.ROLLING_BACK, ROLL_BACK, remember=(u.FirstCause, u.EndTerminated))
_t.go(S.STOPPING, e.DeadlineExceeded, S.ROLLING_BACK, CANCEL, ROLL_BACK, remember=(u.FirstCause, u.EndTerminated))
_t.go(S.STOPPING, e.Recovered, S.ROLLING_BACK, ROLL_BACK, remember=(u.EndTerminated,))
_t.refuse(S.STOPPING, e.Activate, Reason.OPERATION_IN_PROGRESS, when=g.ByCommand)
_t.stay(S.STOPPING, e.Activate, u.KeepRun, when=~g.ByCommand)
_t.refuse(S.STOPPING, e.SuspendRequested, Reason.OPERATION_IN_PROGRESS, when=g.ByCommand)
_t.stay(S.STOPPING, e.SuspendRequested, u.KeepSuspend, when=~g.ByCommand)
_t.stay(S.STOPPING, e.StopRequested, u.ForgetPending)
_t.stay(S.STOPPING, e.DrainRequested, u.ForgetPending, when=g.HasSuccessor)
_t.ignore(S.STOPPING, e.DrainRequested, "it is being ended, which is all that a drain could do", when=~g.HasSuccessor)
_t.ignore(S.STOPPING, e.SandboxDied, "its exit is expected: it is being ended")
_t.ignore(S.STOPPING, e.GpuLost, "its GPUs are being given back")

# ---- RollingBack
_origin_good = g.FromSnapshot & g.OriginGood
_to_origin = g.EndsAtOrigin & _origin_good
_to_failed = g.EndsFailed | (g.EndsAtOrigin & ~_origin_good)
_gives_up = g.GpuIsLost | g.DrainPending | g.RunPending
_t.go(
    S.ROLLING_BACK, e.RolledBack, S.TERMINATED, ANEW,
    when=g.EndsTerminated & g.HasSuccessor, remember=(u.KeepSaved, u.HoldNothing, u.ForgetPending),
)  # fmt: skip
_t.go(
    S.ROLLING_BACK, e.RolledBack, S.TERMINATED,
    when=g.EndsTerminated & ~g.HasSuccessor, remember=(u.KeepSaved, u.HoldNothing, u.ForgetPending),
)  # fmt: skip
# This rollback left the grant for the next try. When there will be none, the grant is undone by a second one.
_t.go(
    S.ROLLING_BACK, e.RolledBack, S.ROLLING_BACK, ROLL_BACK,
    when=g.EndsBackingOff & g.TerminatePending,
    remember=(u.KeepSaved, u.HoldGrantOnly, u.ForgetPending, u.EndTerminated),
)  # fmt: skip
_t.go(
    S.ROLLING_BACK, e.RolledBack, S.ROLLING_BACK, ROLL_BACK,
    when=g.EndsBackingOff & ~g.TerminatePending & _gives_up, remember=(u.KeepSaved, u.HoldGrantOnly, u.EndFailed),
)  # fmt: skip
_t.go(
    S.ROLLING_BACK, e.RolledBack, S.BACKING_OFF, BACKOFF,
    when=g.EndsBackingOff & ~g.TerminatePending & ~_gives_up, remember=(u.KeepSaved, u.HoldGrantOnly, u.CountTry),
)  # fmt: skip
# Whole and at rest: that a cleanup had failed before is no trouble of the actor's any more.
for _when, _found in ((_to_origin, (u.AdoptOrigin,)), (g.EndsSuspended, (u.ForgetCleanup,))):
    _t.go(
        S.ROLLING_BACK, e.RolledBack, S.SUSPENDED, FOLLOW,
        when=_when & g.RunPending, remember=(u.KeepSaved, u.HoldNothing, *_found, u.ForgetPending),
    )  # fmt: skip
    _t.go(
        S.ROLLING_BACK, e.RolledBack, S.SUSPENDED,
        when=_when & ~g.RunPending, remember=(u.KeepSaved, u.HoldNothing, *_found, u.ForgetPending),
    )  # fmt: skip
_t.go(
    S.ROLLING_BACK, e.RolledBack, S.FAILED, FOLLOW,
    when=_to_failed & g.RunPending, remember=(u.KeepSaved, u.HoldNothing, u.ForgetPending),
)  # fmt: skip
_t.go(
    S.ROLLING_BACK, e.RolledBack, S.FAILED,
    when=_to_failed & ~g.RunPending, remember=(u.KeepSaved, u.HoldNothing, u.ForgetPending),
)  # fmt: skip
for _event in (e.StepFailed, e.DeadlineExceeded):
    _cancel = (CANCEL,) if _event is e.DeadlineExceeded else ()
    # A kept request is answered by the failure: to follow it would try the same cleanup without end.
    for _when, _told in ((g.RunPending, (u.AnswerByCleanup,)), (~g.RunPending, ())):
        _t.go(
            S.ROLLING_BACK, _event, S.SUSPENDED, *_cancel,
            when=g.EndsSuspended & _when, remember=(u.FirstCause, *_told, u.ForgetPending),
        )  # fmt: skip
    _t.go(
        S.ROLLING_BACK, _event, S.FAILED, *_cancel,
        when=~g.EndsSuspended, remember=(u.FirstCause, u.ForgetPending),
    )  # fmt: skip
_t.stay(S.ROLLING_BACK, e.StopRequested, u.KeepTerminate, when=g.EndsBackingOff)
_t.stay(S.ROLLING_BACK, e.StopRequested, u.EndTerminated, u.ForgetPending, when=~g.EndsBackingOff)
_t.refuse(S.ROLLING_BACK, e.Activate, Reason.WORKER_DRAINING, when=g.DrainPending)
_t.refuse(S.ROLLING_BACK, e.Activate, Reason.OPERATION_IN_PROGRESS, when=~g.DrainPending & g.ByCommand)
_t.stay(S.ROLLING_BACK, e.Activate, u.KeepRun, when=~g.DrainPending & ~g.ByCommand)
_t.refuse(S.ROLLING_BACK, e.SuspendRequested, Reason.WORKER_DRAINING, when=g.DrainPending)
_t.refuse(S.ROLLING_BACK, e.SuspendRequested, Reason.NOTHING_TO_SUSPEND, when=~g.DrainPending & g.EndsFailed)
_t.refuse(
    S.ROLLING_BACK, e.SuspendRequested, Reason.OPERATION_IN_PROGRESS,
    when=~g.DrainPending & ~g.EndsFailed & g.ByCommand,
)  # fmt: skip
_t.stay(S.ROLLING_BACK, e.SuspendRequested, u.KeepSuspend, when=~g.DrainPending & ~g.EndsFailed & ~g.ByCommand)
_t.go(S.ROLLING_BACK, e.Recovered, S.ROLLING_BACK, ROLL_BACK, when=g.EndsTerminated)
_t.go(
    S.ROLLING_BACK, e.Recovered, S.ROLLING_BACK, ROLL_BACK,
    when=g.EndsBackingOff & g.TerminatePending, remember=(u.ForgetPending, u.EndTerminated),
)  # fmt: skip
_t.go(
    S.ROLLING_BACK, e.Recovered, S.ROLLING_BACK, ROLL_BACK,
    when=g.EndsBackingOff & ~g.TerminatePending, remember=(u.ForgetDrain, u.EndFailed),
)  # fmt: skip
_t.go(
    S.ROLLING_BACK, e.Recovered, S.ROLLING_BACK, ROLL_BACK,
    when=~g.EndsTerminated & ~g.EndsBackingOff, remember=(u.FirstCause, u.ForgetDrain),
)  # fmt: skip
_t.ignore(
    S.ROLLING_BACK, e.DrainRequested, "it is to be ended, which is all that a drain could do",
    when=g.EndsBackingOff & g.TerminatePending,
)  # fmt: skip
_t.stay(S.ROLLING_BACK, e.DrainRequested, u.KeepDrain, when=g.EndsBackingOff & ~g.TerminatePending)
_t.stay(S.ROLLING_BACK, e.DrainRequested, u.ForgetPending, when=~g.EndsBackingOff & g.HasSuccessor)
_t.ignore(S.ROLLING_BACK, e.DrainRequested, "it holds nothing soon", when=~g.EndsBackingOff & ~g.HasSuccessor)
_t.ignore(S.ROLLING_BACK, e.SandboxDied, "its exit is expected: it is being ended")
_keeps_grant = g.EndsBackingOff & g.HoldsGrant
_t.stay(S.ROLLING_BACK, e.GpuLost, u.LoseGpu, when=_keeps_grant)
_t.ignore(S.ROLLING_BACK, e.GpuLost, "its GPUs are being given back", when=~_keeps_grant)

# ---- BackingOff
_t.go(S.BACKING_OFF, e.BackoffElapsed, S.ASSIGNED, RECORD, remember=(u.TryAgain,))
_t.go(S.BACKING_OFF, e.DeadlineExceeded, S.ASSIGNED, CANCEL, RECORD, remember=(u.TryAgain,))
_t.go(S.BACKING_OFF, e.Activate, S.ASSIGNED, CANCEL, RECORD, remember=(u.Begin,))
_t.go(S.BACKING_OFF, e.StepFailed, S.ROLLING_BACK, ROLL_BACK, remember=(u.FirstCause, u.EndFailed))
_t.go(S.BACKING_OFF, e.StopRequested, S.ROLLING_BACK, CANCEL, ROLL_BACK, remember=(*_wished_end, u.EndTerminated))
_t.go(S.BACKING_OFF, e.DrainRequested, S.ROLLING_BACK, CANCEL, ROLL_BACK, remember=(u.EndFailed,))
_t.go(S.BACKING_OFF, e.Recovered, S.ROLLING_BACK, ROLL_BACK, remember=(u.EndFailed,))
_t.refuse(S.BACKING_OFF, e.SuspendRequested, Reason.OPERATION_IN_PROGRESS, when=g.Overlaps)
_t.stay(S.BACKING_OFF, e.SuspendRequested, u.KeepSuspend, when=~g.Overlaps)
_t.ignore(S.BACKING_OFF, e.SandboxDied, "it has no sandbox")
_t.go(
    S.BACKING_OFF, e.GpuLost, S.ROLLING_BACK, CANCEL, ROLL_BACK,
    when=g.HoldsGrant, remember=(u.NewCause, u.EndFailed),
)  # fmt: skip
_t.ignore(S.BACKING_OFF, e.GpuLost, "it holds no GPU", when=~g.HoldsGrant)

# ---- Suspended, Failed
for _state, _ending in ((S.SUSPENDED, u.EndSuspended), (S.FAILED, u.EndFailed)):
    _t.go(_state, e.Activate, S.ASSIGNED, RECORD, when=g.HoldsNothing, remember=(u.Begin,))
    # A cleanup that failed left something behind: it is undone first, then the request is followed.
    _t.go(_state, e.Activate, S.ROLLING_BACK, ROLL_BACK, when=~g.HoldsNothing, remember=(u.KeepRun, _ending))
    _t.go(_state, e.StopRequested, S.STOPPING, STOP, remember=_wished_end)
    _t.ignore(_state, e.DrainRequested, "it holds nothing of the worker")
    _t.ignore(_state, e.SandboxDied, "it has no sandbox")
    _t.ignore(_state, e.GpuLost, "it holds no GPU")
    _t.ignore(_state, e.Recovered, "nothing of it was alive", when=g.HoldsNothing)
    _t.go(_state, e.Recovered, S.ROLLING_BACK, ROLL_BACK, when=~g.HoldsNothing, remember=(_ending,))
    _t.go(_state, e.CleanupDue, S.ROLLING_BACK, ROLL_BACK, when=~g.HoldsNothing, remember=(_ending,))
    _t.ignore(_state, e.CleanupDue, "it is done already", when=g.HoldsNothing)
_t.ignore(S.SUSPENDED, e.SuspendRequested, "it is Suspended already")
_t.refuse(S.FAILED, e.SuspendRequested, Reason.NOTHING_TO_SUSPEND)

# ---- Terminated
_t.refuse(S.TERMINATED, e.Activate, Reason.ACTOR_TERMINATED)
_t.refuse(S.TERMINATED, e.SuspendRequested, Reason.ACTOR_TERMINATED)
_t.ignore(S.TERMINATED, e.StopRequested, "it has ended already")
_t.ignore(S.TERMINATED, (e.DrainRequested, e.SandboxDied, e.GpuLost, e.Recovered), "it has ended")

# ---- a cleanup that failed, where nothing was left since
_t.ignore_rest((e.CleanupDue,), "it is not at rest: what it holds is undone on its way")

# ---- the upload of a snapshot, which goes on beside whatever the actor does
_t.stay([state for state in State if state not in FINAL], e.SnapshotUploaded, u.KeepStored)
_t.stay(S.SUSPENDED, e.UploadFailed, u.TellUpload, when=g.UploadIsNews)
_t.ignore(
    S.SUSPENDED, e.UploadFailed, "it is told already, or the actor has a trouble of its own", when=~g.UploadIsNews
)
_t.ignore_rest(
    (e.SnapshotUploaded, e.UploadFailed), "it is tried again, and only an actor that is Suspended tells of it"
)

# ---- answers of a step that was given up, or that no such state waits for
_t.ignore_rest(
    (*e.ANSWERS, *e.FAILURES),
    "an answer of a step that was given up: the state has moved on, and what the step made is undone there",
)

TABLE: Final = _t.finish()
"""(state, event class) -> the rows of that cell."""
