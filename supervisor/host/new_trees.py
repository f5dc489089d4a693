"""A directory made with all that is in it, as a whole. Everything here blocks, and is called in a thread.

Nothing is synced, and no file takes its name by a rename of its own: until all of it has the name that it is found
under, nobody looks into it.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING

from actors.ports import NewFile
from supervisor.host.beneath import DIRECTORY_MODE, open_directory, refuse_symlink
from supervisor.host.trees import remove_tree
from supervisor.host.writing import make_file, temporary_name

if TYPE_CHECKING:
    from pathlib import Path

    from actors.ports import NewDirectory
    from supervisor.host.beneath import Beneath


def make_tree(beneath: Beneath, path: Path, tree: NewDirectory) -> None:
    """Make a directory with what is in it, beside its place, and rename it.

    Raises:
        OSError: ENOTEMPTY or ENOTDIR when something stands there that is no empty directory.
    """
    beneath.make_directory_for_boot(path.parent)
    with beneath.parent(path) as (above, name):
        refuse_symlink(name, above)
        temporary = temporary_name(name)
        os.mkdir(temporary, DIRECTORY_MODE, dir_fd=above)
        try:
            _fill(temporary, above, tree)
            os.rename(temporary, name, src_dir_fd=above, dst_dir_fd=above)
        except BaseException:
            with suppress(OSError):  # what cannot be removed hides not why it was to be
                remove_tree(beneath, path.with_name(temporary))
            raise


def _fill(name: str, above: int, tree: NewDirectory) -> None:
    directory = open_directory(name, above)
    try:
        for each, entry in tree.entries.items():
            if isinstance(entry, NewFile):
                make_file(each, directory, entry.data, entry.mode)
            else:
                os.mkdir(each, DIRECTORY_MODE, dir_fd=directory)
                _fill(each, directory, entry)
        os.fchmod(directory, tree.mode)  # whatever the umask
    finally:
        os.close(directory)
