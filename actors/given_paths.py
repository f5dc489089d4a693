"""Paths that a document names on the worker: resolved below the document's directory, and looked for."""

from __future__ import annotations

import enum
import posixpath
from pathlib import Path
from typing import TYPE_CHECKING, Final

import attrs

from statemachine.problem import Step
from statemachine.reasons import Reason

from .document import Place
from .document.fields import given_text
from .document.findings import Finding, located
from .document.wording import shown
from .ports import FileKind

if TYPE_CHECKING:
    from collections.abc import Iterable

    from .document import Node, Spot
    from .ports import Files

_PATH_BYTES_MAX: Final = 4095
"""PATH_MAX of Linux without its NUL."""


class PathUse(enum.Enum):
    """What must stand at a path."""

    ROOTFS = Reason.ROOTFS_NOT_FOUND
    """A directory."""
    BUNDLE = Reason.BUNDLE_NOT_FOUND
    """A directory with a regular config.json."""


@attrs.frozen(kw_only=True)
class GivenPath:
    """One path of a document, absolute, with where it stands."""

    place: Place
    subject: str
    owner: str
    path: Path
    use: PathUse


class GivenPaths:
    """Resolves the paths of one document and remembers them for the look at the file system."""

    def __init__(self, base: Path) -> None:
        """Begin with the directory that relative paths are below.

        Raises:
            ValueError: it is not absolute.
        """
        if not base.is_absolute():
            message = f"the base of relative paths must be absolute: {base}"
            raise ValueError(message)
        self._base = base
        self._given: list[GivenPath] = []

    @property
    def given(self) -> tuple[GivenPath, ...]:
        """All paths so far, in document order."""
        return tuple(sorted(self._given, key=lambda given: given.place))

    def resolve(self, node: Node, spot: Spot, *, owner: str, use: PathUse) -> Path:
        """Decode a path: `..` is allowed, since a document may name absolute paths anyway; the result is normalised."""
        text = path_text(node, spot)
        joined = posixpath.normpath(posixpath.join(str(self._base), text))
        if not _is_utf8(joined):
            spot.refuse(Reason.INVALID_VALUE, f"{spot.name} is below {shown(str(self._base))}, which is not UTF-8")
        # Two leading slashes are kept by normpath (POSIX lets them mean something); on Linux they do not.
        path = Path("/" + joined.lstrip("/"))
        self._given.append(GivenPath(place=spot.place, subject=spot.path, owner=owner, path=path, use=use))
        return path


def _is_utf8(path: str) -> bool:
    """Whether a path can be written down: a directory's name may be any bytes, what we write is UTF-8."""
    try:
        path.encode()
    except UnicodeEncodeError:
        return False
    return True


def path_text(node: Node, spot: Spot) -> str:
    """Decode the text of a path: not empty, printable, at most PATH_MAX."""
    text = given_text(node, spot)
    if not text or not text.isprintable():
        spot.refuse(Reason.INVALID_VALUE, f"{spot.name} {shown(text)} is not a path")
    if len(text.encode()) > _PATH_BYTES_MAX:
        spot.refuse(Reason.INVALID_VALUE, f"{spot.name} has over {_PATH_BYTES_MAX} bytes")
    return text


def absolute_path(node: Node, spot: Spot) -> str:
    """Decode an absolute path inside a container."""
    text = path_text(node, spot)
    if not text.startswith("/"):
        spot.refuse(Reason.INVALID_VALUE, f"{spot.name} {shown(text)} must begin with /")
    return text


async def missing_paths(given: Iterable[GivenPath], files: Files) -> tuple[Finding, ...]:
    """RootfsNotFound and BundleNotFound for every path where the wanted thing does not stand."""
    found = []
    for path in given:
        lack = await _lack(path, files)
        if lack:
            message = f"{path.owner}: {lack}"
            found.append(located(path.place, Step.ADMISSION, path.use.value, subject=path.subject, message=message))
    return tuple(found)


async def _lack(given: GivenPath, files: Files) -> str:
    """What is missing, in words; empty when all is there."""
    lack = await _lack_of(given.path, FileKind.DIRECTORY, "a directory", files)
    if lack or given.use is PathUse.ROOTFS:
        return lack
    return await _lack_of(given.path / "config.json", FileKind.REGULAR, "a file", files)


async def _lack_of(path: Path, kind: FileKind, words: str, files: Files) -> str:
    try:
        stat = await files.stat(path)
    except OSError as error:
        return f"{shown(str(path))} cannot be looked at: {error.strerror or type(error).__name__}"
    if stat is None:
        return f"{shown(str(path))} does not exist"
    return "" if stat.kind is kind else f"{shown(str(path))} is not {words}"
