"""A node with GPUs for the same test: a mock one on the real machine, and one of the simulated world."""

from __future__ import annotations

from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import anyio
import attrs

from actors.gpu.driver_folders import NVML
from actors.gpu.facts import ErrorFact, Fact, InventoryFact, decode_lines
from actors.ports import DriverPlaces
from sim.mock.layout import LIBRARIES
from sim.mock.scripting import apply
from sim.mock.state import Fault
from sim.world.gpu_monitor import SimGpus
from sim.world.gpus import GIB, ComputeProcess, Gpu, proc_files, some_gpus
from sim.world.process_table import ProcessTable
from sim.world.world import Machine, World
from supervisor.host.composition import open_host_ports
from supervisor.host.gpus import HostGpus
from tests.sim.mock.nodes import make_node, make_node_without_compiler

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from actors.ports import GpuMonitor, Gpus
    from sim.world.nvml import Return, Symbol, Trouble
    from tests.sim.mock.nodes import Node

MINORS: Final = (7, 2, 5, 3)
_OPTIONS: Final = (f"--gpus={len(MINORS)}", f"--minors={','.join(map(str, MINORS))}")
PERIOD_S: Final = 0.05
# A process with a Python in it is started, on a machine that may be busy.
BOUND_S: Final = 90.0


class MockGpuNode:
    """`greenroom mock-node`, scripted by its state file; another monitor than our own tells of it if one is named."""

    quiet_s = 2.5
    """How long its monitor says nothing only when it hangs; on a busy machine it may have to wait for its turn."""

    def __init__(self, node: Node, monitor: Path | None = None) -> None:
        self.node = node
        self._monitor = monitor
        directory = node.directory
        self.places = DriverPlaces(dev_root=directory, proc_root=directory / "proc", driver_root=directory / "driver")

    @asynccontextmanager
    async def gpus(self) -> AsyncIterator[Gpus]:
        async with open_host_ports(roots=[self.node.directory]) as ports:
            processes: Any = ports.processes  # of the real ports, the real one
            yield HostGpus(processes, program=self._monitor, period_s=PERIOD_S)

    def lose(self, minor: int) -> None:
        self._script(f"{minor}=lost")

    def recover(self, minor: int) -> None:
        self._script(f"{minor}=healthy")

    def report(self, minor: int, xid: int) -> None:
        self._script(f"{minor}=xid:{xid}")

    def occupy(self, minor: int, *pids: int) -> None:
        processes = tuple(ComputeProcess(pid=pid, used_bytes=GIB) for pid in pids)
        state = self.node.state()
        self.node.put(state.with_gpu(attrs.evolve(state.gpu(minor), processes=processes)))

    def put_in_mig_mode(self, minor: int) -> None:
        state = self.node.state()
        self.node.put(state.with_gpu(attrs.evolve(state.gpu(minor), is_in_mig_mode=True)))

    def load_driver(self, version: str | None) -> None:
        self._script(f"driver={version or 'none'}")
        path = self.places.proc_root / "driver/nvidia/version"
        path.unlink(missing_ok=True)
        if version is not None:
            path.write_text(proc_files((), version)["version"])

    def deny(self) -> None:
        self._script("devices=denied")

    def allow(self) -> None:
        self._script("devices=allowed")

    def spoil(self, symbol: Symbol, what: Return | Trouble, minor: int | None = None) -> None:
        state = self.node.state()
        fault = Fault(symbol=symbol, what=what if isinstance(what, str) else int(what), minor=minor)
        self.node.put(attrs.evolve(state, faults=(*state.faults, fault)))

    def heal(self) -> None:
        self.node.put(attrs.evolve(self.node.state(), faults=()))

    def hide_node(self, minor: int) -> None:
        path = self.node.directory / f"dev/nvidia{minor}"
        path.rename(self.node.directory / f"hidden{minor}")

    def show_node(self, minor: int) -> None:
        (self.node.directory / f"hidden{minor}").rename(self.node.directory / f"dev/nvidia{minor}")

    def hide_library(self) -> None:
        self._library.rename(self.node.directory / "hidden-library")

    def show_library(self) -> None:
        (self.node.directory / "hidden-library").rename(self._library)

    def install_library(self, version: str) -> None:
        """Only its name is another one: the monitor is to notice that there is another file."""
        there = self.node.directory / LIBRARIES
        old = self._library.resolve()
        (there / f"libnvidia-ml.so.{version}").write_bytes(old.read_bytes())
        self._library.unlink()
        self._library.symlink_to(f"libnvidia-ml.so.{version}")

    def restore(self) -> None:
        """Undo what a test did, but for another library."""
        for hidden in self.node.directory.glob("hidden*"):
            if hidden.name == "hidden-library":
                self.show_library()
            else:
                self.show_node(int(hidden.name.removeprefix("hidden")))
        self.node.reset()
        self.load_driver("580.65.06")

    def _script(self, word: str) -> None:
        self.node.put(apply(self.node.state(), word))

    @property
    def _library(self) -> Path:
        return self.node.directory / LIBRARIES / NVML


class WorldGpuNode:
    """One of the simulated world."""

    quiet_s = 8 * PERIOD_S

    def __init__(self, gpus: tuple[Gpu, ...]) -> None:
        self.world = World(machine=Machine(gpus=gpus))
        self.places = DriverPlaces()

    @asynccontextmanager
    async def gpus(self) -> AsyncIterator[Gpus]:
        table = ProcessTable(now_s=anyio.current_time)
        yield SimGpus(self.world.gpus, table, parent=1, period_s=PERIOD_S)
        assert [process.arguments for process in table if process.pid != 1] == []

    def lose(self, minor: int) -> None:
        self.world.gpus.lose(minor)

    def recover(self, minor: int) -> None:
        self.world.gpus.recover(minor)

    def report(self, minor: int, xid: int) -> None:
        self.world.gpus.report(minor, xid)

    def occupy(self, minor: int, *pids: int) -> None:
        self.world.gpus.occupy(minor, *(ComputeProcess(pid=pid, used_bytes=GIB) for pid in pids))

    def put_in_mig_mode(self, minor: int) -> None:
        self.world.gpus._change(minor, is_in_mig_mode=True)

    def load_driver(self, version: str | None) -> None:
        self.world.gpus.loaded_version = version

    def deny(self) -> None:
        self.world.gpus.deny_devices()

    def allow(self) -> None:
        self.world.gpus.allow_devices()

    def spoil(self, symbol: Symbol, what: Return | Trouble, minor: int | None = None) -> None:
        self.world.gpus.spoil(symbol, what, minor=minor)

    def heal(self) -> None:
        self.world.gpus.nvml_faults.clear()

    def hide_node(self, minor: int) -> None:
        self.world.gpus.remove_node(f"nvidia{minor}")

    def show_node(self, minor: int) -> None:
        self.world.gpus.make_nodes(minor)

    def hide_library(self) -> None:
        self._rename(NVML, "hidden-library")

    def show_library(self) -> None:
        self._rename("hidden-library", NVML)

    def install_library(self, version: str) -> None:
        self.world.gpus.upgrade_driver(version)

    def _rename(self, old: str, new: str) -> None:
        directory = self.world.disk.find_directory(self.world.gpus.library.parent)
        self.world.disk.rename(directory, old, directory, new)


GpuStory = MockGpuNode | WorldGpuNode


def mock_gpu_node(directory: Path) -> MockGpuNode:
    """Four GPUs, driver 580.65.06."""
    return MockGpuNode(make_node(directory / "node", *_OPTIONS))


def scripted_gpu_node(directory: Path) -> MockGpuNode:
    """The same without an NVML: its own monitor tells of it."""
    made = make_node_without_compiler(directory / "node", *_OPTIONS)
    return MockGpuNode(made, made.monitor)


def world_gpu_node() -> WorldGpuNode:
    """The same, simulated."""
    return WorldGpuNode(some_gpus(len(MINORS), minors=MINORS))


@attrs.define
class Listener:
    """Somebody who receives from a monitor.

    Attributes:
        quiet_s: how long is a silence.
        facts: everything that was told, in order.
    """

    monitor: GpuMonitor
    quiet_s: float
    facts: list[Fact] = attrs.field(factory=list)
    rest: bytes = b""

    async def until(self, is_told: Callable[[Fact], Any]) -> Fact:
        """Receive until something was told that is none of what was received before; returns that."""
        with anyio.fail_after(BOUND_S):
            while True:
                facts = await self._receive()
                if (found := next(filter(is_told, facts), None)) is not None:
                    return found

    async def _receive(self) -> tuple[Fact, ...]:
        data = await self.monitor.receive()
        assert data, "the monitor ended"
        facts, self.rest = decode_lines(self.rest + data)
        self.facts += facts
        return facts

    async def inventory(self, condition: Callable[[InventoryFact], bool] = lambda _: True) -> InventoryFact:
        fact = await self.until(lambda fact: isinstance(fact, InventoryFact) and condition(fact))
        assert isinstance(fact, InventoryFact)
        return fact

    async def losses(self, **expected: str | None) -> InventoryFact:
        """Wait until these GPUs, and no others, are lost for these causes: `losses(gpu5="XID 79")`."""
        wanted = {int(name.removeprefix("gpu")): cause for name, cause in expected.items()}
        return await self.inventory(lambda fact: lost(fact) == wanted)

    async def error(self) -> ErrorFact:
        fact = await self.until(lambda fact: isinstance(fact, ErrorFact))
        assert isinstance(fact, ErrorFact)
        return fact

    async def end(self) -> None:
        with anyio.fail_after(BOUND_S):
            while await self.monitor.receive():
                pass

    async def silence(self) -> None:
        """Wait until nothing is said any more, for many times as long as between two looks."""
        with anyio.fail_after(BOUND_S):
            while True:
                with anyio.move_on_after(self.quiet_s) as quiet:
                    await self._receive()
                if quiet.cancelled_caught:
                    return


@asynccontextmanager
async def listening(node: GpuStory) -> AsyncIterator[Listener]:
    async with node.gpus() as gpus, gpus.monitor(node.places) as monitor:
        yield Listener(monitor, node.quiet_s)


def lost(fact: InventoryFact) -> dict[int, str | None]:
    return {gpu.minor: gpu.lost for gpu in fact.inventory.gpus if gpu.lost is not None}


def uuid(minor: int) -> str:
    return next(gpu.uuid for gpu in some_gpus(len(MINORS), minors=MINORS) if gpu.minor == minor)
