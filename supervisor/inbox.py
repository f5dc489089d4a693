"""What has come to a port and is not yet taken: the real ports and the simulated ones keep it by the same rules."""

from __future__ import annotations

import signal
from abc import ABC, abstractmethod
from collections import deque
from typing import TYPE_CHECKING, Final, Generic, TypeVar

import anyio
from anyio import lowlevel

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

NAMES_MAX: Final = 4096
"""Of so many names nobody picks single ones: look at everything."""

# The kernel itself keeps one pending signal of a kind; who lets this many wait does not count them.
_SIGNALS_MAX: Final = 64
_CATCHABLE: Final = frozenset(signal.valid_signals()) - {signal.SIGKILL, signal.SIGSTOP}
_T = TypeVar("_T")


def require_catchable(signums: Iterable[int]) -> None:
    """Refuse what no process can handle.

    Raises:
        ValueError: SIGKILL, SIGSTOP or no signal at all is among them.
    """
    if unfit := set(signums) - _CATCHABLE:
        raise ValueError(f"no signals that can be handled: {sorted(unfit)}")


class _Inbox(ABC, Generic[_T]):
    """An iterator that waits for what comes; how it is kept until it is taken is up to the subclass."""

    def __init__(self) -> None:
        self._came = anyio.Event()

    def __aiter__(self) -> _Inbox[_T]:
        return self

    async def __anext__(self) -> _T:
        await lowlevel.checkpoint()
        while (found := self._take()) is None:
            # Only a new one for one that is set: somebody else may wait for it.
            if self._came.is_set():
                self._came = anyio.Event()
            await self._came.wait()
        return found

    @abstractmethod
    def _take(self) -> _T | None:
        """What is taken next; None when there is nothing."""


class SignalInbox(_Inbox[int]):
    """Signals, one by one, in the order in which they came; the oldest go when there are too many."""

    def __init__(self) -> None:
        super().__init__()
        self._pending: deque[int] = deque(maxlen=_SIGNALS_MAX)

    def put(self, signum: int) -> None:
        """A signal has come."""
        self._pending.append(signum)
        self._came.set()

    def _take(self) -> int | None:
        return self._pending.popleft() if self._pending else None


class ChangeInbox(_Inbox[frozenset[str]]):
    """Names of a directory's entries that changed, all together; bounded, as more than some names become none."""

    def __init__(self) -> None:
        super().__init__()
        # In the order in which they came: that of a set of strings changes with PYTHONHASHSEED.
        self._names: dict[str, None] = {}
        self._is_everything = False

    def put(self, batch: Collection[str]) -> None:
        """Some names have changed; no name at all means everything."""
        self._names.update(dict.fromkeys(batch))
        self._is_everything |= not batch or len(self._names) > NAMES_MAX
        if self._is_everything:
            self._names.clear()
        self._came.set()

    def _take(self) -> frozenset[str] | None:
        if not self._names and not self._is_everything:
            return None
        names = frozenset(() if self._is_everything else self._names)
        self._names.clear()
        self._is_everything = False
        return names
