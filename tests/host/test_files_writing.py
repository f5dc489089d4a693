"""Files: what is written, where, and whom it follows."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

import anyio
import pytest

from supervisor.host import writing
from supervisor.host.beneath import Beneath
from supervisor.host.files import HostFiles
from tests.contract.operations import TREE, WRITERS
from tests.host.directories import modes
from tests.needs import Tool, need

pytestmark = pytest.mark.anyio


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
        await files.make_tree(root / "x" / "tree", TREE)
    finally:
        os.umask(before)
    assert modes(root) == {
        "a": 0o700,
        "a/b": 0o700,
        "a/replaced": 0o600,
        "a/appended": 0o600,
        "a/locked": 0o600,
        "x": 0o700,
        "x/tree": 0o700,
        "x/tree/new": 0o600,
        "x/tree/open": 0o755,
        "x/tree/open/run": 0o755,
        "x/tree/bare": 0o700,
    }


async def test_what_is_for_this_boot_is_not_synced(files: HostFiles, root: Path, monkeypatch):
    synced = spied_syncs(monkeypatch)
    await files.make_tree(root / "sandboxes" / "activation", TREE)
    for _ in range(2):
        await files.replace_for_boot(root / "sandboxes" / "activation" / "it", b"new")
    assert synced == []


async def test_what_is_durable_is_synced_before_its_name(files: HostFiles, root: Path, monkeypatch):
    synced = spied_syncs(monkeypatch)
    await files.make_directory(root / "d")
    await files.replace(root / "d" / "it", b"1")
    directory, temporary, above = synced
    assert (directory, above) == (str(root), str(root / "d"))
    assert temporary.startswith(str(root / "d" / ".it."))


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


# Of the writers, those for which a root itself is no fit object: it may be made, and the others name a place outside.


@pytest.mark.parametrize("writer", ["append", "append_durably", "truncate", "lock"])
@pytest.mark.parametrize("make", [os.mkfifo, lambda path: os.mknod(path, stat.S_IFCHR, os.makedev(1, 3))])
async def test_writing_to_a_fifo_or_device_is_refused(files: HostFiles, root: Path, writer: str, make):
    need(Tool.ROOT)
    make(root / "it")
    with anyio.fail_after(60), pytest.raises(OSError) as caught:
        await WRITERS[writer](files, root / "it")
    assert caught.value.errno in {errno.ENXIO, errno.EINVAL, errno.EPERM, errno.EACCES}


async def test_what_does_not_fit_is_not_appended_in_part(files: HostFiles, root: Path, monkeypatch):
    await files.append(root / "log", b"whole\n")
    write = os.write
    monkeypatch.setattr(os, "write", lambda fd, data: write(fd, data[:3]))
    with pytest.raises(OSError) as caught:
        await files.append(root / "log", b"torn\n")
    assert caught.value.errno == errno.ENOSPC
    assert (root / "log").read_bytes() == b"whole\n"


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
