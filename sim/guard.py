"""The guard around a run in virtual time: whatever would reach the real world is an error there.

A thread, a process, a socket, a file that is opened (but for Python's own modules), a real clock or unseeded
randomness: each of them makes a run one that cannot be repeated, and a thread lets hours of virtual time pass. Two
nets: the interpreter's audit events, which nothing in Python gets around but which cannot be taken off again, so that
they only look while a run is on; and the names of clocks and random sources, for which there are no such events.
"""

from __future__ import annotations

import _thread
import contextlib
import os  # noqa: TID251 - what is put out of reach here must be named
import random  # noqa: TID251 - as above
import sys
import threading  # noqa: TID251 - as above
import time  # noqa: TID251 - as above
import uuid
from typing import TYPE_CHECKING, Any, Final, NoReturn

from trio import _threads as trio_threads

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_FORBIDDEN: Final = (
    "_thread.start",
    "fcntl.",
    "os.",
    "pty.spawn",
    "shutil.",
    "signal.pthread_kill",
    "socket.",
    "subprocess.",
    "syslog.",
    "tempfile.",
    "time.sleep",
)
"""How the names of audit events begin that are errors. Source: the table of audit events of Python's documentation."""
_HARMLESS: Final = frozenset({"os.listdir", "os.scandir", "os.putenv", "os.unsetenv"})
"""The import system looks into directories."""
_COMMONEST: Final = "builtins.id"
"""Of all events, nearly every one is this."""
_MODULES: Final = (".py", ".pyc", ".so")
_RANDOM: Final = (
    "betavariate",
    "choice",
    "choices",
    "gauss",
    "getrandbits",
    "randbytes",
    "randint",
    "random",
    "randrange",
    "sample",
    "shuffle",
    "uniform",
)
_WRITING: Final = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


class RealWorldError(RuntimeError):
    """Raised when something in a run reaches for the real world."""


class _Watchman:
    """Whether a run is on, what it has reached for, and the one audit hook of this interpreter."""

    def __init__(self) -> None:
        self.depth = 0
        self.breaches: list[str] = []
        self._is_hooked = False

    def refuse(self, what: str) -> NoReturn:
        """Raise `RealWorldError`, and keep it in mind for the case that somebody catches it."""
        self.breaches.append(what)
        raise RealWorldError(what)

    def begin(self) -> None:
        if not self._is_hooked:
            self._is_hooked = True
            sys.addaudithook(self._look)
        self.depth += 1

    def end(self) -> None:
        self.depth -= 1

    def _look(self, event: str, arguments: tuple[Any, ...]) -> None:
        if not self.depth or event == _COMMONEST:
            return
        if event == "open":
            path, _, flags = arguments
            if not isinstance(path, str | bytes) or not os.fsdecode(path).endswith(_MODULES) or flags & _WRITING:
                self.refuse(f"a run in virtual time opens no real file: {path!r}")
        elif event.startswith(_FORBIDDEN) and event not in _HARMLESS:
            self.refuse(f"a run in virtual time leaves the real world alone: {event}{arguments!r:.200}")


_WATCHMAN: Final = _Watchman()


@contextlib.contextmanager
def guarded() -> Iterator[None]:
    """Make whatever reaches for the real world raise `RealWorldError`, and restore everything afterwards.

    Enter it within the event loop, which has sockets of its own.

    Raises:
        RealWorldError: on leaving, when something reached for the real world and the error was caught inside.
    """
    before = sys.dont_write_bytecode
    known = len(_WATCHMAN.breaches)
    with contextlib.ExitStack() as stack:
        for module, name in _names():
            stack.enter_context(_replaced(module, name))
        sys.dont_write_bytecode = True
        _WATCHMAN.begin()
        try:
            yield
        finally:
            _WATCHMAN.end()
            sys.dont_write_bytecode = before
    if breaches := _WATCHMAN.breaches[known:]:
        del _WATCHMAN.breaches[known:]
        raise RealWorldError(breaches[0])


@contextlib.contextmanager
def beyond() -> Iterator[None]:
    """Within a guarded run, call what belongs to whoever runs it: a file that is read on, a bar that shows progress."""
    depth, _WATCHMAN.depth = _WATCHMAN.depth, 0
    try:
        yield
    finally:
        _WATCHMAN.depth = depth


def _names() -> Iterator[tuple[Any, str]]:
    for name in ("time", "time_ns", "monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns", "sleep"):
        yield time, name
    # A thread raises no audit event before Python 3.12.
    yield _thread, "start_new_thread"
    for name in ("_start_new_thread", "_start_joinable_thread"):
        if hasattr(threading, name):
            yield threading, name
    # One that trio has kept from an earlier loop is not started at all.
    yield trio_threads, "start_thread_soon"
    for name in ("urandom", "getrandom"):
        yield os, name
    for name in _RANDOM:
        yield random, name
    for name in ("uuid1", "uuid4"):
        yield uuid, name


@contextlib.contextmanager
def _replaced(module: Any, name: str) -> Iterator[None]:
    original = getattr(module, name)
    setattr(module, name, _refusal(f"{module.__name__}.{name}", original))
    try:
        yield
    finally:
        setattr(module, name, original)


def _refusal(name: str, original: Callable[..., object]) -> Callable[..., object]:
    def refuse(*args: object, **options: object) -> object:
        if _WATCHMAN.depth:
            _WATCHMAN.refuse(f"a run in virtual time has its own clock and randomness, and no threads: {name}")
        return original(*args, **options)

    return refuse
