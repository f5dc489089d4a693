"""Files: directories of symlinks, and symlinks that are read."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, Final

import anyio
import pytest

from tests.contract.test_files_contract import error_of

if TYPE_CHECKING:
    from actors.ports import Files
    from tests.contract.places import Place

pytestmark = pytest.mark.anyio

LINKS: Final = {"libx.so.1": "/lib/libx.so.1.2", "libx.so": "/lib/libx.so.1.2"}


async def test_a_directory_of_links_is_made_once(place: Place, files: Files):
    path = place.root / "cdi" / "lib"
    await files.make_links(path, LINKS)
    made = await files.lstat(path)
    assert place.tree() == {"root": None, "root/cdi": None, "root/cdi/lib": None} | {
        f"root/cdi/lib/{name}": f"-> {target}" for name, target in LINKS.items()
    }
    await files.make_links(path, dict(reversed(LINKS.items())))
    assert await files.lstat(path) == made


@pytest.mark.parametrize(
    "other", [{"libx.so": "/lib/libx.so.1.2"}, {**LINKS, "liby.so": "/y"}, {**LINKS, "libx.so": "y"}]
)
async def test_links_are_never_mixed_with_others(place: Place, files: Files, other: dict[str, str]):
    path = place.root / "lib"
    await files.make_links(path, LINKS)
    before = place.tree()
    assert await error_of(files.make_links(path, other)) == (errno.ENOTEMPTY, str(path))
    assert place.tree() == before


async def test_links_take_the_place_of_an_empty_directory_and_of_nothing_else(place: Place, files: Files):
    place.put_directory(place.root / "empty")
    await files.make_links(place.root / "empty", LINKS)
    assert place.tree()["root/empty/libx.so"] == "-> /lib/libx.so.1.2"
    place.put_file(place.root / "file", b"1")
    place.put_file(place.root / "full" / "libx.so", b"1")
    before = place.tree()
    for name, number in {"file": errno.ENOTDIR, "full": errno.ENOTEMPTY}.items():
        assert await error_of(files.make_links(place.root / name, LINKS)) == (number, str(place.root / name))
    assert place.tree() == before


@pytest.mark.parametrize(
    "link", [("", "t"), (".", "t"), ("..", "t"), ("a/b", "t"), ("a\0", "t"), ("a", ""), ("a", "\0")]
)
async def test_what_can_be_no_link_is_refused_before_anything_is_made(
    place: Place, files: Files, link: tuple[str, str]
):
    assert (await error_of(files.make_links(place.root / "d" / "lib", {**LINKS, link[0]: link[1]})))[0] == errno.EINVAL
    assert place.tree() == {"root": None}


async def test_a_link_that_cannot_be_made_leaves_nothing(place: Place, files: Files):
    path = place.root / "lib"
    assert await error_of(files.make_links(path, {**LINKS, "n" * 256: "t"})) == (errno.ENAMETOOLONG, str(path))
    assert place.tree() == {"root": None}


async def test_two_who_make_the_same_links_at_once_both_have_them(place: Place, files: Files):
    path = place.root / "lib"
    async with anyio.create_task_group() as group:
        for _ in range(8):
            group.start_soon(files.make_links, path, LINKS)
    assert sorted(place.tree()) == ["root", "root/lib", "root/lib/libx.so", "root/lib/libx.so.1"]


async def test_a_link_is_read_as_it_says_and_nothing_else_is_one(place: Place, files: Files):
    place.put_file(place.base / "file", b"123")
    place.put_symlink(place.base / "link", "../nothing")
    place.put_symlink(place.base / "up", "directory/..")
    place.put_directory(place.base / "directory")
    place.put_fifo(place.base / "fifo")
    expected = {"link": "../nothing", "up": "directory/..", "up/link": "../nothing"}
    for name in (*expected, "file", "directory", "fifo", "absent", "file/below"):
        assert await files.read_link(place.base / name) == expected.get(name), name
    place.put_symlink(place.base / "loop", "loop")
    assert await files.read_link(place.base / "loop") == "loop"
    assert await error_of(files.read_link(place.base / "loop" / "x")) == (errno.ELOOP, str(place.base / "loop" / "x"))
