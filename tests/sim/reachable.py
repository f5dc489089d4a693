"""The states that a CPU actor can be brought to by asking."""

from statemachine.states import State

BEFORE_THE_END = [
    State.ASSIGNED,
    State.CREATING,
    State.VERIFYING,
    State.RUNNING,
    State.SUSPENDING,
    State.RELEASING,
    State.SUSPENDED,
    State.RESTORING,
    State.STOPPING,
]
