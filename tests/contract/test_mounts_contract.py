"""Files over mounts: what is full, read-only or elsewhere, for the real port and for the simulated one."""

from __future__ import annotations

import errno
from functools import partial
from typing import TYPE_CHECKING

import pytest

from actors.ports import NewDirectory, NewFile
from tests.contract.operations import WRITERS
from tests.contract.places import Place, RealPlace, SimPlace
from tests.contract.test_files_contract import error_of

if TYPE_CHECKING:
    from pathlib import Path

    from actors.ports import Files

pytestmark = pytest.mark.anyio


async def test_nothing_that_is_mounted_below_is_touched(place: Place, files: Files):
    mount = place.root / "t" / "a" / "mount"
    place.put_directory(mount)
    place.put_file(place.root / "t" / "b" / "file", b"1")
    with place.mounted(mount):
        place.put_file(mount / "kept", b"kept")
        for path in (place.root / "t", mount):
            assert await error_of(files.remove_tree(path)) == (errno.EBUSY, str(mount))
        assert await error_of(files.sync_tree(place.root / "t")) == (errno.EBUSY, str(mount))
        assert await files.read(mount / "kept", limit_bytes=4) == b"kept"
        assert {name for name in place.tree() if not name.startswith("root/t/a")} == {"root", "root/t"}
    await files.remove_tree(place.root / "t")
    assert place.tree() == {"root": None}


async def test_what_is_mounted_below_is_unmounted_and_stays_as_it_is(place: Place, files: Files):
    above, other = place.root / "t", place.root / "other"
    for path in (above / "a" / "mount", above / "b", other):
        place.put_directory(path)
    await files.unmount_below(above)  # there is nothing
    await files.unmount_below(place.root / "absent")
    with place.mounted(other):
        place.put_file(other / "kept", b"kept")
        place.mount(above / "a" / "mount")
        place.put_directory(above / "a" / "mount" / "inner")
        place.mount(above / "a" / "mount" / "inner")
        place.mount(above / "b")
        assert (await error_of(files.remove_tree(above)))[0] == errno.EBUSY
        await files.unmount_below(above)
        await files.remove_tree(above)
        await files.unmount_below(other)  # itself is not below it
        assert place.tree() == {"root": None, "root/other": None, "root/other/kept": b"kept"}


async def test_nothing_is_unmounted_elsewhere(place: Place, files: Files):
    assert await error_of(files.unmount_below(place.base)) == (errno.EPERM, str(place.base))


async def test_what_is_mounted_where_a_link_leads_to_stays_mounted(place: Place, files: Files):
    mount = place.base / "elsewhere" / "mount"
    place.put_directory(mount)
    place.put_directory(place.root)
    place.put_symlink(place.root / "link", place.base / "elsewhere")
    with place.mounted(mount):
        place.put_file(mount / "kept", b"kept")
        await files.unmount_below(place.root / "link")
        assert place.tree()["elsewhere/mount/kept"] == b"kept"


async def test_nothing_is_renamed_into_another_file_system(place: Place, files: Files):
    mount = place.root / "mount"
    place.put_directory(mount)
    place.put_file(place.root / "file", b"1")
    place.put_directory(place.root / "d")
    with place.mounted(mount):
        await files.replace(mount / "there", b"2")
        assert await error_of(files.rename(place.root / "file", mount / "f")) == (errno.EXDEV, str(place.root / "file"))
        assert await error_of(files.rename(mount / "there", place.root / "f")) == (errno.EXDEV, str(mount / "there"))
        assert await error_of(files.rename(mount, place.root / "moved")) == (errno.EBUSY, str(mount))
        assert await error_of(files.rename(place.root / "d", mount)) == (errno.EBUSY, str(place.root / "d"))
        assert await files.list_directory(mount / ".." / "mount") == ("there",)
        await files.remove_tree(mount / "there-not")


async def tree_with(files: Files, path: Path, data: bytes) -> None:
    await files.make_tree(path, NewDirectory({"fits": NewFile(b"1"), "d": NewDirectory({"fits not": NewFile(data)})}))


async def test_what_does_not_fit_leaves_nothing(place: Place, files: Files):
    mount = place.root / "mount"
    place.put_directory(mount)
    with place.mounted(mount, capacity_bytes=1 << 16):
        await files.replace(mount / "it", b"old")
        await files.append(mount / "log", b"whole\n")
        free_bytes = await files.free_bytes(mount)
        assert 0 < free_bytes <= 1 << 16
        for call in (
            files.replace,
            files.append,
            files.append_durably,
            files.replace_for_boot,
            partial(tree_with, files),
        ):
            for name in ("it", "log", "new"):
                path = mount / name
                assert await error_of(call(path, b"x" * (1 << 17))) == (errno.ENOSPC, str(path))
        # As on any file system, the names of files with nothing in them still fit.
        contents = {name: content for name, content in place.tree().items() if content}
        assert contents == {"root/mount/it": b"old", "root/mount/log": b"whole\n"}
        assert await files.free_bytes(mount) == free_bytes
        await files.append(mount / "log", b"more\n")
        await files.remove_file(mount / "it")
        assert await files.free_bytes(mount) > 0


NAMES = ("file", "directory", "nothing", "link", "directory/nothing", "file/nothing")


async def answer(place: Place, writer: str, name: str) -> tuple[int | None, object]:
    """What who writes to a read-only file system is told; the place has just been made."""
    mount = place.root / "mount"
    place.put_directory(mount)
    with place.mounted(mount):
        place.put_file(mount / "file", b"1")
        place.put_file(mount / "directory" / "inside", b"2")
        place.put_symlink(mount / "link", "file")
        place.make_read_only(mount)
        before = place.tree()
        told: tuple[int | None, object] = (None, None)
        try:
            lock = await WRITERS[writer](place.files(), mount / name)
        except OSError as error:
            told = error.errno, str(error.filename).removeprefix(str(place.base))
        else:
            assert lock is None
        assert place.tree() == before
    return told


@pytest.mark.parametrize("writer", WRITERS)
@pytest.mark.parametrize("name", NAMES)
async def test_nothing_is_changed_that_is_read_only(tmp_path: Path, anyio_backend: str, writer: str, name: str):
    told = await answer(RealPlace(tmp_path), writer, name)
    assert await answer(SimPlace.new(), writer, name) == told
    # What is absent need not be removed, what is there need not be made; and a sync changes nothing.
    is_fine = told[0] is None
    assert not is_fine or writer in {
        "remove_file",
        "remove_tree",
        "sync_tree",
        "make_directory",
        "make_volume",
    }
