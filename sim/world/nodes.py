"""What stands on a simulated disk, as everybody sees it now and as it would be found after a power failure.

A regular file knows which of its past contents the platter may hold; a directory has two sets of entries, the ones that
are seen and the ones that are on the platter, and between them the changes that were made and are not yet synced.
"""

from __future__ import annotations

import enum
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, TypeAlias

import attrs

from actors.ports import FileKind

if TYPE_CHECKING:
    from collections.abc import Callable

    from sim.world.volume import Volume

# A number of 0 <= x < n; the bound method `randrange` of a seeded random.Random is one.
Choose: TypeAlias = "Callable[[int], int]"


class Special(enum.StrEnum):
    """What has neither content nor entries nor a target."""

    CHARACTER_DEVICE = "characterDevice"
    FIFO = "fifo"
    SOCKET = "socket"


@attrs.define(eq=False, kw_only=True)
class Node:
    """Anything that stands at a path.

    Attributes:
        inode: never that of another node, of whatever volume.
        mode: the permissions as everybody sees them.
        synced_mode: the permissions on the platter.
        parent: the directory that has it; None for the root of a volume and for what was removed.
        name: its name there.
    """

    inode: int
    volume: Volume
    mode: int
    mtime_ns: int
    synced_mode: int
    parent: Directory | None = None
    name: str = ""

    @property
    def kind(self) -> FileKind:
        """What the Files port calls it."""
        return FileKind.OTHER

    @property
    def size_bytes(self) -> int:
        """What stat(2) says."""
        return 0


@attrs.define(eq=False, kw_only=True)
class Regular(Node):
    """A regular file. What the platter may hold are beginnings of it, and of what it was before changes in place.

    Attributes:
        content: what everybody reads.
        synced_bytes: the shortest beginning of `content` that the platter may hold, as far as it knows of the last cut.
        before_cuts: for every cut or change in place that was not synced, what the file was before it and the shortest
            beginning of that.
    """

    content: bytearray = attrs.field(factory=bytearray)
    synced_bytes: int = 0
    before_cuts: list[tuple[bytes, int]] = attrs.field(factory=list)

    @property
    def kind(self) -> FileKind:
        """What the Files port calls it."""
        return FileKind.REGULAR

    @property
    def size_bytes(self) -> int:
        """How much can be read."""
        return len(self.content)

    def cut(self, size_bytes: int) -> None:
        """Cut it short. Not yet synced: the platter may still hold what was before."""
        self.before_cuts.append((bytes(self.content), self.synced_bytes))
        del self.content[size_bytes:]
        self.synced_bytes = size_bytes

    def write(self, offset_bytes: int, data: bytes) -> None:
        """Write at an offset; a hole before it is read as zeros. Not yet synced."""
        if offset_bytes < len(self.content):
            self.before_cuts.append((bytes(self.content), self.synced_bytes))
            self.synced_bytes = min(self.synced_bytes, offset_bytes)
        self.content += bytes(max(0, offset_bytes - len(self.content)))
        self.content[offset_bytes : offset_bytes + len(data)] = data

    def sync(self) -> None:
        """Bring the content to the platter."""
        self.synced_bytes = len(self.content)
        self.before_cuts.clear()

    def lose_power(self, choose: Choose) -> None:
        """Leave only what the platter holds: any of the beginnings that were not yet overtaken by a sync."""
        contents = [*self.before_cuts, (bytes(self.content), self.synced_bytes)]
        whole, least_bytes = contents[choose(len(contents))] if len(contents) > 1 else contents[0]
        self.content = bytearray(whole[: _some_length(least_bytes, len(whole), choose)])
        self.sync()


@attrs.define(eq=False, kw_only=True)
class Symlink(Node):
    """A symlink; what it leads to is written together with its entry."""

    target: str

    @property
    def kind(self) -> FileKind:
        """What the Files port calls it."""
        return FileKind.SYMLINK

    @property
    def size_bytes(self) -> int:
        """As symlink(7) has it, the length of the target."""
        return len(self.target.encode("utf-8", "surrogateescape"))

    @property
    def names(self) -> tuple[str, ...]:
        """The way to go, beginning with a slash when it begins at the top."""
        return PurePosixPath(self.target).parts


@attrs.define(eq=False, kw_only=True)
class SpecialNode(Node):
    """A device, fifo or socket.

    Attributes:
        device: the numbers of a device.
        gid: its group.
    """

    special: Special
    device: tuple[int, int] | None = None
    gid: int = 0

    @property
    def kind(self) -> FileKind:
        """What the Files port calls it."""
        return FileKind.CHARACTER_DEVICE if self.special is Special.CHARACTER_DEVICE else FileKind.OTHER


@attrs.define(eq=False, kw_only=True)
class Directory(Node):
    """A directory.

    Attributes:
        entries: what everybody sees.
        synced_entries: what is on the platter.
        changes: those of its entries that are not yet on the platter, by serial number, oldest first.
        latest: of those, the last one for each name.
        placement: the change that put this directory where it is, while that is not on the platter.
        mounted: the root of the volume that is mounted here and hides it.
        listeners: are told the name of a direct entry that changed, or None when the directory itself did.
    """

    entries: dict[str, Node] = attrs.field(factory=dict)
    synced_entries: dict[str, Node] = attrs.field(factory=dict)
    changes: dict[int, Change] = attrs.field(factory=dict)
    latest: dict[str, Change] = attrs.field(factory=dict)
    placement: Change | None = None
    mounted: Directory | None = None
    listeners: list[Callable[[str | None], None]] = attrs.field(factory=list)

    @property
    def kind(self) -> FileKind:
        """What the Files port calls it."""
        return FileKind.DIRECTORY

    @property
    def size_bytes(self) -> int:
        """What an almost empty one has on ext4."""
        return 4096


@attrs.frozen
class Slot:
    """One entry, and what stands there after a change; None when nothing does."""

    directory: Directory
    name: str
    node: Node | None


@attrs.define(eq=False)
class Change:
    """A change of entries that happens as a whole or not at all: one slot, or two for a rename.

    Attributes:
        needs: earlier changes without which this one cannot have happened.
        is_pending: not yet on the platter.
    """

    serial: int
    slots: tuple[Slot, ...]
    needs: tuple[Change, ...] = ()
    is_pending: bool = True


def _some_length(least: int, most: int, choose: Choose) -> int:
    """Any length of the range; both ends, which are what mostly happens, more often than one between."""
    if least == most:
        return least
    match choose(4):
        case 0:
            return least
        case 1:
            return most
        case _:
            return least + choose(most - least + 1)
