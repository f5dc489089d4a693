"""Starting processes, and what becomes of them."""

from __future__ import annotations

import errno
import os
import signal
import stat
import sys
from typing import TYPE_CHECKING, Final

import anyio
import pytest
from anyio.lowlevel import checkpoint

from actors.ports import AppendTo, DeadlineExceededError, Exit, Output
from supervisor.host import procfs, spawning
from tests.host.limits import no_more_descriptors
from tests.host.shell import ENV, SH, cut_off, sh, spawn
from tests.host.waiting import eventually, is_gone, is_stopped, number_in, zombies

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from actors.ports import Ports

pytestmark = pytest.mark.anyio

# Programs of glibc always start with its two internal signals ignored when posix_spawn started them.
GLIBC_OWN: Final = 1 << (32 - 1) | 1 << (33 - 1)


@pytest.mark.parametrize(
    ("script", "code"), [("exit 0", 0), ("exit 7", 7), ("exit 255", 255), ("kill -TERM $$", -15), ("kill -KILL $$", -9)]
)
async def test_a_command_ends_with_its_own_code(ports: Ports, script: str, code: int):
    assert (await sh(ports, script)).exit == Exit(code=code)


async def test_both_streams_are_captured_apart(ports: Ports):
    finished = await sh(ports, "echo out; echo err >&2; exit 3")
    assert (finished.exit.code, finished.stdout, finished.stderr) == (3, b"out\n", b"err\n")
    assert finished.elapsed_s > 0


async def test_stdout_is_cut_at_its_limit_and_stderr_keeps_its_end(ports: Ports):
    script = "head -c 3000000 /dev/zero; head -c 100000 /dev/zero >&2; echo the end >&2"
    finished = await sh(ports, script, limit_bytes=1000)
    assert finished.exit.code == 0
    assert finished.stdout == b"\0" * 1000
    assert len(finished.stderr) == 16 << 10
    assert finished.stderr.endswith(b"\0the end\n")


WRITES_100_MB = "exec 3>&1; echo begin; head -c 100000000 /dev/zero; stat -L -c %b /proc/self/fd/3"
"""And tells, where its stdout goes then, how many blocks of 512 bytes the first stdout takes of the memory."""


async def test_a_command_that_writes_100_mb_takes_no_more_memory_than_is_allowed(ports: Ports):
    finished = await sh(ports, f"{WRITES_100_MB} >&2; exit 3")
    *words, blocks = finished.stderr.splitlines()
    assert finished.exit.code == 3
    assert finished.stdout == b"begin\n" + b"\0" * ((1 << 20) - 6)
    assert b"Operation not permitted" in words[0]
    assert 512 * int(blocks) == spawning.CAPTURE_BYTES_MAX


async def test_what_a_command_left_behind_cannot_fill_the_memory_either(ports: Ports, tmp_path: Path):
    finished = await sh(ports, f"setsid sh -c '{WRITES_100_MB} > {tmp_path}/blocks' & exit 0")
    assert finished.exit.code == 0
    await eventually(lambda: number_in(tmp_path / "blocks"), within_s=90)
    assert 512 * (number_in(tmp_path / "blocks") or 0) == spawning.CAPTURE_BYTES_MAX
    await eventually(lambda: not procfs.listed_children())


async def test_what_is_written_at_a_place_of_its_own_is_captured_too(ports: Ports):
    """As a sandbox does, which keeps the position of its descriptors itself."""
    script = "import os; os.pwrite(1, b'hello\\n', 0); os.pwrite(1, b'x' * 5000, 6); os.pwrite(2, b'world', 0)"
    finished = await ports.processes.run([sys.executable, "-I", "-S", "-c", script], deadline_s=30, env=ENV)
    assert (finished.stdout, finished.stderr) == (b"hello\n" + b"x" * 5000, b"world")


async def test_output_is_appended_to_private_files(ports: Ports, tmp_path: Path):
    log = tmp_path / "log"
    for word in ("one", "two"):
        argv = [SH, "-c", f"echo {word}; echo {word}! >&2"]
        finished = await ports.processes.run(
            argv, deadline_s=30, env=ENV, stdout=AppendTo(log), stderr=AppendTo(tmp_path / "err")
        )
        assert (finished.stdout, finished.stderr) == (b"", b"")
    assert log.read_text() == "one\ntwo\n"
    assert (tmp_path / "err").read_text() == "one!\ntwo!\n"
    assert stat.S_IMODE(log.stat().st_mode) == 0o600


async def test_stdin_is_a_file_that_can_only_be_read_where_one_is_named(ports: Ports, tmp_path: Path):
    given = tmp_path / "given"
    given.write_text("hello\n")
    argv = [SH, "-c", "cat; echo more >&0"]
    for stdin, read in ((given, b"hello\n"), (None, b"")):
        finished = await ports.processes.run(argv, deadline_s=30, env=ENV, stdin=stdin)
        assert finished.stdout == read
        assert b"rror" in finished.stderr
    assert given.read_text() == "hello\n"


@pytest.mark.parametrize(
    ("make", "code"),
    [
        (lambda path: path.symlink_to("/dev/null"), errno.ELOOP),
        (os.mkfifo, errno.EINVAL),
        (lambda path: path.mkdir(), errno.EINVAL),
        (lambda _path: None, errno.ENOENT),
    ],
    ids=["symlink", "fifo", "directory", "absent"],
)
async def test_no_other_kind_of_file_is_a_stdin(ports: Ports, tmp_path: Path, make: Callable[[Path], None], code: int):
    make(tmp_path / "given")
    with pytest.raises(OSError, match="given") as failed:
        await ports.processes.run([SH, "-c", "cat"], deadline_s=30, env=ENV, stdin=tmp_path / "given")
    assert failed.value.errno == code


async def test_a_file_cut_by_somebody_is_appended_to_at_its_new_end(ports: Ports, tmp_path: Path):
    log = tmp_path / "log"
    script = f"echo first; while [ -s {log} ]; do sleep 0.01; done; echo second"
    child = await ports.processes.spawn([SH, "-c", script], env=ENV, stdout=AppendTo(log), stderr=Output.DISCARD)
    await eventually(lambda: log.exists() and log.stat().st_size)
    await ports.files.truncate(log, size_bytes=0)
    assert await child.wait() == Exit(code=0)
    assert log.read_bytes() == b"second\n"


@pytest.mark.parametrize(
    ("make", "code"),
    [
        (lambda path: path.symlink_to("/dev/null"), errno.ELOOP),
        (os.mkfifo, errno.ENXIO),
        (lambda path: path.mkdir(), errno.EISDIR),
        (lambda path: path.unlink(missing_ok=True) or path.parent.rmdir(), errno.ENOENT),
    ],
    ids=["symlink", "fifo", "directory", "no directory"],
)
async def test_output_goes_to_regular_files_only(ports: Ports, tmp_path: Path, make, code):
    path = tmp_path / "logs" / "log"
    path.parent.mkdir()
    make(path)
    with pytest.raises(OSError) as caught:
        await ports.processes.run([SH, "-c", "true"], deadline_s=30, env=ENV, stdout=AppendTo(path))
    assert (caught.value.errno, caught.value.filename) == (code, str(path))


async def test_a_child_has_only_its_streams_its_environment_and_a_session_of_its_own(ports: Ports):
    inherited = os.dup(0)
    os.set_inheritable(inherited, True)
    spawning.close_on_exec()
    try:
        report = (
            "import os; print(sorted(map(int, os.listdir('/proc/self/fd')))[:-1], os.readlink('/proc/self/fd/0'),"
            "os.getsid(0) == os.getpgid(0) == os.getpid(), dict(os.environ).get('PATH'), os.environ.get('HOME'))"
        )
        argv = [sys.executable, "-I", "-S", "-c", report]
        finished = await ports.processes.run(argv, deadline_s=30, env=ENV)
    finally:
        os.close(inherited)
    assert finished.stdout.decode().strip() == f"[0, 1, 2] /dev/null True {ENV['PATH']} None", finished.stderr


async def test_a_child_ignores_and_blocks_no_signal(ports: Ports):
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR2})
    try:
        finished = await sh(ports, "exec cat /proc/self/status")
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGUSR2})
        signal.signal(signal.SIGHUP, before)
    masks = dict(line.split(":\t") for line in finished.stdout.decode().splitlines() if line.startswith("Sig"))
    assert (int(masks["SigBlk"], 16), int(masks["SigIgn"], 16) & ~GLIBC_OWN) == (0, 0)


async def test_what_cannot_be_executed_is_named(ports: Ports, tmp_path: Path):
    (tmp_path / "text").write_text("no program")
    for path, error in [(tmp_path / "absent", FileNotFoundError), (tmp_path, PermissionError)]:
        with pytest.raises(error) as caught:
            await ports.processes.run([str(path)], deadline_s=30, env=ENV)
        assert caught.value.filename == str(path)
    with pytest.raises(PermissionError):
        await ports.processes.run([str(tmp_path / "text")], deadline_s=30, env=ENV)
    (tmp_path / "text").chmod(0o700)
    with pytest.raises(OSError) as caught:
        await ports.processes.run([str(tmp_path / "text")], deadline_s=30, env=ENV)
    assert caught.value.errno == errno.ENOEXEC


@pytest.mark.parametrize("argv", [[], ["sh"], ["./sh"]])
async def test_a_command_without_an_absolute_path_is_refused(ports: Ports, argv):
    with pytest.raises(ValueError, match="absolute"):
        await ports.processes.run(argv, deadline_s=30, env=ENV)


async def test_a_long_lived_command_cannot_be_captured(ports: Ports):
    with pytest.raises(ValueError, match="long-lived"):
        await ports.processes.spawn([SH], env=ENV, stdout=Output.CAPTURE, stderr=Output.DISCARD)


async def test_the_deadline_ends_the_whole_group(ports: Ports, tmp_path: Path):
    script = f"sleep 600 & echo $! > {tmp_path}/grandchild; wait"
    errors: list[DeadlineExceededError] = []

    def has_begun(error: DeadlineExceededError) -> int | None:
        errors.append(error)
        return number_in(tmp_path / "grandchild")

    await cut_off(ports, script, has_begun)
    assert "did not end within" in str(errors[-1])
    grandchild = number_in(tmp_path / "grandchild")
    assert grandchild is not None
    await eventually(lambda: is_gone(grandchild))


async def test_what_a_command_said_before_its_deadline_is_kept(ports: Ports, tmp_path: Path):
    script = "echo waiting for a lock >&2; exec sleep 600"
    said: list[bytes] = []

    def has_spoken(error: DeadlineExceededError) -> bytes:
        said.append(error.stderr)
        return error.stderr

    await cut_off(ports, script, has_spoken)
    assert said[-1] == b"waiting for a lock\n"
    where = AppendTo(tmp_path / "log")
    with pytest.raises(DeadlineExceededError) as caught:
        await ports.processes.run([SH, "-c", script], deadline_s=0.3, env=ENV, stdout=where, stderr=where)
    assert caught.value.stderr == b""


async def test_a_stopped_command_ends_at_its_deadline(ports: Ports):
    with pytest.raises(DeadlineExceededError):
        await sh(ports, "kill -STOP $$", deadline_s=0.2)
    assert zombies() == []


async def test_what_daemonized_into_its_own_session_outlives_run_and_its_deadline(ports: Ports, tmp_path: Path):
    path = tmp_path / "pid"
    daemonizes = f"setsid sleep 600 & while ! grep -q sleep /proc/$!/comm; do :; done; echo $! > {path}"

    async def lives_on() -> None:
        daemon = await ports.processes.adopt(number_in(path) or 0)
        daemon.signal(signal.SIGKILL)
        assert await daemon.wait() == Exit(code=-9)
        path.unlink()

    assert (await sh(ports, daemonizes)).elapsed_s < 60
    await lives_on()
    await cut_off(ports, f"{daemonizes}; sleep 600", lambda _error: number_in(path))
    await lives_on()


async def test_a_cancelled_run_leaves_no_process(ports: Ports, tmp_path: Path):
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(sh, ports, f"echo $$ > {tmp_path}/pid; sleep 600 & sleep 600")
        await eventually(lambda: number_in(tmp_path / "pid"))
        tasks.cancel_scope.cancel()
    pid = number_in(tmp_path / "pid")
    assert pid is not None
    assert is_gone(pid)


async def test_64_waits_for_one_child_all_get_its_code_though_half_are_cancelled(ports: Ports):
    child = await spawn(ports, "read line; exit 9")  # stdin is /dev/null: ends at once, unless stopped first
    slow = await spawn(ports, "kill -STOP $$; exit 5")
    codes: list[int | None] = []
    cancelled = []

    async def wait(number: int) -> None:
        with anyio.CancelScope() as scope:
            if number % 2:
                cancelled.append(scope)
            codes.append((await slow.wait()).code)

    async with anyio.create_task_group() as tasks:
        for number in range(64):
            tasks.start_soon(wait, number)
        await eventually(lambda: len(cancelled) == 32 and is_stopped(slow.identity.pid))
        for scope in cancelled:
            scope.cancel()
        await checkpoint()
        slow.signal(signal.SIGCONT)
    assert codes == [5] * 32
    assert await child.wait() == Exit(code=9)
    assert await slow.wait() == Exit(code=5)


async def test_a_child_nobody_waits_for_is_no_zombie_and_keeps_its_code(ports: Ports):
    child = await spawn(ports, "exit 4")
    await eventually(lambda: is_gone(child.identity.pid))
    child.signal(signal.SIGTERM)
    assert (await child.wait(), await child.wait()) == (Exit(code=4), Exit(code=4))


async def test_a_stolen_status_is_unknown_and_never_success(ports: Ports):
    child = await spawn(ports, "kill -STOP $$")
    pid = child.identity.pid
    await eventually(lambda: is_stopped(pid))
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)  # noqa: ASYNC222  it has been killed, and nobody else may run meanwhile
    assert await child.wait() == Exit(code=None)


async def test_a_child_given_up_lives_on_and_its_zombie_is_reaped(ports: Ports):
    child = await spawn(ports, "kill -STOP $$; exit 3")
    pid = child.identity.pid
    await eventually(lambda: is_stopped(pid))
    waited = []

    async def wait() -> None:
        with pytest.raises(anyio.ClosedResourceError):
            await child.wait()
        waited.append(True)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(wait)
        await checkpoint()
        child.close()
    child.close()
    child.signal(signal.SIGKILL)
    assert waited
    assert is_stopped(pid)
    os.kill(pid, signal.SIGCONT)
    await eventually(lambda: is_gone(pid))


async def test_500_children_that_end_at_once_all_keep_their_codes(ports: Ports):
    codes: list[tuple[int, int | None]] = []

    async def one(number: int) -> None:
        async with limit:
            codes.append((number % 64, (await sh(ports, f"exit {number % 64}")).exit.code))

    limit = anyio.CapacityLimiter(16)
    async with anyio.create_task_group() as tasks:
        for number in range(500):
            tasks.start_soon(one, number)
    assert len(codes) == 500
    assert [pair for pair in codes if pair[0] != pair[1]] == []
    assert zombies() == []


async def test_without_descriptors_a_command_fails_and_nothing_is_left(ports: Ports):
    with no_more_descriptors(), pytest.raises(OSError) as caught:
        await sh(ports, "true")
    assert caught.value.errno == errno.EMFILE
    assert (await sh(ports, "exit 3")).exit.code == 3


async def test_without_a_descriptor_for_its_pidfd_a_child_is_killed_and_reaped(ports: Ports, monkeypatch):
    pids = []

    def refuse(pid: int) -> int:
        pids.append(pid)
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr(os, "pidfd_open", refuse)
    with pytest.raises(OSError) as caught:
        await sh(ports, "sleep 600")
    assert caught.value.errno == errno.EMFILE
    await eventually(lambda: is_gone(pids[0]))


@pytest.mark.parametrize(("failures", "succeeds"), [(3, True), (6, False)])
async def test_a_passing_shortage_of_processes_is_waited_out(ports: Ports, monkeypatch, failures: int, succeeds: bool):
    tries = []
    spawn_for_real = os.posix_spawn

    def spawn_when_there_is_room(*args, **kwargs) -> int:
        tries.append(args)
        if len(tries) <= failures:
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        return spawn_for_real(*args, **kwargs)

    monkeypatch.setattr(os, "posix_spawn", spawn_when_there_is_room)
    if succeeds:
        assert (await sh(ports, "exit 3")).exit.code == 3
    else:
        with pytest.raises(BlockingIOError):
            await sh(ports, "exit 3")
    assert len(tries) == (4 if succeeds else 6)
