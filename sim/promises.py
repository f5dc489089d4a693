"""What is promised when a fault meets a call of the life run, suspend, resume, stop: states, and the right reasons.

A fault that costs nothing is always right. What it may cost depends on what was asked for last; which reason says so,
on the port that the fault came through. A supervisor that was killed, and a call of files that hangs, leave a state
that does not rest: what comes of that is promised of the next supervisor.
"""

from __future__ import annotations

import re
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

import attrs

from sim.faults import Halfway, Hang
from statemachine.reasons import Reason
from statemachine.states import State

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sim.invariants.violation import Violation
    from sim.spots import Spot

R = Reason


@attrs.frozen(kw_only=True)
class Ending:
    """What became of the actor in the life that a fault met, before another supervisor starts.

    Attributes:
        op: what could not come; empty when everything did.
        state: where the actor is; None when nothing was told of it.
        reason: of the error in its status.
        answer: the reason that whoever asked was told.
        worker_lives: whether the supervisor does.
        worker_error: what it ended with by itself.
    """

    op: str
    state: State | None
    reason: str | None
    answer: str | None
    worker_lives: bool
    worker_error: str | None


STATES: Final[Mapping[str, frozenset[State | None]]] = MappingProxyType(
    {
        # Not admitted; or undone, and failed.
        "submit": frozenset({None, State.FAILED}),
        # It runs on; or it could not be thawed, and the reason says so.
        "suspend": frozenset({State.RUNNING, State.FAILED}),
        # An upload is tried again, and always comes, but of a snapshot that is found to be damaged here.
        "upload": frozenset({State.SUSPENDED}),
        # The snapshot is still there; Failed only where the undo itself cannot be done.
        "resume": frozenset({State.SUSPENDED, State.FAILED}),
        "stop": frozenset({State.TERMINATED, State.FAILED}),
    }
)
"""By what was asked for and did not come: where the actor may be at rest."""

FOR_WHAT_ALONE: Final[Mapping[tuple[str, State], frozenset[R]]] = MappingProxyType(
    {
        # A suspend costs the actor its sandbox.
        ("suspend", State.FAILED): frozenset({R.COULD_NOT_THAW, R.SANDBOX_DIED}),
        # An upload is not tried again before the next supervisor.
        ("upload", State.SUSPENDED): frozenset({R.SNAPSHOT_MISSING, R.SNAPSHOT_CORRUPT}),
    }
)
"""By what did not come and where the actor is: the reasons for which alone that may be."""

_WRITING: Final = frozenset({R.STATE_UNWRITABLE, R.INSUFFICIENT_DISK})
_RUNTIME: Final = frozenset({R.RUNTIME_FAILED, R.RUNTIME_UNAVAILABLE, R.SANDBOX_DIED})

_RIGHT: Final = (
    (r"files\.\w+", r"/images/", _WRITING | {R.ROOTFS_NOT_FOUND, R.BUNDLE_NOT_FOUND}),
    (
        r"files\.(read|digest|lstat|stat|list_directory)",
        r"/snapshots/",
        _WRITING | {R.SNAPSHOT_CORRUPT, R.SNAPSHOT_MISSING, R.RUNTIME_FAILED},
    ),
    (r"files\.(read|read_from|list_directory|lstat|stat)", r"/sandboxes/", _RUNTIME | _WRITING),
    (r"files\.", r"", _WRITING),
    (r"processes\.run", r" (pause|resume|checkpoint) ", _RUNTIME | {R.COULD_NOT_THAW, R.INSUFFICIENT_DISK}),
    (r"processes\.run", r" (state|wait|exec) ", _RUNTIME | {R.RESTORED_NOT_SERVING, R.CONTAINER_EXITED, R.HOOK_FAILED}),
    (r"processes\.run", r"", _RUNTIME),
    (r"processes\.(find|find_arguments|kill_and_wait|adopt|is_alive)", r"", _RUNTIME | {R.PROCESSES_UNREADABLE}),
    (r"processes\.(holds_output|open_files)", r"", frozenset({R.RUNTIME_FAILED, R.PROCESSES_UNREADABLE})),
    (r"stores\.", r"", frozenset({R.SNAPSHOT_NOT_UPLOADED})),
    (r"cgroups\.", r"", frozenset({R.CGROUP_UNAVAILABLE})),
    # By the calendar an actor that has ended a day ago is forgotten, and the calendar may jump.
    (r"wall\.", r"", frozenset({R.ACTOR_NOT_FOUND})),
)
"""Calls, what is in their arguments, and the reasons that are right for a fault of them. The first that fits counts.

Of the others no reason is right, for no actor is touched: net, watch, signals.
"""

LATE: Final = frozenset({R.STEP_DEADLINE_EXCEEDED})
"""Right for what hangs, or says that it has taken too long."""

LIED_TO: Final = frozenset(
    {
        R.RUNTIME_FAILED,
        R.SANDBOX_DIED,
        R.STATE_UNWRITABLE,
        R.INSUFFICIENT_DISK,
        R.ROOTFS_NOT_FOUND,
        R.SNAPSHOT_CORRUPT,
        R.SNAPSHOT_MISSING,
        R.SNAPSHOT_INCOMPATIBLE,
        R.BUNDLE_CHANGED,
        R.OPERATION_IN_PROGRESS,
    }
)
"""Who is told a well-formed untruth finds it out wherever it does not fit any more."""


def broken_promise(spot: Spot, ending: Ending) -> str | None:
    """Compare what became of the actor with what is promised; says what is wrong."""
    if not ending.worker_lives:
        was_killed = isinstance(spot.what, Halfway) and spot.what.error is None
        return None if was_killed else f"the supervisor ended: {ending.worker_error}"
    if spot.port == "files" and isinstance(spot.what, Hang):
        return None
    if not ending.op:
        return None if ending.state is State.TERMINATED else f"everything was done, and the actor is {ending.state}"
    return _broken_by(spot, ending)


def _broken_by(spot: Spot, ending: Ending) -> str | None:
    """The same of an actor for which something did not come."""
    reason = ending.reason or ending.answer
    what = f"{ending.op} did not come, the actor is {ending.state}, and the reason is {reason}"
    if ending.state not in STATES[ending.op] or reason is None or R(reason) not in right_reasons(spot):
        return what
    alone = FOR_WHAT_ALONE.get((ending.op, ending.state)) if ending.state is not None else None
    return what if alone is not None and R(reason) not in alone else None


def right_reasons(spot: Spot) -> frozenset[R]:
    """The reasons that are right for what a fault has cost."""
    right: frozenset[R] = frozenset()
    for call, argument, reasons in _RIGHT:
        if re.match(call, f"{spot.port}.{spot.method}") and re.search(argument, spot.argument):
            right = reasons
            break
    if spot.kind in {"hang", "slow"} or spot.fault.endswith("DeadlineExceeded"):
        return right | LATE
    return right | LIED_TO if spot.kind == "lie" else right


@attrs.frozen(kw_only=True)
class Excuse:
    """Invariants that cannot hold after a lie, or not before the next supervisor.

    Attributes:
        call, argument, fault: which, by regular expressions.
        names: of the invariants.
        outlasts: whether the next supervisor does not put it right either.
        why: in one sentence.
    """

    call: str
    argument: str
    fault: str
    names: frozenset[str]
    outlasts: bool
    why: str


EXCUSES: Final = (
    Excuse(
        call=r"files\.(replace|append|append_durably)$",
        argument=r"/journal\.jsonl$",
        fault=r"lie:notDone",
        names=frozenset({"StateFilesParse", "WhatWasToldIsKept", "StatusTellsTheTruth", "JournalsReplay"}),
        outlasts=True,
        why="A line of the journal is not there, and was said to be: the journal is set aside, the actor begins anew.",
    ),
    Excuse(
        call=r"files\.replace$",
        argument=r"/status\.json$",
        fault=r"lie:notDone|fail:|half:\w+:EIO",
        names=frozenset({"StatusTellsTheTruth", "StateFilesParse"}),
        outlasts=False,
        why="What files say of an actor at rest is written again with its next change, or by the next supervisor.",
    ),
    Excuse(
        call=r"files\.remove_(tree|file)$",
        argument=r"",
        fault=r"lie:notDone",
        names=frozenset({"NothingLeft", "StateFilesParse"}),
        outlasts=False,
        why="What was said to be removed and is not, is found by the next start.",
    ),
    Excuse(
        call=r"cgroups\.remove$",
        argument=r"",
        fault=r"lie:notDone",
        names=frozenset({"CgroupsHoldTheirActors"}),
        outlasts=False,
        why="A cgroup that was said to be removed and is not, is found by the next start.",
    ),
    Excuse(
        call=r"files\.digest$",
        argument=r"/snapshots/",
        fault=r"lie:other",
        names=frozenset({"NeverLost", "SnapshotsAreWhole", "LastGoodIsKept", "GoesOn"}),
        outlasts=True,
        why="A digest that is not that of the file is written down; hashing twice would double the time of a save.",
    ),
)


def is_excused(spot: Spot, violation: Violation, *, after: bool = False) -> bool:
    """Whether a violation is one that such a lie must have; `after` another supervisor has started."""
    call = f"{spot.port}.{spot.method}"
    return any(
        violation.name in each.names
        and (each.outlasts or not after)
        and re.match(each.call, call) is not None
        and re.search(each.argument, spot.argument) is not None
        and re.match(each.fault, spot.fault) is not None
        for each in EXCUSES
    )
