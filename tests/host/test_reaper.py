"""Zombies that nobody else takes, and those that somebody else does."""

from __future__ import annotations

import os
import signal
import time
from contextlib import nullcontext, suppress
from functools import partial
from typing import TYPE_CHECKING, Final

import anyio
import attrs
import pytest
from anyio.lowlevel import checkpoint

from actors.ports import Output
from supervisor.host import procfs
from supervisor.host import reaper as reaper_module
from supervisor.host.composition import open_host_ports
from supervisor.host.reaper import Reaper, is_subreaper
from supervisor.host.signals import HostSignals
from tests.host.waiting import eventually, is_gone, zombies

if TYPE_CHECKING:
    from pathlib import Path

    from actors.ports import Ports

pytestmark = pytest.mark.anyio

ENV: Final = {"PATH": "/usr/bin:/bin"}


def code_of(pid: int, options: int = 0) -> int:
    """Wait for exactly this child, as its library would."""
    return os.waitstatus_to_exitcode(os.waitpid(pid, options)[1])


def fork(code: int = 0, *, own_session: bool = False) -> int:
    """A child as a library would have it: not through the port."""
    if own_session:
        return os.posix_spawn("/bin/sh", ["sh", "-c", f"exit {code}"], ENV, setsid=True)
    return os.posix_spawn("/bin/sh", ["sh", "-c", f"exit {code}"], ENV)


@pytest.fixture
def endless_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody's zombie of our session is taken, however slow the machine is."""
    monkeypatch.setattr(reaper_module, "_GRACE_S", float("inf"))


@pytest.mark.usefixtures("endless_grace")
async def test_a_stranger_of_another_session_is_reaped_without_a_grace(ports: Ports):
    pid = fork(own_session=True)
    await eventually(lambda: is_gone(pid))
    with pytest.raises(ChildProcessError):
        code_of(pid)


async def test_a_stranger_of_our_session_is_reaped_when_nobody_waits_for_a_second(ports: Ports):
    begin_s = anyio.current_time()
    pid = fork()
    await eventually(lambda: is_gone(pid))
    assert anyio.current_time() - begin_s >= 1.0


@pytest.mark.usefixtures("endless_grace")
async def test_a_stranger_of_our_session_keeps_its_code_for_its_library(ports: Ports):
    pid = fork(7)
    await eventually(lambda: pid in zombies())
    # Sweeps by the dozen do not take it.
    for _ in range(20):
        orphan = fork(own_session=True)
        await eventually(partial(is_gone, orphan))
    assert code_of(pid, os.WNOHANG) == 7


async def test_the_grace_of_a_pid_begins_anew_with_a_new_process(ports: Ports, monkeypatch):
    """As when a library waited for the first one and the pid came round again."""
    monkeypatch.setattr(reaper_module, "_GRACE_S", float("inf"))  # nobody takes it before we look
    pid = fork(3)
    await eventually(lambda: pid in zombies())
    read_for_real = procfs.read_stat
    age = 0

    def younger(asked: int) -> procfs.ProcessStat | None:
        nonlocal age
        found = read_for_real(asked)
        if found is None or asked != pid:
            return found
        age += 1
        return attrs.evolve(found, start_ticks=found.start_ticks + age)

    monkeypatch.setattr(procfs, "read_stat", younger)
    monkeypatch.setattr(reaper_module, "_GRACE_S", 1.0)
    begin_s = anyio.current_time()
    # Each look sees another process, so none of them has been a zombie for long.
    while anyio.current_time() < begin_s + 1.5:
        os.kill(os.getpid(), signal.SIGCHLD)
        await checkpoint()
    monkeypatch.undo()
    assert code_of(pid, os.WNOHANG) == 3


async def test_an_owned_zombie_is_left_to_its_owner(ports: Ports, monkeypatch):
    """Even when its owner is slow to notice, as between the spawn and the first turn of its task."""
    sweeps = []
    reaper = ports.processes._reaper  # type: ignore[attr-defined]  # the real port has one inside
    pid = fork(5, own_session=True)
    reaper.own(pid)
    for _ in range(10):
        orphan = fork(own_session=True)
        await eventually(partial(is_gone, orphan))
        await reaper.sweep()
        sweeps.append(pid in zombies())
    assert any(sweeps)
    assert code_of(pid) == 5
    reaper.disown(pid)


async def test_what_was_a_zombie_before_is_reaped_too(anyio_backend: str):
    pid = fork(own_session=True)
    await eventually(lambda: pid in zombies())
    async with open_host_ports(roots=[]):
        await eventually(lambda: is_gone(pid))
    with pytest.raises(ChildProcessError):
        code_of(pid)


async def test_without_descriptors_zombies_wait_and_are_reaped_later(ports: Ports, monkeypatch):
    def refuse() -> list[int]:
        raise OSError(24, "Too many open files")

    reaper = ports.processes._reaper  # type: ignore[attr-defined]  # the real port has one inside
    children = reaper._children
    reaper._children = refuse
    pid = fork(own_session=True)
    await eventually(lambda: _is_zombie(pid))
    reaper._children = children
    # No signal comes any more.
    await eventually(lambda: is_gone(pid))
    with pytest.raises(ChildProcessError):
        code_of(pid)


def _is_zombie(pid: int) -> bool:
    found = procfs.read_stat(pid)
    return found is not None and found.state == "Z"


async def test_kernels_without_children_files_do_as_well(anyio_backend: str, monkeypatch):
    monkeypatch.setattr(procfs, "has_children_files", lambda: False)
    async with open_host_ports(roots=[]) as ports:
        pid = fork(own_session=True)
        await eventually(lambda: is_gone(pid))
        argv = ["/bin/sh", "-c", "exit 9"]
        assert (await ports.processes.run(argv, deadline_s=30, env=ENV)).exit.code == 9


async def test_both_ways_to_list_children_agree(anyio_backend: str):
    pids = [fork(own_session=True) for _ in range(3)]
    assert procfs.has_children_files()
    assert sorted(procfs.listed_children()) == sorted(procfs.scanned_children())
    for pid in pids:
        assert code_of(pid) == 0


async def test_we_are_a_subreaper_only_while_it_is_open(anyio_backend: str):
    before = is_subreaper()
    async with open_host_ports(roots=[]):
        assert is_subreaper()
    assert is_subreaper() == before


async def test_there_is_one_reaper_in_a_process(ports: Ports):
    with pytest.raises(RuntimeError, match="has a reaper"):
        async with open_host_ports(roots=[]):
            pass
    pid = fork(own_session=True)
    await eventually(lambda: is_gone(pid))


async def test_2000_live_orphans_do_not_slow_down_a_command(ports: Ports, tmp_path: Path):
    script = "i=0; while [ $i -lt 2000 ]; do sleep 600 & i=$((i+1)); done; echo $$"
    argv = ["/bin/sh", "-c", script]
    finished = await ports.processes.run(argv, deadline_s=300, env=ENV)
    session = int(finished.stdout)
    try:
        # Processor time, since the machine may be busy otherwise.
        before_s = time.process_time()
        for _ in range(20):
            await ports.processes.run(["/bin/true"], deadline_s=60, env=ENV)
        assert (time.process_time() - before_s) / 20 < 0.05
    finally:
        with suppress(ProcessLookupError):
            os.killpg(session, signal.SIGKILL)
    await eventually(lambda: not procfs.listed_children(), within_s=300)


async def test_an_idle_reaper_has_no_timer(anyio_backend: str):
    signals = HostSignals()
    reaper = Reaper(signals)
    async with signals.open(), reaper.open():
        sweeps = []
        sweep = reaper.sweep

        async def counted() -> None:
            sweeps.append(anyio.current_time())
            await sweep()

        reaper.sweep = counted  # type: ignore[method-assign]  # only to count
        reaper.look()
        await eventually(lambda: sweeps)
        begin_s = anyio.current_time()
        await eventually(lambda: anyio.current_time() > begin_s + 1.3)
        assert len(sweeps) == 1


@pytest.mark.parametrize("failure", [None, ZeroDivisionError()], ids=["leaves", "fails"])
async def test_however_its_body_ends_the_last_look_takes_what_has_ended_by_then(anyio_backend: str, failure):
    signals = HostSignals()
    reaper = Reaper(signals)
    reaper.look = lambda: None  # type: ignore[method-assign]  # its signal comes too late
    first_sweep_is_over = anyio.Event()
    sweep = reaper.sweep

    async def told() -> None:
        await sweep()
        first_sweep_is_over.set()

    reaper.sweep = told  # type: ignore[method-assign]  # only to know when the one at the start is over
    with pytest.raises(ZeroDivisionError) if failure else nullcontext():
        async with signals.open(), reaper.open():
            await first_sweep_is_over.wait()
            pid = fork(own_session=True)
            await eventually(lambda: _is_zombie(pid))
            if failure:
                raise failure
    with pytest.raises(ChildProcessError):
        code_of(pid)


async def test_children_left_at_the_end_live_on(anyio_backend: str):
    async with open_host_ports(roots=[]) as ports:
        argv = ["/bin/sh", "-c", "kill -STOP $$; exit 6"]
        child = await ports.processes.spawn(argv, env=ENV, stdout=Output.DISCARD, stderr=Output.DISCARD)
    os.kill(child.identity.pid, signal.SIGKILL)
    assert code_of(child.identity.pid) == -9
