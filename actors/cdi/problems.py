"""What can be wrong with a CDI spec, a device name, a registry or an injection: one word for each, in one shape."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Final

import attrs

from actors.document.wording import document_path, shown

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

REMARKS_MAX: Final = 200
"""Problems kept for one spec; a hostile file would have millions."""


class CdiReason(enum.StrEnum):
    """Why something was refused; stable words."""

    # The file and its text. The words are those of `actors.document`, which reads it.
    NOT_READABLE = "NotReadable"
    NOT_UTF8 = "NotUtf8"
    EMPTY_DOCUMENT = "EmptyDocument"
    DOCUMENT_TOO_LARGE = "DocumentTooLarge"
    TOO_DEEP = "TooDeep"
    MALFORMED_DOCUMENT = "MalformedDocument"
    DUPLICATE_KEY = "DuplicateKey"
    # Its fields.
    UNKNOWN_FIELD = "UnknownField"
    WRONG_TYPE = "WrongType"
    OUT_OF_RANGE = "OutOfRange"
    UNKNOWN_VERSION = "UnknownVersion"
    VERSION_TOO_LOW = "VersionTooLow"
    BAD_KIND = "BadKind"
    BAD_DEVICE_NAME = "BadDeviceName"
    NO_DEVICES = "NoDevices"
    DUPLICATE_DEVICE = "DuplicateDevice"
    EMPTY_EDITS = "EmptyEdits"
    BAD_ENV = "BadEnv"
    BAD_NODE_PATH = "BadNodePath"
    BAD_NODE_TYPE = "BadNodeType"
    BAD_PERMISSIONS = "BadPermissions"
    BAD_MOUNT = "BadMount"
    BAD_HOOK = "BadHook"
    UNKNOWN_HOOK_STAGE = "UnknownHookStage"
    BAD_INTEL_RDT = "BadIntelRdt"
    BAD_NET_DEVICE = "BadNetDevice"
    BAD_ANNOTATION = "BadAnnotation"
    BAD_TEXT = "BadText"
    """It holds NUL or half of a surrogate pair: no kernel interface and no text file takes it."""
    READ_DIFFERENTLY = "ReadDifferently"
    """A warning only: container engines do not all take it for the same."""
    # Names.
    BAD_NAME = "BadName"
    BAD_REQUEST = "BadRequest"
    """A request annotation (`cdi.k8s.io/…`) that cannot be made, or says no devices."""
    REQUEST_TAKEN = "RequestTaken"
    CONFLICT = "Conflict"
    UNRESOLVABLE = "Unresolvable"
    NOT_ALLOTTED = "NotAllotted"
    # Injection and writing.
    HOST_NODE_MISSING = "HostNodeMissing"
    HOST_NODE_IS_NONE = "HostNodeIsNone"
    """Something stands at the host path, and it is no device node."""
    NODE_TYPE_MISMATCH = "NodeTypeMismatch"
    BAD_OCI_DOCUMENT = "BadOciDocument"
    NOT_WRITTEN = "NotWritten"


class Path:
    """Where in a spec a value stands; made a text only when something is wrong there. Never changed once made.

    Thousands are made for every spec that is right, so it is no attrs class: frozen ones take three times as long.
    """

    __slots__ = ("parent", "segment")

    def __init__(self, parent: Path | None = None, segment: str | int = "") -> None:
        self.parent = parent
        self.segment = segment

    def __truediv__(self, segment: str | int) -> Path:
        """The path of a field or an item."""
        return Path(self, segment)

    @property
    def segments(self) -> tuple[str | int, ...]:
        """From the root down."""
        segments: list[str | int] = []
        path: Path | None = self
        while path is not None and path.parent is not None:
            segments.append(path.segment)
            path = path.parent
        return tuple(reversed(segments))


ROOT: Final = Path()


@attrs.frozen(kw_only=True)
class CdiProblem:
    """One thing that is wrong.

    Attributes:
        reason: the word for it.
        message: one sentence for a person, with the value quoted.
        file: the spec file, or "" where none is concerned.
        path: the field, as `devices[0].containerEdits.env[1]`; "" where none is concerned.
        line: its line in the file, from 1, when it was read from one.
        device: the device's name, as far as it is known.
        value: the offending value, as text.
        related: further files that it is about: a conflict names all of them.
    """

    reason: CdiReason
    message: str
    file: str = ""
    path: str = ""
    line: int | None = None
    device: str = ""
    value: str = ""
    related: tuple[str, ...] = ()

    def __str__(self) -> str:
        """`FILE:LINE: PATH: message (Reason)`."""
        place = f"{self.file}:{self.line}" if self.file and self.line else self.file
        front = "".join(f"{part}: " for part in (place, self.path) if part)
        return f"{front}{self.message} ({self.reason})"


class CdiError(Exception):
    """Raised when the library refuses; carries every problem that was found.

    Attributes:
        problems: one or more.
    """

    def __init__(self, *problems: CdiProblem) -> None:
        if not problems:
            message = "a CdiError carries at least one problem"
            raise ValueError(message)
        super().__init__(*problems)
        self.problems: tuple[CdiProblem, ...] = problems

    @property
    def reasons(self) -> tuple[CdiReason, ...]:
        """The reasons of all problems, in their order."""
        return tuple(problem.reason for problem in self.problems)

    def __str__(self) -> str:
        """All problems, one a line."""
        return "\n".join(str(problem) for problem in self.problems)


@attrs.frozen(kw_only=True)
class Remark:
    """A problem on its way: its path is still a `Path`, and its file and line are not known yet."""

    reason: CdiReason
    path: Path
    message: str
    value: str = ""

    def in_file(self, file: str, *, line: int | None = None, device: str = "") -> CdiProblem:
        """The problem as users see it."""
        segments = self.path.segments
        return CdiProblem(
            reason=self.reason,
            message=self.message,
            file=file,
            path=document_path(segments) if segments else "",
            line=line,
            device=device,
            value=self.value,
        )


class Remarks:
    """Collects remarks; keeps the first `REMARKS_MAX`."""

    def __init__(self) -> None:
        self._found: list[Remark] = []

    def __iter__(self) -> Iterator[Remark]:
        """In the order they were met."""
        return iter(self._found)

    def __len__(self) -> int:
        """How many are kept."""
        return len(self._found)

    @property
    def is_full(self) -> bool:
        """Whether more would be dropped, so that finding words for them is a waste."""
        return len(self._found) >= REMARKS_MAX

    def add(self, reason: CdiReason, path: Path, message: str, value: str = "") -> None:
        """Keep one."""
        if not self.is_full:
            self._found.append(Remark(reason=reason, path=path, message=message, value=value))


def raise_if_any(problems: Iterable[CdiProblem]) -> None:
    """Raise them together.

    Raises:
        CdiError: there is at least one.
    """
    found = tuple(problems)
    if found:
        raise CdiError(*found)


def quoted(value: object) -> str:
    """A value for a message: bounded, on one line."""
    return shown(value) if isinstance(value, str) else str(value)
