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


IMAGE: Final = {
    "": ("bin", "etc", "loop", "opt", "out", "round", "usr"),
    "/usr/lib": ("libx.so.1",),
    "/usr/lib/": ("libx.so.1",),
    "/lib/../usr/./lib": ("libx.so.1",),
    "/opt/x/current": ("libx.so.1",),
    "/out/lib": ("libx.so.1",),
    "/round/etc": ("passwd",),
}
"""Folders of an image, and what a program in it finds there: `/opt/x/current` is an absolute link."""


async def test_a_folder_of_an_image_is_found_as_a_program_in_it_finds_it(place: Place, files: Files):
    image = place.base / "image"
    place.put_file(place.base / "usr" / "lib" / "the-hosts-own")
    place.put_file(image / "usr" / "lib" / "libx.so.1")
    place.put_file(image / "etc" / "passwd")
    place.put_file(image / "bin")
    place.put_directory(image / "opt" / "x")
    place.put_symlink(image / "opt" / "x" / "current", "/usr/lib")
    place.put_symlink(image / "out", "../../../../usr")
    place.put_symlink(image / "round", "opt/../../..")
    place.put_symlink(image / "loop", "loop")
    for folder, names in IMAGE.items():
        assert await files.list_directory(await files.find_in(image, folder)) == names, folder
    for absent in ("/absent/x", "/bin/x"):
        assert await files.find_in(image, absent) == image / absent.lstrip("/")
    assert await error_of(files.find_in(image, "/loop/x")) == (errno.ELOOP, str(image / "loop"))
