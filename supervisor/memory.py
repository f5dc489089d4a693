"""What the machine remembers of an assignment: the few of its facts that guards and commands need. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from actors.assignment import DesiredState, RestartPolicy, WorkerAssignment
from statemachine.actor import Actor, Claims, ContainerFate, Pending, Restart, Snapshot
from statemachine.problem import Problem, ProblemError, Step
from statemachine.reasons import Reason
from statemachine.states import State

if TYPE_CHECKING:
    from supervisor.life import Life


def first_memory(assignment: WorkerAssignment, source: Snapshot | None) -> Actor:
    """What the machine remembers at the beginning of a life."""
    suspended = assignment.desired_state is DesiredState.SUSPENDED
    exited = dict(source.exited) if source else {}
    fresh = Actor(
        state=State.ASSIGNED,
        claims=Claims.GPUS if any(each.gpus for each in assignment.containers) else Claims.NOTHING,
        containers=tuple(
            ContainerFate(name=each.name, exit_code=exited.get(each.name)) for each in assignment.containers
        ),
        origin=source,
        last_good=source,
        pending=Pending.SUSPEND if suspended else None,
    )
    return adapt(fresh, assignment)


def successor_memory(ended: Life) -> Actor:
    """What the machine remembers at the beginning of a life that a document asked for while the one before was ending.

    Raises:
        ProblemError: NothingToSuspend.
    """
    assignment, source = ended.assignment, ended.source_now()
    require_something_to_suspend(assignment, source)
    return first_memory(assignment, source)


def require_something_to_suspend(assignment: WorkerAssignment, source: Snapshot | None) -> None:
    """Refuse a life that is to begin Suspended without a snapshot.

    Raises:
        ProblemError: NothingToSuspend.
    """
    if assignment.desired_state is DesiredState.SUSPENDED and source is None:
        raise ProblemError(
            Problem(
                step=Step.ADMISSION,
                reason=Reason.NOTHING_TO_SUSPEND,
                subject="spec.desiredState",
                message=f"actor {assignment.uid} is not here and there is no snapshot of it",
            )
        )


def adapt(actor: Actor, assignment: WorkerAssignment) -> Actor:
    """The memory with what a generation may change: restart policy, grace, probes."""
    on_failure = assignment.restart_policy is RestartPolicy.ON_FAILURE
    return attrs.evolve(
        actor,
        restart=Restart.ON_FAILURE if on_failure else Restart.NEVER,
        grace_s=float(assignment.termination_grace_s),
        probe_s=max((each.wakeup_probe.timeout_s for each in assignment.containers if each.wakeup_probe), default=0.0),
    )
