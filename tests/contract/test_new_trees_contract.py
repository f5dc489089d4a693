"""Files: a directory that is made with all that is in it, as a whole."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

import pytest

from actors.ports import NewDirectory, NewFile
from tests.contract.operations import TREE
from tests.contract.test_files_contract import error_of

if TYPE_CHECKING:
    from actors.ports import Files
    from tests.contract.places import Place

pytestmark = pytest.mark.anyio


async def test_a_tree_is_made_with_all_that_is_in_it(place: Place, files: Files):
    place.put_directory(place.root / "empty")
    for name in ("empty", "a/new"):
        await files.make_tree(place.root / name, TREE)
    made = {"": None, "/new": b"new", "/open": None, "/open/run": b"run", "/bare": None}
    expected = {f"root/{name}{below}": data for name in ("empty", "a/new") for below, data in made.items()}
    assert place.tree() == {"root": None, "root/a": None} | expected


@pytest.mark.parametrize(("stands", "number"), [("file", errno.ENOTDIR), ("full", errno.ENOTEMPTY)])
async def test_a_tree_takes_nothings_place(place: Place, files: Files, stands: str, number: int):
    place.put_file(place.root / "file", b"1")
    place.put_file(place.root / "full" / "file", b"2")
    before = place.tree()
    assert await error_of(files.make_tree(place.root / stands, TREE)) == (number, str(place.root / stands))
    assert place.tree() == before


async def test_of_a_tree_that_cannot_be_made_nothing_is_left(place: Place, files: Files):
    long = NewDirectory({"new": NewFile(b"new"), "open": NewDirectory({"n" * 256: NewFile(b"")})})
    path = place.root / "tree"
    assert await error_of(files.make_tree(path, long)) == (errno.ENAMETOOLONG, str(path))
    assert place.tree() == {"root": None}
