"""Files: what holds for the real port and for the simulated one."""

from __future__ import annotations

import errno
import hashlib
from typing import TYPE_CHECKING, Any, Final

import anyio
import blake3
import pytest

from actors.ports import FileKind, Files, TooLargeError
from tests.contract.operations import READERS, TREE, WRITERS
from tests.contract.places import Place, RealPlace
from tests.needs import Tool, need

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = pytest.mark.anyio

# What stands at a path, and the error of who wants to read it.
UNREADABLE: Final[dict[str, tuple[Callable[[Place, Path], None], int]]] = {
    "absent": (lambda place, path: None, errno.ENOENT),
    "directory": (lambda place, path: place.put_directory(path), errno.EISDIR),
    "fifo": (lambda place, path: place.put_fifo(path), errno.EINVAL),
    "device": (lambda place, path: place.put_symlink(path, "/dev/null"), errno.EINVAL),
    "socket": (lambda place, path: place.put_socket(path), errno.ENXIO),
    "loop": (lambda place, path: place.put_symlink(path, path), errno.ELOOP),
}


async def error_of(awaitable: Any) -> tuple[int | None, object]:
    with anyio.fail_after(60), pytest.raises(OSError) as caught:
        await awaitable
    return caught.value.errno, caught.value.filename


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("kind", UNREADABLE)
async def test_only_regular_files_are_read(place: Place, files: Files, reader: str, kind: str):
    make, number = UNREADABLE[kind]
    path = place.base / "it"
    make(place, path)
    assert await error_of(READERS[reader](files, path)) == (number, str(path))


async def test_a_file_is_read_up_to_its_limit(place: Place, files: Files):
    path = place.base / "it"
    place.put_file(path, b"12345")
    place.put_symlink(place.base / "link", path)
    assert await files.read(place.base / "link", limit_bytes=5) == b"12345"
    with pytest.raises(TooLargeError) as caught:
        await files.read(path, limit_bytes=4)
    assert (caught.value.errno, caught.value.filename) == (errno.EFBIG, str(path))


@pytest.mark.parametrize(
    ("offset", "limit", "part"), [(0, 3, b"123"), (3, 100, b"45"), (5, 5, b""), (99, 5, b""), (2, 0, b"")]
)
async def test_a_part_of_a_file_is_read(place: Place, files: Files, offset: int, limit: int, part: bytes):
    place.put_file(place.base / "it", b"12345")
    assert await files.read_from(place.base / "it", offset_bytes=offset, limit_bytes=limit) == part


@pytest.mark.parametrize("content", [b"", b"1", b"12" * 70_000])
async def test_digests_are_those_of_the_libraries(place: Place, files: Files, content: bytes):
    place.put_file(place.base / "it", content)
    assert await files.digest(place.base / "it") == blake3.blake3(content).hexdigest()
    assert await files.sha256(place.base / "it") == hashlib.sha256(content).hexdigest()


async def test_names_are_listed_sorted(place: Place, files: Files):
    for name in ("b", "a", ".hidden"):
        place.put_directory(place.base / "d" / name)
    place.put_symlink(place.base / "link", "d")
    place.put_file(place.base / "file")
    for name in ("d", "link"):
        assert await files.list_directory(place.base / name) == (".hidden", "a", "b")
    for name, number in {"absent": errno.ENOENT, "file": errno.ENOTDIR}.items():
        path = place.base / name
        assert await error_of(files.list_directory(path)) == (number, str(path))


async def test_what_stands_somewhere_is_told(place: Place, files: Files):
    place.put_file(place.base / "file", b"123")
    place.put_symlink(place.base / "link", "file")
    place.put_symlink(place.base / "up", "../" * 60 + str(place.base / "file").lstrip("/"))
    place.put_symlink(place.base / "dangling", "nothing")
    place.put_symlink(place.base / "loop", "loop")
    place.put_fifo(place.base / "fifo")
    file, link = await files.stat(place.base / "file"), await files.lstat(place.base / "link")
    assert file is not None
    assert link is not None
    assert (file.kind, file.size_bytes, file.mode, file.device) == (FileKind.REGULAR, 3, 0o644, None)
    assert file == await files.stat(place.base / "link") == await files.stat(place.base / "up")
    assert (link.kind, link.size_bytes, link.mode) == (FileKind.SYMLINK, 4, 0o777)
    assert file.inode != link.inode
    kinds = {"dangling": FileKind.SYMLINK, "fifo": FileKind.OTHER, "absent": None, "file/below": None}
    for name, kind in kinds.items():
        found = await files.lstat(place.base / name)
        assert (found and found.kind) == kind, name
    top = await files.lstat(place.base)
    assert top is not None
    assert top.kind is FileKind.DIRECTORY
    assert await files.stat(place.base / "dangling") is None
    assert await error_of(files.stat(place.base / "loop")) == (errno.ELOOP, str(place.base / "loop"))
    null = await files.stat(place.base.joinpath("/dev/null"))
    assert null is not None
    assert (null.kind, null.device, null.mode) == (FileKind.CHARACTER_DEVICE, (1, 3), 0o666)


async def test_several_are_looked_at_as_each_of_them_alone(place: Place, files: Files):
    place.put_file(place.base / "file", b"123")
    place.put_symlink(place.base / "link", "file")
    place.put_symlink(place.base / "loop", "loop")
    paths = [place.base / name for name in ("file", "absent", "link", "file/below", "file")]
    assert list(await files.stat_each(paths)) == [await files.stat(path) for path in paths]
    assert list(await files.lstat_each(paths)) == [await files.lstat(path) for path in paths]
    assert await files.stat_each([]) == ()
    loop = place.base / "loop"
    assert await error_of(files.stat_each([paths[0], loop])) == (errno.ELOOP, str(loop))
    below = loop / "below"
    assert await error_of(files.lstat_each([below, paths[0]])) == (errno.ELOOP, str(below))


async def test_a_name_has_255_bytes(place: Place, files: Files):
    for name in ("n" * 255, "ü" * 127):
        await files.replace(place.root / name, b"1")
    for name in ("n" * 256, "ü" * 128):
        path = place.root / name
        for call in (files.replace(path, b"1"), files.append(path, b"1"), files.make_directory(path), files.stat(path)):
            assert (await error_of(call))[0] == errno.ENAMETOOLONG
    long = place.root.joinpath(*["n" * 255] * 16)
    assert await error_of(files.read(long, limit_bytes=1)) == (errno.ENAMETOOLONG, str(long))
    assert len(place.tree()) == 3


async def test_free_bytes_go_with_what_is_written(place: Place, files: Files):
    assert await files.free_bytes(place.root) > 0
    assert await error_of(files.free_bytes(place.root / "absent")) == (errno.ENOENT, str(place.root / "absent"))


async def test_files_are_private_and_programs_are_not(place: Place, files: Files):
    await files.make_directory(place.root / "a" / "b")
    await files.replace(place.root / "a" / "replaced", b"1")
    await files.append(place.root / "a" / "appended", b"1")
    (await files.lock(place.root / "a" / "locked")).close()
    await files.replace_for_boot(place.root / "a" / "b" / "replaced", b"1")
    await files.make_tree(place.root / "x" / "tree", TREE)
    await files.make_links(place.root / "z" / "lib", {"libx.so": "/lib/libx.so.1"})
    modes = {"a": 0o700, "a/b": 0o700, "a/replaced": 0o600, "a/appended": 0o600, "a/locked": 0o600}
    modes |= {"a/b/replaced": 0o600, "z": 0o700, "z/lib": 0o755}
    modes |= {"x": 0o700, "x/tree": 0o700, "x/tree/new": 0o600, "x/tree/bare": 0o700}
    modes |= {"x/tree/open": 0o755, "x/tree/open/run": 0o755}
    assert {name: place.mode(place.root / name) for name in modes} == modes


async def test_a_root_that_does_not_exist_is_made(place: Place, anyio_backend: str):
    root = place.base / "not" / "yet"
    files = place.files(root)
    assert await error_of(files.replace(root / "x", b"")) == (errno.ENOENT, str(root))
    for _ in range(2):
        await files.make_directory(root / "d")
    await files.replace(root / "x", b"1")
    assert (place.mode(root.parent), place.mode(root)) == (0o700, 0o700)


async def test_a_root_may_be_a_symlink_itself(place: Place, anyio_backend: str):
    place.put_symlink(place.base / "link", place.root)
    await place.files(place.base / "link").replace(place.base / "link" / "x", b"1")
    assert place.tree()["root/x"] == b"1"


@pytest.mark.parametrize("roots", [["relative"], ["/a/../b"]])
async def test_a_root_is_an_absolute_path(place: Place, anyio_backend: str, roots: list[str]):
    with pytest.raises(ValueError, match="absolute"):
        place.files(*(type(place.base)(root) for root in roots))


# Of the writers, those for which a root itself is no fit object: it may be made, and the others name a place outside.
MAKES_PARENTS: Final = frozenset({"make_links", "make_tree"})
NOT_OF_ROOTS: Final = WRITERS.keys() - {"make_directory", "rename from", *MAKES_PARENTS}
PLACES: Final = [(writer, where) for writer in WRITERS for where in ("outside", "above", "beside")]


@pytest.mark.parametrize(("writer", "where"), [*PLACES, *((writer, "a root") for writer in sorted(NOT_OF_ROOTS))])
async def test_nothing_is_written_outside_the_roots(place: Place, files: Files, writer: str, where: str):
    place.put_directory(place.root / "inside")
    place.put_file(place.base / "target", b"precious")
    path = {
        "outside": place.base / "target",
        "above": place.root / "inside" / ".." / ".." / "target",
        "a root": place.root,
        "beside": place.base / "root-but-not-quite",
    }[where]
    before = place.tree()
    assert (await error_of(WRITERS[writer](files, path)))[0] == errno.EPERM
    assert place.tree() == before


@pytest.mark.parametrize("writer", WRITERS)
async def test_no_symlink_on_the_way_is_followed(place: Place, files: Files, writer: str):
    place.put_file(place.base / "outside" / "target" / "file")
    place.put_file(place.base / "outside" / "other", b"precious")
    place.put_directory(place.root / "a")
    place.put_symlink(place.root / "a" / "link", place.base / "outside")
    before = place.tree()
    path = place.root / "a" / "link" / "target"
    # One of the paths that were handed in, though the kernel was only told the name of the symlink.
    named = path.with_name("other") if writer == "rename to" else path.parent if writer in MAKES_PARENTS else path
    number, name = await error_of(WRITERS[writer](files, path))
    assert (number, name) in {(errno.ELOOP, str(path)), (errno.ELOOP, str(named))}
    assert place.tree() == before


@pytest.mark.parametrize("writer", sorted(WRITERS.keys() - {"remove_file", "rename from"}))
@pytest.mark.parametrize("target", ["file", "directory", "nothing"])
async def test_no_last_symlink_is_followed(place: Place, files: Files, writer: str, target: str):
    place.put_file(place.base / "file", b"precious")
    place.put_directory(place.base / "directory")
    place.put_file(place.root / "other", b"other")
    place.put_symlink(place.root / "link", place.base / target)
    before = place.tree()
    assert (await error_of(WRITERS[writer](files, place.root / "link")))[0] == errno.ELOOP
    assert place.tree() == before


async def test_a_symlink_itself_can_be_removed_and_renamed(place: Place, files: Files):
    place.put_file(place.base / "file", b"precious")
    place.put_symlink(place.root / "link", place.base / "file")
    await files.rename(place.root / "link", place.root / "moved")
    await files.remove_file(place.root / "moved")
    assert place.tree() == {"root": None, "file": b"precious"}


@pytest.mark.parametrize("writer", WRITERS)
async def test_what_is_no_directory_leads_nowhere(place: Place, files: Files, writer: str):
    place.put_file(place.root / "file", b"1")
    assert (await error_of(WRITERS[writer](files, place.root / "file" / "below")))[0] == errno.ENOTDIR


@pytest.mark.parametrize("writer", ["append", "append_durably", "truncate", "lock"])
@pytest.mark.parametrize(
    ("kind", "number"),
    [("fifo", errno.ENXIO), ("null", errno.EINVAL), ("socket", errno.ENXIO), ("directory", errno.EISDIR)],
)
async def test_only_regular_files_are_written_to(place: Place, files: Files, writer: str, kind: str, number: int):
    if kind == "null" and isinstance(place, RealPlace):
        need(Tool.ROOT)
    getattr(place, f"put_{kind}")(place.root / "it")
    assert await error_of(WRITERS[writer](files, place.root / "it")) == (number, str(place.root / "it"))


@pytest.mark.parametrize("call", ["replace", "replace_for_boot"])
async def test_whatever_stands_there_is_replaced_but_a_directory(place: Place, files: Files, call: str):
    replace = getattr(files, call)
    place.put_fifo(place.root / "fifo")
    place.put_directory(place.root / "directory")
    await replace(place.root / "fifo", b"1")
    await replace(place.root / "fifo", b"2")
    path = place.root / "directory"
    assert await error_of(replace(path, b"1")) == (errno.EISDIR, str(path))
    assert place.tree() == {"root": None, "root/directory": None, "root/fifo": b"2"}


async def test_appending_adds_at_the_end(place: Place, files: Files):
    await files.append(place.root / "log", b"1\n")
    await files.append_durably(place.root / "log", b"2\n")
    await files.append_durably(place.root / "other", b"3\n")
    assert place.tree() == {"root": None, "root/log": b"1\n2\n", "root/other": b"3\n"}


@pytest.mark.parametrize(("size", "content"), [(0, b""), (3, b"123"), (5, b"12345"), (9, b"12345")])
async def test_a_file_is_cut_and_never_grows(place: Place, files: Files, size: int, content: bytes):
    place.put_file(place.root / "log", b"12345")
    await files.truncate(place.root / "log", size_bytes=size)
    assert place.tree()["root/log"] == content
    absent = place.root / "absent"
    assert await error_of(files.truncate(absent, size_bytes=0)) == (errno.ENOENT, str(absent))


async def test_renaming_replaces_and_removing_what_is_absent_is_fine(place: Place, files: Files):
    root = place.root
    await files.replace(root / "a", b"1")
    await files.replace(root / "b", b"2")
    await files.rename(root / "a", root / "b")
    assert place.tree() == {"root": None, "root/b": b"1"}
    for path in (root / "b", root / "b", root / "no" / "directory"):
        await files.remove_file(path)
        await files.remove_tree(path)
    assert place.tree() == {"root": None}
    assert await error_of(files.rename(root / "a", root / "b")) == (errno.ENOENT, str(root / "a"))
    await files.make_directory(root / "d")
    assert await error_of(files.remove_file(root / "d")) == (errno.EISDIR, str(root / "d"))


@pytest.mark.parametrize(
    ("old", "new", "number"),
    [
        ("file", "empty", errno.EISDIR),
        ("empty", "file", errno.ENOTDIR),
        ("empty", "full", errno.ENOTEMPTY),
        ("full", "full/inside/deep", errno.EINVAL),
        ("full/inside", "full", errno.ENOTEMPTY),
        ("full", "empty", None),
        ("full", "full", None),
        ("file", "file", None),
    ],
)
async def test_directories_are_renamed_as_the_kernel_does(
    place: Place, files: Files, old: str, new: str, number: int | None
):
    place.put_file(place.root / "file", b"1")
    place.put_file(place.root / "full" / "inside" / "file", b"2")
    place.put_directory(place.root / "empty")
    if number is None:
        await files.rename(place.root / old, place.root / new)
        assert (f"root/{new}" in place.tree(), f"root/{old}" in place.tree()) == (True, old == new)
    else:
        assert await error_of(files.rename(place.root / old, place.root / new)) == (number, str(place.root / old))


async def test_a_lock_is_exclusive_until_closed(place: Place, files: Files):
    held = await files.lock(place.root / "lock")
    for other in (files, place.files()):
        assert await error_of(other.lock(place.root / "lock")) == (errno.EAGAIN, str(place.root / "lock"))
    held.close()
    again = await files.lock(place.root / "lock")
    held.close()
    with pytest.raises(BlockingIOError):
        await files.lock(place.root / "lock")
    again.close()


async def test_a_locked_file_that_is_replaced_is_another_one(place: Place, files: Files):
    held = await files.lock(place.root / "lock")
    await files.replace(place.root / "lock", b"")
    another = await files.lock(place.root / "lock")
    held.close()
    assert await error_of(files.lock(place.root / "lock")) == (errno.EAGAIN, str(place.root / "lock"))
    another.close()


async def test_a_tree_with_one_of_each_kind_is_removed_and_nothing_else(place: Place, files: Files):
    place.put_file(place.base / "outside" / "precious", b"precious")
    place.put_file(place.root / "t" / "d" / "file", b"1")
    place.put_directory(place.root / "t" / "d" / "empty")
    place.put_symlink(place.root / "t" / "d" / "link", place.base / "outside")
    place.put_symlink(place.root / "t" / "d" / "dangling", "nothing")
    place.put_fifo(place.root / "t" / "d" / "fifo")
    place.put_socket(place.root / "t" / "d" / "socket")
    place.put_directory(place.root / "t-not")
    await files.sync_tree(place.root / "t")
    await files.remove_tree(place.root / "t")
    assert place.tree() == {"root": None, "root/t-not": None, "outside": None, "outside/precious": b"precious"}


async def test_a_tree_may_be_deeper_than_the_stack(place: Place, files: Files):
    path = place.root / "t"
    for _ in range(40):
        # By moving it down, since a path has only 4095 bytes.
        await files.make_directory(place.root / "new" / "/".join("d" * 40))
        if await files.lstat(path) is not None:
            await files.rename(path, (place.root / "new").joinpath(*"d" * 40) / "t")
        await files.rename(place.root / "new", path)
    await files.sync_tree(path)
    await files.remove_tree(path)
    assert place.tree() == {"root": None}


@pytest.mark.parametrize("call", ["remove_tree", "sync_tree"])
async def test_only_directories_are_trees(place: Place, files: Files, call: str):
    place.put_file(place.root / "file", b"1")
    assert await error_of(getattr(files, call)(place.root / "file")) == (errno.ENOTDIR, str(place.root / "file"))


async def test_a_tree_that_is_to_be_synced_must_be_there(place: Place, files: Files):
    absent = place.root / "absent"
    assert await error_of(files.sync_tree(absent)) == (errno.ENOENT, str(absent))


async def test_who_is_cancelled_before_it_begins_changes_nothing(place: Place, files: Files):
    with anyio.CancelScope() as scope:
        scope.cancel()
        await files.replace(place.root / "it", b"1")
    assert scope.cancelled_caught
    assert place.tree() == {"root": None}
