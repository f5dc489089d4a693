"""Spec directories, read into a registry; broken files are set aside, and files that did not change are not read twice.

What is to be read next is decided by one generator; two drivers do the reading, one that waits and one that awaits.
"""

from __future__ import annotations

import errno
import hashlib
import posixpath
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias

import attrs

from .paths import clean
from .problems import CdiProblem, CdiReason
from .reading import SPEC_BYTES_MAX, Reading, read_spec
from .registry import Registry, SpecFile, registry_of

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Sequence

    from .ports import AsyncSpecFiles, SpecFiles

DEFAULT_DIRECTORIES: Final = ("/etc/cdi", "/var/run/cdi")
"""Lowest priority first."""
_SUFFIXES: Final = (".json", ".yaml")


@attrs.frozen
class _List:
    path: str


@attrs.frozen
class _Read:
    path: str


_Question: TypeAlias = _List | _Read
_Answer: TypeAlias = "tuple[str, ...] | bytes | None"
Scan: TypeAlias = "Generator[_Question, _Answer, Registry]"


class Readings:
    """The readings of files by their content, so that a rescan parses only what changed."""

    def __init__(self) -> None:
        self._by_digest: dict[tuple[str, bytes], Reading] = {}
        self._used: dict[tuple[str, bytes], Reading] = {}

    def read(self, path: str, data: bytes) -> Reading:
        """Read a file, or remember what came of it."""
        key = (path, hashlib.blake2b(data, digest_size=16).digest())
        reading = self._by_digest.get(key)
        if reading is None:
            reading = read_spec(data, path)
        self._used[key] = reading
        return reading

    def forget_unused(self) -> None:
        """Drop what the last scan did not meet."""
        self._by_digest, self._used = self._used, {}


def scan(files: SpecFiles, directories: Sequence[str] = DEFAULT_DIRECTORIES) -> Registry:
    """Read all spec files of some directories, lowest priority first; no directory at all means the default ones."""
    return _waited_for(_scanning(directories, Readings()), files)


async def scan_async(files: AsyncSpecFiles, directories: Sequence[str] = DEFAULT_DIRECTORIES) -> Registry:
    """As `scan`, for those who must not wait: Greenroom's port for files fits as it is."""
    scanning = _scanning(directories, Readings())
    try:
        question = next(scanning)
        while True:
            try:
                answer = await _answered(question, files)
            except OSError as error:
                question = scanning.throw(error)
            else:
                question = scanning.send(answer)
    except StopIteration as end:
        registry: Registry = end.value
        return registry


class LiveRegistry:
    """The registry of some directories as they are now: it is scanned at the first query, and when it became stale.

    A watcher of the directories calls `mark_stale` at every event; whoever has none calls `refresh`.
    """

    def __init__(self, files: SpecFiles, directories: Sequence[str] = DEFAULT_DIRECTORIES) -> None:
        self._files = files
        self._directories = tuple(directories)
        self._readings = Readings()
        self._registry: Registry | None = None

    @property
    def directories(self) -> tuple[str, ...]:
        """What to watch, lowest priority first; they need not exist."""
        return cleaned(self._directories)

    def current(self) -> Registry:
        """The registry; scanned anew when something changed."""
        if self._registry is None:
            return self.refresh()
        return self._registry

    def mark_stale(self) -> None:
        """Something changed: the next query scans."""
        self._registry = None

    def refresh(self) -> Registry:
        """Scan now."""
        self._registry = _waited_for(_scanning(self._directories, self._readings), self._files)
        return self._registry


def cleaned(directories: Sequence[str]) -> tuple[str, ...]:
    """The directories as paths are compared: lexically clean, the default ones when none is given."""
    return tuple(clean(directory) for directory in directories or DEFAULT_DIRECTORIES)


def _scanning(directories: Sequence[str], readings: Readings) -> Scan:
    found: list[SpecFile] = []
    problems: list[CdiProblem] = []
    for priority, directory in enumerate(cleaned(directories)):
        try:
            names = yield _List(directory)
        except FileNotFoundError:
            continue
        except OSError as error:
            problems.append(unreadable(directory, error))
            continue
        for name in _spec_names(names):
            file = yield from _file(posixpath.join(directory, name), priority, readings)
            if file is not None:
                found.append(file)
    readings.forget_unused()
    return registry_of(found, problems)


def _spec_names(names: _Answer) -> Iterable[str]:
    # One directory answers with names; the type says bytes for the answers about files.
    return sorted(name for name in names or () if isinstance(name, str) and is_spec_name(name))


def is_spec_name(name: str) -> bool:
    """Whether a directory's entry of this name is read as a spec: by its ending alone, which is case-sensitive."""
    return name.endswith(_SUFFIXES)


def _file(path: str, priority: int, readings: Readings) -> Generator[_Question, _Answer, SpecFile | None]:
    try:
        data = yield _Read(path)
    except (FileNotFoundError, IsADirectoryError):
        # It went away while we looked, or it is a directory with an odd name.
        return None
    except OSError as error:
        return SpecFile(path=path, priority=priority, problems=(unreadable(path, error),))
    if not isinstance(data, bytes):
        return None
    reading = readings.read(path, data)
    return SpecFile(
        path=path, priority=priority, spec=reading.spec, problems=reading.problems, warnings=reading.warnings
    )


def unreadable(path: str, error: OSError) -> CdiProblem:
    """Why a file or a directory could not even be read."""
    if error.errno == errno.EFBIG:
        message = f"it is larger than {SPEC_BYTES_MAX >> 20} MiB"
        return CdiProblem(reason=CdiReason.DOCUMENT_TOO_LARGE, message=message, file=path)
    words = error.strerror or str(error) or type(error).__name__
    return CdiProblem(reason=CdiReason.NOT_READABLE, message=f"cannot be read: {words}", file=path)


def _waited_for(scanning: Scan, files: SpecFiles) -> Registry:
    try:
        question = next(scanning)
        while True:
            try:
                answer: _Answer = (
                    files.list_directory(question.path)
                    if isinstance(question, _List)
                    else files.read(question.path, limit_bytes=SPEC_BYTES_MAX)
                )
            except OSError as error:
                question = scanning.throw(error)
            else:
                question = scanning.send(answer)
    except StopIteration as end:
        registry: Registry = end.value
        return registry


async def _answered(question: _Question, files: AsyncSpecFiles) -> _Answer:
    if isinstance(question, _List):
        return await files.list_directory(Path(question.path))
    return await files.read(Path(question.path), limit_bytes=SPEC_BYTES_MAX)
