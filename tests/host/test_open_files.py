"""What a process has open: each file once, devices and the memory of a memfd, and nothing of another process."""

from __future__ import annotations

import signal
import sys
from typing import TYPE_CHECKING

import pytest

from actors.ports import Output, ProcessIdentity
from tests.host.limits import no_more_descriptors
from tests.host.shell import ENV, spawn
from tests.host.waiting import eventually

if TYPE_CHECKING:
    from pathlib import Path

    from actors.ports import OpenFile, Ports

pytestmark = pytest.mark.anyio


async def test_what_a_process_has_open_is_told_each_file_once(ports: Ports, tmp_path: Path):
    path = tmp_path / "held"
    path.write_bytes(bytes(1 << 16))
    child = await spawn(ports, f"exec 3<{path} 4<{path} 5</dev/null; echo ready >{tmp_path / 'ready'}; exec sleep 1000")
    await eventually((tmp_path / "ready").exists)
    held = {each.path: each for each in await ports.processes.open_files(child.identity)}
    assert [name for name in held if name == str(path)] == [str(path)]
    assert held[str(path)].stored_bytes >= 1 << 16
    assert held[str(path)].device is None
    assert held["/dev/null"].device == (1, 3)
    child.signal(signal.SIGKILL)
    await child.wait()
    assert await ports.processes.open_files(child.identity) == ()


async def held_by(ports: Ports, program: str, ready: Path) -> tuple[OpenFile, ...]:
    """What a process of Python's has open that has done this."""
    program = f"import os, pathlib, time; {program}; pathlib.Path({str(ready)!r}).touch(); time.sleep(1000)"
    argv = [sys.executable, "-c", program]
    child = await ports.processes.spawn(argv, env=ENV, stdout=Output.DISCARD, stderr=Output.DISCARD)
    await eventually(ready.exists)
    held = await ports.processes.open_files(child.identity)
    child.signal(signal.SIGKILL)
    await child.wait()
    return held


async def test_the_memory_that_a_memfd_takes_is_what_is_stored_of_it_and_not_its_length(ports: Ports, tmp_path: Path):
    program = "fd = os.memfd_create('some-memory'); os.truncate(fd, 1 << 30); os.pwrite(fd, b'x' * (1 << 20), 0)"
    held = {each.path: each.stored_bytes for each in await held_by(ports, program, tmp_path / "ready")}
    assert held["/memfd:some-memory (deleted)"] == 1 << 20


async def test_a_device_that_a_process_can_only_name_is_not_open(ports: Ports, tmp_path: Path):
    program = "os.open('/dev/zero', os.O_PATH); os.open('/dev/full', os.O_RDONLY)"
    held = await held_by(ports, program, tmp_path / "ready")
    devices = {each.path for each in held if each.device is not None}
    assert "/dev/full" in devices
    assert "/dev/zero" not in devices


async def test_another_process_with_the_same_pid_is_not_looked_at(ports: Ports):
    child = await spawn(ports, "exec sleep 1000")
    other = ProcessIdentity(pid=child.identity.pid, start_ticks=child.identity.start_ticks - 1)
    assert await ports.processes.open_files(other) == ()
    child.signal(signal.SIGKILL)
    await child.wait()


async def test_a_process_that_cannot_be_looked_at_for_want_of_descriptors_is_an_error(ports: Ports):
    child = await spawn(ports, "exec sleep 1000")
    with no_more_descriptors(), pytest.raises(OSError, match="Too many open files"):
        await ports.processes.open_files(child.identity)
    child.signal(signal.SIGKILL)
    await child.wait()
