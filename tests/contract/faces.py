"""How one test of the contract runs on the model, on the fake program and on the real binary."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import anyio
import attrs
import trio
import trio.testing

from sim.world.command_files import DiskFiles
from sim.world.disk import SimDisk
from sim.world.execution import open_execution
from sim.world.files import SimFiles
from sim.world.process_table import ProcessTable
from sim.world.processes import SimProcesses
from sim.world.runsc.programs import Program
from sim.world.runsc.settings import INSTANT, Flavour, Latencies, RunscSettings
from sim.world.scenery import put_directory
from supervisor.host.composition import open_host_ports
from tests.contract.benches import FLAGS, Bench, write_fake

_STATE_BYTES: Final = 100_000
"""Large enough that a disk can be too small for it."""

Test = Callable[[Bench], Awaitable[None]]


@attrs.frozen(kw_only=True)
class Face:
    """One of the three, and how a test runs on it."""

    kind: str
    directory: Path
    rootfs: str = ""
    runsc: str = ""
    flavour: Flavour = Flavour.R24
    flags: tuple[str, ...] = FLAGS
    is_instant: bool = True
    programs: Mapping[tuple[str, ...], Program] = attrs.field(factory=dict)

    def run(self, test: Test) -> None:
        """Run a test to its end."""
        if self.kind == "model":
            trio.run(self._in_model, test, clock=trio.testing.MockClock(autojump_threshold=0))
        else:
            anyio.run(self._in_processes, test)

    def settings(self) -> RunscSettings:
        """Of the stand-ins; commands that take no time make for quick tests."""
        latencies = INSTANT if self.is_instant else Latencies()
        return RunscSettings(
            flavour=self.flavour, latencies=latencies, programs=self.programs, state_bytes=_STATE_BYTES
        )

    async def _in_model(self, test: Test) -> None:
        disk = SimDisk(now_ns=lambda: round(anyio.current_time() * 1e9))
        for path in (self.directory, Path("/rootfs")):
            put_directory(disk, path)
        table = ProcessTable(now_s=anyio.current_time)
        runscs = {"/usr/bin/runsc": self.settings()}
        async with open_execution(table=table, files=DiskFiles(disk), runscs=runscs) as execution:

            def send(pid: int, number: int) -> None:
                process = table.get(pid)
                assert process is not None
                table.signal(process, number)

            bench = Bench(
                kind="model",
                directory=self.directory,
                runsc="/usr/bin/runsc",
                rootfs="/rootfs",
                processes=SimProcesses(execution),
                files=SimFiles(disk, roots=[self.directory], owner=self),
                send=send,
                settings=self.settings(),
                flags=self.flags,
                execution=execution,
                disk=disk,
            )
            await test(bench)

    async def _in_processes(self, test: Test) -> None:
        async with self._bench() as bench:
            await test(bench)

    @asynccontextmanager
    async def _bench(self) -> AsyncIterator[Bench]:
        async with open_host_ports(roots=[self.directory]) as ports:
            runsc = self.runsc or str(write_fake(self.directory / "fake-runsc", self.settings()))
            bench = Bench(
                kind=self.kind,
                directory=self.directory,
                runsc=runsc,
                rootfs=self.rootfs,
                processes=ports.processes,
                files=ports.files,
                send=os.kill,
                settings=self.settings(),
                flags=self.flags,
            )
            try:
                yield bench
            finally:
                with anyio.CancelScope(shield=True):
                    await bench.clear()


def on(face: Face) -> Callable[[Test], None]:
    """Run the decorated test at once, on this face."""
    return face.run
