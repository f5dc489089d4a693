"""Files: what is left of a replacement that fails, is cancelled, is raced or is looked at meanwhile."""

from __future__ import annotations

import errno
import os
import threading
from pathlib import Path

import anyio
import pytest
from anyio import to_thread
from hypothesis import given, settings
from hypothesis import strategies as st

from supervisor.host import writing
from supervisor.host.beneath import Beneath, refuse_symlink
from supervisor.host.files import HostFiles
from tests.host.directories import tree

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(
    ("method", "call"),
    [
        ("replace", "write"),
        ("replace", "fsync"),
        ("replace", "rename"),
        ("replace_for_boot", "write"),
        ("replace_for_boot", "rename"),
    ],
)
async def test_a_failed_replace_leaves_the_old_content_and_nothing_else(
    files: HostFiles, root: Path, monkeypatch, method: str, call: str
):
    await files.replace(root / "it", b"old")

    def fail(*args, **kwargs) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, call, fail)
    with pytest.raises(OSError) as caught:
        await getattr(files, method)(root / "it", b"new")
    monkeypatch.undo()
    assert (caught.value.errno, caught.value.filename) == (errno.ENOSPC, str(root / "it"))
    assert tree(root) == {"it": b"old"}


async def test_a_cancelled_replace_is_done_whole(files: HostFiles, root: Path, monkeypatch):
    reached, go_on = threading.Event(), threading.Event()
    fsync = os.fsync

    def slow(fd: int) -> None:
        reached.set()
        assert go_on.wait(10)
        fsync(fd)

    monkeypatch.setattr(os, "fsync", slow)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(files.replace, root / "it", b"new")
        await to_thread.run_sync(reached.wait, 10)
        tasks.cancel_scope.cancel()
        go_on.set()
    assert tree(root) == {"it": b"new"}


async def test_a_long_name_can_be_replaced(files: HostFiles, root: Path):
    for name in ("n" * 255, "ü" * 127):
        await files.replace(root / name, b"1")
    assert len(tree(root)) == 2


async def test_a_directory_swapped_for_a_symlink_midway_leads_nowhere(
    files: HostFiles, tmp_path: Path, root: Path, monkeypatch
):
    """Between opening the directory and writing in it: the write goes to the directory that was opened."""
    (tmp_path / "outside").mkdir()
    (root / "d").mkdir()
    refuse = refuse_symlink

    def swap(name: str, directory: int) -> None:
        (root / "d").rename(root / "moved")
        (root / "d").symlink_to(tmp_path / "outside")
        refuse(name, directory)

    monkeypatch.setattr("supervisor.host.writing.refuse_symlink", swap)
    await files.replace(root / "d" / "it", b"new")
    assert tree(tmp_path / "outside") == {}
    assert (root / "moved" / "it").read_bytes() == b"new"


@settings(max_examples=25, deadline=None)
@given(contents=st.lists(st.binary(max_size=200_000), min_size=1, max_size=8))
def test_a_reader_sees_old_or_new_content_and_no_temporary_file_stays(
    tmp_path_factory: pytest.TempPathFactory, contents: list[bytes]
):
    root = tmp_path_factory.mktemp("root")
    path = root / "it"
    beneath = Beneath([root])
    writing.replace(beneath, path, b"first")
    allowed = {b"first", *contents}
    seen: set[bytes] = set()
    done = threading.Event()

    def read() -> None:
        while not done.is_set():
            seen.add(path.read_bytes())

    reader = threading.Thread(target=read)
    reader.start()
    try:
        for content in contents:
            writing.replace(beneath, path, content)
    finally:
        done.set()
        reader.join(10)
    assert seen <= allowed
    assert tree(root) == {"it": contents[-1]}


@pytest.mark.parametrize("roots", [["relative"], ["/a/../b"]])
def test_a_root_is_an_absolute_path(roots: list[str]):
    with pytest.raises(ValueError, match="absolute"):
        Beneath([Path(root) for root in roots])
