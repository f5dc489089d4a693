"""The drain: every actor comes to rest and its snapshot into its store, all of it before one deadline.

Not ready first: the signal itself has done that (`Shutdown.is_asked`), and from then on nothing is begun. Starts are
rolled back and what is being suspended is waited for, at once and all side by side. Whoever runs is suspended, some at
a time, or stopped, as the worker was told. What cannot be suspended is stopped, and keeps the reason. When the share of
the time is over that suspends may take, whoever is left is stopped with TERM and what is left of his grace period, and
then killed. Uploads go on beside all that; they are waited for until the deadline.

Sources: DESIGN, the cells of DrainRequested; field reports 28 (one deadline), 31 (one lock per actor, which is its
loop), 33 (not ready, stop intake, finish what is under way, force after the deadline).
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Final

import anyio
import attrs
import structlog

from actors.concurrency import together
from actors.runsc.teardown import find_leftovers
from statemachine.actor import OnDrain
from statemachine.problem import ProblemError
from statemachine.reasons import Reason
from statemachine.states import FINAL, INACTIVE, State
from supervisor.leftovers import kill_at_once
from supervisor.shutdown import Phase

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

    from actors.ports import Ports
    from supervisor.life import Life
    from supervisor.worker import Worker

SUSPENDS_MAX: Final = 4
"""Running actors that are suspended side by side: as many as the file port hashes at once.

Each writes all of its memory and reads it again: with more, all end later, and when the time is over fewer are whole.
"""

ENDING: Final = frozenset({State.RELEASING, State.STOPPING, State.ROLLING_BACK})
"""States in which an actor is ended already, whatever a drain asks for."""

_log = structlog.get_logger("greenroom.run")


@attrs.frozen(kw_only=True)
class Drained:
    """What came of a drain.

    Attributes:
        found: the actors that had not ended before the signal.
        late: those that were stopped because the time for suspends was over.
        killed: those that did not end by that, or by what had ended them before.
    """

    found: frozenset[str]
    late: tuple[str, ...]
    killed: tuple[str, ...]


@attrs.define
class Present:
    """The actors that had not ended when the end was asked for: who ends between that and the drain is told of, too."""

    _worker: Worker
    uids: frozenset[str] = attrs.field(default=frozenset(), init=False)

    def note(self) -> None:
        """Note those that are there now; at the signal, and again at the drain: a recovery goes on between them."""
        self.uids |= {life.uid for life in self._worker.lives if life.actor.state not in FINAL}


async def drain(
    ports: Ports, worker: Worker, present: Present, commands_end: Callable[[str], Awaitable[None]]
) -> Drained:
    """Bring every actor to rest and every snapshot into its store, or leave it when the time is over.

    Args:
        ports: all of them.
        worker: it; nothing is begun on it any more.
        present: who was there at the signal.
        commands_end: waits until no command of a client is executed inside an actor any more.
    """
    lives, shutdown = worker.lives, worker.shutdown
    present.note()
    late: tuple[str, ...] = ()
    killed: tuple[str, ...] = ()
    with shutdown.until(Phase.SAVING) as saving:
        turns = anyio.Semaphore(SUSPENDS_MAX)
        await together(*(partial(_suspend_or_stop, worker, life, commands_end, turns) for life in lives))
    if saving.cancelled_caught:
        late = tuple(life.uid for life in lives if life.actor.state not in INACTIVE | ENDING)
        _log.warning("stopping", left=late, reason=str(Reason.STEP_DEADLINE_EXCEEDED))
        with shutdown.until(Phase.STOPPING):
            await together(*(partial(life.drain, OnDrain.STOP_NOW) for life in lives))
    if killed := _not_at_rest(lives):
        _log.warning("killing", left=killed, reason=str(Reason.STEP_DEADLINE_EXCEEDED))
        with shutdown.until(Phase.ENDING):
            await _kill(ports, worker)
            await together(*(partial(life.drain, OnDrain.STOP_NOW) for life in lives))
    with shutdown.until(Phase.ENDING):
        for life in lives:
            worker.uploads.consider(life)  # whoever has just come to rest may not have been looked at yet
        # A pod that goes takes its disk with it: what is not in its store by then may be lost.
        await worker.uploads.finish()
    _tell_rest(worker, lives)
    return Drained(found=present.uids, late=late, killed=killed)


async def _suspend_or_stop(
    worker: Worker, life: Life, commands_end: Callable[[str], Awaitable[None]], turns: anyio.Semaphore
) -> None:
    on_drain = worker.settings.on_drain
    if on_drain is not OnDrain.SUSPEND or life.actor.state is not State.RUNNING:
        await life.drain(on_drain)
        return
    async with _turn(turns, life, commands_end):
        await life.drain(on_drain)


@asynccontextmanager
async def _turn(
    turns: anyio.Semaphore, life: Life, commands_end: Callable[[str], Awaitable[None]]
) -> AsyncIterator[None]:
    """Wait for a turn for as long as the actor runs; whatever else it comes to needs none, and may be a start.

    Whoever has a command inside, beside which a suspend would be refused, keeps no turn from another one meanwhile.
    """
    has_turn = False
    async with anyio.create_task_group() as waiting:
        waiting.start_soon(_cancel_when_it_does_not_run, life, waiting.cancel_scope)
        await commands_end(life.uid)
        await turns.acquire()
        has_turn = True
        waiting.cancel_scope.cancel()
    try:
        yield
    finally:
        if has_turn:
            turns.release()


async def _cancel_when_it_does_not_run(life: Life, scope: anyio.CancelScope) -> None:
    while life.actor.state is State.RUNNING and not life.ended.is_set():
        await life.changed()
    scope.cancel()


async def _kill(ports: Ports, worker: Worker) -> None:
    """Kill every process of every sandbox: whoever waits for one, however shielded, goes on then."""
    try:
        await kill_at_once(ports, await find_leftovers(ports.processes, ports.files, worker.state_dir.sandboxes))
    except ProblemError as error:
        _log.error("killing", reason=str(error.problem.reason), message=error.problem.message)


def _not_at_rest(lives: Sequence[Life]) -> tuple[str, ...]:
    return tuple(life.uid for life in lives if life.actor.state not in INACTIVE)


def _tell_rest(worker: Worker, lives: Sequence[Life]) -> None:
    left, not_uploaded = _not_at_rest(lives), worker.uploads.left
    if left or not_uploaded:
        reason = str(Reason.STEP_DEADLINE_EXCEEDED)
        _log.error("drain", reason=reason, left=list(left), not_uploaded=list(not_uploaded))
