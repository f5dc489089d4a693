"""The other ports: a clock that stands still, a watch that is told what to tell, processes of which there are none."""

from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import anyio

from actors.ports import CgroupsUnavailableError, CgroupUsage, Delegation, OwnUsage, Ports
from tests.fakes.files import FakeFiles
from tests.fakes.stores import FakeStores


class FakeWall:
    """The calendar stands still unless it is set; ids count up."""

    def __init__(self):
        self.time_s = 1_000_000.0
        self._ids = 0

    def now_s(self):
        return self.time_s

    def boot_id(self):
        return "boot-1"

    def machine(self):
        return "x86_64"

    def cpu_features(self):
        return ("avx2", "fpu")

    def fresh_id(self):
        self._ids += 1
        return f"{self._ids:016x}"


class FakeProcesses:
    """Nothing runs."""

    def __init__(self):
        self.usage = OwnUsage(
            cpu_s=1.5,
            resident_bytes=40 << 20,
            proportional_bytes=30 << 20,
            open_files=20,
            open_files_max=1024,
            threads=2,
            reaped=3,
        )

    async def own_usage(self):
        return self.usage

    async def find(self, *, argument):
        return ()

    async def find_arguments(self, *, prefix):
        return ()

    async def is_alive(self, identity):
        return False

    async def holds_output(self, identity):
        return False

    async def open_files(self, identity):
        return ()


class FakeGpus:
    """No monitor ever says anything."""

    @asynccontextmanager
    async def monitor(self, _places):
        yield self

    async def receive(self):
        await anyio.sleep_forever()


class FakeCgroups:
    """None is ours, unless a test says so; what is made is kept by name, with its limits and leaves."""

    def __init__(self):
        self.unavailable = "the fake machine has no cgroups"
        self.delegation = Delegation(actors=Path("/cgroup/actors"), controllers=("cpu", "memory"))
        self.made: Any = {}
        self.used: Any = {}

    async def delegate(self):
        if self.unavailable:
            raise CgroupsUnavailableError(self.unavailable)
        return self.delegation

    async def make(self, name, *, leaves, limits):
        if name in self.made:
            raise FileExistsError(17, "File exists", name)
        self.made[name] = (tuple(leaves), limits)

    async def remove(self, name, *, deadline_s):
        self.made.pop(name, None)

    async def names(self):
        return tuple(sorted(self.made))

    async def usage(self, name):
        if name not in self.made:
            raise FileNotFoundError(2, "No such file or directory", name)
        return self.used.get(name, CgroupUsage())


class FakeWatch:
    """Tells what `tell` is told, to whoever watches."""

    def __init__(self) -> None:
        self._send: Any = None

    def tell(self, *names):
        self._send.send_nowait(frozenset(names))

    @asynccontextmanager
    async def changes(self, _directory, *, within_s=0.0):
        self._send, receive = anyio.create_memory_object_stream[frozenset[str]](1000)
        with self._send, receive:
            yield receive


class FakePorts:
    """All of them, each at hand as what it is; a test may put real ones in their place."""

    def __init__(self) -> None:
        self.files: Any = FakeFiles()
        self.wall: Any = FakeWall()
        self.watch: Any = FakeWatch()
        self.processes: Any = FakeProcesses()
        self.net: Any = None
        self.gpus: Any = FakeGpus()
        self.stores: Any = FakeStores(self)
        self.cgroups: Any = FakeCgroups()

    @property
    def as_ports(self):
        return cast("Ports", self)
