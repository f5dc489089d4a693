"""One life on fakes, run in a task group of the test's."""

from contextlib import asynccontextmanager

import anyio

from actors.journal import Journal, replay
from actors.layout import ActorDir
from statemachine.states import State
from supervisor.life import Entrance, Life
from supervisor.memory import first_memory
from tests.actors.assignments import BASE, admitted, document, with_spec
from tests.fakes.performer import FakePerformer
from tests.fakes.ports import FakePorts

DIRECTORY = ActorDir(BASE / "state/actors/a1")
BOUND_S = 60.0
TWO = [{"name": name, "rootfs": "rootfs", "command": ["/bin/app"]} for name in ("one", "two")]


def an_assignment(generation=1, **spec):
    content = with_spec(**spec) if spec else document()
    content["metadata"]["generation"] = generation
    return admitted(content)


async def until(life, *states):
    """Wait until a life is in one of these states."""
    with anyio.fail_after(BOUND_S):
        while life.actor.state not in states:
            await life.changed()


async def settled():
    """Everything has happened that can: on fakes that takes some turns of the loop, and no time."""
    for _ in range(100):
        await anyio.lowlevel.checkpoint()


class Bench:
    """A life and everything around it."""

    def __init__(self, assignment=None, source=None, actor=None):
        self.ports = FakePorts()
        self.files, self.wall, self.performer = self.ports.files, self.ports.wall, FakePerformer()
        self.assignment = assignment or an_assignment()
        self.states = []
        self.change_error = None
        journal = Journal(files=self.files, wall=self.wall, path=DIRECTORY.journal)
        self.life = Life(
            assignment=self.assignment,
            actor=actor or first_memory(self.assignment, source),
            journal=journal,
            performer=self.performer,
            on_change=self._on_change,
            now_s=self.wall.now_s,
            source=source,
        )
        self.passed = [self.life.actor]
        """Every actor that it has been, in order."""

    async def _on_change(self, life):
        self.passed.append(life.actor)
        await anyio.lowlevel.checkpoint()
        if self.change_error is not None:
            raise self.change_error
        if self.states[-1:] != [life.actor.state]:
            self.states.append(life.actor.state)

    @property
    def story(self):
        return self.performer.story

    @property
    def journal(self):
        return self.files.content[DIRECTORY.journal]

    def replayed(self):
        return replay(self.journal, subject="journal.jsonl")

    @asynccontextmanager
    async def running(self, *states, entrance=Entrance.NEW):
        """Run the life, and wait for one of these states first."""
        await self.life.found()
        async with anyio.create_task_group() as group:
            group.start_soon(self.life.run, entrance)
            if states:
                await until(self.life, *states)
                await settled()
            with anyio.fail_after(BOUND_S):
                yield self.life
            group.cancel_scope.cancel()


@asynccontextmanager
async def a_running_life(**options):
    bench = Bench(**options)
    async with bench.running(State.RUNNING):
        yield bench
