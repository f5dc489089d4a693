"""Cgroups: what holds for the kernel's and for the simulated ones."""

from __future__ import annotations

import contextlib
import os
import subprocess
from typing import TYPE_CHECKING, Protocol

import anyio
import pytest

from actors.enter_elf import CANNOT_ENTER, enter_elf
from actors.ports import PROCESSES_FILE, CgroupLimits, CgroupsUnavailableError
from sim.world.cgroups import SimCgroups, SimHierarchy
from sim.world.process_table import INIT_PID, ProcessTable
from tests.host.cgroup_trees import a_real_cgroup, port_into
from tests.host.waiting import eventually
from tests.needs import Tool, need, want

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from actors.ports import Cgroups

pytestmark = pytest.mark.anyio
LIMITS = CgroupLimits(cpu_quota_usec=50_000, memory_bytes=1 << 30)
LEAVES = ("sandbox", "c-web")


class Side(Protocol):
    """One of the two."""

    port: Cgroups

    def begin(self, file: Path) -> int:
        """Have a process begin by way of a leaf's file, with a child of its own; its pid, 0 when it could not."""
        ...

    def lives(self, pid: int) -> bool: ...


class RealSide:
    def __init__(self, cgroup: Path, directory: Path) -> None:
        self.port: Cgroups = port_into(cgroup, directory / "membership")
        self._program = directory / "enter"
        self._program.write_bytes(enter_elf(os.uname().machine))
        self._program.chmod(0o755)
        self._started: list[subprocess.Popen[bytes]] = []

    def begin(self, file: Path) -> int:
        script = "sleep 1000 & echo begun; wait"
        argv = [str(self._program), str(file), "/bin/sh", "-c", script]
        process = subprocess.Popen(argv, stdout=subprocess.PIPE, start_new_session=True)
        self._started.append(process)
        assert process.stdout is not None
        if process.stdout.readline() == b"begun\n":
            return process.pid
        assert process.wait() == CANNOT_ENTER
        return 0

    def lives(self, pid: int) -> bool:
        (process,) = [each for each in self._started if each.pid == pid]
        return process.poll() is None

    def end(self) -> None:
        for process in self._started:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, 9)
            process.wait()
            if process.stdout is not None:
                process.stdout.close()


class SimSide:
    def __init__(self) -> None:
        self.table = ProcessTable(now_s=lambda: 0.0)
        self.hierarchy = SimHierarchy(self.table, now_s=lambda: 0.0)
        self.port: Cgroups = SimCgroups(self.hierarchy, let_others_run=anyio.lowlevel.checkpoint)

    def begin(self, file: Path) -> int:
        process = self.table.spawn(("sh",), parent=INIT_PID)
        if not self.hierarchy.enter(process, str(file)):
            return 0
        self.table.spawn(("sleep",), parent=process.pid)
        return process.pid

    def lives(self, pid: int) -> bool:
        process = self.table.get(pid)
        return process is not None and process.is_running


@pytest.fixture(params=["real", "simulated"])
def side(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Side]:
    if request.param == "simulated":
        yield SimSide()
        return
    need(Tool.ROOT)
    want(Tool.CGROUPS)
    with a_real_cgroup() as cgroup:
        real = RealSide(cgroup, tmp_path)
        try:
            yield real
        finally:
            real.end()


async def made(side: Side, name: str) -> Path:
    """An activation's cgroup, where it is."""
    delegation = await side.port.delegate()
    await side.port.make(name, leaves=LEAVES, limits=LIMITS)
    return delegation.actors / name


async def test_taking_it_in_hand_again_changes_nothing(side):
    first = await side.port.delegate()
    await side.port.make("a1.x", leaves=LEAVES, limits=LIMITS)
    assert await side.port.delegate() == first
    assert await side.port.names() == ("a1.x",)


async def test_what_is_made_is_there_in_order_and_is_not_made_twice(side):
    for name in ("b.y", "a.x"):
        await made(side, name)
    with pytest.raises(FileExistsError):
        await side.port.make("a.x", leaves=(), limits=LIMITS)
    assert await side.port.names() == ("a.x", "b.y")


async def test_what_begins_in_a_leaf_is_in_it_and_so_is_what_it_starts(side):
    cgroup = await made(side, "a1.x")
    assert (await side.port.usage("a1.x")).processes == 0
    for leaf in LEAVES:
        assert side.begin(cgroup / leaf / PROCESSES_FILE)
    assert (await side.port.usage("a1.x")).processes == 4


async def test_what_cannot_enter_does_not_begin(side):
    cgroup = await made(side, "a1.x")
    assert not side.begin(cgroup / "c-other" / PROCESSES_FILE)
    assert not side.begin(cgroup.with_name("a2.x") / "sandbox" / PROCESSES_FILE)
    assert (await side.port.usage("a1.x")).processes == 0


async def test_a_removal_ends_what_is_in_it_and_nothing_else(side):
    ours = side.begin(await made(side, "a1.x") / "sandbox" / PROCESSES_FILE)
    others = side.begin(await made(side, "a2.x") / "sandbox" / PROCESSES_FILE)
    await side.port.remove("a1.x", deadline_s=60)
    assert await side.port.names() == ("a2.x",)
    assert side.lives(others)
    await eventually(lambda: not side.lives(ours), within_s=60)


async def test_what_is_not_there_is_removed_already_and_has_no_usage(side):
    await made(side, "a1.x")
    await side.port.remove("a1.x", deadline_s=60)
    await side.port.remove("a1.x", deadline_s=60)
    with pytest.raises(FileNotFoundError):
        await side.port.usage("a1.x")


async def test_one_that_is_made_anew_has_used_nothing(side):
    cgroup = await made(side, "a1.x")
    assert side.begin(cgroup / "sandbox" / PROCESSES_FILE)
    await side.port.remove("a1.x", deadline_s=60)
    await made(side, "a1.x")
    found = await side.port.usage("a1.x")
    assert (found.processes, found.cpu_usec) == (0, 0)


async def test_who_has_none_is_told_why():
    hierarchy = SimHierarchy(ProcessTable(now_s=lambda: 0.0), now_s=lambda: 0.0, unavailable="it is v1")
    with pytest.raises(CgroupsUnavailableError, match="it is v1"):
        await SimCgroups(hierarchy, let_others_run=anyio.lowlevel.checkpoint).delegate()
