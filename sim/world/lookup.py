"""From paths to what stands there, as path_resolution(7) has it, and back.

Everybody here is root, so that permissions are kept and shown but refuse nobody.
"""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, Final

from sim.world.errors import kernel_error
from sim.world.nodes import Directory, Node, Symlink

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

# MAXSYMLINKS of Linux, NAME_MAX, and PATH_MAX less its closing zero.
_SYMLINKS_MAX: Final = 40
_NAME_LIMIT_BYTES: Final = 255
_PATH_LIMIT_BYTES: Final = 4095
# The fewest bytes of a character, and of the names in a path, that make it worth while to count.
SHORT_NAME: Final = _NAME_LIMIT_BYTES // 4
_FEW_NAMES: Final = _PATH_LIMIT_BYTES // (_NAME_LIMIT_BYTES + 1)


def find(top: Directory, path: Path, *, follow: bool = True) -> Node:
    """What stands at a path.

    Args:
        top: the directory that "/" is.
        path: a relative one begins at the top.
        follow: whether a symlink that stands at the end is followed too.

    Raises:
        OSError: ENOENT, ENOTDIR, ELOOP, ENAMETOOLONG.
    """
    try:
        return _walk(_shown(top), path, follow=follow)
    except OSError as error:
        error.filename = str(path)
        raise


def find_directory(top: Directory, path: Path) -> Directory:
    """The directory that stands at a path, symlinks followed.

    Raises:
        OSError: ENOENT, ENOTDIR, ELOOP, ENAMETOOLONG.
    """
    node = find(top, path)
    if not isinstance(node, Directory):
        raise kernel_error(errno.ENOTDIR, str(path))
    return node


def entry(directory: Directory, name: str) -> Node:
    """What stands in a directory under a name, not following a symlink nor going into what is mounted there.

    Raises:
        OSError: ENOENT, ENAMETOOLONG.
    """
    node = directory.entries.get(name)
    if node is None:
        require_short(name)
        raise kernel_error(errno.ENOENT, name)
    return node


def enter(directory: Directory, name: str) -> Directory:
    """The directory that stands in a directory, or what is mounted there.

    Raises:
        OSError: ENOENT, ENOTDIR, ENAMETOOLONG; ELOOP for a symlink.
    """
    node = entry(directory, name)
    if isinstance(node, Directory):
        return _shown(node)
    raise kernel_error(errno.ELOOP if isinstance(node, Symlink) else errno.ENOTDIR, name)


def above(directory: Directory) -> Directory:
    """What `..` is there; at the top, the top."""
    here = directory
    while here.parent is None:
        if here.volume.mount_point is None:
            return here
        here = here.volume.mount_point
    return here.parent


def require_short(name: str) -> None:
    """Refuse a name that no entry can have.

    Raises:
        OSError: ENAMETOOLONG.
    """
    if len(name) > SHORT_NAME and len(_encoded(name)) > _NAME_LIMIT_BYTES:
        raise kernel_error(errno.ENAMETOOLONG, name)


def path_of(node: Node) -> str:
    """Where a node is now; for one that was removed, what is left of its path."""
    names = []
    here: Node | None = node
    while here is not None:
        if here.parent is None:
            here = here.volume.mount_point if here is here.volume.root else None
        else:
            names.append(here.name)
            here = here.parent
    return "/" + "/".join(reversed(names))


def walk_down(top: Directory, names: Iterable[str]) -> Node | None:
    """Go the way that nearly every path is: directories, and at the end anything but a symlink. None for another."""
    here: Node = top
    for name in names:
        if here.__class__ is not Directory:
            return None
        found = here.entries.get(name)
        if found is None or found.__class__ is Symlink:
            return None
        here = found
        while here.__class__ is Directory and here.mounted is not None:
            here = here.mounted
    return here


def _walk(top: Directory, path: Path, *, follow: bool) -> Node:
    return walk_down(top, path.parts[path.is_absolute() :]) or _walk_anywhere(top, path, follow=follow)


def _walk_anywhere(top: Directory, path: Path, *, follow: bool) -> Node:
    names = path.parts
    if len(names) > _FEW_NAMES and len(_encoded(str(path))) > _PATH_LIMIT_BYTES:
        raise kernel_error(errno.ENAMETOOLONG)
    pending = list(reversed(names))
    here: Node = top
    links = 0
    while pending:
        name = pending.pop()
        if name[0] == "/":
            here = top
            continue
        if not isinstance(here, Directory):
            raise kernel_error(errno.ENOTDIR)
        if name == "..":
            here = above(here)
            continue
        node = entry(here, name)
        if isinstance(node, Symlink) and (pending or follow):
            links += 1
            if links > _SYMLINKS_MAX:
                raise kernel_error(errno.ELOOP)
            pending += reversed(node.names)
        else:
            here = node if not isinstance(node, Directory) else _shown(node)
    return here


def _shown(directory: Directory) -> Directory:
    """What is seen of a directory: the root of what is mounted there, and of what is mounted on that."""
    here = directory
    while here.mounted is not None:
        here = here.mounted
    return here


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")
