"""The tree of all files of a simulated machine: its volumes, what is found in it, and what happens to it as a whole."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, Final

from sim.world import lookup
from sim.world.errors import kernel_error
from sim.world.injection import Injection, Operation
from sim.world.locks import FileLocks
from sim.world.nodes import Directory, Node, Regular, Special, SpecialNode, Symlink
from sim.world.volume import Volume

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from sim.world.nodes import Choose

CAPACITY_BYTES: Final = 1 << 40
_KNOWN_MAX: Final = 4096


class Tree:
    """Volumes, mounted over directories of each other, and everything that can be read of them.

    Args:
        now_ns: the time that files are stamped with, nanoseconds since 1970.
        capacity_bytes: how much content the top volume holds.

    Attributes:
        top: what "/" is.
        locks: who holds flock(2) on which file.
        layout_listeners: are called when a path may lead elsewhere than before: a directory or symlink came, went or
            was moved, or something was mounted.
    """

    def __init__(self, *, now_ns: Callable[[], int], capacity_bytes: int = CAPACITY_BYTES) -> None:
        self.now_ns = now_ns
        self._last_inode = 0
        self._injections: list[Injection] = []
        self._volumes: list[Volume] = []
        self.locks = FileLocks()
        self.layout_listeners: list[Callable[[], None]] = []
        self._known: dict[tuple[str, ...], Directory] = {}
        self.top = self._add_volume(capacity_bytes, is_volatile=False).root

    # What happens to the machine.

    def lose_power(self, choose: Choose) -> None:
        """Forget what was not synced, or some of it: of each file, any beginning of what was written since its sync.

        What was mounted is mounted again. Every lock is gone, as is every process that held one.

        Args:
            choose: returns a number of 0 <= x < n for n, as `random.Random(seed).randrange` does.
        """
        for volume in self._volumes:
            volume.lose_power(choose)
        self.locks = FileLocks()
        self.forget_ways()
        self.layout_listeners.clear()

    def sync_all(self) -> None:
        """Bring everything to the platter, as the kernel does in its own time."""
        for volume in self._volumes:
            volume.sync_all()

    def fail(self, number: int, when: Callable[[Operation, str], bool], *, times_max: int | None = None) -> Injection:
        """Give an error for the operations and paths that a predicate tells; `heal` ends it."""
        injection = Injection(number, when, times_max)
        self._injections.append(injection)
        return injection

    def heal(self, injection: Injection) -> None:
        """Give an error no more."""
        self._injections.remove(injection)

    def mount(self, path: Path, *, capacity_bytes: int = CAPACITY_BYTES, is_volatile: bool = False) -> Volume:
        """Mount a new, empty volume over a directory; as tmpfs when it is volatile.

        Raises:
            OSError: ENOENT, ENOTDIR.
        """
        directory = lookup.find_directory(self.top, path)
        volume = self._add_volume(capacity_bytes, is_volatile=is_volatile)
        directory.mounted = volume.root
        volume.mount_point = directory
        self.forget_ways()
        self.tell_layout()
        return volume

    def unmount(self, path: Path) -> None:
        """Take what is mounted at a path away, with all that is in it.

        Raises:
            OSError: ENOENT, ENOTDIR; EINVAL when nothing is mounted there.
        """
        volume = lookup.find_directory(self.top, path).volume
        if volume.mount_point is None or lookup.find(self.top, path) is not volume.root:
            raise kernel_error(errno.EINVAL)
        volume.mount_point.mounted = None
        volume.mount_point = None
        self._volumes.remove(volume)
        self.forget_ways()
        self.tell_layout()

    def mounts_below(self, path: Path) -> list[Path]:
        """Where something is mounted below a directory, those above before those below; nothing when it is absent."""
        found: list[Path] = []
        try:
            pending = [(path, lookup.find_directory(self.top, path))]
        except OSError:
            return found
        for above, directory in pending:  # grows while it is gone through
            for name, node in directory.entries.items():
                if isinstance(node, Directory):
                    found.extend([above / name] if node.mounted is not None else ())
                    pending.append((above / name, lookup.find_directory(self.top, above / name)))
        return found

    # Looking. Nothing of it is stamped with a time: nothing asks when a file was read.

    def find(self, path: Path, *, follow: bool = True) -> Node:
        """What stands at a path.

        Raises:
            OSError: ENOENT, ENOTDIR, ELOOP, ENAMETOOLONG.
        """
        node = self._find_quickly(path) or lookup.find(self.top, path, follow=follow)
        self.check(Operation.LOOK, node)
        return node

    def find_directory(self, path: Path) -> Directory:
        """The directory at a path, symlinks followed.

        Raises:
            OSError: ENOENT, ENOTDIR, ELOOP, ENAMETOOLONG.
        """
        node = self.find_plainly(path.parts[1:]) if path.is_absolute() else None
        if node is None:
            node = lookup.find_directory(self.top, path)
        self.check(Operation.OPEN, node)
        return node

    def find_plainly(self, names: tuple[str, ...]) -> Directory | None:
        """The directory to which these names lead from the top, with no symlink among them; None if there is none.

        Nothing is given for the directories on the way: who asks for errors there takes another way.
        """
        if self._injections:
            return None
        known = self._known.get(names)
        # What was removed has no parent. Whatever else leads a path elsewhere makes the disk forget all it knows.
        if known is not None and (known.parent is not None or known is known.volume.root):
            return known
        node = lookup.walk_down(self.top, names)
        if node.__class__ is not Directory:
            return None
        if len(self._known) >= _KNOWN_MAX:
            self._known.clear()
        self._known[names] = node
        return node

    def forget_ways(self) -> None:
        """Directories were moved or covered: no path leads where it led before."""
        self._known.clear()

    def find_regular(self, path: Path) -> Regular:
        """The regular file at a path, to be read: nothing else is, and nothing is waited for.

        Raises:
            OSError: ENOENT, ENOTDIR, ELOOP, ENAMETOOLONG; EISDIR, ENXIO for a socket, EINVAL for another kind.
        """
        node = self._find_quickly(path) or lookup.find(self.top, path)
        self.check(Operation.OPEN, node)
        if node.__class__ is Regular:
            return node
        if isinstance(node, Directory):
            raise kernel_error(errno.EISDIR, str(path))
        if isinstance(node, SpecialNode) and node.special is Special.SOCKET:
            raise kernel_error(errno.ENXIO, str(path))
        if not isinstance(node, Regular):
            raise OSError(errno.EINVAL, "not a regular file", str(path))
        return node

    def enter(self, directory: Directory, name: str) -> Directory:
        """The directory with a name in a directory, or what is mounted there.

        Raises:
            OSError: ENOENT, ENOTDIR, ENAMETOOLONG; ELOOP for a symlink.
        """
        node = lookup.enter(directory, name)
        self.check(Operation.OPEN, node)
        return node

    def look(self, directory: Directory, name: str) -> Node:
        """What stands in a directory, not following a symlink.

        Raises:
            OSError: ENOENT, ENAMETOOLONG.
        """
        node = lookup.entry(directory, name)
        self.check(Operation.LOOK, node)
        return node

    def names(self, directory: Directory) -> list[str]:
        """The names in a directory, in the order in which they came."""
        self.check(Operation.LIST, directory)
        return list(directory.entries)

    def read(self, node: Regular, *, offset_bytes: int = 0, limit_bytes: int | None = None) -> bytes:
        """A part of a regular file."""
        self.check(Operation.READ, node)
        end = None if limit_bytes is None else offset_bytes + limit_bytes
        return bytes(node.content[offset_bytes:end])

    def _find_quickly(self, path: Path) -> Node | None:
        """What stands in a directory that is found plainly, and is neither one itself nor a symlink; None otherwise."""
        names = path.parts
        directory = self.find_plainly(names[1:-1]) if len(names) > 1 and names[0] == "/" else None
        node = None if directory is None else directory.entries.get(names[-1])
        return None if node.__class__ is Directory or node.__class__ is Symlink else node

    # For who changes it.

    def next_inode(self) -> int:
        """A number that no other node has or had."""
        self._last_inode += 1
        return self._last_inode

    def check(self, operation: Operation, node: Node, name: str | None = None) -> None:
        """Give an error that was asked for, for a node or for an entry that a directory has not yet.

        Raises:
            OSError: the error.
        """
        if self._injections:
            path = lookup.path_of(node) if name is None else f"{lookup.path_of(node).rstrip('/')}/{name}"
            for injection in tuple(self._injections):
                injection.consider(operation, path)

    def tell_layout(self) -> None:
        """Tell that paths may lead elsewhere."""
        for listener in tuple(self.layout_listeners):
            listener()

    def _add_volume(self, capacity_bytes: int, *, is_volatile: bool) -> Volume:
        volume = Volume(
            root_inode=self.next_inode(),
            capacity_bytes=capacity_bytes,
            is_volatile=is_volatile,
            mtime_ns=self.now_ns(),
        )
        self._volumes.append(volume)
        return volume
