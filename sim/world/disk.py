"""The simulated disk: a tree of files that forgets, when the power fails, what was not synced.

It is a model without I/O: nothing here waits, and what happens depends on nothing but the calls and the choices handed
in. Its operations are those of the kernel that work below an open directory (openat(2) and its family), so that who is
killed between two of them leaves what he would leave on a real one. Everybody sees every operation at once, as the page
cache has it; `lose_power` is what happens to the machine, not to a process.
"""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, TypeVar

from sim.world import lookup
from sim.world.errors import kernel_error
from sim.world.injection import Operation
from sim.world.nodes import Directory, Node, Regular, Special, SpecialNode, Symlink
from sim.world.tree import CAPACITY_BYTES, Tree

if TYPE_CHECKING:
    from collections.abc import Callable

    from sim.world.locks import SimFileLock


_Made = TypeVar("_Made", bound=Node)


class SimDisk(Tree):
    """All files of one simulated machine; see `Tree` for its arguments."""

    def __init__(self, *, now_ns: Callable[[], int], capacity_bytes: int = CAPACITY_BYTES) -> None:
        super().__init__(now_ns=now_ns, capacity_bytes=capacity_bytes)
        self._last_suffix = 0

    def fresh_suffix(self) -> str:
        """16 hex digits that no other call returns: what makes the name of a temporary file its own."""
        self._last_suffix += 1
        return f"{self._last_suffix:016x}"

    def lock(self, node: Regular, owner: object) -> SimFileLock:
        """Take an exclusive lock at once; flock(2).

        Raises:
            BlockingIOError: somebody holds it.
        """
        self.check(Operation.LOCK, node)
        return self.locks.take(node, owner)

    # Changing files.

    def create(self, directory: Directory, name: str, mode: int) -> Regular:
        """Make an empty regular file where there is nothing; open(2) with O_CREAT and O_EXCL.

        Raises:
            OSError: EEXIST, EROFS, ENAMETOOLONG; ENOENT in a directory that was removed.
        """
        self._require_room_for(Operation.CREATE, directory, name)
        return self._place(
            directory,
            name,
            Regular(
                volume=directory.volume, mode=mode, synced_mode=mode, inode=self.next_inode(), mtime_ns=self.now_ns()
            ),
        )

    def open_to_write(self, directory: Directory, name: str) -> Regular:
        """A regular file to be written; open(2) with O_WRONLY, O_NOFOLLOW and O_NONBLOCK.

        Raises:
            OSError: ENOENT, EISDIR, EROFS, ENAMETOOLONG; ELOOP for a symlink, ENXIO for a fifo that nobody reads or a
                socket, EINVAL for a device.
        """
        node = lookup.entry(directory, name)
        self.check(Operation.OPEN, node)
        if isinstance(node, Symlink):
            raise kernel_error(errno.ELOOP, name)
        if isinstance(node, Directory):
            raise kernel_error(errno.EISDIR, name)
        if isinstance(node, SpecialNode) and node.special is not Special.CHARACTER_DEVICE:
            raise kernel_error(errno.ENXIO, name)
        if not isinstance(node, Regular):
            raise OSError(errno.EINVAL, "not a regular file")
        if node.volume.is_read_only:
            raise kernel_error(errno.EROFS, name)
        return node

    def append(self, node: Regular, data: bytes) -> int:
        """Write at the end, as much as there is room for; returns how many bytes that were.

        Raises:
            OSError: ENOSPC when there is room for none.
        """
        self.check(Operation.WRITE, node)
        volume = node.volume
        count = min(len(data), volume.free_bytes)
        if not count and data:
            raise kernel_error(errno.ENOSPC)
        node.content += data if count == len(data) else data[:count]
        # What has no name any more is not counted: it goes with whoever has it open.
        if node.parent is not None:
            volume.used_bytes += count
        self._touch(node)
        return count

    def write(self, node: Regular, offset_bytes: int, data: bytes) -> None:
        """Write at an offset, all or nothing; pwrite(2), over and over.

        Raises:
            OSError: ENOSPC.
        """
        self.check(Operation.WRITE, node)
        more_bytes = max(0, offset_bytes + len(data) - len(node.content))
        if more_bytes > node.volume.free_bytes:
            raise kernel_error(errno.ENOSPC)
        node.write(offset_bytes, data)
        if node.parent is not None:
            node.volume.used_bytes += more_bytes
        self._touch(node)

    def cut(self, node: Regular, size_bytes: int) -> None:
        """Cut a file short; ftruncate(2). One that is no longer stays as it is."""
        self.check(Operation.CUT, node)
        cut_bytes = len(node.content) - size_bytes
        if cut_bytes > 0:
            node.cut(size_bytes)
            if node.parent is not None:
                node.volume.used_bytes -= cut_bytes
            self._touch(node)

    def change_mode(self, node: Node, mode: int) -> None:
        """Change the permissions; fchmod(2).

        Raises:
            OSError: EROFS.
        """
        self.check(Operation.CHANGE_MODE, node)
        if node.volume.is_read_only:
            raise kernel_error(errno.EROFS)
        node.mode = mode
        _tell(node)

    def sync(self, node: Node) -> None:
        """Bring content or entries, and permissions, to the platter; fsync(2)."""
        self.check(Operation.SYNC, node)
        node.synced_mode = node.mode
        if isinstance(node, Regular):
            node.sync()
        elif isinstance(node, Directory):
            node.volume.sync_directory(node)

    def sync_data(self, node: Regular) -> None:
        """Bring content to the platter; fdatasync(2)."""
        self.check(Operation.SYNC, node)
        node.sync()

    def replace(self, directory: Directory, name: str, data: bytes, mode: int) -> bool:
        """Put a file in place of another one, or where there is none, as rename(2) of a synced temporary one does.

        Returns: False when anything about it is not as it nearly always is; then nothing was done.
        """
        old = directory.entries.get(name)
        if (
            self._injections
            or directory.listeners
            or (old is None and len(name) > lookup.SHORT_NAME)
            or (old is not None and old.__class__ is not Regular)
            or (directory.parent is None and directory is not directory.volume.root)
        ):
            return False
        node = Regular(
            volume=directory.volume,
            mode=mode,
            synced_mode=mode,
            inode=self._last_inode + 1,
            mtime_ns=self.now_ns(),
            content=bytearray(data),
            synced_bytes=len(data),
        )
        if not directory.volume.replace_durably(directory, name, node):
            return False
        self._last_inode += 1
        self._last_suffix += 1  # as if there had been a temporary one
        directory.mtime_ns = node.mtime_ns
        return True

    # Changing directories.

    def make_directory(self, directory: Directory, name: str, mode: int) -> Directory:
        """Make a directory; mkdirat(2).

        Raises:
            OSError: EEXIST, EROFS, ENAMETOOLONG; ENOENT in a directory that was removed.
        """
        self._require_room_for(Operation.MAKE_DIRECTORY, directory, name)
        return self._place(
            directory,
            name,
            Directory(
                volume=directory.volume, mode=mode, synced_mode=mode, inode=self.next_inode(), mtime_ns=self.now_ns()
            ),
        )

    def make_symlink(self, directory: Directory, name: str, target: str) -> Symlink:
        """Make a symlink; symlinkat(2).

        Raises:
            OSError: EEXIST, EROFS, ENAMETOOLONG; ENOENT in a directory that was removed.
        """
        self._require_room_for(Operation.CREATE, directory, name)
        node = Symlink(
            volume=directory.volume,
            mode=0o777,
            synced_mode=0o777,
            target=target,
            inode=self.next_inode(),
            mtime_ns=self.now_ns(),
        )
        return self._place(directory, name, node)

    def make_special(
        self, directory: Directory, name: str, special: Special, *, mode: int, device: tuple[int, int] | None = None
    ) -> SpecialNode:
        """Make a device, fifo or socket; mknodat(2).

        Raises:
            OSError: EEXIST, EROFS, ENAMETOOLONG; ENOENT in a directory that was removed.
        """
        self._require_room_for(Operation.CREATE, directory, name)
        volume = directory.volume
        node = SpecialNode(
            volume=volume,
            mode=mode,
            synced_mode=mode,
            special=special,
            device=device,
            inode=self.next_inode(),
            mtime_ns=self.now_ns(),
        )
        return self._place(directory, name, node)

    def rename(self, source: Directory, old: str, target: Directory, new: str) -> None:
        """Rename, in place of what stands at the target; renameat(2).

        Raises:
            OSError: ENOENT, ENOTDIR, EISDIR, ENOTEMPTY, EXDEV, EROFS, ENAMETOOLONG; EBUSY for a mount point, EINVAL for
                a directory into itself.
        """
        if source.volume is not target.volume:
            raise kernel_error(errno.EXDEV, old)
        if source.volume.is_read_only:
            raise kernel_error(errno.EROFS, old)
        node = lookup.entry(source, old)
        lookup.require_short(new)
        self.check(Operation.RENAME, node)
        replaced = target.entries.get(new)
        _require_outside(node, target, old)
        if isinstance(replaced, Directory) and _is_below(source, replaced):
            raise kernel_error(errno.ENOTEMPTY, old)
        if node is replaced:
            return
        _require_present(target, old)
        if replaced is not None:
            _require_replaceable(node, replaced, old)
        if _is_mount_point(node) or (replaced is not None and _is_mount_point(replaced)):
            raise kernel_error(errno.EBUSY, old)
        if isinstance(replaced, Directory) and replaced.entries:
            raise kernel_error(errno.ENOTEMPTY, old)
        source.volume.move(source, old, target, new)
        if isinstance(node, Directory):
            self.forget_ways()
        self._tell_entry(source, old)
        self._tell_entry(target, new)
        self._tell_layout_of(node, replaced)

    def remove(self, directory: Directory, name: str) -> None:
        """Remove what is no directory; unlinkat(2).

        Raises:
            OSError: ENOENT, EISDIR, EROFS, ENAMETOOLONG.
        """
        self._remove(Operation.REMOVE, directory, name, is_directory=False)

    def remove_directory(self, directory: Directory, name: str) -> None:
        """Remove an empty directory; unlinkat(2) with AT_REMOVEDIR.

        Raises:
            OSError: ENOENT, ENOTDIR, ENOTEMPTY, EROFS, ENAMETOOLONG; EBUSY for a mount point.
        """
        self._remove(Operation.REMOVE_DIRECTORY, directory, name, is_directory=True)

    def _remove(self, operation: Operation, directory: Directory, name: str, *, is_directory: bool) -> None:
        if directory.volume.is_read_only:
            raise kernel_error(errno.EROFS, name)
        node = lookup.entry(directory, name)
        self.check(operation, node)
        if isinstance(node, Directory) is not is_directory:
            raise kernel_error(errno.ENOTDIR if is_directory else errno.EISDIR, name)
        if isinstance(node, Directory):
            if node.mounted is not None:
                raise kernel_error(errno.EBUSY, name)
            if node.entries:
                raise kernel_error(errno.ENOTEMPTY, name)
        directory.volume.remove(directory, name)
        self._tell_entry(directory, name)
        if isinstance(node, Directory):
            for listener in tuple(node.listeners):
                listener(None)
        self._tell_layout_of(node)

    def _require_room_for(self, operation: Operation, directory: Directory, name: str) -> None:
        self.check(operation, directory, name)
        lookup.require_short(name)
        if name in directory.entries:
            raise kernel_error(errno.EEXIST, name)
        if directory.volume.is_read_only:
            raise kernel_error(errno.EROFS, name)
        _require_present(directory, name)

    def _place(self, directory: Directory, name: str, node: _Made) -> _Made:
        directory.volume.place(directory, name, node)
        self._tell_entry(directory, name)
        self._tell_layout_of(node)
        return node

    def _touch(self, node: Regular) -> None:
        node.mtime_ns = self.now_ns()
        _tell(node)

    def _tell_entry(self, directory: Directory, name: str) -> None:
        directory.mtime_ns = self.now_ns()
        if directory.listeners:
            for listener in tuple(directory.listeners):
                listener(name)

    def _tell_layout_of(self, *nodes: Node | None) -> None:
        for node in nodes:
            if node.__class__ is Directory or node.__class__ is Symlink:
                self.tell_layout()
                return


def _tell(node: Node) -> None:
    """Tell who listens that something about a node changed that is no entry."""
    if node.parent is not None and node.parent.listeners:
        for listener in tuple(node.parent.listeners):
            listener(node.name)
    if isinstance(node, Directory):
        for listener in tuple(node.listeners):
            listener(None)


def _require_present(directory: Directory, name: str) -> None:
    """Nothing can be put into a directory that was removed and is only held open."""
    if directory.parent is None and directory is not directory.volume.root:
        raise kernel_error(errno.ENOENT, name)


def _require_outside(node: Node, target: Directory, name: str) -> None:
    if isinstance(node, Directory) and _is_below(target, node):
        raise kernel_error(errno.EINVAL, name)


def _require_replaceable(node: Node, replaced: Node, name: str) -> None:
    if isinstance(node, Directory) and not isinstance(replaced, Directory):
        raise kernel_error(errno.ENOTDIR, name)
    if isinstance(replaced, Directory) and not isinstance(node, Directory):
        raise kernel_error(errno.EISDIR, name)


def _is_mount_point(node: Node) -> bool:
    return isinstance(node, Directory) and node.mounted is not None


def _is_below(directory: Directory, other: Directory) -> bool:
    """Whether a directory is another one or below it, on the same volume."""
    here: Directory | None = directory
    while here is not None and here is not other:
        here = here.parent
    return here is not None
