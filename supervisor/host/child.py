"""A process we own, and the one task that waits for it."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import anyio

from actors.ports import Exit
from supervisor.owned import Owned

if TYPE_CHECKING:
    from actors.ports import ProcessIdentity
    from supervisor.host.reaper import Reaper

# When the pidfd says that it ended but its status is not ours to have yet (see `_collect`).
_HELD_BACK_S: Final = 0.01


class HostChild(Owned):
    """The real `Child`.

    Exactly one task waits on the pidfd (`watch`) and collects the status at once, so that an owned process is no zombie
    for longer than a turn of the loop. Whoever calls `wait` waits for that task, so it does not matter how many do and
    which of them are cancelled.

    Args:
        identity: of a child of ours that has not been waited for.
        pidfd: of the same process; closed by this object.
        reaper: has been told that the process is owned.

    Source: pidfd_open(2) (Linux 5.3: it polls readable when the process has ended), waitid(2) P_PIDFD (Linux 5.4),
    pidfd_send_signal(2) (Linux 5.1) of man-pages 6.9.
    """

    def __init__(self, identity: ProcessIdentity, pidfd: int, reaper: Reaper) -> None:
        super().__init__(identity)
        self._pidfd: int | None = pidfd
        self._reaper = reaper

    def signal(self, signum: int) -> None:
        """Send a signal by pidfd; does nothing when it has already ended or was given up."""
        if self._pidfd is None:
            return
        # Somebody else may have reaped it; `watch` is about to find out.
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._pidfd, signum)

    def close(self) -> None:
        """Give up ownership: the process lives on, and the reaper takes its zombie."""
        if self._pidfd is None:
            return
        # The order that notify_closing asks for, without a checkpoint in between.
        pidfd, self._pidfd = self._pidfd, None
        anyio.notify_closing(pidfd)
        os.close(pidfd)
        self._reaper.disown(self._identity.pid)
        if self._exit is None:
            self._reaper.look()
        self._is_settled.set()

    async def watch(self) -> None:
        """Wait for its end; the one task of this object, begun by who made it."""
        try:
            while self._exit is None and self._pidfd is not None:
                await anyio.wait_readable(self._pidfd)
                self._exit = _collect(self._pidfd)
                if self._exit is None:
                    await anyio.sleep(_HELD_BACK_S)
        except anyio.ClosedResourceError:
            pass  # `close` has done everything
        finally:
            self.close()


def _collect(pidfd: int) -> Exit | None:
    """Reap a process that ended.

    Returns: how it ended, with code None when its status was stolen (somebody waited for any child, or SIGCHLD is
        ignored): unknown is never success. None when the status cannot be had yet: a debugger has to take it first.
    """
    try:
        status = os.waitid(os.P_PIDFD, pidfd, os.WEXITED | os.WNOHANG)
    except ChildProcessError:
        return Exit(code=None)
    if status is None:
        return None
    return Exit(code=status.si_status if status.si_code == os.CLD_EXITED else -status.si_status)
