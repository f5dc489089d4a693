"""Files: what is written, where, and whom it follows."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import Any, Final

import anyio
import pytest

from supervisor.host import writing
from supervisor.host.beneath import Beneath
from supervisor.host.files import HostFiles
from tests.host.directories import modes, tree
from tests.needs import Tool, need

pytestmark = pytest.mark.anyio

WRITERS: Final[dict[str, Any]] = {
    "replace": lambda files, path: files.replace(path, b"new"),
    "replace_executable": lambda files, path: files.replace_executable(path, b"new"),
    "append": lambda files, path: files.append(path, b"new"),
    "append_durably": lambda files, path: files.append_durably(path, b"new"),
    "truncate": lambda files, path: files.truncate(path, size_bytes=0),
    "make_directory": lambda files, path: files.make_directory(path),
    "rename from": lambda files, path: files.rename(path, path.with_name("renamed")),
    "rename to": lambda files, path: files.rename(path.with_name("other"), path),
    "remove_file": lambda files, path: files.remove_file(path),
    "remove_tree": lambda files, path: files.remove_tree(path),
    "sync_tree": lambda files, path: files.sync_tree(path),
    "lock": lambda files, path: files.lock(path),
}


def spied_syncs(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The paths that are synced from now on; of file content that takes fdatasync."""
    synced: list[str] = []
    fsync = os.fsync

    def note(fd: int) -> None:
        synced.append(str(Path(f"/proc/self/fd/{fd}").readlink()))
        fsync(fd)

    monkeypatch.setattr(os, "fsync", note)
    return synced


async def test_files_are_private_and_programs_are_not(files: HostFiles, root: Path):
    before = os.umask(0)
    try:
        await files.make_directory(root / "a" / "b")
        await files.replace(root / "a" / "replaced", b"1")
        await files.append(root / "a" / "appended", b"1")
        (await files.lock(root / "a" / "locked")).close()
        os.umask(0o077)
        await files.replace_executable(root / "x" / "rootfs" / "pause", b"1")
    finally:
        os.umask(before)
    assert modes(root) == {
        "a": 0o700,
        "a/b": 0o700,
        "a/replaced": 0o600,
        "a/appended": 0o600,
        "a/locked": 0o600,
        "x": 0o700,
        "x/rootfs": 0o755,
        "x/rootfs/pause": 0o755,
    }


async def test_a_root_that_does_not_exist_is_made(anyio_backend: str, tmp_path: Path):
    root = tmp_path / "not" / "yet"
    files = HostFiles(roots=[root])
    with pytest.raises(FileNotFoundError):
        await files.replace(root / "x", b"")
    await files.make_directory(root)
    await files.make_directory(root)
    await files.replace(root / "x", b"1")
    assert [stat.S_IMODE(path.stat().st_mode) for path in (root.parent, root)] == [0o700, 0o700]


@pytest.mark.parametrize("call", ["append", "append_durably"])
async def test_the_name_of_a_file_that_was_made_is_synced_whoever_appends_first(
    files: HostFiles, root: Path, monkeypatch, call: str
):
    """Or else who appends durably to a file that is there already would lose it with its name."""
    synced = spied_syncs(monkeypatch)
    await WRITERS[call](files, root / "log")
    assert synced == [str(root)]
    await WRITERS[call](files, root / "log")
    assert synced == [str(root)]


async def test_a_root_that_is_made_is_synced_with_all_above_it(anyio_backend: str, tmp_path: Path, monkeypatch):
    synced = spied_syncs(monkeypatch)
    root = tmp_path / "not" / "yet"
    await HostFiles(roots=[root]).make_directory(root / "below")
    assert synced == [str(tmp_path), str(tmp_path / "not"), str(root)]


async def test_a_root_may_be_a_symlink_itself(anyio_backend: str, root: Path, tmp_path: Path):
    (tmp_path / "link").symlink_to(root)
    await HostFiles(roots=[tmp_path / "link"]).replace(tmp_path / "link" / "x", b"1")
    assert (root / "x").read_bytes() == b"1"


# Of the writers, those for which a root itself is no fit object: it may be made, and the others name a place outside.
NOT_OF_ROOTS: Final = WRITERS.keys() - {"make_directory", "rename from", "replace_executable"}
PLACES: Final = [(writer, place) for writer in WRITERS for place in ("outside", "above", "beside")]


@pytest.mark.parametrize(("writer", "where"), [*PLACES, *((writer, "a root") for writer in sorted(NOT_OF_ROOTS))])
async def test_nothing_is_written_outside_the_roots(
    files: HostFiles, tmp_path: Path, root: Path, writer: str, where: str
):
    (root / "inside").mkdir()
    (tmp_path / "target").write_bytes(b"precious")
    path = {
        "outside": tmp_path / "target",
        "above": root / "inside" / ".." / ".." / "target",
        "a root": root,
        "beside": tmp_path / "root-but-not-quite",
    }[where]
    before = tree(tmp_path)
    with pytest.raises(PermissionError) as caught:
        await WRITERS[writer](files, path)
    assert caught.value.errno == errno.EPERM
    assert tree(tmp_path) == before


@pytest.mark.parametrize("writer", WRITERS)
async def test_no_symlink_on_the_way_is_followed(files: HostFiles, tmp_path: Path, root: Path, writer: str):
    (tmp_path / "outside" / "target").mkdir(parents=True)
    (tmp_path / "outside" / "other").write_bytes(b"precious")
    (root / "a").mkdir()
    (root / "a" / "link").symlink_to(tmp_path / "outside")
    before = tree(tmp_path)
    with pytest.raises(OSError) as caught:
        await WRITERS[writer](files, root / "a" / "link" / "target")
    assert caught.value.errno == errno.ELOOP
    assert tree(tmp_path) == before


@pytest.mark.parametrize("writer", sorted(WRITERS.keys() - {"remove_file", "rename from"}))
@pytest.mark.parametrize("target", ["file", "directory", "nothing"])
async def test_no_last_symlink_is_followed(files: HostFiles, tmp_path: Path, root: Path, writer: str, target: str):
    (tmp_path / "file").write_bytes(b"precious")
    (tmp_path / "directory").mkdir()
    (root / "other").write_bytes(b"other")
    (root / "link").symlink_to(tmp_path / target)
    before = tree(tmp_path)
    with pytest.raises(OSError) as caught:
        await WRITERS[writer](files, root / "link")
    assert caught.value.errno == errno.ELOOP
    assert tree(tmp_path) == before


async def test_a_symlink_itself_can_be_removed_and_renamed(files: HostFiles, tmp_path: Path, root: Path):
    (tmp_path / "file").write_bytes(b"precious")
    (root / "link").symlink_to(tmp_path / "file")
    await files.rename(root / "link", root / "moved")
    await files.remove_file(root / "moved")
    assert tree(tmp_path) == {"root": None, "file": b"precious"}


@pytest.mark.parametrize("writer", WRITERS)
async def test_what_is_no_directory_leads_nowhere(files: HostFiles, root: Path, writer: str):
    (root / "file").write_bytes(b"1")
    with pytest.raises(NotADirectoryError):
        await WRITERS[writer](files, root / "file" / "below")


@pytest.mark.parametrize("writer", ["append", "append_durably", "truncate", "lock"])
@pytest.mark.parametrize("make", [os.mkfifo, lambda path: os.mknod(path, stat.S_IFCHR, os.makedev(1, 3))])
async def test_writing_to_a_fifo_or_device_is_refused(files: HostFiles, root: Path, writer: str, make):
    need(Tool.ROOT)
    make(root / "it")
    with anyio.fail_after(5), pytest.raises(OSError) as caught:
        await WRITERS[writer](files, root / "it")
    assert caught.value.errno in {errno.ENXIO, errno.EINVAL, errno.EPERM, errno.EACCES}


async def test_appending_adds_at_the_end(files: HostFiles, root: Path):
    await files.append(root / "log", b"1\n")
    await files.append_durably(root / "log", b"2\n")
    await files.append_durably(root / "other", b"3\n")
    assert tree(root) == {"log": b"1\n2\n", "other": b"3\n"}


async def test_what_does_not_fit_is_not_appended_in_part(files: HostFiles, root: Path, monkeypatch):
    await files.append(root / "log", b"whole\n")
    write = os.write
    monkeypatch.setattr(os, "write", lambda fd, data: write(fd, data[:3]))
    with pytest.raises(OSError) as caught:
        await files.append(root / "log", b"torn\n")
    assert caught.value.errno == errno.ENOSPC
    assert (root / "log").read_bytes() == b"whole\n"


@pytest.mark.parametrize(("size", "content"), [(0, b""), (3, b"123"), (5, b"12345"), (9, b"12345")])
async def test_a_file_is_cut_and_never_grows(files: HostFiles, root: Path, size: int, content: bytes):
    (root / "log").write_bytes(b"12345")
    await files.truncate(root / "log", size_bytes=size)
    assert (root / "log").read_bytes() == content
    with pytest.raises(FileNotFoundError):
        await files.truncate(root / "absent", size_bytes=0)


async def test_renaming_replaces_and_removing_what_is_absent_is_fine(files: HostFiles, root: Path):
    await files.replace(root / "a", b"1")
    await files.replace(root / "b", b"2")
    await files.rename(root / "a", root / "b")
    assert tree(root) == {"b": b"1"}
    for path in (root / "b", root / "b", root / "no" / "directory"):
        await files.remove_file(path)
        await files.remove_tree(path)
    assert tree(root) == {}
    with pytest.raises(FileNotFoundError) as caught:
        await files.rename(root / "a", root / "b")
    assert caught.value.filename == str(root / "a")
    await files.make_directory(root / "d")
    with pytest.raises(IsADirectoryError):
        await files.remove_file(root / "d")


async def test_a_lock_is_exclusive_until_closed(files: HostFiles, root: Path):
    held = await files.lock(root / "lock")
    with pytest.raises(BlockingIOError):
        await files.lock(root / "lock")
    held.close()
    held.close()
    again = await files.lock(root / "lock")
    again.close()


async def test_a_lock_on_a_file_that_is_replaced_meanwhile_is_on_the_new_one(files: HostFiles, root: Path, monkeypatch):
    tries = []
    open_for_real = writing.open_for_lock

    def open_and_lose(beneath: Beneath, path: Path) -> int:
        fd = open_for_real(beneath, path)
        tries.append(fd)
        if len(tries) == 1:
            path.unlink()
        return fd

    monkeypatch.setattr("supervisor.host.locks.open_for_lock", open_and_lose)
    held = await files.lock(root / "lock")
    assert len(tries) == 2
    with pytest.raises(BlockingIOError):
        await files.lock(root / "lock")
    held.close()
