"""What stands in a `volumes.tar`: members, one after the other, as POSIX has them since 2001 (pax).

The real port (supervisor/host/archiving.py, unpacking.py) and the simulated one (sim/world/archiving.py) write and read
by these rules; neither a file system nor anything else is touched here. What is read may have come from anywhere, and
may have been made to lead outside: a name is a way down from the top and nothing else, everything has a directory that
came before it, and a kind that is not one of ours ends it. Nothing is compressed, so nothing is larger than its
archive.

Source: pax(1) of POSIX.1-2017, "pax Interchange Format"; SCHILY.xattr of star(5).
"""

from __future__ import annotations

import enum
import errno
import re
import tarfile
from typing import TYPE_CHECKING, Final, Protocol

import attrs

from actors.ports import DamagedArchiveError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

BLOCK_BYTES: Final = 512
CHUNK_BYTES: Final = 1 << 20
DEPTH_MAX: Final = 256
"""How many directories there may be within each other, each with at most 255 bytes of a name."""
END: Final = bytes(2 * BLOCK_BYTES)
LEFT_OUT_NAMED_MAX: Final = 100
"""How many of what no archive holds are named."""

_NAME_BYTES_MAX: Final = 255
_TARGET_BYTES_MAX: Final = 4095
_EXTENDED_BYTES_MAX: Final = 4 << 20
_MODE_MAX: Final = 0o7777
_ID_MAX: Final = (1 << 32) - 2
_SECOND_NS: Final = 1_000_000_000
_SECONDS_MAX: Final = 10**12 - 1
_XATTR: Final = "SCHILY.xattr."
_XATTR_KEPT: Final = re.compile(
    r"(?:user|trusted)\.[!-<>-~]+|security\.capability|system\.posix_acl_(?:access|default)"
)
_XATTR_BYTES_MAX: Final = 1 << 16
_LENGTH: Final = re.compile(rb"([1-9][0-9]{0,7}) ")
_TIME: Final = re.compile(r"(?P<sign>-?)(?P<seconds>[0-9]{1,12})(?:\.(?P<fraction>[0-9]{1,9}))?")
_TEXT: Final = ("utf-8", "surrogateescape")
"""Names are bytes: what is no UTF-8 in them goes through as it is."""


def about_bytes(size_bytes: int) -> int:
    """About what a member takes whose file is so large: its content in whole blocks, and mostly one before it."""
    return size_bytes + len(padding(size_bytes)) + BLOCK_BYTES


class MemberKind(enum.Enum):
    """What a member is; the value is its letter."""

    REGULAR = tarfile.REGTYPE
    HARD_LINK = tarfile.LNKTYPE
    SYMLINK = tarfile.SYMTYPE
    DIRECTORY = tarfile.DIRTYPE
    FIFO = tarfile.FIFOTYPE


_KINDS: Final = {kind.value: kind for kind in MemberKind}


@attrs.frozen(kw_only=True)
class Member:
    """One member.

    Attributes:
        name: the way down from the top, first the volume.
        size_bytes: of what follows it, for a regular file.
        target: what a symlink says; of a hard link the name of the member whose file it is.
        xattrs: extended attributes, sorted.
    """

    name: tuple[str, ...]
    kind: MemberKind
    mode: int
    uid: int = 0
    gid: int = 0
    mtime_ns: int = 0
    size_bytes: int = 0
    target: str = ""
    xattrs: tuple[tuple[str, bytes], ...] = ()


class Readable(Protocol):
    """An open file."""

    def read(self, size: int, /) -> bytes:
        """Read as much, less only at the end."""
        ...


def is_kept(xattr: str) -> bool:
    """Whether an extended attribute is the application's, and not one of this host's (as a label of SELinux is).

    One whose name the format cannot hold (not ASCII, or with a `=`) is not.
    """
    return _XATTR_KEPT.fullmatch(xattr) is not None


def in_order(names: Iterable[str]) -> list[str]:
    """Names in the order of an archive, which is that of their bytes."""
    return sorted(names, key=lambda name: name.encode(*_TEXT))


def padding(size_bytes: int) -> bytes:
    """What follows the content of a file, up to the next block."""
    return bytes(-size_bytes % BLOCK_BYTES)


def header(member: Member) -> bytes:
    """What comes before the content of a member."""
    info = tarfile.TarInfo("/".join(member.name))
    info.type, info.mode, info.size = member.kind.value, member.mode, member.size_bytes
    info.uid, info.gid, info.linkname = member.uid, member.gid, member.target
    seconds, fraction_ns = divmod(member.mtime_ns, _SECOND_NS)
    info.mtime = max(seconds, 0)
    info.pax_headers = {f"{_XATTR}{name}": value.decode(*_TEXT) for name, value in member.xattrs}
    if fraction_ns or seconds < 0:
        info.pax_headers["mtime"] = _time_text(member.mtime_ns)
    return info.tobuf(tarfile.PAX_FORMAT, *_TEXT)


class ArchiveReader:
    """The members of an archive, in their order; each is checked as it comes.

    Args:
        file: the archive.
        volumes: the names of all volumes that are to be in it, and no others.
    """

    def __init__(self, file: Readable, volumes: Iterable[str]) -> None:
        self._file = file
        self._missing = set(volumes)
        self._volumes = frozenset(self._missing)
        self._way: tuple[str, ...] = ()
        self._rest_bytes = 0

    def members(self) -> Iterator[Member]:
        """Each member; what was not read of the one before is passed over.

        Raises:
            DamagedArchiveError: it is not what `header` and `padding` write.
        """
        while True:
            for _ in self.content():
                pass
            member = self._next()
            if member is None:
                break
            self._rest_bytes = member.size_bytes
            yield member
        if self._missing:
            raise damaged(f"it holds no volume {', '.join(sorted(self._missing))}")

    def content(self) -> Iterator[bytes]:
        """The content of the member that came last, in parts.

        Raises:
            DamagedArchiveError: it is cut off.
        """
        size_bytes = self._rest_bytes
        while self._rest_bytes:
            part = self._read(min(self._rest_bytes, CHUNK_BYTES))
            self._rest_bytes -= len(part)
            yield part
        if any(self._read(len(padding(size_bytes)))):
            raise damaged("something stands behind a file's content")

    def _next(self) -> Member | None:
        block = self._read(BLOCK_BYTES)
        if not any(block):
            self._end()
            return None
        info, extended = _parsed(block), {}
        if info.type == tarfile.XHDTYPE:
            extended = _extended(self._body(info.size))
            info = _parsed(self._read(BLOCK_BYTES))
        member = _member(info, extended)
        self._place(member)
        return member

    def _end(self) -> None:
        if any(self._read(BLOCK_BYTES)):
            raise damaged("there is one empty block in it, where the end has two")
        while part := self._file.read(CHUNK_BYTES):
            if any(part):
                raise damaged("something stands behind its end")

    def _place(self, member: Member) -> None:
        """Every member stands in a directory that came before it, and that was not left since."""
        above, last = member.name[:-1], len(member.name) - 1
        if above != self._way[:last] or len(self._way) < last:
            raise damaged(f"{_shown(member.name)} has no directory before it")
        if member.kind is MemberKind.DIRECTORY:
            self._way = member.name
        elif not above:
            raise damaged(f"{_shown(member.name)} is no directory, as a volume is")
        else:
            self._way = above
        volume = member.name[0]
        if not above:
            if volume not in self._missing:
                raise damaged(f"volume {volume!r} stands twice in it" if volume in self._volumes else _foreign(volume))
            self._missing.remove(volume)
        if member.kind is MemberKind.HARD_LINK and names_of(member.target)[0] != volume:
            raise damaged(f"{_shown(member.name)} leads into another volume")

    def _body(self, size_bytes: int) -> bytes:
        if not 0 <= size_bytes <= _EXTENDED_BYTES_MAX:
            raise damaged(f"what is said of a member has {size_bytes} bytes")
        body = self._read(size_bytes)
        self._read(len(padding(size_bytes)))
        return body

    def _read(self, size_bytes: int) -> bytes:
        data = self._file.read(size_bytes) if size_bytes else b""
        if len(data) < size_bytes:
            raise damaged("it is cut off")
        return data


def names_of(text: str) -> tuple[str, ...]:
    """The way down that a name says.

    Raises:
        DamagedArchiveError: it leads elsewhere, or nowhere.
    """
    names = tuple(text.removesuffix("/").split("/"))
    if len(names) > DEPTH_MAX + 1:
        raise damaged(f"{len(names)} directories stand within each other")
    for name in names:
        if name in {"", ".", ".."} or "\0" in name or len(name.encode(*_TEXT)) > _NAME_BYTES_MAX:
            raise damaged(f"{text[:200]!r} is no way down from the top")
    return names


def damaged(what: str) -> DamagedArchiveError:
    """The error of an archive that is not one of ours."""
    return DamagedArchiveError(errno.EBADMSG, f"the archive is damaged: {what}")


def _parsed(block: bytes) -> tarfile.TarInfo:
    try:
        return tarfile.TarInfo.frombuf(block, *_TEXT)
    except (tarfile.HeaderError, ValueError) as error:
        raise damaged(str(error)) from error


def _member(info: tarfile.TarInfo, extended: dict[str, str]) -> Member:
    kind = _KINDS.get(info.type)
    if kind is None:
        raise damaged(f"a member is of kind {info.type!r}")
    size_bytes = _number(extended.get("size"), info.size)
    if size_bytes and kind is not MemberKind.REGULAR:
        raise damaged("something that is no regular file has a content")
    name = names_of(extended.get("path", info.name))
    return Member(
        name=name,
        kind=kind,
        mode=_within(info.mode, _MODE_MAX, "mode"),
        uid=_within(_number(extended.get("uid"), info.uid), _ID_MAX, "owner"),
        gid=_within(_number(extended.get("gid"), info.gid), _ID_MAX, "group"),
        mtime_ns=_time_ns(extended["mtime"]) if "mtime" in extended else _whole_ns(info.mtime),
        size_bytes=_within(size_bytes, (1 << 63) - 1, "size"),
        target=_target(kind, extended.get("linkpath", info.linkname)),
        xattrs=tuple(sorted(_xattrs(extended))),
    )


def _target(kind: MemberKind, text: str) -> str:
    if kind is MemberKind.HARD_LINK:
        return "/".join(names_of(text))
    if kind is not MemberKind.SYMLINK:
        return ""
    if not text or "\0" in text or len(text.encode(*_TEXT)) > _TARGET_BYTES_MAX:
        raise damaged("a symlink leads nowhere")
    return text


def _xattrs(extended: dict[str, str]) -> Iterator[tuple[str, bytes]]:
    for key, value in extended.items():
        if not key.startswith(_XATTR):
            continue
        name, data = key.removeprefix(_XATTR), value.encode(*_TEXT)
        if not is_kept(name) or "\0" in name or len(name) > _NAME_BYTES_MAX or len(data) > _XATTR_BYTES_MAX:
            raise damaged(f"{name[:200]!r} is no extended attribute of an application's")
        yield name, data


def _extended(body: bytes) -> dict[str, str]:
    """The records of an extended header: a length, a key, `=`, a value and a line feed each."""
    found: dict[str, str] = {}
    begin = 0
    while begin < len(body):
        # By places in all of it: who takes off what was read copies the rest, for each of a million short records.
        length = _LENGTH.match(body, begin)
        end = begin + int(length[1]) if length else begin
        record = body[length.end() : end] if length else b""
        key, equals, value = record.removesuffix(b"\n").partition(b"=")
        if end > len(body) or not key or not equals or not record.endswith(b"\n"):
            raise damaged("what is said of a member cannot be read")
        found[key.decode(*_TEXT)] = value.decode(*_TEXT)
        begin = end
    return found


def _number(text: str | None, otherwise: int) -> int:
    if text is None:
        return otherwise
    if not text.isascii() or not text.isdigit() or len(text) > len(str(1 << 63)):
        raise damaged(f"{text[:20]!r} is no number")
    return int(text)


def _within(number: int, most: int, what: str) -> int:
    if not 0 <= number <= most:
        raise damaged(f"a member has {what} {number}")
    return number


def _whole_ns(seconds: float) -> int:
    return _within(int(seconds), _SECONDS_MAX, "time") * _SECOND_NS


def _time_text(time_ns: int) -> str:
    seconds, fraction_ns = divmod(abs(time_ns), _SECOND_NS)
    return f"{'-' if time_ns < 0 else ''}{seconds}.{fraction_ns:09d}"


def _time_ns(text: str) -> int:
    match = _TIME.fullmatch(text)
    if match is None:
        raise damaged(f"{text[:20]!r} is no time")
    time_ns = int(match["seconds"]) * _SECOND_NS + int((match["fraction"] or "").ljust(9, "0"))
    return -time_ns if match["sign"] else time_ns


def _shown(name: tuple[str, ...]) -> str:
    return repr("/".join(name)[:200])


def _foreign(volume: str) -> str:
    return f"volume {volume!r} does not belong to it"
