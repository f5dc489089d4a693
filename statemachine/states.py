"""The states of an actor, which of them rest, and how long each other one may last.

Source: DESIGN section 3. Resting states hold until a new request or a fact from outside; only Terminated is final.
"""

from __future__ import annotations

import enum
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from .problem import Step

if TYPE_CHECKING:
    from collections.abc import Mapping


class State(enum.StrEnum):
    """Where an actor is between its admission and its end."""

    ASSIGNED = "Assigned"
    DETECTING = "Detecting"
    GENERATING = "Generating"
    PARTITIONING = "Partitioning"
    INJECTING = "Injecting"
    CREATING = "Creating"
    RESTORING = "Restoring"
    VERIFYING = "Verifying"
    RUNNING = "Running"
    SUSPENDING = "Suspending"
    RELEASING = "Releasing"
    THAWING = "Thawing"
    SUSPENDED = "Suspended"
    STOPPING = "Stopping"
    ROLLING_BACK = "RollingBack"
    BACKING_OFF = "BackingOff"
    FAILED = "Failed"
    TERMINATED = "Terminated"

    # As the string that it is equal to: a state is looked up at every step, and the hash of an enum is Python code.
    __hash__ = str.__hash__


RESTING: Final = frozenset({State.RUNNING, State.SUSPENDED, State.FAILED})
FINAL: Final = frozenset({State.TERMINATED})
INACTIVE: Final = FINAL | {State.SUSPENDED, State.FAILED}
"""Without an activation: nothing of the actor runs, or is about to."""
STARTING: Final = (
    State.ASSIGNED,
    State.DETECTING,
    State.GENERATING,
    State.PARTITIONING,
    State.INJECTING,
    State.CREATING,
    State.RESTORING,
    State.VERIFYING,
)
PASSING: Final = tuple(state for state in State if state not in RESTING | FINAL)

STEP_OF: Final[Mapping[State, Step]] = MappingProxyType(
    {
        State.ASSIGNED: Step.ASSIGN,
        State.DETECTING: Step.DETECT,
        State.GENERATING: Step.GENERATE,
        State.PARTITIONING: Step.PARTITION,
        State.INJECTING: Step.INJECT,
        State.CREATING: Step.CREATE,
        State.RESTORING: Step.RESTORE,
        State.VERIFYING: Step.VERIFY,
        State.SUSPENDING: Step.SUSPEND,
        State.RELEASING: Step.RELEASE,
        State.THAWING: Step.THAW,
        State.STOPPING: Step.TEARDOWN,
        State.ROLLING_BACK: Step.TEARDOWN,
        State.BACKING_OFF: Step.SUPERVISE,
    }
)
"""The step that runs in each passing state: DeadlineExceeded names it, and `actors/steps/` has a module for it."""

DEADLINE_S: Final[Mapping[State, float]] = MappingProxyType(
    {
        State.ASSIGNED: 10.0,
        State.DETECTING: 30.0,
        State.GENERATING: 120.0,
        State.PARTITIONING: 10.0,
        State.INJECTING: 30.0,  # plus the time to fetch a snapshot that is in a store, see Actor.deadline_s
        State.CREATING: 60.0,
        State.RESTORING: 600.0,  # plus the same where nothing is injected
        State.VERIFYING: 15.0,  # plus the hook and the longest wakeup probe, see Actor.deadline_s
        State.SUSPENDING: 900.0,
        State.RELEASING: 60.0,
        State.THAWING: 700.0,  # a save that was cut off goes on to its end first, and a hook may follow
        State.STOPPING: 60.0,  # plus the termination grace period
        State.ROLLING_BACK: 60.0,
        State.BACKING_OFF: 15.0,  # plus the delay itself
    }
)
"""Seconds of the supervisor's clock that a passing state may last before DeadlineExceeded is fed to it."""
