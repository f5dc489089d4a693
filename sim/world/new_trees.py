"""A simulated directory made with all that is in it, by the rules of the real port (supervisor/host/new_trees.py).

Each directory and each file is a part of it, under its name: `made bundles`, `created bundles/pause/config.json`.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from actors.ports import NewFile
from sim.world.beneath import DIRECTORY_MODE
from sim.world.walking import remove_tree
from sim.world.writing import make_file, temporary_name

if TYPE_CHECKING:
    from pathlib import Path

    from actors.ports import NewDirectory
    from sim.world.beneath import SimBeneath, Steps
    from sim.world.disk import SimDisk
    from sim.world.nodes import Directory


def make_tree(beneath: SimBeneath, path: Path, tree: NewDirectory) -> Steps:
    """Make a directory with what is in it, beside its place, and rename it."""
    yield from beneath.make_directory_for_boot(path.parent)
    disk = beneath.disk
    above, name = beneath.parent(path)
    beneath.refuse_symlink(above, name)
    temporary = temporary_name(disk, name)
    made = disk.make_directory(above, temporary, DIRECTORY_MODE)
    try:
        yield "made"
        yield from _fill(disk, made, tree, "")
        disk.rename(above, temporary, above, name)
    except OSError:
        with suppress(OSError):
            for _ in remove_tree(beneath, path.with_name(temporary)):
                pass
        raise
    yield "renamed"


def _fill(disk: SimDisk, directory: Directory, tree: NewDirectory, where: str) -> Steps:
    for name, entry in tree.entries.items():
        if isinstance(entry, NewFile):
            for part in make_file(disk, directory, name, entry.data, entry.mode):
                yield f"{part} {where}{name}"
        else:
            made = disk.make_directory(directory, name, DIRECTORY_MODE)
            yield f"made {where}{name}"
            yield from _fill(disk, made, entry, f"{where}{name}/")
    if tree.mode != directory.mode:
        disk.change_mode(directory, tree.mode)
