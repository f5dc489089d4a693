"""A worker on fakes: documents in, lives out."""

import json
from contextlib import asynccontextmanager
from pathlib import Path

import anyio

from actors.layout import StateDir
from statemachine.actor import OnDrain
from statemachine.problem import ProblemError
from statemachine.states import State
from supervisor.admitting import Admission
from supervisor.draining import Present, drain
from supervisor.observing import NOBODY
from supervisor.settings import Settings
from supervisor.shutdown import Shutdown
from supervisor.worker import Worker
from tests.actors.assignments import BASE, document
from tests.actors.memory_files import DIRECTORY
from tests.fakes.files import FakeFiles
from tests.fakes.nvml import FakeKeeper, FakeNvml, desk_on
from tests.fakes.performer import FakePerformer
from tests.fakes.ports import FakePorts
from tests.fakes.sandbox import RUNTIME
from tests.supervisor.lives import BOUND_S

STATE = StateDir(Path("/state"))
DRAIN_S = 3 * BOUND_S


def a_document(uid="a1", generation=1, **changes):
    return json.dumps(document(metadata__uid=uid, metadata__generation=generation, **changes)).encode()


class Stand:
    """A worker, its admission, and the performers of its actors, the newest of each uid."""

    def __init__(self, scope, ports=None, state=STATE, observer=NOBODY, **settings):
        self.ports, self.state = ports or FakePorts(), state
        self.files, self.wall = self.ports.files, self.ports.wall
        self.nvml, self.keeper = FakeNvml(), FakeKeeper()
        self.performers, self.prepare = {}, {}
        paths = {"state_dir": state.root, "run_dir": Path("/run"), "assignments": None, "runsc": Path("/runsc")}
        self.worker = Worker(
            ports=self.ports.as_ports,
            settings=Settings(**{**paths, "max_actors": 1000, "on_drain": OnDrain.STOP, **settings}),
            state_dir=state,
            runtime=RUNTIME,
            gpus=desk_on(self.files, self.nvml, self.keeper),
            shutdown=Shutdown(DRAIN_S),
            scope=scope,
            performer_for=self._performer,
            observer=observer,
        )
        self.admission = Admission(
            files=self.files,
            stores=self.ports.stores,
            roster=self.worker,
            snapshots_of=lambda uid: state.actor(uid).snapshots,
            observer=observer,
        )
        if isinstance(self.files, FakeFiles):
            for directory in (BASE / "rootfs", state.actors, state.sandboxes, state.refused):
                for each in (directory, *directory.parents):
                    self.files.content.setdefault(each, DIRECTORY)

    def _performer(self, stage):
        uid = stage.assignment.uid
        performer = self.performers[uid] = FakePerformer(stage)
        self.prepare.get(uid, lambda _: None)(performer)
        return performer

    async def drain(self, commands_end=None):
        """As when a signal has asked for the end."""
        self.worker.shutdown.ask()
        return await drain(self.ports.as_ports, self.worker, Present(self.worker), commands_end or nothing_inside)

    async def submit(self, uid="a1", generation=1, **changes):
        admitted = await self.admission.submit(a_document(uid, generation, **changes), base=BASE)
        return admitted.effect

    async def refused(self, uid="a1", generation=1, **changes):
        """Submit, and return the reasons of its refusal."""
        try:
            effect = await self.submit(uid, generation, **changes)
        except ProblemError as error:
            return [problem.reason for problem in error.problems]
        raise AssertionError(f"it was not refused, but {effect}")

    def life(self, uid="a1"):
        return self.worker.require(uid)

    def story(self, uid="a1"):
        """The commands of the present life that have ended."""
        return [each[:-1] for each in self.performers[uid].story if each.endswith(".")]

    async def until(self, *states, uid="a1"):
        """Wait until the actor, in whichever life, is in one of these states."""
        with anyio.fail_after(BOUND_S):
            while self.life(uid).actor.state not in states:
                if self.life(uid).ended.is_set():
                    await self.worker.arrival()
                else:
                    await self.life(uid).changed()

    async def running(self, uid="a1", generation=1, **changes):
        await self.submit(uid, generation, **changes)
        await self.until(State.RUNNING, uid=uid)
        return self.life(uid)

    async def terminated(self, uid="a1", generation=1):
        await self.running(uid, generation)
        await self.submit(uid, generation + 1, spec__desiredState="Terminated")
        await self.life(uid).ended.wait()

    def on_disk(self, uid="a1"):
        """The assignment that stands on disk."""
        return json.loads(self.files.content[STATE.actor(uid).assignment])["assignment"]

    def status(self, uid="a1"):
        return json.loads(self.files.content[STATE.actor(uid).status])


async def nothing_inside(_uid):
    """No command of a client is executed inside an actor."""


@asynccontextmanager
async def a_stand(ports=None, state=STATE, **settings):
    async with anyio.create_task_group() as scope:
        with anyio.fail_after(3 * BOUND_S):
            yield Stand(scope, ports, state, **settings)
        scope.cancel_scope.cancel()
