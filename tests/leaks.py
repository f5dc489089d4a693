"""What a test may not leave behind. tests/conftest.py looks after every test, through `find_leaks`.

Looked at is what belongs to this process or lies below the test's own directory: other work on the machine is none of
its business. What ends by itself gets a moment to do so.
"""

import os
import re
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

import attrs

# What a file is called while it is being replaced (supervisor/host/writing.py).
_TEMPORARY: Final = re.compile(r"\..+\.[0-9a-f]{16}\.tmp")
# Threads that were told to end and orphans that were killed may take that long on a busy machine.
_PATIENCE_S: Final = 30.0
_POLL_S: Final = 0.01
_ENTRIES_MAX: Final = 50_000


@attrs.frozen
class Belongings:
    """What this process has at one moment.

    Attributes:
        children: pid to what the kernel says about it, zombies included.
        descriptors: what each descriptor is open on; several may be open on the same.
        mounts: mount points below the directory.
        temporaries: files below the directory that are being replaced.
        sandboxes: command lines of processes with a runsc root below the directory.
    """

    children: dict[int, str]
    descriptors: Counter[str]
    mounts: frozenset[str]
    temporaries: frozenset[str]
    sandboxes: frozenset[str]

    @classmethod
    def of(cls, directory: Path | None) -> "Belongings":
        """Take stock, of the files below this directory."""
        return cls(
            children=dict(_children()),
            descriptors=Counter(_descriptors()),
            mounts=frozenset(_mounts(directory)) if directory else frozenset(),
            temporaries=frozenset(temporaries_below(directory)) if directory else frozenset(),
            sandboxes=frozenset(_sandboxes(directory)) if directory else frozenset(),
        )

    def leaks_since(self, before: "Belongings") -> list[str]:
        """A line for each thing that was not there before."""
        return [
            *(f"child process {pid}: {text}" for pid, text in self.children.items() if pid not in before.children),
            *(f"descriptor: {target}" for target in (self.descriptors - before.descriptors).elements()),
            *(f"mount: {point}" for point in self.mounts - before.mounts),
            *(f"temporary file: {path}" for path in self.temporaries - before.temporaries),
            *(f"sandbox: {command}" for command in self.sandboxes - before.sandboxes),
        ]


def find_leaks(before: Belongings, directory: Path | None, *, patience_s: float = _PATIENCE_S) -> list[str]:
    """What is there now and was not before, after waiting a moment for it to go."""
    until_s = time.monotonic() + patience_s
    while (leaks := Belongings.of(directory).leaks_since(before)) and time.monotonic() < until_s:
        threading.Event().wait(_POLL_S)
    return leaks


def _children() -> Iterator[tuple[int, str]]:
    for thread in _names("/proc/self/task"):
        for pid in _text(f"/proc/self/task/{thread}/children").split():
            stat = _text(f"/proc/{pid}/stat")
            command = _text(f"/proc/{pid}/cmdline").replace("\0", " ").strip()
            yield int(pid), f"{stat[stat.find('(') : stat.rfind(')') + 3]} {command}".strip()


def _descriptors() -> Iterator[str]:
    for fd in _names("/proc/self/fd"):
        try:
            target = str(Path(f"/proc/self/fd/{fd}").readlink())
        except FileNotFoundError:
            continue  # the descriptor of the listing itself
        yield target


def _mounts(directory: Path) -> Iterator[str]:
    # Field 5 of proc_pid_mountinfo(5); blanks and backslashes in it are octal.
    for line in _text("/proc/self/mountinfo").splitlines():
        point = re.sub(r"\\([0-7]{3})", lambda found: chr(int(found[1], 8)), line.split()[4])
        if Path(point).is_relative_to(directory):
            yield point


def temporaries_below(directory: Path) -> Iterator[str]:
    """Files that are being replaced, or were when their writer was killed."""
    for path in _limited(_files(directory)):
        if _TEMPORARY.fullmatch(path.name):
            yield str(path)


def _files(directory: Path) -> Iterator[Path]:
    for parent, _, names in os.walk(directory):
        yield from (Path(parent, name) for name in names)


def _limited(paths: Iterator[Path]) -> Iterator[Path]:
    for _, path in zip(range(_ENTRIES_MAX), paths, strict=False):
        yield path


def _sandboxes(directory: Path) -> Iterator[str]:
    for pid in filter(str.isdecimal, _names("/proc")):
        command = _text(f"/proc/{pid}/cmdline")
        if re.search(rf"(?:^|\0)--?root[=\0]{re.escape(str(directory))}(?:/|\0|$)", command):
            yield f"{pid} {command.replace(chr(0), ' ').strip()}"


def _names(directory: str) -> list[str]:
    return [path.name for path in Path(directory).iterdir()]


def _text(path: str) -> str:
    """The content of a file below /proc; empty when what it tells about is gone."""
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return ""


Check = Callable[[], list[str]]


def watch_for_leaks(directory: Path | None, *, patience_s: float = _PATIENCE_S) -> Check:
    """Take stock now, and return what finds the leaks since, and ends the children among them.

    Else every later test that wants to have no children would fail as well.
    """
    before = Belongings.of(directory)

    def check() -> list[str]:
        leaks = find_leaks(before, directory, patience_s=patience_s)
        if leaks:
            _end(dict(_children()).keys() - before.children.keys())
        return leaks

    return check


def _end(children: Collection[int]) -> None:
    for pid in children:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        with suppress(ChildProcessError):
            os.waitpid(pid, 0)
