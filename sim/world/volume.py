"""One file system of the simulated world: how much it holds, and which changes of its directories are on the platter.

The rules are those that every journalling file system keeps, and no more than that:

- An entry is durable once its directory was synced. A sync of a file makes its content durable, not its entry.
- A rename happens as a whole or not at all, also between two directories: a sync of either of them makes it durable.
- Changes of the same name happen in their order. Others may overtake each other.
- What is on the platter does not get lost by changes that are not: a directory is not gone before what was moved out of
  it has arrived, and nothing is moved into a directory that is not there.

Not modelled: blocks of a file that were written out of order, and data that is dropped after a failed fsync(2).

Source: fsync(2), rename(2) of man-pages 6.9; Documentation/filesystems/ext4/journal.rst of Linux 6.18.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Final

from sim.world.nodes import Change, Directory, Node, Regular, Slot

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sim.world.nodes import Choose

_PENDING_MAX: Final = 4096
"""How many changes wait for a sync; then the kernel writes the older half of them out, as it does in its own time."""


class Volume:
    """A file system.

    Args:
        root_inode: the inode number of its root directory.
        capacity_bytes: how much content it holds; names and directories take nothing.
        is_volatile: it loses everything with the power, as tmpfs does.

    Attributes:
        is_read_only: nothing can be changed.
        used_bytes: content of what has a name.
        mount_point: the directory that its root hides; None for the top of the world.
    """

    def __init__(self, *, root_inode: int, capacity_bytes: int, is_volatile: bool, mtime_ns: int) -> None:
        self.capacity_bytes = capacity_bytes
        self.is_read_only = False
        self.is_volatile = is_volatile
        self.used_bytes = 0
        self.mount_point: Directory | None = None
        self.root = Directory(inode=root_inode, volume=self, mode=0o755, synced_mode=0o755, mtime_ns=mtime_ns)
        self._pending: dict[int, Change] = {}
        self._last_serial = 0

    @property
    def free_bytes(self) -> int:
        """How much more content it takes."""
        return max(0, self.capacity_bytes - self.used_bytes)

    def place(self, directory: Directory, name: str, node: Node) -> None:
        """Make an entry where there is none."""
        change = self._note((Slot(directory, name, node),), ())
        self._put(directory, name, node, change)

    def remove(self, directory: Directory, name: str) -> None:
        """Remove an entry. What the removed directory still had to write goes first."""
        node = directory.entries.pop(name)
        ended = node.changes.values() if isinstance(node, Directory) else ()
        self._note((Slot(directory, name, None),), ended)
        self._forget(node)

    def move(self, source: Directory, old: str, target: Directory, new: str) -> None:
        """Rename an entry, in place of what stands at the target."""
        node = source.entries[old]
        replaced = target.entries.get(new)
        needs = _placements(target)
        if isinstance(replaced, Directory):
            needs += replaced.changes.values()
        change = self._note((Slot(source, old, None), Slot(target, new, node)), needs)
        del source.entries[old]
        if replaced is not None:
            self._forget(replaced)
        self._put(target, new, node, change)

    def replace_durably(self, directory: Directory, name: str, node: Regular) -> bool:
        """Make a synced file an entry, in place of another one, and sync the directory.

        Returns: False when that is not all: there is no room, or a directory above it is not yet on the platter.
        """
        size_bytes = len(node.content)
        if self.is_read_only or size_bytes > self.free_bytes or _placements(directory):
            return False
        self.sync_directory(directory)
        old = directory.entries.get(name)
        if old is not None:
            self._forget(old)
        self.used_bytes += size_bytes
        directory.entries[name] = directory.synced_entries[name] = node
        node.parent, node.name = directory, name
        return True

    def sync_directory(self, directory: Directory) -> None:
        """Bring the entries of a directory to the platter, and what they need."""
        directory.synced_mode = directory.mode
        if not directory.changes:
            return
        chosen: dict[int, Change] = {}
        wanted = list(directory.changes.values())
        while wanted:
            change = wanted.pop()
            if change.is_pending and change.serial not in chosen:
                chosen[change.serial] = change
                wanted += change.needs
        for serial in sorted(chosen):
            self._apply(chosen[serial])

    def sync_all(self) -> None:
        """Bring everything to the platter, as the kernel does in its own time; sync(2)."""
        for change in list(self._pending.values()):
            self._apply(change)
        for node in _nodes(self.root):
            node.synced_mode = node.mode
            if isinstance(node, Regular):
                node.sync()

    def lose_power(self, choose: Choose) -> None:
        """Throw away what was not synced, or some of it."""
        if self.is_volatile:
            self.root.synced_entries.clear()
        elif self._pending:
            self._keep_some(choose)
        self._pending.clear()
        self._find_again(choose)

    def _keep_some(self, choose: Choose) -> None:
        """Nothing of it, all of it, or any of what can have happened without the rest."""
        mood = choose(4)
        if mood == 0:
            return
        for change in list(self._pending.values()):
            if not any(needed.is_pending for needed in change.needs) and (mood == 1 or choose(2)):
                self._apply(change)

    def _find_again(self, choose: Choose) -> None:
        """What is on the platter is what everybody sees."""
        self.used_bytes = 0
        pending: list[Node] = [self.root]
        while pending:
            node = pending.pop()
            if node.mode != node.synced_mode:
                node.mode = node.synced_mode = (node.mode, node.synced_mode)[choose(2)]
            if isinstance(node, Regular):
                node.lose_power(choose)
                self.used_bytes += len(node.content)
            elif isinstance(node, Directory):
                _forget_changes(node)
                for name, entry in node.entries.items():
                    entry.parent, entry.name = node, name
                    pending.append(entry)

    def _note(self, slots: tuple[Slot, ...], needs: Iterable[Change]) -> Change:
        if len(self._pending) >= _PENDING_MAX:
            for older in list(islice(self._pending.values(), _PENDING_MAX // 2)):
                self._apply(older)
        self._last_serial = serial = self._last_serial + 1
        change = self._pending[serial] = Change(serial, slots)
        wanted = []
        for slot in slots:
            directory = slot.directory
            earlier = directory.latest.get(slot.name)
            if earlier is not None:
                wanted.append(earlier)
            directory.changes[serial] = change
            directory.latest[slot.name] = change
        wanted += needs
        change.needs = tuple(need for need in wanted if need.is_pending) if wanted else ()
        return change

    def _apply(self, change: Change) -> None:
        for slot in change.slots:
            directory = slot.directory
            if slot.node is None:
                directory.synced_entries.pop(slot.name, None)
            else:
                directory.synced_entries[slot.name] = slot.node
            directory.changes.pop(change.serial, None)
            if directory.latest.get(slot.name) is change:
                del directory.latest[slot.name]
        del self._pending[change.serial]
        change.is_pending = False
        change.needs = ()

    def _put(self, directory: Directory, name: str, node: Node, change: Change) -> None:
        directory.entries[name] = node
        node.parent, node.name = directory, name
        if isinstance(node, Directory):
            node.placement = change

    def _forget(self, node: Node) -> None:
        node.parent = None
        if isinstance(node, Regular):
            self.used_bytes -= len(node.content)


def _placements(directory: Directory) -> list[Change]:
    """The changes without which a directory, or one above it, is not there."""
    found: list[Change] = []
    above: Directory | None = directory
    while above is not None:
        placement = above.placement
        if placement is not None and placement.is_pending:
            found.append(placement)
        above = above.parent
    return found


def _nodes(root: Directory) -> Iterable[Node]:
    pending: list[Node] = [root]
    while pending:
        node = pending.pop()
        yield node
        if isinstance(node, Directory):
            pending += node.entries.values()


def _forget_changes(directory: Directory) -> None:
    directory.entries = dict(directory.synced_entries)
    directory.changes.clear()
    directory.latest.clear()
    directory.placement = None
    directory.listeners.clear()
