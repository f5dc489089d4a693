"""Registries that notice by themselves what happens to the files of their directories."""

import os
from functools import partial

import anyio
import pytest

from actors.cdi import LiveRegistry, StampedRegistry, follow
from actors.cdi.host import HostFiles
from supervisor.host.watch import HostWatch
from tests.cdi.making import LOW, MemoryFiles, spec, text
from tests.fakes.ports import FakeWatch

BOUND_S = 60.0


def of_kind(word):
    return text(spec(kind=f"v.com/{word}"))


def rewritten_in_place_with_the_old_time(folder):
    path = folder / "a.json"
    before = path.stat()
    while path.stat().st_ctime_ns == before.st_ctime_ns:  # before Linux 6.13 that has the steps of the kernel's clock
        path.write_bytes(of_kind("b"))
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def exchanged(folder):
    (folder / "new.tmp").write_bytes(of_kind("b"))
    (folder / "new.tmp").rename(folder / "a.json")


def led_elsewhere(folder):
    (folder / "..target").write_bytes(of_kind("b"))
    (folder / "a.json").unlink()
    (folder / "a.json").symlink_to("..target")


CHANGES = {
    "rewritten with the old time": (rewritten_in_place_with_the_old_time, ("v.com/b=d",)),
    "exchanged": (exchanged, ("v.com/b=d",)),
    "led elsewhere": (led_elsewhere, ("v.com/b=d",)),
    "another one": (lambda folder: (folder / "b.yaml").write_bytes(of_kind("b")), ("v.com/a=d", "v.com/b=d")),
    "removed": (lambda folder: (folder / "a.json").unlink(), ()),
    "renamed to no spec": (lambda folder: (folder / "a.json").rename(folder / "a.yml"), ()),
    "the directory went": (lambda folder: folder.rename(folder.with_name("gone")), ()),
}


@pytest.mark.parametrize(("change", "names"), CHANGES.values(), ids=CHANGES)
def test_a_query_after_a_change_sees_it(tmp_path, change, names):
    folder = tmp_path / "cdi"
    registry = StampedRegistry(HostFiles(), [str(folder)])
    assert registry.current().names() == ()
    folder.mkdir()
    (folder / "a.json").write_bytes(of_kind("a"))
    assert registry.current().names() == ("v.com/a=d",)
    change(folder)
    assert registry.current().names() == names


def test_a_query_without_a_change_reads_nothing(tmp_path):
    (tmp_path / "a.json").write_bytes(of_kind("a"))
    registry = StampedRegistry(HostFiles(), [str(tmp_path), str(tmp_path / "absent")])
    first = registry.current()
    (tmp_path / "notes.txt").touch()
    assert registry.current() is first


def test_a_change_during_a_scan_is_met_by_the_next_query(tmp_path):
    path = tmp_path / "a.json"
    path.write_bytes(of_kind("a"))

    class Files(HostFiles):
        def read(self, path, *, limit_bytes):
            data = super().read(path, limit_bytes=limit_bytes)
            exchanged(tmp_path)
            return data

    registry = StampedRegistry(Files(), [str(tmp_path)])
    assert registry.current().names() == ("v.com/a=d",)
    assert registry.current().names() == ("v.com/b=d",)


@pytest.mark.anyio
async def test_a_watcher_makes_it_stale_for_specs_and_for_what_has_no_name():
    files, watch = MemoryFiles({f"{LOW}/a.json": of_kind("a")}), FakeWatch()
    live = LiveRegistry(files, [LOW])
    before = live.current()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(follow, live, watch, LOW)
        await anyio.wait_all_tasks_blocked()
        watched = live.current()
        assert watched is not before  # what happened before anybody watched
        for names, is_kept in ((("notes.txt", "a.yml"), True), (("notes.txt", "b.yaml"), False), ((), False)):
            known = live.current()
            watch.tell(*names)
            await anyio.wait_all_tasks_blocked()
            assert (live.current() is known) == is_kept, names
        tasks.cancel_scope.cancel()


@pytest.mark.anyio
async def test_greenrooms_watcher_fits(tmp_path):
    came = anyio.Event()

    class Live(LiveRegistry):
        def mark_stale(self):
            super().mark_stale()
            came.set()

    live = Live(HostFiles(), [str(tmp_path)])
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(partial(follow, live, HostWatch(), str(tmp_path)))
        with anyio.fail_after(BOUND_S):
            await came.wait()
            assert live.current().names() == ()
            came = anyio.Event()
            (tmp_path / "a.json").write_bytes(of_kind("a"))
            await came.wait()
        assert live.current().names() == ("v.com/a=d",)
        tasks.cancel_scope.cancel()
