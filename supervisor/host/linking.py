"""A directory of symlinks, made as a whole. Everything here blocks, and is called in a thread."""

from __future__ import annotations

import errno
import os
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from supervisor.host.beneath import DIRECTORY_MODE, open_directory, refuse_symlink
from supervisor.host.trees import remove_tree
from supervisor.host.writing import temporary_name

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from supervisor.host.beneath import Beneath

OPEN_DIRECTORY_MODE: Final = 0o755


def make_links(beneath: Beneath, path: Path, links: Mapping[str, str]) -> None:
    """Make a directory with these links, beside its place, and rename it; one that has just these is left alone.

    Raises:
        OSError: ENOTEMPTY or ENOTDIR when something else stands there, EINVAL for what can be no link.
    """
    for name, target in links.items():
        _require_link(name, target)
    beneath.make_directory(path.parent)
    with beneath.parent(path) as (above, name):
        refuse_symlink(name, above)
        if _stand(name, above, links):
            return
        temporary = temporary_name(name)
        try:
            os.mkdir(temporary, DIRECTORY_MODE, dir_fd=above)
            _fill(temporary, above, links)
            os.rename(temporary, name, src_dir_fd=above, dst_dir_fd=above)
        except BaseException as error:
            with suppress(OSError):  # what cannot be removed hides not why it was to be
                remove_tree(beneath, path.with_name(temporary))
            if isinstance(error, OSError) and _stand(name, above, links):
                return  # somebody else was sooner
            raise
        os.fsync(above)


def _require_link(name: str, target: str) -> None:
    # A name with a slash in it would lead out of the directory.
    if name in {"", ".", ".."} or not target or {"/", "\0"} & set(name) or "\0" in target:
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL), name)


def _stand(name: str, above: int, links: Mapping[str, str]) -> bool:
    """Whether a directory with just these links is there."""
    try:
        directory = open_directory(name, above)
    except (FileNotFoundError, NotADirectoryError):
        return False
    try:
        with os.scandir(directory) as entries:
            names = {entry.name for entry in entries}
        return names == links.keys() and all(_target(each, directory) == target for each, target in links.items())
    finally:
        os.close(directory)


def _target(name: str, directory: int) -> str | None:
    try:
        return os.readlink(name, dir_fd=directory)
    except OSError:  # gone, or no link
        return None


def _fill(name: str, above: int, links: Mapping[str, str]) -> None:
    directory = open_directory(name, above)
    try:
        for link, target in links.items():
            try:
                os.symlink(target, link, dir_fd=directory)
            except OSError as error:
                # The kernel names the target, which is not what cannot be made.
                raise OSError(error.errno, error.strerror, link) from error
        os.fchmod(directory, OPEN_DIRECTORY_MODE)  # whatever the umask
        os.fsync(directory)
    finally:
        os.close(directory)
