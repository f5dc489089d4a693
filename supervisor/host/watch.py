"""Changes of directories, by watchfiles.

watchfiles' own `awatch` ignores a cancellation for up to 5 s, so its notifier is driven here, in a thread that is told
to stop. The notifier sleeps a step before it looks at its events, and another one before it hands them out: a step that
an idle worker can afford is felt twice. So the thread itself looks every 16.5 ms whether the directory's mtime has
moved, and only then, or at every twelfth look, asks the notifier, with the shortest step: 66 wake-ups a second, and 2
to 20 ms from a rename to the batch. What does not move the mtime (a file written in place) takes 0.2 s at most.

What inotify does not tell is seen by the same look: that the path names another directory now (a parent was renamed, a
symlink exchanged, something mounted there), and entries that came or went without an event, since watchfiles drops the
kernel's word that its queue overflowed.

Source: inotify(7) of man-pages 6.9; watchfiles 1.3.0, src/lib.rs.
"""

from __future__ import annotations

import os
import threading
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

import anyio
import attrs
from anyio import to_thread
from watchfiles._rust_notify import RustNotify, WatchfilesRustInternalError

from actors.ports import PROMPT_S
from supervisor.host.background import open_background
from supervisor.inbox import ChangeInbox

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

_LOOK_S: Final = 0.0165
_EVENTS_EVERY: Final = 12
# How the notifier is asked: it gathers events until none comes for a step.
_STEP_MS: Final = 1
_DEBOUNCE_MS: Final = 5
# How long an entry that has come or gone may be without its event before that counts as lost.
_LATE_MS: Final = 50
# How often an absent directory is looked for, and one looked at that cannot be watched.
_POLL_S: Final = 0.25


class HostWatch:
    """The real `Watch`."""

    @asynccontextmanager
    async def changes(
        self, directory: Path, *, within_s: float = PROMPT_S
    ) -> AsyncIterator[AsyncIterator[frozenset[str]]]:
        """Names of direct entries that changed, in batches; not recursive. Leaving the context ends it within 50 ms.

        The directory is looked at every `within_s`, or every 16.5 ms by default.

        A directory that is there is watched from the moment the context is entered: what is listed after that and what
        is told together miss nothing. An empty set means: look at everything.
        """
        observer = _Observer(os.fspath(directory), within_s if within_s > PROMPT_S else _LOOK_S)
        batches = ChangeInbox()
        thread = anyio.CapacityLimiter(1)

        async def pump() -> None:
            while (batch := await to_thread.run_sync(observer.next_batch, limiter=thread)) is not None:
                batches.put(batch)

        try:
            await to_thread.run_sync(observer.begin, limiter=thread)
            async with open_background() as tasks:
                tasks.start_soon(pump)
                try:
                    yield batches
                finally:
                    # A thread cannot be cancelled; it sees this within a step.
                    observer.stop()
        finally:
            observer.close()


@attrs.frozen
class _Mark:
    """A directory as it was when it was looked at; a change of entries moves its mtime."""

    device: int
    inode: int
    mtime_ns: int

    def is_same_directory(self, other: _Mark | None) -> bool:
        return other is not None and (self.device, self.inode) == (other.device, other.inode)


class _Observer:
    """Watches one path; all but `stop` is called by one thread after the other, and may block.

    `_mark` is what was last seen at the path, None when there was no directory. `_notify` is None when there is nothing
    to be watched, or it cannot be: no permission, or no inotify instance or watch left (then the mtime has to do).
    """

    def __init__(self, directory: str, look_s: float) -> None:
        self._directory = directory
        self._look_s = look_s
        # What does not move the mtime is asked for at least five times a second, where every look is not already rarer.
        self._events_every = max(1, round(_EVENTS_EVERY * _LOOK_S / look_s))
        self._stopped = threading.Event()
        self._mark: _Mark | None = None
        self._notify: RustNotify | None = None
        self._looks = 0

    def begin(self) -> None:
        self._mark = self._look()
        self._watch()

    def stop(self) -> None:
        self._stopped.set()

    def close(self) -> None:
        if self._notify is not None:
            self._notify.close()
            self._notify = None

    def next_batch(self) -> frozenset[str] | None:
        """Wait for changes; None when stopped."""
        while not self._stopped.is_set():
            batch = self._poll() if self._notify is None else self._events(self._notify)
            if batch is not None:
                return batch
        return None

    def _poll(self) -> frozenset[str] | None:
        if self._stopped.wait(max(_POLL_S, self._look_s)):
            return None
        now = self._look()
        if now == self._mark and (now is None or not self._watch()):
            return None
        return self._begin_anew(now)

    def _events(self, notify: RustNotify) -> frozenset[str] | None:
        if self._stopped.wait(self._look_s):
            return None
        self._looks += 1
        now = self._look()
        if now is None or not now.is_same_directory(self._mark):
            return self._begin_anew(now)
        if now == self._mark and self._looks % self._events_every:
            return None
        return self._ask(notify, has_moved=now != self._mark)

    def _ask(self, notify: RustNotify, *, has_moved: bool) -> frozenset[str] | None:
        try:
            found = notify.watch(_DEBOUNCE_MS, _STEP_MS, _LATE_MS if has_moved else _STEP_MS, self._stopped)
        except (OSError, WatchfilesRustInternalError):
            return self._begin_anew(self._look())
        if found == "stop" or (isinstance(found, str) and not has_moved):
            return None
        now = self._look()
        paths = set() if isinstance(found, str) else {path for _, path in found}
        # Begun anew also when it looks the same: one that is removed and made anew can get the same inode.
        if now is None or not now.is_same_directory(self._mark) or self._directory in paths:
            return self._begin_anew(now)
        self._mark = now
        # What came between the events and this look has moved the mtime already: ask again at the next look.
        self._looks = -1
        # Entries that came or went without an event did so in events that were lost: then, too, look at everything.
        return frozenset(map(os.path.basename, paths))

    def _begin_anew(self, now: _Mark | None) -> frozenset[str]:
        self.close()
        self._mark = now
        self._watch()
        return frozenset()

    def _watch(self) -> bool:
        """Begin to watch what is there, if that can be done."""
        if self._mark is None:
            return False
        try:
            self._notify = RustNotify([self._directory], False, False, 0, False, False)  # noqa: FBT003  it takes no keywords
        except (OSError, WatchfilesRustInternalError):
            return False
        return True

    def _look(self) -> _Mark | None:
        try:
            found = os.stat(os.path.join(self._directory, ""))
        except OSError:
            return None
        return _Mark(found.st_dev, found.st_ino, found.st_mtime_ns)
