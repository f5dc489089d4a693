"""A performer whose steps succeed at once, unless a test holds them or scripts their answers."""

import anyio

from actors.steps.assign import write_assignment
from statemachine import commands as c
from statemachine import events as e
from statemachine.actor import Snapshot
from statemachine.problem import Problem, ProblemError, Step
from statemachine.reasons import Reason
from tests.statemachine.world import ANSWERS


def a_problem(reason=Reason.RUNTIME_FAILED, step=Step.CREATE):
    return Problem(step=step, reason=reason, subject="thing", message=f"a sample of {reason}")


def a_snapshot(number=1):
    return Snapshot(id=f"s{number:016x}", uri=f"file:///snapshots/s{number:016x}", created_at=float(number))


class Hold:
    """A step that waits until it is let go. `cleanup` is what its own undo waits for when it is cancelled."""

    def __init__(self, *, has_cleanup=False):
        self.begun, self.cancelled, self._go, self.cleanup = anyio.Event(), anyio.Event(), anyio.Event(), anyio.Event()
        self._has_cleanup = has_cleanup

    def let_go(self):
        self._go.set()

    async def wait(self):
        self.begun.set()
        try:
            await self._go.wait()
        except anyio.get_cancelled_exc_class():
            self.cancelled.set()
            if self._has_cleanup:
                with anyio.move_on_after(60, shield=True):  # a test that fails must not hang
                    await self.cleanup.wait()
            raise


class FakePerformer:
    """Performs nothing.

    Attributes:
        stage: where an adopted assignment is written, when there is a stage.
        story: names of the commands, as they begin (`X`), end (`X.`) and are cancelled (`X!`).
        answers: command class -> an event, an exception, or a list of them for one after the other.
        holds: command class -> the Hold that its step waits at.
        feed: the sandbox's voice, while it is watched.
    """

    def __init__(self, stage=None):
        self.stage = stage
        self.story, self.answers, self.holds = [], {}, {}
        self.adopted = []
        self.feed = None
        self.watched = anyio.Event()
        self.watch_error = self.fate_error = self.adopt_error = self.take_over_error = None
        self.taken_over, self.inherited = [], None
        self.fate = e.SandboxFate.ALIVE
        self.running = self.running_most = 0
        self._snapshots = 0

    def hold(self, kind, **options):
        self.holds[kind] = Hold(**options)
        return self.holds[kind]

    async def perform(self, command, actor):
        kind = type(command)
        self.running += 1
        self.running_most = max(self.running_most, self.running)
        self.story.append(kind.__name__)
        try:
            await anyio.lowlevel.checkpoint()
            if kind in self.holds:
                await self.holds[kind].wait()
        except anyio.get_cancelled_exc_class():
            self.story.append(f"{kind.__name__}!")
            raise
        finally:
            self.running -= 1
        self.story.append(f"{kind.__name__}.")
        return self._answer(kind, actor)

    def _answer(self, kind, actor):
        answer = self.answers.get(kind)
        if isinstance(answer, list):
            answer = answer.pop(0) if answer else None
        if isinstance(answer, Exception):
            raise answer
        if answer is not None:
            return answer
        if kind is c.SaveSnapshot:
            self._snapshots += 1
            return e.SnapshotProven(snapshot=a_snapshot(self._snapshots))
        if kind is c.RollBack:
            return e.RolledBack(origin=e.OriginVerdict.GOOD if actor.origin else e.OriginVerdict.NONE)
        return ANSWERS[kind]

    async def watch(self, feed):
        if self.watch_error is not None:
            raise self.watch_error
        self.feed = feed
        self.watched.set()
        try:
            await anyio.sleep_forever()
        finally:
            self.feed = None

    async def adopt(self, assignment):
        if self.adopt_error is not None:
            raise self.adopt_error
        if self.stage is not None:
            await write_assignment(self.stage.ports.files, self.stage.directory, assignment)
        self.adopted.append(assignment)

    async def take_over(self, survivor, actor):
        if self.take_over_error is not None:
            raise self.take_over_error
        self.taken_over.append(survivor)
        return actor

    def inherit(self, activation):
        self.inherited = activation

    async def sandbox_fate(self):
        if self.fate_error is not None:
            raise self.fate_error
        return self.fate


def failing(reason=Reason.RUNTIME_FAILED):
    return ProblemError(a_problem(reason))
