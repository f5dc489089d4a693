"""Processes that we did not start: adopting, finding and ending them."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING, Final

import pytest

from actors.ports import Exit, Output, ProcessIdentity
from supervisor.host import procfs
from tests.host.waiting import eventually, is_dead, is_gone, is_stopped, number_in

if TYPE_CHECKING:
    from pathlib import Path

    from actors.ports import Child, Finished, Ports

pytestmark = pytest.mark.anyio

SH: Final = "/bin/sh"
ENV: Final = {"PATH": "/usr/bin:/bin"}
# Programs of glibc always start with its two internal signals ignored when posix_spawn started them.
GLIBC_OWN: Final = 1 << (32 - 1) | 1 << (33 - 1)


async def sh(ports: Ports, script: str, *, deadline_s: float = 30, limit_bytes: int = 1 << 20) -> Finished:
    return await ports.processes.run([SH, "-c", script], deadline_s=deadline_s, env=ENV, stdout_limit_bytes=limit_bytes)


async def spawn(ports: Ports, script: str) -> Child:
    return await ports.processes.spawn([SH, "-c", script], env=ENV, stdout=Output.DISCARD, stderr=Output.DISCARD)


async def test_an_orphan_can_be_adopted_once_with_its_code(ports: Ports, tmp_path: Path):
    await sh(ports, f"setsid sh -c 'echo $$ > {tmp_path}/pid; kill -STOP $$; exit 42' & exit 0")
    await eventually(lambda: (pid := number_in(tmp_path / "pid")) and is_stopped(pid))
    pid = number_in(tmp_path / "pid")
    assert pid is not None
    child = await ports.processes.adopt(pid)
    assert child.identity.pid == pid
    assert await ports.processes.is_alive(child.identity)
    with pytest.raises(ValueError, match="owned already"):
        await ports.processes.adopt(pid)
    child.signal(signal.SIGCONT)
    assert await child.wait() == Exit(code=42)
    assert not await ports.processes.is_alive(child.identity)


@pytest.mark.parametrize("pid", [1, 0, -1, 2**22 + 5])
async def test_what_is_no_child_cannot_be_adopted(ports: Ports, pid: int):
    with pytest.raises(ProcessLookupError):
        await ports.processes.adopt(pid)


async def test_processes_are_found_by_a_whole_argument_or_its_beginning(ports: Ports):
    mark = f"--root=/nowhere/{os.urandom(8).hex()}"
    child = await ports.processes.spawn(
        [SH, "-c", "kill -STOP $$", "sh", f"{mark}/a"], env=ENV, stdout=Output.DISCARD, stderr=Output.DISCARD
    )
    assert await ports.processes.find(argument=f"{mark}/a") == (child.identity,)
    assert await ports.processes.find(argument=mark) == ()
    assert await ports.processes.find_arguments(prefix=mark) == ((child.identity, f"{mark}/a"),)
    await ports.processes.kill_and_wait(child.identity, deadline_s=10)
    assert await ports.processes.find(argument=f"{mark}/a") == ()
    assert await child.wait() == Exit(code=-9)


async def test_exactly_this_process_is_killed(ports: Ports, tmp_path: Path):
    child = await spawn(ports, f"setsid sleep 600 & echo $! > {tmp_path}/pid; kill -STOP $$")
    await eventually(lambda: number_in(tmp_path / "pid") and is_stopped(child.identity.pid))
    stranger = procfs.read_stat(number_in(tmp_path / "pid") or 0)
    assert stranger is not None
    another = ProcessIdentity(pid=stranger.pid, start_ticks=stranger.start_ticks - 1)
    await ports.processes.kill_and_wait(another, deadline_s=10)
    assert not is_dead(stranger.pid)
    # Its parent is stopped and does not wait for it, so that a zombie is all it becomes.
    exactly = ProcessIdentity(pid=stranger.pid, start_ticks=stranger.start_ticks)
    await ports.processes.kill_and_wait(exactly, deadline_s=10)
    assert is_dead(stranger.pid)
    await ports.processes.kill_and_wait(child.identity, deadline_s=10)
    assert is_gone(child.identity.pid)
    await ports.processes.kill_and_wait(child.identity, deadline_s=10)
    await eventually(lambda: is_gone(stranger.pid))


async def test_we_do_not_kill_ourselves(ports: Ports):
    us = procfs.read_stat(os.getpid())
    assert us is not None
    with pytest.raises(ValueError, match="this process"):
        await ports.processes.kill_and_wait(ProcessIdentity(pid=us.pid, start_ticks=us.start_ticks), deadline_s=1)
