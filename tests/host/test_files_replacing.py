"""Files: what is left of a replacement that fails, is cancelled, is raced or is looked at meanwhile."""

from __future__ import annotations

import errno
import itertools
import os
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import pytest
from anyio import to_thread
from hypothesis import given, settings
from hypothesis import strategies as st

from supervisor.host import writing
from supervisor.host.beneath import Beneath, refuse_symlink
from supervisor.host.files import HostFiles
from tests.contract.operations import TREE
from tests.host.directories import tree

if TYPE_CHECKING:
    from collections.abc import Callable

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


@pytest.mark.parametrize(
    ("call", "nth"),
    [("mkdir", 1), ("mkdir", 2), ("mkdir", 4), ("open", 1), ("open", 2), ("write", 2), ("fchmod", 3), ("rename", 1)],
)
async def test_of_a_tree_that_fails_nothing_is_left(files: HostFiles, root: Path, monkeypatch, call: str, nth: int):
    (root / "above").mkdir()
    really, calls = getattr(os, call), itertools.count(1)

    def fail(*args, **kwargs) -> object:
        # From the nth on nothing is made any more; what was made can still be opened, to be removed.
        is_making = call != "open" or args[1] & os.O_CREAT
        if is_making and next(calls) >= nth:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return really(*args, **kwargs)

    monkeypatch.setattr(os, call, fail)
    with pytest.raises(OSError) as caught:
        await files.make_tree(root / "above" / "tree", TREE)
    monkeypatch.undo()
    assert (caught.value.errno, caught.value.filename) == (errno.ENOSPC, str(root / "above" / "tree"))
    assert tree(root) == {"above": None}


async def test_nobody_finds_a_part_of_a_tree(files: HostFiles, root: Path, monkeypatch):
    """Whenever anything of it is made, its place is empty; then all of it is there."""
    made: list[list[str]] = []
    mkdir, opened = os.mkdir, os.open

    def look(call) -> Callable[..., object]:
        def looking(*args, **kwargs) -> object:
            made.append(sorted(tree(root)))
            return call(*args, **kwargs)

        return looking

    monkeypatch.setattr(os, "mkdir", look(mkdir))
    monkeypatch.setattr(os, "open", look(opened))
    await files.make_tree(root / "it", TREE)
    monkeypatch.undo()
    assert len(made) > 5
    assert not [names for names in made if any(name.partition("/")[0] == "it" for name in names)]
    assert tree(root).keys() == {"it", "it/new", "it/open", "it/open/run", "it/bare"}


async def test_a_cancelled_replace_is_done_whole(files: HostFiles, root: Path, monkeypatch):
    reached, go_on = threading.Event(), threading.Event()
    fsync = os.fsync

    def slow(fd: int) -> None:
        reached.set()
        assert go_on.wait(60)
        fsync(fd)

    monkeypatch.setattr(os, "fsync", slow)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(files.replace, root / "it", b"new")
        await to_thread.run_sync(reached.wait, 60)
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
        reader.join(60)
    assert seen <= allowed
    assert tree(root) == {"it": contents[-1]}


@pytest.mark.parametrize("roots", [["relative"], ["/a/../b"]])
def test_a_root_is_an_absolute_path(roots: list[str]):
    with pytest.raises(ValueError, match="absolute"):
        Beneath([Path(root) for root in roots])
