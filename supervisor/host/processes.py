"""Every process that Greenroom starts, adopts, looks for or ends."""

from __future__ import annotations

import errno
import os
import signal
import stat
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Final

import anyio
from anyio import lowlevel, to_thread

from actors.ports import CLIENT_STREAM, DeadlineExceededError, Finished, OpenFile, Output, ProcessIdentity
from supervisor.host import procfs, spawning
from supervisor.host.child import HostChild
from supervisor.host.finding import SharedFinding
from supervisor.host.own_usage import own_usage

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from anyio.abc import TaskGroup

    from actors.ports import AppendTo, Child, Exit, OwnUsage
    from supervisor.host.reaper import Reaper

_STDERR_TAIL_BYTES: Final = 16 << 10
# A process that hangs in the kernel does not even die of SIGKILL. Its command has failed all the same, and the reaper
# takes it whenever it ends.
_KILL_BOUND_S: Final = 5.0
# What else was in a killed group dies by itself; its parents may be slow to wait for it.
_GROUP_BOUND_S: Final = 1.0
_POLL_MIN_S: Final = 0.001
_POLL_MAX_S: Final = 0.05
# EAGAIN: a limit on processes, which often is only a burst. ETXTBSY: a program just written, whose descriptor another
# thread's child holds until its exec. Both go by themselves or not at all: six tries within 310 ms.
_TRANSIENT: Final = frozenset({errno.EAGAIN, errno.ETXTBSY})
# Of st_blocks, whatever the file system's own are: stat(3type).
_BLOCK_BYTES: Final = 512
_RETRY_DELAYS_S: Final = (0.01, 0.02, 0.04, 0.08, 0.16)


class HostProcesses:
    """The real `Processes`.

    Args:
        reaper: is open while this is used.
        tasks: runs one task per owned process.
    """

    def __init__(self, reaper: Reaper, tasks: TaskGroup) -> None:
        self._reaper = reaper
        self._tasks = tasks
        # Looking at all processes: one such thread at a time.
        self._scans = anyio.CapacityLimiter(1)
        self._finding = SharedFinding(self._scans)

    async def run(
        self,
        argv: Sequence[str],
        *,
        deadline_s: float,
        env: Mapping[str, str],
        stdin: Path | None = None,
        stdout: AppendTo | Output = Output.CAPTURE,
        stderr: AppendTo | Output = Output.CAPTURE,
        stdout_limit_bytes: int = 1 << 20,
    ) -> Finished:
        """Run a command to its end; its stdin is this regular file where one is named.

        When the deadline passes or the caller is cancelled, the command's process group gets SIGKILL and is waited for
        before this returns. What it daemonized into another session lives on.

        Raises:
            FileNotFoundError, PermissionError: argv[0] cannot be executed.
            DeadlineExceededError: the deadline passed. When the kernel did not let the command die either, it is left
                to the reaper after 5 s.
            OSError: no descriptors or processes left, or the stdin or the file of an AppendTo cannot be opened.
            ValueError: argv[0] is not absolute.
        """
        spawning.check_command(argv)
        with ExitStack() as stack:
            stdin_fd = None if stdin is None else stack.enter_context(spawning.open_input(stdin))
            stdout_fd = stack.enter_context(spawning.open_output(stdout))
            stderr_fd = stack.enter_context(spawning.open_output(stderr))
            started_s = anyio.current_time()
            child = await self._start(argv, env, stdin_fd=stdin_fd, stdout_fd=stdout_fd, stderr_fd=stderr_fd)
            end = await self._wait_or_kill(child, deadline_s)
            said = _last(stderr_fd, _STDERR_TAIL_BYTES) if stderr is Output.CAPTURE else b""
            if end is None:
                raise DeadlineExceededError(f"{argv[0]} did not end within {deadline_s:g} s", stderr=said)
            return Finished(
                exit=end,
                elapsed_s=anyio.current_time() - started_s,
                stdout=_first(stdout_fd, stdout_limit_bytes) if stdout is Output.CAPTURE else b"",
                stderr=said,
            )

    async def spawn(
        self, argv: Sequence[str], *, env: Mapping[str, str], stdout: AppendTo | Output, stderr: AppendTo | Output
    ) -> Child:
        """Start a long-lived command and own it.

        Raises:
            FileNotFoundError, PermissionError: argv[0] cannot be executed.
            OSError: no descriptors or processes left, or the file of an AppendTo cannot be opened.
            ValueError: argv[0] is not absolute, or output is to be captured, which nobody would read.
        """
        spawning.check_command(argv)
        if Output.CAPTURE in {stdout, stderr}:
            raise ValueError("the output of a long-lived command goes to a file or nowhere")
        with spawning.open_output(stdout) as stdout_fd, spawning.open_output(stderr) as stderr_fd:
            return await self._start(argv, env, stdout_fd=stdout_fd, stderr_fd=stderr_fd)

    async def spawn_speaking(self, argv: Sequence[str], *, env: Mapping[str, str]) -> tuple[HostChild, socket.socket]:
        """Start a program of ours that tells us something for as long as it lives, and own it.

        Returns: the process, and the other end of the connection that its stdout is; the caller closes both. Only for
            what starts no other processes: they would hold the connection open.

        Raises:
            FileNotFoundError, PermissionError: argv[0] cannot be executed.
            OSError: no descriptors or processes left.
            ValueError: argv[0] is not absolute.
        """
        spawning.check_command(argv)
        with spawning.open_output(Output.DISCARD) as stderr_fd, spawning.open_connection() as (stdout_fd, ours):
            return await self._start(argv, env, stdout_fd=stdout_fd, stderr_fd=stderr_fd), ours

    async def adopt(self, pid: int) -> Child:
        """Own a process that the kernel gave us as a child.

        Raises:
            ProcessLookupError: there is no such process, or it is no child of ours.
            OSError: EBUSY, it is owned already; no descriptor left.
        """
        await lowlevel.checkpoint()
        if self._reaper.owns(pid):
            raise OSError(errno.EBUSY, "it is owned already")
        return self._own(pid)

    async def reclaim(self, identity: ProcessIdentity) -> Child:
        """Own exactly this process again, whosever child it is by now.

        Raises:
            ProcessLookupError: it has ended.
            OSError: EBUSY, it is owned already; no descriptor left; it is not ours to signal.
        """
        await lowlevel.checkpoint()
        if self._reaper.owns(identity.pid):
            raise OSError(errno.EBUSY, "it is owned already")
        return self._own(identity.pid, partial(_require_running, identity))

    async def find(self, *, argument: str) -> tuple[ProcessIdentity, ...]:
        """The processes of our PID namespace that have this exact string as one argument, by pid."""
        return tuple(identity for identity, _ in await self._finding.with_argument(argument))

    async def find_arguments(self, *, prefix: str) -> tuple[tuple[ProcessIdentity, str], ...]:
        """The processes of our PID namespace with an argument that begins with this, and that argument, by pid."""
        return await self._finding.with_prefix(prefix)

    async def is_alive(self, identity: ProcessIdentity) -> bool:
        """Whether exactly this process exists and is not a zombie."""
        await lowlevel.checkpoint()
        stat = procfs.read_stat(identity.pid)
        return stat is not None and stat.start_ticks == identity.start_ticks and stat.is_running

    async def holds_output(self, identity: ProcessIdentity) -> bool:
        """Whether exactly this process has the captured output of a command open, whether or not that has ended."""
        return await to_thread.run_sync(_holds_output, identity, abandon_on_cancel=True, limiter=self._scans)

    async def open_files(self, identity: ProcessIdentity) -> tuple[OpenFile, ...]:
        """What exactly this process has open, each file once; nothing when it has ended.

        Raises:
            OSError: it cannot be looked at.
        """
        return await to_thread.run_sync(_open_files, identity, abandon_on_cancel=True, limiter=self._scans)

    async def own_usage(self) -> OwnUsage:
        """What we ourselves use, read now, in the loop's thread.

        Raises:
            OSError: it cannot be read: no descriptor left.
        """
        await lowlevel.checkpoint()
        return own_usage(reaped=self._reaper.reaped)

    async def kill_and_wait(self, identity: ProcessIdentity, *, deadline_s: float) -> None:
        """SIGKILL exactly this process, ours or not, and wait until it is gone (and reaped where it is our child).

        Does nothing when it is gone already. One whose parent is somebody else and does not wait for it is gone when it
        is a zombie.

        Raises:
            DeadlineExceededError: it is still there.
            PermissionError: it is not ours to kill.
            ValueError: it is this process.
        """
        if identity.pid == os.getpid():
            raise ValueError("that would end this process")
        await lowlevel.checkpoint()
        try:
            pidfd = os.pidfd_open(identity.pid)
        except OSError as error:
            if _is_absent(error):
                return
            raise
        try:
            stat = procfs.read_stat(identity.pid)
            if stat is None or stat.start_ticks != identity.start_ticks or not _send(pidfd, signal.SIGKILL):
                return
            with anyio.move_on_after(deadline_s):
                await anyio.wait_readable(pidfd)
                if stat.parent == os.getpid():
                    await self._reaped(pidfd)
                return
        finally:
            os.close(pidfd)
        raise DeadlineExceededError(f"process {identity.pid} did not end within {deadline_s:g} s of SIGKILL")

    async def _start(
        self,
        argv: Sequence[str],
        env: Mapping[str, str],
        *,
        stdin_fd: int | None = None,
        stdout_fd: int,
        stderr_fd: int,
    ) -> HostChild:
        await lowlevel.checkpoint()
        for delay_s in (*_RETRY_DELAYS_S, None):
            try:
                # No checkpoint from here until the pid is owned, so that no sweep comes in between.
                pid = spawning.posix_spawn(argv, env, stdin_fd=stdin_fd, stdout_fd=stdout_fd, stderr_fd=stderr_fd)
            except OSError as error:
                if error.errno not in _TRANSIENT or delay_s is None:
                    raise
                await anyio.sleep(delay_s)
            else:
                break
        else:
            raise AssertionError("the last try returns or raises")
        try:
            return self._own(pid)
        except BaseException:
            # No descriptor left for the pidfd. The pid is a child that nobody has waited for, so it and its group are
            # no other ones, and the reaper takes them.
            _signal_group(pid, signal.SIGKILL)
            self._reaper.look()
            raise

    def _own(self, pid: int, identify: Callable[[int, int], ProcessIdentity] | None = None) -> HostChild:
        """Own a child of ours, or what `identify` makes of a pid and its pidfd.

        Without a checkpoint: until this returns, no sweep can have reaped it.
        """
        try:
            pidfd = os.pidfd_open(pid)
        except OSError as error:
            if _is_absent(error):
                raise ProcessLookupError(errno.ESRCH, f"there is no process {pid}") from None
            raise
        try:
            identity = (identify or _identity_of_child)(pid, pidfd)
            self._reaper.own(pid)
        except BaseException:
            os.close(pidfd)
            raise
        child = HostChild(identity, pidfd, self._reaper)
        self._tasks.start_soon(child.watch, name=f"process {pid}")
        return child

    async def _wait_or_kill(self, child: HostChild, deadline_s: float) -> Exit | None:
        """How the command ended, or None when it had to be killed at its deadline."""
        try:
            with anyio.move_on_after(deadline_s):
                return await child.wait()
            return child.exit
        finally:
            # Past the deadline, or cancelled. A command that ended at the same moment has ended.
            if child.exit is None:
                with anyio.CancelScope(shield=True):
                    await self._kill_group(child)
            child.close()

    async def _kill_group(self, child: HostChild) -> None:
        group = child.identity.pid
        # The leader has not been waited for, so the number of its group is still its own.
        _signal_group(group, signal.SIGKILL)
        child.signal(signal.SIGKILL)
        with anyio.move_on_after(_KILL_BOUND_S):
            await child.wait()
        with anyio.move_on_after(_GROUP_BOUND_S):
            delay_s = _POLL_MIN_S
            while _signal_group(group, 0):
                await anyio.sleep(delay_s)
                delay_s = min(2 * delay_s, _POLL_MAX_S)

    async def _reaped(self, pidfd: int) -> None:
        """Wait until a child of ours that has ended is also no zombie any more."""
        delay_s = _POLL_MIN_S
        self._reaper.look()
        while _send(pidfd, 0):
            await anyio.sleep(delay_s)
            delay_s = min(2 * delay_s, _POLL_MAX_S)


def _identity_of_child(pid: int, pidfd: int) -> ProcessIdentity:
    """The identity of the process that a pidfd was opened for, which must be a child of ours.

    Signal 0 reaches a process until it has been reaped, and until then its pid is its own: what is read before that was
    about the process of the pidfd and no later one.
    """
    stat = procfs.read_stat(pid)
    if stat is None or stat.parent != os.getpid() or not _send(pidfd, 0):
        raise ProcessLookupError(errno.ESRCH, f"process {pid} is no child of ours")
    return ProcessIdentity(pid=pid, start_ticks=stat.start_ticks)


def _require_running(identity: ProcessIdentity, pid: int, pidfd: int) -> ProcessIdentity:
    """That very process, of whichever parent, as long as it is no zombie: one that nobody waits for never goes."""
    stat = procfs.read_stat(pid)
    is_same = stat is not None and stat.start_ticks == identity.start_ticks and stat.is_running
    if not is_same or not _send(pidfd, 0):
        raise ProcessLookupError(errno.ESRCH, f"process {pid} has ended")
    return identity


def _send(pidfd: int, signum: int) -> bool:
    """Send a signal (0: only look); whether there still was a process, if only a zombie, to get it."""
    try:
        signal.pidfd_send_signal(pidfd, signum)
    except ProcessLookupError:
        return False
    return True


def _signal_group(group: int, signum: int) -> bool:
    """Send a signal to a process group (0: only look); whether it still had members."""
    try:
        os.killpg(group, signum)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _is_absent(error: OSError) -> bool:
    """Whether pidfd_open failed for want of a process: no such pid, no valid one, or a thread's (ENOENT since 6.9)."""
    return error.errno in {errno.ESRCH, errno.EINVAL, errno.ENOENT}


def _holds_output(identity: ProcessIdentity) -> bool:
    captured, client = f"/memfd:{spawning.CAPTURE_NAME} ", f"/{CLIENT_STREAM}"
    targets = procfs.descriptor_targets(identity.pid)
    is_held = any(target.startswith(captured) or client in target for target in targets)
    is_held = is_held or procfs.has_terminal(identity.pid)
    stat = procfs.read_stat(identity.pid)
    return is_held and stat is not None and stat.start_ticks == identity.start_ticks


def _open_files(identity: ProcessIdentity) -> tuple[OpenFile, ...]:
    found = {
        (told.st_dev, told.st_ino): OpenFile(
            path=target, device=_device(told), stored_bytes=told.st_blocks * _BLOCK_BYTES
        )
        for target, told in procfs.open_files(identity.pid)
    }
    now = procfs.read_stat(identity.pid)
    return tuple(found.values()) if now is not None and now.start_ticks == identity.start_ticks else ()


def _device(told: os.stat_result) -> tuple[int, int] | None:
    return (os.major(told.st_rdev), os.minor(told.st_rdev)) if stat.S_ISCHR(told.st_mode) else None


def _first(fd: int, limit_bytes: int) -> bytes:
    return os.pread(fd, min(limit_bytes, spawning.captured_bytes(fd)), 0)


def _last(fd: int, limit_bytes: int) -> bytes:
    size_bytes = spawning.captured_bytes(fd)
    begin = max(0, size_bytes - limit_bytes)
    return os.pread(fd, size_bytes - begin, begin)
