"""What may be asked of a worker by command: suspend, resume, stop, wait. Each returns when it is so, or says why not.

A command keeps the generation and is journaled; it holds until the next higher one.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

import anyio

from statemachine.actor import By, OnDifference, Pending
from statemachine.catalogue import CATALOGUE
from statemachine.events import Activate, StopRequested, SuspendRequested
from statemachine.machine import Refused
from statemachine.problem import Problem, ProblemError, Step
from statemachine.reach import can_come
from statemachine.reasons import Reason
from statemachine.states import State

if TYPE_CHECKING:
    from statemachine.events import Event
    from supervisor.life import Life
    from supervisor.worker import Worker

ENDING: Final = frozenset({State.STOPPING, State.ROLLING_BACK})


async def suspend(worker: Worker, uid: str) -> State:
    """Ask for Suspended; returns the state after the machine took it.

    Raises:
        ProblemError: ActorNotFound, or the machine's refusal.
    """
    return await _ask(worker.require(uid), SuspendRequested(by=By.COMMAND))


def starts_anew(worker: Worker, uid: str) -> bool:
    """Whether to resume this actor means to start it from nothing, because there is no snapshot of it.

    Raises:
        ProblemError: ActorNotFound.
    """
    actor = worker.require(uid).actor
    return actor.state is State.FAILED and actor.last_good is None


async def resume(worker: Worker, uid: str, on_difference: OnDifference = OnDifference.REFUSE) -> State:
    """Ask for Running, from the last good snapshot where there is one.

    Args:
        worker: the worker.
        uid: the actor's.
        on_difference: whether it is restored although something differs here.

    Raises:
        ProblemError: ActorNotFound, WorkerDraining, why its GPUs cannot be had, or the machine's refusal.
    """
    life = worker.require(uid)
    worker.require_open()
    async with worker.booked(life.assignment):
        event = Activate(source=life.actor.last_good, by=By.COMMAND, on_difference=on_difference)
        return await _ask(life, event)


async def stop(worker: Worker, uid: str) -> State:
    """Ask for Terminated."""
    life = worker.require(uid)
    if life.actor.state is State.TERMINATED:
        return life.actor.state
    return await _ask(life, StopRequested(by=By.COMMAND))


async def _ask(life: Life, event: Event) -> State:
    outcome = await life.ask(event)
    if isinstance(outcome, Refused):
        raise ProblemError(outcome.problem)
    return life.actor.state


async def wait(worker: Worker, uid: str, wanted: State, *, timeout_s: float) -> Life:
    """Wait until an actor is in a state. An actor that is not here yet may still come.

    Raises:
        ProblemError: the actor's own error, or StateUnreachable, as soon as the state cannot come without a new
        request;
            ActorNotFound, WaitTimeout when the time is over.
    """
    with anyio.move_on_after(timeout_s if math.isfinite(timeout_s) else None):
        while True:
            life = worker.find(uid)
            if life is None:
                await worker.arrival()
                continue
            if life.actor.state is wanted:
                return life
            if not _may_become(life, wanted):
                raise ProblemError(_unreachable(life, wanted))
            await life.changed()
    life = worker.require(uid)
    raise ProblemError(
        Problem(
            step=Step.SUPERVISE,
            reason=Reason.WAIT_TIMEOUT,
            subject=uid,
            message=f"actor {uid} is {life.actor.state}, not {wanted}, after {timeout_s:g} s",
        )
    )


def _may_become(life: Life, wanted: State) -> bool:
    if life.ended.is_set():
        return life.begins_anew  # the successor is about to stand in its place, or will be given up
    actor = life.actor
    if actor.state in ENDING and actor.pending in {Pending.RUN, Pending.SUSPEND}:
        return True  # a document of a higher generation waits for the end of this life
    return life.begins_anew or life.follows or can_come(actor, wanted)


def _unreachable(life: Life, wanted: State) -> Problem:
    if life.actor.problem is not None and wanted is not State.TERMINATED:
        return life.actor.problem
    return Problem(
        step=Step.SUPERVISE,
        reason=Reason.STATE_UNREACHABLE,
        subject=life.uid,
        message=f"actor {life.uid} is {life.actor.state} and cannot become {wanted} without a new request",
        hint=_hint(life, wanted),
    )


def _hint(life: Life, wanted: State) -> str:
    """What brings the wanted state about."""
    if life.actor.state is State.TERMINATED:
        return CATALOGUE[Reason.ACTOR_TERMINATED].hint
    match wanted:
        case State.RUNNING:
            anew = "" if life.actor.last_good else "; there is no snapshot, so it starts the actor anew"
            return f"`greenroom resume {life.uid}` asks for it{anew}."
        case State.SUSPENDED:
            return f"`greenroom suspend {life.uid}` asks for it."
        case State.TERMINATED:
            return f"`greenroom stop {life.uid}` asks for it."
        case _:
            return CATALOGUE[Reason.STATE_UNREACHABLE].hint
