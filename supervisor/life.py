"""One actor's scope: the machine's loop, its running step, its watchers. Whatever happens to the actor passes here.

The loop takes one event at a time, asks `statemachine.step` what follows, writes that down, and performs the commands.
It decides nothing about states. Its children are at most one running step, and the watchers of a live sandbox.
"""

from __future__ import annotations

import contextlib
import enum
import math
from functools import partial
from typing import TYPE_CHECKING

import anyio
import attrs
import structlog

from actors.assignment import ColdStart, SnapshotAt, WorkerAssignment
from statemachine import commands as c
from statemachine import events as e
from statemachine.actor import Actor, By, OnDrain, Pending, Snapshot
from statemachine.machine import Ignored, Outcome, Refused, Transition, begin, step
from statemachine.problem import Problem, ProblemError, Step
from statemachine.reasons import Reason
from statemachine.states import FINAL, INACTIVE, RESTING, STEP_OF
from statemachine.updates import KeepStored
from supervisor.chronicle import Chronicle
from supervisor.cleanups import Cleanups
from supervisor.mailbox import Adoption, ClosedMailboxError, Letter, Mailbox
from supervisor.notices import Notices
from supervisor.observing import NOBODY
from supervisor.refusals import draining, not_suspended, out_of_time, terminated
from supervisor.step_runner import Performer, RunningStep, StepRunner, internal
from supervisor.watching import Watching

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from anyio.abc import TaskGroup

    from actors.journal import Journal, Mark
    from actors.runsc.reclaiming import Survivor
    from statemachine.events import Event
    from supervisor.observing import Observer

_log = structlog.get_logger("greenroom.life")


class Entrance(enum.Enum):
    """How a life comes to its loop when no fact tells."""

    NEW = "new"
    AT_REST = "atRest"


class Life:
    """One life of one actor, from its admission to Terminated (or to the end of the worker).

    Public state is read by status and waiters; only the loop changes it. `begins_anew` tells that another life follows,
    `follows` that the actor is about to act on a request that was kept, `has_come` that it is where it came in.
    """

    def __init__(
        self,
        *,
        assignment: WorkerAssignment,
        actor: Actor,
        journal: Journal,
        performer: Performer,
        on_change: Callable[[Life], Awaitable[None]],
        now_s: Callable[[], float],
        source: Snapshot | None = None,
        observer: Observer = NOBODY,
    ) -> None:
        """`source` is the snapshot that the assignment names, if it names one."""
        self.assignment = assignment
        self.actor = actor
        self.since_s = now_s()
        self.begins_anew = False
        self.follows = False
        self.ended, self.has_come = anyio.Event(), anyio.Event()
        self._changed: anyio.Event | None = None
        self.notices = Notices(now_s)
        self._performer, self._on_change, self._now_s = performer, on_change, now_s
        self._telling = anyio.Lock(fast_acquire=True)
        self._mailbox = Mailbox()
        self._observer = observer
        self._steps = StepRunner(
            performer=performer, answer=self._answered, ended=partial(observer.step_ended, assignment.uid)
        )
        self._watching = Watching(performer, self.feed)
        self._deadline_at: float = math.inf
        self._cleanups = Cleanups(self.feed)
        self._source = source
        self._log = _log.bind(actor=assignment.uid, generation=assignment.generation)
        self._chronicle = Chronicle(journal, self._log)

    @property
    def uid(self) -> str:
        """The actor's uid."""
        return self.assignment.uid

    @property
    def waiting(self) -> int:
        """How many events wait to be taken."""
        return len(self._mailbox)

    @property
    def rests(self) -> bool:
        """Whether it is in a resting or final state."""
        return self.actor.state in RESTING | FINAL

    async def changed(self) -> None:
        """Wait until anything about it changes."""
        if self._changed is None:
            self._changed = anyio.Event()
        await self._changed.wait()

    async def feed(self, event: Event) -> None:
        """Queue a fact.

        Raises:
            ClosedMailboxError: the life is over.
        """
        await self._mailbox.put(Letter(event))

    async def _answered(self, answer: Event, running: RunningStep) -> None:
        await self._mailbox.put(Letter(answer, step=running))

    async def drain(self, on_drain: OnDrain) -> None:
        """Ask it to end because the worker does, and wait until it holds nothing of the worker any more."""
        problem = out_of_time() if on_drain is OnDrain.STOP_NOW else draining()
        request = e.DrainRequested(on_drain=on_drain, problem=problem)
        # Answered, and not only queued: what was asked of a resting actor before this may be about to make it run.
        with contextlib.suppress(ProblemError):
            await self.ask(request)
            while self.actor.state not in INACTIVE and not self.ended.is_set():
                await self.changed()
            await self.ask(request)  # once more, which is answered when it has told of its rest on disk, too

    async def ask(self, event: Event, adoption: Adoption | None = None) -> Outcome:
        """Queue a request and wait until the machine has answered it (not until it is fulfilled).

        Raises:
            ProblemError: ActorTerminated when the life is over.
        """
        letter = Letter(event, adoption=adoption)
        try:
            await self._mailbox.put(letter)
        except ClosedMailboxError:
            raise ProblemError(terminated(self.uid)) from None
        await letter.answered.wait()
        if letter.outcome is None:
            raise ProblemError(terminated(self.uid))
        return letter.outcome

    async def take_over(self, survivor: Survivor) -> None:
        """Go on with the sandbox that outlived an earlier life of the worker.

        Raises:
            ProblemError: it cannot be gone on with; nothing of it is owned.
        """
        self.actor = await self._performer.take_over(survivor, self.actor)

    def inherit(self, activation: str) -> None:
        """Hold on to an activation of an earlier life of the worker that could not be ended."""
        self._performer.inherit(activation)

    async def found(self) -> None:
        """Begin the journal: from here on the life is on disk.

        Raises:
            OSError: it cannot be written.
        """
        await self._chronicle.begin(self.actor, since_s=self.since_s)

    async def run(self, entrance: Entrance | Event) -> None:
        """The loop, until the life has ended or this is cancelled.

        Args:
            entrance: whether it begins or was found at rest; or the fact that recovery found.
        """
        try:
            async with anyio.create_task_group() as children:
                await self._come(entrance, children)
                self.has_come.set()
                while self.actor.state not in FINAL:
                    await self._take_safely(await self._next(), children)
                children.cancel_scope.cancel()
        finally:
            self._close()

    async def _come(self, entrance: Entrance | Event, children: TaskGroup) -> None:
        match entrance:
            case Entrance.NEW:
                await self._enter(begin(self.actor), None, children)
            case Entrance.AT_REST:
                await self._chronicle.rebase(self.actor, since_s=self.since_s)
                await self._tell()
            case _:
                await self._chronicle.rebase(self.actor, since_s=self.since_s)
                await self._take_safely(Letter(entrance), children)

    def end_unstarted(self) -> None:
        """For a life that had ended before, or could not begin: it takes nothing."""
        self._close()

    async def give_up_successor(self, problem: Problem) -> None:
        """For a life that is over: nothing follows on it, and this is why. On disk too, where its status says so."""
        self.begins_anew = False
        self.actor = attrs.evolve(self.actor, problem=problem)
        await self._chronicle.rebase(self.actor, since_s=self.since_s)
        self._announce()

    def note_stored(self, event: e.SnapshotUploaded) -> None:
        """For a life that is over: where its snapshot is."""
        self.actor = KeepStored.apply(self.actor, event)
        self._announce()

    def _close(self) -> None:
        self._mailbox.close()
        self.ended.set()
        self.has_come.set()
        self._announce()

    def _announce(self) -> None:
        if self._changed is not None:
            self._changed.set()
            self._changed = None

    async def _next(self) -> Letter:
        """The next event, or DeadlineExceeded when the state lasted too long.

        A step that has ended in time has kept its deadline: its answer is on its way.
        """
        if self._deadline_at == math.inf:
            return await self._mailbox.take()
        running = self._steps.current
        with anyio.CancelScope(deadline=self._deadline_at):
            return await self._mailbox.take()
        if running is not None and running.has_ended:
            return await self._mailbox.take()
        deadline_s = self.actor.deadline_s or 0.0
        self._deadline_at = math.inf
        problem = Problem(
            step=STEP_OF.get(self.actor.state, Step.SUPERVISE),
            reason=Reason.STEP_DEADLINE_EXCEEDED,
            subject=str(self.actor.state),
            message=f"{self.actor.state} did not end within {deadline_s:g} s",
        )
        return Letter(e.DeadlineExceeded(problem=problem))

    async def _take_safely(self, letter: Letter, children: TaskGroup) -> None:
        """Take an event. A fault of ours costs this event, never the actor's loop."""
        try:
            await self._take(letter, children)
        except Exception as error:  # noqa: BLE001 - see above
            self._log.exception("fault", event_type=type(letter.event).__name__, reason=str(Reason.INTERNAL))
            letter.outcome = Refused(problem=internal(Step.SUPERVISE, type(letter.event).__name__, error))
        finally:
            letter.answered.set()

    async def _take(self, letter: Letter, children: TaskGroup) -> None:
        event = letter.event
        if letter.step is not None:
            if letter.step is not self._steps.current:
                self._log.debug("late", event_type=type(event).__name__, state=str(self.actor.state))
                return
            self._steps.settle()
        outcome = step(self.actor, event)
        if letter.adoption is not None and not isinstance(outcome, Refused):
            try:
                outcome = await self._adopt(letter.adoption, event)
            except ProblemError as error:
                outcome = Refused(problem=error.problem)
        letter.outcome = outcome
        match outcome:
            case Ignored(why=why):
                self._log.debug("ignored", event_type=type(event).__name__, state=str(self.actor.state), why=why)
            case Refused(problem=problem):
                self._log.info("refused", event_type=type(event).__name__, reason=str(problem.reason))
            case Transition():
                await self._enter(outcome, event, children, answered=letter.answered)

    async def _adopt(self, adoption: Adoption, event: Event) -> Outcome:
        """Go on with a higher generation, and return what follows from its wish.

        On disk first, so that a crash finds the one or the other; and not as acted on before that is written too.
        """
        await self._performer.adopt(adoption.assignment)
        self.assignment, self._source = adoption.assignment, adoption.source
        self.actor = adoption.actor(self.actor)
        outcome = step(self.actor, event)
        if not isinstance(outcome, Transition):  # nothing of it is left to be done
            self._chronicle.follow(self.assignment.generation)
        await self._chronicle.rebase(self.actor, since_s=self.since_s)
        self._chronicle.follow(self.assignment.generation)
        self._log = _log.bind(actor=self.uid, generation=self.assignment.generation)
        self._chronicle.tell_to(self._log)
        self._log.info("adopted", desired_state=str(self.assignment.desired_state))
        await self._tell()
        return outcome

    async def _enter(
        self, transition: Transition, event: Event | None, children: TaskGroup, answered: anyio.Event | None = None
    ) -> None:
        """Write a transition down, tell it, perform its commands."""
        before, self.actor = self.actor, transition.actor
        if before.state in INACTIVE and self.actor.state not in INACTIVE:
            self.notices.clear()
        # Together with the state: whoever sees Terminated sees whether it is the end.
        self.begins_anew = any(isinstance(command, c.BeginAnew) for command in transition.commands)
        self.follows = any(isinstance(command, c.FollowPending) for command in transition.commands)
        if before.state is not self.actor.state or event is None:
            self.since_s = self._now_s()
            self._start_deadline()
        if event is not None:
            await self._chronicle.record(before, event, transition, since_s=self.since_s)
        self._chronicle.tell(before, self.actor, event)
        self._observer.entered(self.uid, before, self.actor, event)
        # Who waits for rest, or has asked, finds the file written. From step to step the step goes first: the two syncs
        # of the file would make every start that much later.
        tells_first = self.rests or not (event is None or isinstance(event, e.ANSWERS))
        if tells_first:
            await self._tell()
        self._announce()
        if answered is not None:
            answered.set()
        for command in transition.commands:
            await self._perform(command, children)
        if not tells_first:
            await self._tell()
        if self.actor.state in RESTING and self._mailbox.is_empty:
            await self._chronicle.compact(self.actor, since_s=self.since_s)
        self._cleanups.see_to(self.actor, children, self._log)

    async def tell_trouble(self, problem: Problem, count: int = 1) -> None:
        """Tell of a trouble that came so often, and with which the actor runs on."""
        self._observer.troubled(self.uid, problem, count)
        if not self.ended.is_set() and self.notices.add(problem, count):
            self._log.warning("notice", reason=str(problem.reason), subject=problem.subject, message=problem.message)
            await self._tell()

    async def _tell(self) -> None:
        # In turn: what was told first must not be written last.
        async with self._telling:
            await self._on_change(self)

    async def mark(self, mark: Mark) -> None:
        """Journal a progress mark of the running step; never the step's trouble when it cannot be."""
        await self._chronicle.mark(mark)

    async def _perform(self, command: c.Command, children: TaskGroup) -> None:
        match command:
            case c.CancelStep():
                await self._steps.cancel()
            case c.WatchContainers():
                self._watching.start(children, self._log)
            case c.FollowPending(pending=pending):
                await self._take(Letter(self._request_for(pending)), children)
                if self.follows:  # it was refused, so that the actor stays where it is
                    self.follows = False
                    self._announce()
            case c.BeginAnew():
                return  # the worker does, when this life is over
            case _:
                if isinstance(command, c.ReleaseSandbox | c.RollBack):
                    self._watching.stop()
                # Its time begins now: waiting for the end of a cancelled step has cost nothing of it.
                self._start_deadline()
                self._steps.start(command, self.actor, children, self._log)

    def _start_deadline(self) -> None:
        limit_s = self.actor.deadline_s
        self._deadline_at = anyio.current_time() + limit_s if limit_s is not None else math.inf

    def _request_for(self, pending: Pending) -> Event:
        """The request that was kept, made anew from what is true now."""
        match pending:
            case Pending.RUN:
                return e.Activate(source=self.source_now(), by=By.DOCUMENT)
            case Pending.SUSPEND:
                return e.SuspendRequested(by=By.DOCUMENT)
            case Pending.TERMINATE:
                return e.StopRequested(by=By.DOCUMENT)
            case Pending.DRAIN_BY_SUSPEND:
                return e.DrainRequested(on_drain=OnDrain.SUSPEND, problem=draining())
            case Pending.DRAIN_BY_STOP:
                return e.DrainRequested(on_drain=OnDrain.STOP, problem=not_suspended(self.actor.problem))

    def source_now(self) -> Snapshot | None:
        """The snapshot that a request to run would restore now; None is a cold start."""
        match self.assignment.snapshot:
            case ColdStart.WANTED:
                return None
            case SnapshotAt():
                return self._source
            case None:
                return self.actor.last_good
