"""The real cgroups: what is taken in hand and what is refused, limits and numbers on a recorded tree."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import anyio
import pytest

from actors.ports import CgroupLimits, CgroupsUnavailableError, CgroupUsage
from supervisor.host import cgroup_files
from supervisor.host.cgroups import HostCgroups, KernelDirectories
from tests.host.cgroup_trees import RecordedTree

pytestmark = pytest.mark.anyio
NO_LIMITS = CgroupLimits()
NO_SUCH_PID = 1 << 30  # above what any kernel gives


@pytest.fixture
def tree(tmp_path):
    return RecordedTree(tmp_path / "cgroup")


@pytest.fixture
async def port(tree, anyio_backend):
    opened = tree.port
    await opened.delegate()
    return opened


# ---- taking it in hand


async def test_the_cgroup_is_divided_and_each_controller_is_turned_on_for_what_is_below(tree):
    found = await tree.port.delegate()
    assert (found.actors, found.controllers, found.missing) == (tree.own / "actors", ("cpu", "memory"), ())
    assert (tree.own / "greenroom").is_dir()
    for cgroup in (tree.own, tree.own / "actors"):
        assert (cgroup / "cgroup.subtree_control").read_text() == "+memory"


async def test_it_is_found_divided_by_a_life_before_also_by_who_was_started_in_its_leaf(tree):
    before = await tree.port.delegate()
    assert await tree.port.delegate() == before
    tree.membership.write_text("0::/pod/greenroom\n")
    assert await tree.port.delegate() == before


async def test_a_controller_that_the_pod_has_not_is_named_and_the_other_one_is_on(tmp_path):
    found = await RecordedTree(tmp_path / "cgroup", controllers=("memory", "pids")).port.delegate()
    assert found.controllers == ("memory",)
    assert [name for name, _why in found.missing] == ["cpu"]
    assert "has none" in found.missing[0][1]


async def test_a_controller_that_cannot_be_turned_on_is_named_with_the_kernels_reason(tree):
    (tree.own / "cgroup.subtree_control").unlink()
    (tree.own / "cgroup.subtree_control").mkdir()
    found = await tree.port.delegate()
    assert found.controllers == ()
    assert found.missing == (("cpu", "Is a directory"), ("memory", "Is a directory"))


class Refusing(KernelDirectories):
    def __init__(self, number):
        self.number = number

    def make(self, path):
        raise OSError(self.number, os.strerror(self.number), str(path))


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (errno.EROFS, "not ours to write to"),
        (errno.EACCES, "not ours to write to"),
        (errno.ENOSPC, "cannot be divided"),
    ],
)
async def test_one_that_cannot_be_written_to_is_left_as_it_is_and_says_why(tree, number, words):
    port = HostCgroups(mount=tree.mount, membership=tree.membership, directories=Refusing(number))
    with pytest.raises(CgroupsUnavailableError, match=words) as raised:
        await port.delegate()
    assert os.strerror(number) in str(raised.value)


async def test_cgroup_v1_is_none_that_can_be_divided(tree):
    (tree.mount / "cgroup.controllers").unlink()
    with pytest.raises(CgroupsUnavailableError, match="no cgroup v2"):
        await tree.port.delegate()


@pytest.mark.parametrize("lines", ["", "4:memory:/pod\n", "0::/../other\n", "1:name=systemd:/\n0:cpu:/x\n"])
async def test_who_is_in_no_cgroup_below_the_mount_has_none(tree, lines):
    tree.membership.write_text(lines)
    with pytest.raises(CgroupsUnavailableError, match="names no cgroup v2"):
        await tree.port.delegate()


async def test_the_root_of_the_machine_is_nobodys_own(tree):
    (tree.own / "cgroup.events").unlink()
    with pytest.raises(CgroupsUnavailableError, match="root of the machine"):
        await tree.port.delegate()


@pytest.mark.parametrize(("stranger", "words"), [(1, "process 1 "), (0, "another PID namespace")])
async def test_a_cgroup_with_somebody_else_in_it_is_somebody_elses(tree, stranger, words, monkeypatch):
    monkeypatch.setattr(os, "getppid", lambda: 2)  # an init of ours it would be, had it started us
    (tree.own / "cgroup.procs").write_text(f"{os.getpid()}\n{stranger}\n")
    with pytest.raises(CgroupsUnavailableError, match=words):
        await tree.port.delegate()
    assert not (tree.own / "greenroom").exists()


async def test_one_of_ours_that_ends_while_we_look_is_nobody_else(tree, monkeypatch):
    procs, real, gone = tree.own / "cgroup.procs", cgroup_files.processes, NO_SUCH_PID

    def processes(path):
        found = real(path)
        if path != procs.parent or gone not in found:
            return found
        procs.write_text("")  # it has ended, and whoever looks again sees nobody
        return found

    monkeypatch.setattr(cgroup_files, "processes", processes)
    for pid in (os.getpid(), 1):  # as somebody, and as the first process of a container
        procs.write_text(f"{gone}\n")
        monkeypatch.setattr(os, "getpid", lambda pid=pid: pid)
        assert (await tree.port.delegate()).actors == tree.own / "actors"


async def test_who_cannot_be_moved_out_of_the_way_within_some_passes_ends_the_try(tree):
    (tree.own / "cgroup.procs").write_text(f"{os.getpid()}\n")  # nothing moves in a recorded tree
    with pytest.raises(CgroupsUnavailableError, match="keep coming"):
        await tree.port.delegate()
    assert (tree.own / "greenroom" / "cgroup.procs").read_text() == str(os.getpid())


async def test_nothing_is_done_without_a_delegation(tree):
    with pytest.raises(RuntimeError, match="delegated"):
        await tree.port.names()


# ---- limits


async def test_limits_are_written_in_the_kernels_words_before_anything_can_be_in_it(tree, port):
    limits = CgroupLimits(cpu_quota_usec=50_000, cpu_weight=25, memory_bytes=1 << 30)
    await port.make("a1.x", leaves=("sandbox", "c-web"), limits=limits)
    cgroup = tree.actor("a1.x")
    names = ("cpu.max", "cpu.weight", "memory.max", "memory.oom.group")
    assert [(cgroup / name).read_text() for name in names] == ["50000 100000", "25", str(1 << 30), "1"]
    assert (cgroup / "sandbox").is_dir()
    assert (cgroup / "c-web").is_dir()


async def test_without_limits_nothing_is_written(tree, port):
    await port.make("a1.x", leaves=("sandbox",), limits=NO_LIMITS)
    cgroup = tree.actor("a1.x")
    assert [(cgroup / name).read_text() for name in ("cpu.max", "memory.max", "memory.oom.group")] == [
        "max 100000\n", "max\n", "0\n",
    ]  # fmt: skip


async def test_a_limit_whose_controller_is_off_is_not_laid(tmp_path):
    tree = RecordedTree(tmp_path / "cgroup", controllers=("cpu",))
    port = tree.port
    await port.delegate()
    await port.make("a1.x", leaves=(), limits=CgroupLimits(memory_bytes=1 << 30, cpu_quota_usec=1000))
    assert (tree.actor("a1.x") / "cpu.max").read_text() == "1000 100000"
    assert not (tree.actor("a1.x") / "memory.max").exists()


async def test_a_half_made_one_is_undone(tree, port):
    def make(path):
        if path.name == "c-web":
            raise OSError(errno.ENOSPC, "No space left on device", str(path))
        RecordedTree.make(tree, path)

    tree.make = make
    with pytest.raises(OSError, match="No space left"):
        await port.make("a1.x", leaves=("sandbox", "c-web"), limits=NO_LIMITS)
    assert await port.names() == ()


async def test_one_whose_limit_the_kernel_refuses_is_not_made_at_all(port, monkeypatch):
    def write(path, text):
        raise OSError(errno.EINVAL, "Invalid argument", str(path))

    monkeypatch.setattr(cgroup_files, "write", write)
    with pytest.raises(OSError, match="Invalid argument"):
        await port.make("a1.x", leaves=("sandbox",), limits=CgroupLimits(memory_bytes=1))
    assert await port.names() == ()


# ---- numbers


NUMBERS = {
    "cpu.stat": "usage_usec 8737\nuser_usec 8000\nnr_periods 9\nnr_throttled 3\nthrottled_usec 12000\n",
    "memory.current": "73400320\n",
    "memory.peak": "104857600\n",
    "memory.stat": "anon 4096\nfile 20971520\ninactive_file 10485760\n",
    "memory.events": "low 0\nhigh 0\nmax 4\noom 1\noom_kill 2\noom_group_kill 1\n",
}
MEASURED = CgroupUsage(
    cpu_usec=8737, throttled_periods=3, throttled_usec=12000, memory_bytes=73400320, memory_peak_bytes=104857600,
    working_set_bytes=62914560, oom_kills=2, processes=3,
)  # fmt: skip


@pytest.fixture
async def used(tree, port):
    await port.make("a1.x", leaves=("sandbox", "c-web"), limits=NO_LIMITS)
    cgroup = tree.actor("a1.x")
    for name, text in NUMBERS.items():
        (cgroup / name).write_text(text)
    (cgroup / "sandbox" / "cgroup.procs").write_text("101\n102\n")
    (cgroup / "c-web" / "cgroup.procs").write_text("103\n")
    return cgroup


async def test_usage_is_that_of_all_leaves_together(used, port):
    assert await port.usage("a1.x") == MEASURED


async def test_what_an_older_kernel_or_a_missing_controller_does_not_tell_is_none_and_not_zero(used, port):
    (used / "memory.peak").unlink()
    found = await port.usage("a1.x")
    assert (found.memory_peak_bytes, found.memory_bytes) == (None, 73400320)
    for name in NUMBERS:
        (used / name).unlink(missing_ok=True)
    assert await port.usage("a1.x") == CgroupUsage(processes=3)


@pytest.mark.parametrize(("name", "text"), [("memory.current", "much\n"), ("cpu.stat", "usage_usec a lot\n")])
async def test_a_file_that_cannot_be_read_is_an_error_and_no_number(used, port, name, text):
    (used / name).write_text(text)
    with pytest.raises(OSError, match="holds"):
        await port.usage("a1.x")


async def test_what_is_not_there_has_no_usage(port):
    with pytest.raises(FileNotFoundError):
        await port.usage("a1.x")


# ---- the end


async def test_one_that_is_not_empty_in_time_is_told_and_left(tree, port):
    await port.make("a1.x", leaves=("sandbox",), limits=NO_LIMITS)
    (tree.actor("a1.x") / "cgroup.events").write_text("populated 1\nfrozen 0\n")
    with pytest.raises(TimeoutError):
        await port.remove("a1.x", deadline_s=2)
    assert (tree.actor("a1.x") / "cgroup.kill").read_text() == "1"
    assert await port.names() == ("a1.x",)


async def test_nothing_is_killed_where_nothing_lives(tree, port):
    await port.make("a1.x", leaves=("sandbox",), limits=NO_LIMITS)
    killed = []

    def remove(path):
        killed.append((path / "cgroup.kill").read_text())
        RecordedTree.remove(tree, path)

    tree.remove = remove
    await port.remove("a1.x", deadline_s=30)
    assert (killed, await port.names()) == (["", ""], ())
    await port.remove("a1.x", deadline_s=30)


@pytest.mark.parametrize("name", ["../a1.x", "a/b", ".", ".hidden"])
async def test_no_name_leads_out_of_the_actors(port, name):
    for act in (
        lambda: port.make(name, leaves=(), limits=NO_LIMITS),
        lambda: port.remove(name, deadline_s=1),
        lambda: port.usage(name),
    ):
        with pytest.raises(ValueError, match="no name of a cgroup"):
            await act()


async def test_many_are_read_beside_each_other_and_the_loop_goes_on(used, port):
    beats = 0

    async def beat():
        nonlocal beats
        while True:
            await anyio.lowlevel.checkpoint()
            beats += 1

    async with anyio.create_task_group() as group:
        group.start_soon(beat)
        for _ in range(50):
            assert await port.usage("a1.x") == MEASURED
        group.cancel_scope.cancel()
    assert beats > 50


def test_the_place_of_the_mount_is_the_usual_one():
    assert HostCgroups()._mount == Path("/sys/fs/cgroup")
