"""A sandbox that notes what is asked of it, and a stage to stand on."""

import signal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import anyio

from actors.layout import StateDir
from actors.ports import Exit, Finished
from actors.runsc.answers import Status
from actors.runsc.flags import GlobalFlags
from actors.steps.stage import Runtime, Stage
from tests.actors.assignments import admitted, with_spec
from tests.fakes.gpus import FakeDesk
from tests.fakes.ports import FakePorts

STATE = StateDir(Path("/state"))
VERSION: Any = SimpleNamespace(text="release-1", date=20260101, can_restore=lambda other: other == "release-1")
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
        self.probes: list[int] = []
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
        self.frozen = False

    async def is_frozen(self):
        return self.frozen

    async def is_executing(self):
        await self._do("is_executing")
        return self.executing

    async def checkpoint_into(self, directory):
        await self._do("checkpoint")
        for name, data in self.image.items():
            self.files.put(directory / name, data)

    async def inspect(self, name):
        await self._do(f"inspect {name}")
        return SimpleNamespace(status=Status.STOPPED if name in self.stopped else Status.RUNNING)

    async def delete_exited(self, name):
        await self._do(f"delete {name}")

    async def signal(self, name, word):
        await self._do(f"{word} {name}")
        if self.obeys:
            self.exits[name].set()

    async def ended(self, name):
        await self.exits[name].wait()

    async def exit_code(self, name, *, deadline_s):
        await self._do(f"exit_code {name}")
        return self.codes[name]

    async def died(self):
        return await self.process.wait()

    async def execute(self, name, argv, *, deadline_s, user=None):
        await self._do(f"execute {name}")
        self.executed_as.append(user)
        return Finished(exit=Exit(code=self.probes.pop(0) if self.probes else 0))

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
