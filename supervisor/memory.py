"""What the machine remembers of an assignment: the few of its facts that guards and commands need. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from actors.assignment import DesiredState, RestartPolicy, WorkerAssignment
from actors.steps.hooks import HOOK_S
from statemachine.actor import Actor, Claims, ContainerFate, Pending, Restart, Snapshot
from statemachine.problem import Problem, ProblemError, Step
from statemachine.reasons import Reason
from statemachine.states import State
from statemachine.updates import without_upload_trouble

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
    """The memory with what a generation may change: restart policy, grace, probes and the hook before them."""
    hook_s = HOOK_S if assignment.lifecycle.post_resume is not None else 0.0
    probes_s = (each.wakeup_probe.timeout_s for each in assignment.containers if each.wakeup_probe)
    on_failure = assignment.restart_policy is RestartPolicy.ON_FAILURE
    return attrs.evolve(
        without_upload_trouble(actor),  # another store may be named, or none
        restart=Restart.ON_FAILURE if on_failure else Restart.NEVER,
        grace_s=float(assignment.termination_grace_s),
        probe_s=hook_s + max(probes_s, default=0.0),
    )
