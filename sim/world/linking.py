"""A simulated directory of symlinks, part by part, by the rules of the real port (supervisor/host/linking.py)."""

from __future__ import annotations

import errno
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from sim.world.beneath import DIRECTORY_MODE
from sim.world.errors import kernel_error
from sim.world.nodes import Directory, Symlink
from sim.world.walking import remove_tree
from sim.world.writing import temporary_name

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from sim.world.beneath import SimBeneath, Steps

OPEN_DIRECTORY_MODE: Final = 0o755


def make_links(beneath: SimBeneath, path: Path, links: Mapping[str, str]) -> Steps:
    """Make a directory with these links, beside its place, and rename it; one that has just these is left alone."""
    for name, target in links.items():
        _require_link(name, target)
    yield from beneath.make_directory(path.parent)
    disk = beneath.disk
    above, name = beneath.parent(path)
    beneath.refuse_symlink(above, name)
    if _stand(above, name, links):
        return
    temporary = temporary_name(disk, name)
    made = disk.make_directory(above, temporary, DIRECTORY_MODE)
    try:
        yield "made"
        for link, target in links.items():
            disk.make_symlink(made, link, target)
        disk.change_mode(made, OPEN_DIRECTORY_MODE)
        yield "linked"
        disk.sync(made)
        yield "synced"
        disk.rename(above, temporary, above, name)
    except OSError:
        with suppress(OSError):
            for _ in remove_tree(beneath, path.with_name(temporary)):
                pass
        if _stand(above, name, links):
            return  # somebody else was sooner
        raise
    yield "renamed"
    disk.sync(above)
    yield "directory synced"


def _require_link(name: str, target: str) -> None:
    if name in {"", ".", ".."} or not target or {"/", "\0"} & set(name) or "\0" in target:
        raise kernel_error(errno.EINVAL, name)


def _stand(above: Directory, name: str, links: Mapping[str, str]) -> bool:
    found = above.entries.get(name)
    if not isinstance(found, Directory) or found.entries.keys() != links.keys():
        return False
    return all(isinstance(node, Symlink) and node.target == links[each] for each, node in found.entries.items())
