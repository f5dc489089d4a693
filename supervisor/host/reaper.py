"""The zombies that nobody else will take.

PID 1 and subreapers become the parent of whatever loses its own, and must wait for it. The usual way, waiting for *any*
child whenever SIGCHLD comes, steals the exit codes of the children that somebody started and waits for: Popen then
reports success, asyncio 255. So here every child has one of three owners:

- *owned* pids, spawned or adopted through the Processes port, are only ever waited for by their owner;
- a *stranger* in another session (what daemonized, the stubs of a sandbox) is reaped as soon as it is a zombie;
- a stranger of our own session is most likely the child of a library, which waits for it in some thread: it gets a
  second to do so before it is reaped here.

There is no window between starting a child and owning it: os.posix_spawn and `own` follow each other in the loop's
thread without a checkpoint, and sweeps run in that thread too, never in the middle of that.

Source: PR_SET_CHILD_SUBREAPER(2const), waitid(2), proc_tid_children(5) of man-pages 6.9; rules measured on Linux 6.18.
"""

from __future__ import annotations

import ctypes
import os
import signal
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Final

import anyio
from anyio import lowlevel

from actors.ports import ProcessIdentity
from supervisor.host import procfs
from supervisor.host.background import open_background

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from supervisor.host.signals import HostSignals

_PR_SET_CHILD_SUBREAPER: Final = 36
_PR_GET_CHILD_SUBREAPER: Final = 37
# How long a zombie of our own session is left to the library that may have forked it.
_GRACE_S: Final = 1.0
# When /proc could not be read (no descriptors left): when to look again, as no signal will come.
_RETRY_S: Final = 0.1
# So many children are looked at before other tasks get their turn; some 2 us each.
_TURN: Final = 256

_libc: Final = ctypes.CDLL(None, use_errno=True)


class Reaper:
    """Takes strangers' zombies while it is open. One in a process: two would take each other's owned children.

    Args:
        signals: tells of SIGCHLD. Whatever else makes zombies appear (an owner that gives up) calls `look`.

    Attributes:
        reaped: how many strangers' zombies were taken.
    """

    _is_open = False

    def __init__(self, signals: HostSignals) -> None:
        self._signals = signals
        self._owned: set[int] = set()
        self.reaped = 0
        # Zombies of our own session, and since when we know each: by start time too, so that a reused pid begins anew.
        self._suspects: dict[ProcessIdentity, float] = {}
        self._wake = anyio.Event()
        self._session = os.getsid(0)
        self._children = procfs.listed_children if procfs.has_children_files() else procfs.scanned_children

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        """Make us a subreaper and reap in the background until the context is left.

        Raises:
            RuntimeError: there is one in this process already.
        """
        if Reaper._is_open:
            raise RuntimeError("this process has a reaper already")
        Reaper._is_open = True
        was_subreaper = is_subreaper()
        try:
            _set_subreaper(on=True)
            with self._signals.passing_on(signal.SIGCHLD, lambda _: self.look()):
                async with open_background() as tasks:
                    tasks.start_soon(self._reap)
                    yield
        finally:
            with anyio.CancelScope(shield=True), suppress(OSError):
                await self.sweep()
            if not was_subreaper:
                _set_subreaper(on=False)
            Reaper._is_open = False

    def own(self, pid: int) -> None:
        """Leave this child's zombie to its owner.

        Raises:
            ValueError: it has one.
        """
        if pid in self._owned:
            raise ValueError(f"process {pid} is owned already")
        self._owned.add(pid)

    def owns(self, pid: int) -> bool:
        """Whether this child has an owner."""
        return pid in self._owned

    def disown(self, pid: int) -> None:
        """Its owner has waited for it, or gives it up and calls `look`: then its zombie is a stranger's."""
        self._owned.discard(pid)

    def look(self) -> None:
        """Sweep soon."""
        self._wake.set()

    async def sweep(self) -> None:
        """Reap until nothing is left that may be reaped now.

        One SIGCHLD can stand for many children, and a reading of our children can miss some (`listed_children`): only
        two readings alike with nothing to reap mean that there is nothing.

        Raises:
            OSError: /proc cannot be read: no descriptors left.
        """
        before: list[int] | None = None
        while True:
            strangers = [pid for pid in self._children() if pid not in self._owned]
            reaped = await self._reap_among(strangers)
            if not reaped and strangers == before:
                return
            before = strangers

    async def _reap(self) -> None:
        while True:
            self._wake = anyio.Event()
            try:
                await self.sweep()
                again_s = self._grace_left_s()
            except OSError:
                # EMFILE or ENFILE: the strangers stay zombies a little longer, which harms nobody.
                again_s = _RETRY_S
            # No timer when there is nothing to come back to: an idle worker sleeps.
            with anyio.move_on_after(again_s):
                await self._wake.wait()

    async def _reap_among(self, strangers: Sequence[int]) -> int:
        """Reap those that may be reaped now; returns how many it were."""
        reaped = 0
        suspects: dict[ProcessIdentity, float] = {}
        for number, pid in enumerate(strangers, 1):
            # Asked again for each pid: other tasks ran since the reading, and may have adopted it.
            if pid not in self._owned and self._reap_stranger(pid, suspects):
                reaped += 1
                self.reaped += 1
            if number % _TURN == 0:
                await lowlevel.checkpoint()
        # Only those that were met this time: a pid that a library has waited for may soon be another process.
        self._suspects = suspects
        await lowlevel.checkpoint()
        return reaped

    def _reap_stranger(self, pid: int, suspects: dict[ProcessIdentity, float]) -> bool:
        # A look first, which needs no descriptor and takes 1 us: most strangers are alive.
        if not _wait_for(pid, os.WNOWAIT):
            return False
        stat = procfs.read_stat(pid)
        if stat is None:
            return False
        if stat.session == self._session:
            identity = ProcessIdentity(pid=pid, start_ticks=stat.start_ticks)
            now_s = anyio.current_time()
            since_s = self._suspects.get(identity, now_s)
            if now_s - since_s < _GRACE_S:
                suspects[identity] = since_s
                return False
        return _wait_for(pid, 0)

    def _grace_left_s(self) -> float | None:
        """Seconds until a suspect is to be looked at again; None when there is none."""
        if not self._suspects:
            return None
        return max(0.0, min(self._suspects.values()) + _GRACE_S - anyio.current_time())


def _wait_for(pid: int, options: int) -> bool:
    """Wait for exactly this process if it is a child of ours and a zombie; with WNOWAIT it stays one."""
    try:
        return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | options) is not None
    except ChildProcessError:
        return False


def is_subreaper() -> bool:
    """Whether orphans of our descendants become our children."""
    answer = ctypes.c_int()
    _prctl(_PR_GET_CHILD_SUBREAPER, ctypes.byref(answer))
    return bool(answer.value)


def can_adopt_orphans() -> bool:
    """Whether the kernel makes us a subreaper: tried, and left as it was."""
    try:
        was = is_subreaper()
        _set_subreaper(on=True)
        _set_subreaper(on=was)
    except OSError:
        return False
    return True


def _set_subreaper(*, on: bool) -> None:
    _prctl(_PR_SET_CHILD_SUBREAPER, ctypes.c_ulong(on))


def _prctl(option: int, argument: object) -> None:
    if _libc.prctl(option, argument, ctypes.c_ulong(0), ctypes.c_ulong(0), ctypes.c_ulong(0)) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
