"""What a pod has at the paths of a spec, as the judges of specs are told it."""

import errno
from pathlib import Path

import pytest

from actors.cdi import ContainerEdits, Device, DeviceNode, HostNode, Mount, Spec
from actors.gpu.host_look import host_node, look_at, look_at_nodes
from actors.ports import FileKind, FileStat
from sim.world import scenery
from sim.world.nodes import Special
from tests.gpu.pods import Pod

pytestmark = pytest.mark.anyio


async def test_each_kind_of_file_is_the_node_that_it_is_or_none():
    pod = Pod()
    dev = Path("/dev")
    scenery.put_special(pod.disk, dev / "fifo", Special.FIFO)
    scenery.put_file(pod.disk, dev / "file")
    scenery.put_directory(pod.disk, dev / "directory")
    scenery.put_symlink(pod.disk, dev / "link", "nvidia2")
    names = ("nvidia2", "fifo", "file", "directory", "link", "absent")
    found = await look_at_nodes(pod.files, [str(dev / name) for name in names])
    assert [found[str(dev / name)] for name in names] == [
        HostNode(type="c", major=195, minor=2, mode=0o666),
        *[HostNode(type="")] * 4,
        None,
    ]


async def test_a_path_that_is_none_or_that_nobody_may_look_at_is_absent():
    class Denied:
        async def lstat_each(self, paths):
            if Path("/dev/denied") in paths:
                raise PermissionError(errno.EACCES, "Permission denied")
            return await Pod().files.lstat_each(paths)

    found = await look_at_nodes(Denied(), ["/dev/nvidia2", "/dev/denied"])  # type: ignore[arg-type]  # all it needs
    assert (found["/dev/nvidia2"], found["/dev/denied"]) == (HostNode(type="c", major=195, minor=2, mode=0o666), None)
    assert await look_at_nodes(Pod().files, ["dev/nvidia2", "/dev/\0"]) == {"dev/nvidia2": None, "/dev/\0": None}


async def test_nodes_are_looked_at_where_the_host_has_them_and_mounts_through_links():
    pod = Pod()
    edits = ContainerEdits(
        device_nodes=(DeviceNode(path="/dev/nvidia9", host_path="/dev/nvidia2"),),
        mounts=(
            Mount(host_path="/usr/lib64/libcuda.so.1", container_path="/a"),
            Mount(host_path="/usr/lib64/libabsent.so.1", container_path="/b"),
        ),
    )
    common = ContainerEdits(device_nodes=(DeviceNode(path="/dev/nvidiactl"),))
    devices = (Device(name="0", container_edits=edits),)
    spec = Spec(cdi_version="0.5.0", kind="nvidia.com/gpu", devices=devices, container_edits=common)
    look = await look_at(pod.files, spec)
    assert [look.lstat(path) is None for path in ("/dev/nvidia2", "/dev/nvidiactl", "/dev/nvidia9")] == [
        *(False, False),
        True,
    ]
    assert look.exists("/usr/lib64/libcuda.so.1")
    assert not look.exists("/usr/lib64/libabsent.so.1")


@pytest.mark.parametrize(("kind", "type_"), [(FileKind.CHARACTER_DEVICE, "c"), (FileKind.OTHER, "b")])
def test_a_device_that_is_no_character_device_is_a_block_device(kind, type_):
    stat = FileStat(kind=kind, size_bytes=0, mode=0o660, inode=1, mtime_ns=0, device=(8, 1))
    assert host_node(stat) == HostNode(type=type_, major=8, minor=1, mode=0o660)
