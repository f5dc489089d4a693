"""The loop of a monitor: it looks, tells, waits for an XID or for the next look, and ends with whoever listens.

Its stdout is the other end of the connection. What NVML is to it, is for the program that calls `tell_facts`.
"""

from __future__ import annotations

import os
import select
import threading
import time
from typing import TYPE_CHECKING, Final, Protocol

from actors.gpu.facts import encode
from supervisor.gpu_monitor.looking import Library, Looking

if TYPE_CHECKING:
    from collections.abc import Iterable

    from actors.gpu.facts import Fact

_STDOUT: Final = 1
# A GPU in trouble reports by the hundred: they are told in batches, with a look after each.
_BATCH_MAX: Final = 256
_BATCH_PAUSE_S: Final = 0.05


class WaitingLibrary(Library, Protocol):
    """NVML with which one can wait."""

    def wait(self, limit_s: float) -> tuple[str | None, int] | None:
        """The next XID and the UUID of its GPU, if that is known; None when the time is over."""
        ...


def tell_facts(library: WaitingLibrary, period_s: float) -> None:
    """Tell facts until the library has to be loaded by another process, or nobody listens, which ends the process."""
    threading.Thread(target=_end_with_the_listener, daemon=True).start()
    looking = Looking(library)
    try:
        while not looking.is_over:
            _tell(looking.look())
            if not looking.is_over:
                _wait(library, looking, period_s)
    except BrokenPipeError:
        os._exit(0)


def _wait(library: WaitingLibrary, looking: Looking, period_s: float) -> None:
    """Wait until it is time to look: a period is over, or an XID came."""
    event = library.wait(period_s)
    if event is None:
        return
    for _ in range(_BATCH_MAX):
        _tell(looking.hear(*event))
        event = library.wait(0)
        if event is None:
            break
    _tell(looking.look())
    time.sleep(_BATCH_PAUSE_S)


def _tell(facts: Iterable[Fact]) -> None:
    rest = memoryview(b"".join(map(encode, facts)))
    while rest:
        rest = rest[os.write(_STDOUT, rest) :]


def _end_with_the_listener() -> None:
    """End the process when the other end of stdout is closed, also while a call of NVML does not return."""
    poller = select.poll()
    poller.register(_STDOUT, 0)  # what is always told: POLLHUP and POLLERR
    poller.poll()
    os._exit(0)
