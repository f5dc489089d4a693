"""Where a runsc of today differs from the measured one: held against the model and the fake program only.

Source: gVisor 3eee17d of 2026-08-21, read and not run.
"""

import pytest

from tests.contract.benches import COUNT
from tests.contract.faces import on
from tests.contract.images import restored, saved


def test_an_id_that_exists_is_refused_and_nothing_is_lost(head):
    @on(head)
    async def _(bench):
        await bench.up(c1=COUNT)
        bundle = str(bench.bundle_path("c1"))
        assert await bench.fails("create", f"--bundle={bundle}", "c1") == (
            "creating container: cannot lock container metadata file: container already exists"
        )
        assert await bench.status("c1") == "running"


def test_a_missing_id_is_told_by_the_fetch_of_its_spec(head):
    @on(head)
    async def _(bench):
        assert await bench.fails("state", "c1") == "FetchSpec failed: loading container: file does not exist"


def test_nothing_is_compressed_unless_asked_for(head):
    @on(head)
    async def _(bench):
        await bench.up()
        await bench.ok("checkpoint", f"--image-path={bench.image()}", "--leave-running", "sb")
        assert await bench.names(bench.image()) == {"checkpoint.img", "pages_meta.img", "pages.img"}


def test_a_host_network_can_be_saved(head):
    @on(head)
    async def _(bench):
        bench.flags = (*bench.flags, "--network=host")
        await bench.up()
        image = await bench.save()
        assert "checkpoint.img" in await bench.names(image)


def test_a_restore_takes_the_background_flag(head):
    @on(head)
    async def _(bench):
        await bench.up()
        image = await bench.save(leave=False)
        fresh = bench.elsewhere("s2")
        bundle = await fresh.bundle("s2", "sleep", "10000", called="pause")
        await fresh.ok("restore", f"--bundle={bundle}", f"--image-path={image}", "--background", "--detach", "s2")
        assert await fresh.status("s2") == "running"


def test_a_restore_wants_the_identical_version(head):
    @on(head)
    async def _(bench):
        image, _ = await saved(bench)
        bench.runsc = bench.another("release-20261001.0")
        fresh = bench.elsewhere("s2")
        error = (await fresh.restore("s2", image, called="pause")).error
        assert "runsc version does not match across checkpoint restore" in error


MOUNT = {"destination": "/data", "type": "tmpfs", "source": "tmpfs"}
GPU = {"path": "/dev/nvidia0", "type": "c", "major": 195, "minor": 0}
CONTROL = {"path": "/dev/nvidiactl", "type": "c", "major": 195, "minor": 255}
PROC = {"destination": "/proc", "type": "proc", "source": "proc"}
DIFFERENT = [
    ("Args", {"process": {"args": ["/other/sh", "-c", "other"]}}),
    ("Cwd", {"process": {"cwd": "/tmp"}}),
    ("User", {"process": {"user": {"uid": 1, "gid": 0}}}),
    ("Mounts", {"mounts": [PROC, MOUNT]}),
    ("Root.Readonly", {"root": {"path": "/rootfs", "readonly": True}}),
    ("Namespaces", {"linux": {"namespaces": [{"type": "pid"}]}}),
    ("Devices", {"linux": {"namespaces": [], "devices": [CONTROL]}}),
]
FREE = [
    {"process": {"args": ["/other/sh", "-c", COUNT]}},
    {"process": {"env": ["PATH=/bin", "X=1"]}, "hostname": "other"},
    {"mounts": [{**PROC, "source": "elsewhere"}]},
]


@pytest.mark.parametrize(("field", "more"), DIFFERENT, ids=[field for field, _ in DIFFERENT])
def test_a_spec_of_another_shape_fails_the_restore_and_is_named(head, field, more):
    @on(head)
    async def _(bench):
        spec = {**more, "root": {**more.get("root", {}), "path": bench.rootfs}}
        if field == "Devices":
            spec["linux"] = {**spec["linux"], "namespaces": [{"type": kind} for kind in NAMESPACES]}
        image, _ = await saved(bench)
        fresh = await restored(bench, image, "c2")
        error = (await fresh.restore("c1", image, **spec)).error
        assert f'"{field}" does not match across checkpoint restore for container' in error


NAMESPACES = ("pid", "ipc", "uts", "mount", "network")


@pytest.mark.parametrize("more", FREE, ids=["basename", "environment", "sources"])
def test_what_is_free_may_differ(head, more):
    @on(head)
    async def _(bench):
        image, _ = await saved(bench)
        fresh = await restored(bench, image, "c2")
        assert (await fresh.restore("c1", image, **more)).code == 0


def test_a_gpu_may_be_another_one_after_the_restore(head):
    @on(head)
    async def _(bench):
        devices = {"linux": {"namespaces": [], "devices": [CONTROL, GPU]}}
        await bench.up()
        await bench.start("c1", "sh", "-c", COUNT, **devices)
        image = await bench.save(leave=False)
        fresh = await restored(bench, image)
        other = {"linux": {"namespaces": [], "devices": [CONTROL, {**GPU, "path": "/dev/nvidia3", "minor": 3}]}}
        assert (await fresh.restore("c1", image, **other)).code == 0


def test_after_a_failed_restore_everything_is_stopped(head):
    @on(head)
    async def _(bench):
        image, _ = await saved(bench)
        await bench.files.remove_file(image / "pages.img")
        await bench.files.remove_file(image / "pages_meta.img")
        fresh = await restored(bench, image, "c1")
        assert (await fresh.restore("c2", image)).code == 128
        assert await fresh.statuses("s2", "c1") == ["stopped", "stopped"]


def test_an_image_taken_while_a_command_is_executed_restores(head):
    @on(head)
    async def _(bench):
        await bench.up(c1=COUNT)
        await bench.blocks("exec", "c1", "sleep", "1000")
        image = await bench.save()
        fresh = await restored(bench, image, "c1")
        assert (await fresh.ok("ps", "-format", "json", "c1")).document() == [2]
