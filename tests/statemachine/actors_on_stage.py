"""Actors in every state, and the few words with which the tests of the timetable are written."""

from __future__ import annotations

import attrs

from statemachine import events as e
from statemachine.actor import Actor, Restart
from statemachine.machine import Ignored, Refused, step
from statemachine.reasons import Reason
from statemachine.states import State
from tests.statemachine.samples import (
    CPU,
    DIED,
    GPU,
    OLD,
    REFUSE_SUSPEND,
    SAVED,
    STOP,
    SUCCESS,
    SUSPEND,
    WELL_GONE,
    exited,
    fed,
    restored_from,
    running,
    taken,
)

S = State
UP = [S.DETECTING, S.GENERATING, S.PARTITIONING, S.INJECTING]
RETRYING = attrs.evolve(GPU, restart=Restart.ON_FAILURE)


def path(actor: Actor, *events: e.Event) -> list[State]:
    """The states that are passed, one per event; a kept request is followed at once and its state named, too."""
    states = [actor.state]
    for event in events:
        new = taken(actor, event)
        actor = fed(actor, event)
        states += [new.actor.state] if actor.state is new.actor.state else [new.actor.state, actor.state]
    return states[1:]


def well(*states: State) -> list[e.Event]:
    return [SUCCESS[state] for state in states]


def refusal(actor: Actor, event: e.Event) -> Reason:
    outcome = step(actor, event)
    assert isinstance(outcome, Refused), outcome
    return outcome.problem.reason


def ignored(actor: Actor, event: e.Event) -> bool:
    return isinstance(step(actor, event), Ignored)


def reason(actor: Actor) -> Reason | None:
    return actor.problem.reason if actor.problem else None


GPU_RESTORE = attrs.evolve(restored_from(OLD, GPU))
SUSPENDING = fed(running(CPU), SUSPEND)
GPU_SUSPENDING = fed(running(GPU), SUSPEND)
THAWING = fed(SUSPENDING, REFUSE_SUSPEND)
RELEASING = fed(SUSPENDING, SAVED)
SUSPENDED = fed(RELEASING, e.SandboxReleased())
STOPPING = fed(running(CPU), STOP)
BACKING_OFF = fed(running(RETRYING), exited("one", 0), exited("two", 7), WELL_GONE)
FAILED = fed(running(CPU), DIED, WELL_GONE)
TERMINATED = fed(STOPPING, e.TornDown())
