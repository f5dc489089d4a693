"""Whole trees: removed and synced without going anywhere else."""

from __future__ import annotations

import errno
import os
import socket
import subprocess
import sys
import threading
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from anyio import to_thread

from supervisor.host.beneath import open_directory
from tests.host.directories import tree
from tests.needs import Tool, need

if TYPE_CHECKING:
    from collections.abc import Iterator

    from supervisor.host.files import HostFiles

pytestmark = pytest.mark.anyio


def make_everything(directory: Path, outside: Path) -> None:
    """One of each kind."""
    (directory / "d" / "empty").mkdir(parents=True)
    (directory / "d" / "file").write_bytes(b"1")
    (directory / "d" / "link").symlink_to(outside)
    (directory / "d" / "dangling").symlink_to("nothing")
    os.mkfifo(directory / "d" / "fifo")
    with socket.socket(socket.AF_UNIX) as sock:
        sock.bind(str(directory / "d" / "socket"))
    os.link(outside / "precious", directory / "d" / "hard link")


def make_deep(directory: Path, depth: int) -> None:
    directory.mkdir()
    here = os.open(directory, os.O_RDONLY)
    for _ in range(depth):
        os.mkdir("d", dir_fd=here)
        below = os.open("d", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    os.close(os.open("bottom", os.O_CREAT | os.O_WRONLY, dir_fd=here))
    os.close(here)


@contextmanager
def mounted(*options: str, source: Path | str, at: Path) -> Iterator[None]:
    need(Tool.ROOT, Tool.NAMESPACES)
    subprocess.run(["mount", *options, source, at], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", at], check=True)


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "precious").write_bytes(b"precious")
    return tmp_path / "outside"


async def test_a_tree_with_one_of_each_kind_is_removed_and_nothing_else(files: HostFiles, root: Path, outside: Path):
    make_everything(root / "t", outside)
    (root / "t-not").mkdir()
    await files.remove_tree(root / "t")
    assert tree(root) == {"t-not": None}
    assert tree(outside) == {"precious": b"precious"}


# Past the recursion limit and past the usual limit on descriptors; and a depth that only an attack has.
@pytest.mark.parametrize(("depth", "is_synced"), [(1_100, True), pytest.param(10_000, False, marks=pytest.mark.long)])
async def test_a_tree_of_any_depth_is_synced_and_removed(files: HostFiles, root: Path, depth: int, is_synced: bool):
    make_deep(root / "t", depth)
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(200)
    try:
        if is_synced:
            await files.sync_tree(root / "t")
        await files.remove_tree(root / "t")
    finally:
        sys.setrecursionlimit(limit)
    assert tree(root) == {}


async def test_only_directories_are_removed_as_trees(files: HostFiles, root: Path):
    (root / "file").write_bytes(b"1")
    with pytest.raises(NotADirectoryError) as caught:
        await files.remove_tree(root / "file")
    assert caught.value.filename == str(root / "file")


@pytest.mark.parametrize("kind", ["tmpfs", "bind"])
async def test_nothing_that_is_mounted_below_is_touched(files: HostFiles, root: Path, outside: Path, kind: str):
    (root / "t" / "a").mkdir(parents=True)
    (root / "t" / "a" / "mount").mkdir()
    (root / "t" / "b").mkdir()
    (root / "t" / "b" / "file").write_bytes(b"1")
    options, source = (["-t", "tmpfs"], "none") if kind == "tmpfs" else (["--bind"], outside)
    with mounted(*options, source=source, at=root / "t" / "a" / "mount"):
        (root / "t" / "a" / "mount" / "kept").write_bytes(b"kept")
        for path in (root / "t", root / "t" / "a" / "mount"):
            with pytest.raises(OSError) as caught:
                await files.remove_tree(path)
            assert (caught.value.errno, caught.value.filename) == (errno.EBUSY, str(root / "t" / "a" / "mount"))
        assert (root / "t" / "a" / "mount" / "kept").read_bytes() == b"kept"
        # The rest of the tree is gone.
        assert not (root / "t" / "b").exists()
    await files.remove_tree(root / "t")
    assert tree(root) == {}


async def test_a_mounted_file_is_told_and_kept(files: HostFiles, root: Path, outside: Path):
    (root / "t").mkdir()
    (root / "t" / "file").touch()
    with mounted("--bind", source=outside / "precious", at=root / "t" / "file"):
        with pytest.raises(OSError) as caught:
            await files.remove_tree(root / "t")
        assert (caught.value.errno, caught.value.filename) == (errno.EBUSY, str(root / "t" / "file"))
    assert (outside / "precious").read_bytes() == b"precious"


async def test_what_somebody_else_removes_or_adds_meanwhile_is_fine(files: HostFiles, root: Path):
    for number in range(300):
        (root / "t" / str(number % 10) / str(number)).mkdir(parents=True)
        (root / "t" / str(number % 10) / str(number) / "file").touch()
    done = threading.Event()

    def disturb() -> None:
        number = 0
        while not done.is_set():
            number = (number + 7) % 300
            where = root / "t" / str(number % 10) / str(number)
            with suppress(OSError):
                (where / "file").unlink(missing_ok=True)
                where.rmdir()

    disturber = threading.Thread(target=disturb)
    disturber.start()
    try:
        await files.sync_tree(root / "t")
        await files.remove_tree(root / "t")
    finally:
        done.set()
        await to_thread.run_sync(disturber.join, 60)
    assert tree(root) == {}


@pytest.mark.parametrize("at_top", [True, False])
async def test_a_directory_that_is_filled_all_the_time_is_an_error_in_the_end(
    files: HostFiles, root: Path, monkeypatch, at_top: bool
):
    path = root / "t" if at_top else root / "t" / "below"
    path.mkdir(parents=True)
    rmdir = os.rmdir
    fills = []

    def rmdir_late(name: str, *, dir_fd: int) -> None:
        if name == path.name:
            fills.append(name)
            (path / "more").touch()
        rmdir(name, dir_fd=dir_fd)

    monkeypatch.setattr(os, "rmdir", rmdir_late)
    with pytest.raises(OSError) as caught:
        await files.remove_tree(root / "t")
    assert (caught.value.errno, caught.value.filename) == (errno.ENOTEMPTY, str(path))
    assert len(fills) == 4


async def test_a_directory_that_is_filled_once_more_is_emptied_once_more(files: HostFiles, root: Path, monkeypatch):
    (root / "t" / "below").mkdir(parents=True)
    rmdir = os.rmdir
    filled = set()

    def rmdir_late(name: str, *, dir_fd: int) -> None:
        if name not in filled:
            filled.add(name)
            os.close(os.open(f"{name}/more", os.O_CREAT, dir_fd=dir_fd))
        rmdir(name, dir_fd=dir_fd)

    monkeypatch.setattr(os, "rmdir", rmdir_late)
    await files.remove_tree(root / "t")
    assert filled == {"t", "below"}
    assert tree(root) == {}


async def test_a_directory_swapped_for_a_symlink_is_removed_as_one(
    files: HostFiles, root: Path, outside: Path, monkeypatch
):
    (root / "t" / "d").mkdir(parents=True)
    enter = open_directory

    def swap(name: str, directory: int) -> int:
        if name == "d":
            (root / "t" / "d").rmdir()
            (root / "t" / "d").symlink_to(outside)
        return enter(name, directory)

    monkeypatch.setattr("supervisor.host.trees.open_directory", swap)
    await files.remove_tree(root / "t")
    assert tree(root) == {}
    assert tree(outside) == {"precious": b"precious"}


async def test_a_directory_moved_away_ends_the_walk(files: HostFiles, root: Path, outside: Path, monkeypatch):
    (root / "t" / "d" / "e").mkdir(parents=True)
    enter = open_directory

    def move(name: str, directory: int) -> int:
        fd = enter(name, directory)
        if name == "e":
            (root / "t" / "d" / "e").rename(outside / "e")
        return fd

    monkeypatch.setattr("supervisor.host.trees.open_directory", move)
    with pytest.raises(OSError) as caught:
        await files.remove_tree(root / "t")
    assert caught.value.errno == errno.ESTALE
    assert tree(outside) == {"precious": b"precious", "e": None}


async def test_all_is_synced_the_top_last(files: HostFiles, root: Path, outside: Path, monkeypatch):
    make_everything(root / "t", outside)
    synced: list[str] = []
    monkeypatch.setattr(os, "fsync", lambda fd: synced.append(str(Path(f"/proc/self/fd/{fd}").readlink())))
    await files.sync_tree(root / "t")
    names = [path.removeprefix(str(root / "t")) for path in synced]
    assert sorted(names[:2]) == ["/d/file", "/d/hard link"]
    assert names[2:] == ["/d/empty", "/d", ""]


async def test_a_file_that_cannot_be_synced_is_named(files: HostFiles, root: Path, outside: Path, monkeypatch):
    make_everything(root / "t", outside)

    def fail(fd: int) -> Any:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError) as caught:
        await files.sync_tree(root / "t")
    assert caught.value.errno == errno.EIO
    assert str(caught.value.filename).startswith(str(root / "t" / "d"))
    with pytest.raises(FileNotFoundError):
        await files.sync_tree(root / "absent")
