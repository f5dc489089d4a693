"""A stand with an intake: on files in memory, or on a real directory."""

import json
from contextlib import asynccontextmanager
from pathlib import Path

import anyio

from actors.layout import StateDir
from statemachine.states import State
from supervisor.directory_intake import DirectoryIntake
from supervisor.host.files import HostFiles
from supervisor.host.watch import HostWatch
from tests.actors.memory_files import DIRECTORY
from tests.fakes.ports import FakePorts
from tests.supervisor.lives import settled
from tests.supervisor.stands import a_document, a_stand

ASSIGNMENTS = Path("/assignments")
RESCAN_S = 0.05
"""What the fixture `short_times` makes of RESCAN_AFTER_S."""


class Intake:
    """What a test does to the directory, and what comes of it."""

    def __init__(self, stand, directory, follower=None):
        self.stand, self.directory, self.follower = stand, directory, follower
        self.worker, self.files = stand.worker, stand.files

    async def eventually(self, condition, *, within_s=90):
        with anyio.fail_after(within_s):
            while not condition():
                await anyio.sleep(0.002)

    @property
    def refusals(self):
        return self.stand.state.refused

    # ---- in memory

    def write(self, name, data=None, **changes):
        """A file is written, and the watch tells it."""
        self.files.put(self.directory / name, a_document(**changes) if data is None else data)
        self.stand.ports.watch.tell(name)

    def remove(self, name):
        del self.files.content[self.directory / name]
        self.stand.ports.watch.tell(name)

    async def quiet(self):
        """Everything that was told has been looked at."""
        await settled()

    async def some_rescans(self):
        """Longer than a countdown takes: what is not ended by then is not ended."""
        until_s = anyio.current_time() + 4 * RESCAN_S
        while anyio.current_time() < until_s:
            await anyio.sleep(0.01)

    # ---- either way

    def on_stage(self):
        """Every actor there is: its state and generation by its uid."""
        lives = self.worker.lives
        return {life.assignment.uid: (life.actor.state, life.assignment.generation) for life in lives}

    def reasons(self, name):
        return [str(problem.reason) for problem in self.worker.refused.get(name, ())]

    async def refused(self, name):
        await self.eventually(lambda: name in self.worker.refused)
        return self.reasons(name)

    async def running(self, uid="a1", generation=1):
        def is_so():
            life = self.worker.find(uid)
            return life and life.actor.state is State.RUNNING and life.assignment.generation == generation

        await self.eventually(is_so)

    async def ended(self, uid="a1"):
        await self.eventually(lambda: self.state(uid) is State.TERMINATED)

    def state(self, uid="a1"):
        life = self.worker.find(uid)
        return life.actor.state if life else None


async def _open(stand, directory, scope):
    intake = DirectoryIntake(
        directory=directory,
        ports=stand.ports.as_ports,
        state_dir=stand.state,
        worker=stand.worker,
        admission=stand.admission,
    )
    scope.start_soon(intake.run)
    return intake


@asynccontextmanager
async def an_intake():
    """On files in memory."""
    async with a_stand() as stand, anyio.create_task_group() as scope:
        stand.files.content[ASSIGNMENTS] = DIRECTORY
        follower = await _open(stand, ASSIGNMENTS, scope)
        await settled()
        yield Intake(stand, ASSIGNMENTS, follower)
        scope.cancel_scope.cancel()


@asynccontextmanager
async def a_running_file():
    """The same with `x.yaml` in it, whose actor is Running."""
    async with an_intake() as intake:
        intake.write("x.yaml")
        await intake.running()
        yield intake


@asynccontextmanager
async def a_real_intake(tmp_path):
    """On a real directory, with the real watch."""
    ports, state = FakePorts(), StateDir(tmp_path / "state")
    ports.files, ports.watch = HostFiles(roots=[state.root]), HostWatch()
    for directory in (state.actors, state.sandboxes, state.refused):
        await ports.files.make_directory(directory)
    directory = tmp_path / "assignments"
    (directory / "rootfs").mkdir(parents=True)
    async with a_stand(ports, state) as stand, anyio.create_task_group() as scope:
        yield Intake(stand, directory, await _open(stand, directory, scope))
        scope.cancel_scope.cancel()


def refusal(intake, name):
    """What stands in `refused/<file>.json`; None when there is none."""
    data = intake.files.content.get(intake.stand.state.refused / f"{name}.json")
    return json.loads(data) if data else None
