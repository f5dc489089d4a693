"""Processes that we did not start: adopting, finding and ending them."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import threading
from typing import TYPE_CHECKING

import anyio
import pytest
from anyio.lowlevel import checkpoint

from actors.ports import Exit, Output, ProcessIdentity
from supervisor.host import procfs
from tests.host.shell import ENV, SH, sh, spawn
from tests.host.waiting import eventually, is_dead, is_gone, is_stopped, number_in

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from actors.ports import Ports

pytestmark = pytest.mark.anyio


async def test_an_orphan_can_be_adopted_once_with_its_code(ports: Ports, tmp_path: Path):
    await sh(ports, f"setsid sh -c 'echo $$ > {tmp_path}/pid; kill -STOP $$; exit 42' & exit 0")
    await eventually(lambda: (pid := number_in(tmp_path / "pid")) and is_stopped(pid))
    pid = number_in(tmp_path / "pid")
    assert pid is not None
    child = await ports.processes.adopt(pid)
    assert child.identity.pid == pid
    assert await ports.processes.is_alive(child.identity)
    with pytest.raises(OSError, match="owned already") as caught:
        await ports.processes.adopt(pid)
    assert caught.value.errno == errno.EBUSY
    child.signal(signal.SIGCONT)
    assert await child.wait() == Exit(code=42)
    assert not await ports.processes.is_alive(child.identity)


FOSTER = """
import os, sys
pid = os.posix_spawn("/bin/sleep", ["sleep", "1000"], {})
print(pid, flush=True)
sys.stdin.read()
os.waitpid(pid, 0)
"""


@pytest.fixture
def fostered() -> Iterator[ProcessIdentity]:
    """A process with another parent, which waits for it only at the end."""
    with subprocess.Popen([sys.executable, "-c", FOSTER], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        stat = procfs.read_stat(pid)
        assert stat is not None
        yield ProcessIdentity(pid=pid, start_ticks=stat.start_ticks)


async def test_what_has_got_another_parent_is_reclaimed_and_its_end_is_seen_without_a_status(
    ports: Ports, fostered: ProcessIdentity
):
    """As after a restart: the sandbox of the life before is the child of whoever took its orphans."""
    with pytest.raises(ProcessLookupError):
        await ports.processes.adopt(fostered.pid)
    child = await ports.processes.reclaim(fostered)
    with anyio.move_on_after(0.02) as scope:
        await child.wait()
    assert scope.cancelled_caught
    child.signal(signal.SIGKILL)
    assert await child.wait() == Exit(code=None)
    with pytest.raises(ProcessLookupError):  # a zombie: its parent has not waited for it
        await ports.processes.reclaim(fostered)


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
    await ports.processes.kill_and_wait(child.identity, deadline_s=60)
    assert await ports.processes.find(argument=f"{mark}/a") == ()
    assert await child.wait() == Exit(code=-9)


async def test_a_process_is_found_from_the_moment_on_at_which_its_spawn_is_over(ports: Ports):
    """The kernel lets go of who spawns before the new program has its arguments; of 3,000 children 2,238 had none."""
    mark = f"--root=/nowhere/{os.urandom(8).hex()}"
    for number in range(200):
        child = await ports.processes.spawn(
            [SH, "-c", "kill -STOP $$", f"{mark}/{number}"], env=ENV, stdout=Output.DISCARD, stderr=Output.DISCARD
        )
        found = await ports.processes.find(argument=f"{mark}/{number}")
        await ports.processes.kill_and_wait(child.identity, deadline_s=60)
        assert found == (child.identity,)


@pytest.mark.parametrize(
    ("state", "flags", "code_start", "is_between"),
    [
        ("R", 0x400000, 0, True),
        ("D", 0x400000, 0, True),
        ("R", 0x400000, 0x55D0C0DE0000, False),
        ("S", 0x400000, 1, False),  # what we may not look at
        ("S", 0x208040, 0, False),  # a kernel thread
        ("R", 0x400004, 0, False),  # one that exits
        ("Z", 0x400004, 0, False),
    ],
)
def test_who_is_in_the_middle_of_an_exec_has_neither_the_old_program_nor_the_new_one(
    state, flags, code_start, is_between
):
    text = f"7 (a) b) {state} 1 7 7 0 -1 {flags} 0 0 0 0 0 0 0 0 20 0 1 0 99 0 0 0 {code_start} 0".encode()
    assert procfs.parse_stat(text).is_between_programs is is_between


def counted_scans(monkeypatch, gate: threading.Event | None = None) -> list[int]:
    """Every look at all processes from now on; each one waits at the gate, in its thread."""
    scans: list[int] = []
    process_ids = procfs.process_ids

    def counted() -> Iterator[int]:
        scans.append(len(scans))
        if gate is not None:
            assert gate.wait(60)
        return process_ids()

    monkeypatch.setattr(procfs, "process_ids", counted)
    return scans


async def test_200_who_look_for_processes_at_once_share_a_few_scans_and_each_finds_its_own(ports: Ports, monkeypatch):
    mark = f"--root=/nowhere/{os.urandom(8).hex()}"
    children = [
        await ports.processes.spawn(
            [SH, "-c", "kill -STOP $$", "sh", f"{mark}/{number}"],
            env=ENV, stdout=Output.DISCARD, stderr=Output.DISCARD,
        )
        for number in range(3)
    ]  # fmt: skip
    scans = counted_scans(monkeypatch)
    found: dict[int, tuple[ProcessIdentity, ...]] = {}
    begun: list[tuple[ProcessIdentity, str]] = []

    async def look(number: int) -> None:
        found[number] = await ports.processes.find(argument=f"{mark}/{number}")

    async def look_for_all() -> None:
        begun.extend(await ports.processes.find_arguments(prefix=mark))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(look_for_all)
        for number in range(200):
            tasks.start_soon(look, number)
    identities = [child.identity for child in children]
    assert [found[number] for number in range(200)] == [(each,) for each in identities] + [()] * 197
    assert begun == [(each, f"{mark}/{number}") for number, each in enumerate(identities)]
    assert len(scans) <= 3
    for child in children:
        await ports.processes.kill_and_wait(child.identity, deadline_s=60)


async def test_who_looks_while_a_scan_goes_on_gets_one_that_begins_later_even_if_the_first_to_wait_gives_up(
    ports: Ports, monkeypatch
):
    gate = threading.Event()
    scans = counted_scans(monkeypatch, gate)
    found: list[tuple[ProcessIdentity, ...]] = []
    mark = f"--root=/nowhere/{os.urandom(8).hex()}"
    impatient = anyio.CancelScope()

    async def look() -> None:
        found.append(await ports.processes.find(argument=mark))

    async def give_up() -> None:
        with impatient:
            await ports.processes.find(argument=mark)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(look)
        await eventually(lambda: scans)
        child = await ports.processes.spawn(
            [SH, "-c", "kill -STOP $$", mark], env=ENV, stdout=Output.DISCARD, stderr=Output.DISCARD
        )
        tasks.start_soon(give_up)
        await checkpoint()
        for _ in range(5):
            tasks.start_soon(look)
        await checkpoint()
        await checkpoint()
        impatient.cancel()
        gate.set()
    assert found[1:] == [(child.identity,)] * 5
    assert len(scans) <= 3
    await ports.processes.kill_and_wait(child.identity, deadline_s=60)


async def test_a_scan_that_fails_is_the_error_of_who_asked_and_the_next_one_succeeds(ports: Ports, monkeypatch):
    def refuse() -> Iterator[int]:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    with monkeypatch.context() as patched:
        patched.setattr(procfs, "process_ids", refuse)
        with pytest.raises(OSError, match="Too many open files"):
            await ports.processes.find(argument="x")
    assert await ports.processes.find(argument=os.urandom(8).hex()) == ()


async def test_exactly_this_process_is_killed(ports: Ports, tmp_path: Path):
    child = await spawn(ports, f"setsid sleep 600 & echo $! > {tmp_path}/pid; kill -STOP $$")
    await eventually(lambda: number_in(tmp_path / "pid") and is_stopped(child.identity.pid))
    stranger = procfs.read_stat(number_in(tmp_path / "pid") or 0)
    assert stranger is not None
    another = ProcessIdentity(pid=stranger.pid, start_ticks=stranger.start_ticks - 1)
    await ports.processes.kill_and_wait(another, deadline_s=60)
    assert not is_dead(stranger.pid)
    # Its parent is stopped and does not wait for it, so that a zombie is all it becomes.
    exactly = ProcessIdentity(pid=stranger.pid, start_ticks=stranger.start_ticks)
    await ports.processes.kill_and_wait(exactly, deadline_s=60)
    assert is_dead(stranger.pid)
    await ports.processes.kill_and_wait(child.identity, deadline_s=60)
    assert is_gone(child.identity.pid)
    await ports.processes.kill_and_wait(child.identity, deadline_s=60)
    await eventually(lambda: is_gone(stranger.pid))


async def test_we_do_not_kill_ourselves(ports: Ports):
    us = procfs.read_stat(os.getpid())
    assert us is not None
    with pytest.raises(ValueError, match="this process"):
        await ports.processes.kill_and_wait(ProcessIdentity(pid=us.pid, start_ticks=us.start_ticks), deadline_s=1)
