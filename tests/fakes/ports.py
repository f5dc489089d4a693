"""The other ports: a clock that stands still, a watch that is told what to tell, processes of which there are none."""

from contextlib import asynccontextmanager
from typing import Any, cast

import anyio

from actors.ports import Ports
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

    @property
    def as_ports(self):
        return cast("Ports", self)
