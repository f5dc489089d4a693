"""A sandbox that notes what is asked of it, and a stage to stand on."""

import signal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import anyio

from actors.layout import StateDir
from actors.ports import Exit, Finished, OpenFile
from actors.runsc.answers import Status
from actors.runsc.flags import GlobalFlags
from actors.runsc.record import ROOT_CONTAINER
from actors.runsc.version import Flavour
from actors.steps.stage import Runtime, Stage
from statemachine.problem import ProblemError
from tests.actors.assignments import admitted, with_spec
from tests.fakes.gpus import FakeDesk
from tests.fakes.ports import FakePorts

STATE = StateDir(Path("/state"))
VERSION: Any = SimpleNamespace(
    text="release-1",
    date=20260101,
    flavour=Flavour.HEAD,
    forcing_flags=(),
    can_restore=lambda other: other == "release-1",
)
RUNTIME = Runtime(
    path=Path("/runsc"), version=VERSION, sha256="0" * 64, flags=GlobalFlags(), machine="x86_64", greenroom="0"
)


class FakeChild:
    """A process that ends when it is killed."""

    def __init__(self, story):
        self.story, self.gone = story, anyio.Event()

    identity = None

    async def wait(self):
        await self.gone.wait()
        return Exit(code=-9)

    def signal(self, signum):
        self.story.append(f"signal {signal.Signals(signum).name}")
        self.gone.set()

    def close(self):
        self.story.append("close")


class FakeSandbox:
    """Alive, with containers that run until they are told to end.

    Attributes:
        story: what was asked, in order.
        fails: what was asked -> the error that it meets.
        stopped: containers that inspect as stopped.
        image: files that a checkpoint writes.
        stays_frozen: whether a thaw is well and does nothing.
        held: what it has open.
        memory: how much of it its containers take, bytes.
        spoiled: containers that cannot be left out of an image.
        log: what it wrote last.
        doubted: containers whose gofer is no sign of their end.
        stops: set when one may have stopped that lives without its gofer.
        stops_while_saved: containers that end during a checkpoint.
    """

    def __init__(self, files, containers=("main",)) -> None:
        self.files, self.containers = files, containers
        self.story: list[str] = []
        self.fails: dict[str, Exception] = {}
        self.stopped: set[str] = set()
        self.image = {"checkpoint.img": b"c", "pages_meta.img": b"m", "pages.img": b"page"}
        self.process = FakeChild(self.story)
        self.owned = (self.process,)
        self.exits = {name: anyio.Event() for name in containers}
        self.codes = dict.fromkeys(containers, 0)
        self.obeys, self.frozen, self.executing = True, False, False
        self.stays_frozen = False
        self.held: tuple[OpenFile, ...] = ()
        self.memory = 0
        self.spoiled: set[str] = set()
        self.stops_while_saved: set[str] = set()
        self.runsc = SimpleNamespace(activation=STATE.activation("x"))
        self.probes: list[int] = []
        self.doubted: set[str] = set()
        self.stops = anyio.Event()
        self.log = ""
        self.executed_as: list[str | None] = []

    async def _do(self, what):
        await anyio.lowlevel.checkpoint()
        self.story.append(what)
        error = self.fails.get(what)
        if error is not None:
            raise error

    async def freeze(self):
        await self._do("freeze")
        self.frozen = True

    async def thaw(self):
        await self._do("thaw")
        self.frozen = self.stays_frozen

    async def is_frozen(self):
        return self.frozen

    async def is_executing(self):
        await self._do("is_executing")
        return self.executing

    async def memory_bytes(self):
        await self._do("memory_bytes")
        return self.memory

    async def open_files(self):
        await self._do("open_files")
        return self.held

    def can_leave_out(self, name):
        return name not in self.spoiled

    async def checkpoint_into(self, directory, *, cuda_checkpoint=None):
        await self._do("checkpoint" if cuda_checkpoint is None else f"checkpoint by {cuda_checkpoint}")
        self.stopped |= self.stops_while_saved
        for name, data in self.image.items():
            self.files.put(directory / name, data)

    async def inspect(self, name):
        await self._do(f"inspect {name}")
        if name == ROOT_CONTAINER:
            return SimpleNamespace(status=Status.PAUSED if self.frozen else Status.RUNNING)
        return SimpleNamespace(status=Status.STOPPED if name in self.stopped else Status.RUNNING)

    async def delete_exited(self, name):
        await self._do(f"delete {name}")

    async def signal(self, name, word):
        await self._do(f"{word} {name}")
        if self.obeys:
            self.exits[name].set()

    async def ended(self, name):
        await self.exits[name].wait()

    async def lives_on(self, name):
        try:
            state = await self.inspect(name)
        except ProblemError:
            return None
        return state.status is not Status.STOPPED

    async def until_stopped(self, name):
        while await self.lives_on(name) is not False:
            await self.stops.wait()

    async def doubt(self, name):
        await self._do(f"doubt {name}")
        self.doubted.add(name)

    async def exit_code(self, name, *, deadline_s):
        await self._do(f"exit_code {name}")
        return self.codes[name]

    async def died(self):
        return await self.process.wait()

    async def execute(self, name, argv, *, deadline_s, user=None):
        await self._do(f"execute {name}")
        self.executed_as.append(user)
        return Finished(exit=Exit(code=self.probes.pop(0) if self.probes else 0))

    async def last_log(self):
        return self.log

    def last_words(self, _name, finished):
        return finished.stderr.decode()

    def close(self):
        self.process.close()


def a_stage(containers=("main",), *, gpus=None, **spec):
    """A stage with a live sandbox of these containers."""
    ports = FakePorts()
    rows = [{"name": name, "rootfs": "rootfs", "command": ["/bin/app"], **spec} for name in containers]
    marks = []

    async def note(mark):
        marks.append(mark.mark)

    stage = Stage(
        ports=ports.as_ports,
        state_dir=STATE,
        runtime=RUNTIME,
        gpus=gpus if gpus is not None else FakeDesk(),
        assignment=admitted(with_spec(containers=rows)),
        note=note,
    )
    stage.activation = STATE.activation("a1")
    ports.files.put(stage.activation / "record.json", b"{}")
    sandbox: Any = FakeSandbox(ports.files, containers)
    stage.sandbox = sandbox
    return stage, sandbox, marks
