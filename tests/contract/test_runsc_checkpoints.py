"""Checkpoints, held against the model, the fake program and the real binary."""

import anyio

from tests.contract.benches import COUNT
from tests.contract.faces import on
from tests.contract.images import goes_on

# --------------------------------------------------------------------------------------------------------- checkpoints


def test_without_compression_there_are_three_files_and_with_flate_which_is_the_default_one(face):
    @on(face)
    async def _(bench):
        await bench.up(c1=COUNT)
        plain = await bench.save("plain")
        assert await bench.names(plain) == {"checkpoint.img", "pages_meta.img", "pages.img"}
        for name in await bench.names(plain):
            stat = await bench.files.stat(plain / name)
            assert stat.size_bytes > 0
            assert stat.mode & 0o777 == 0o644
        flate = bench.image("deep/flate")
        await bench.ok("checkpoint", f"--image-path={flate}", "--leave-running", "c1")
        assert await bench.names(flate) == {"checkpoint.img"}
        assert (await bench.files.read(flate / "checkpoint.img", limit_bytes=1 << 26)).startswith(b"gVisorSF")


def test_a_checkpoint_that_leaves_the_sandbox_running_keeps_it_as_it_was(face):
    @on(face)
    async def _(bench):
        await bench.up(c1=COUNT)
        await bench.save("running")
        lines = await bench.lines("c1")
        await bench.counted("c1", len(lines) + 3)
        await bench.ok("pause", "sb")
        await bench.save("frozen")
        assert await bench.statuses("sb", "c1") == ["paused", "running"]
        before = await bench.lines("c1")
        await bench.blocks("wait", "c1")
        assert await bench.lines("c1") == before
        await bench.ok("resume", "sb")
        assert goes_on(await bench.counted("c1", len(before) + 3))


def test_a_checkpoint_that_does_not_ends_the_sandbox_with_0_and_who_waited_is_told_0(face):
    @on(face)
    async def _(bench):
        await bench.up(c1=COUNT)
        pid = await bench.pid()
        sandbox = await bench.processes.adopt(pid)
        async with anyio.create_task_group() as group:
            said = []

            async def wait():
                said.append(await bench.run("wait", "c1"))

            group.start_soon(wait)
            await bench.blocks("wait", "c1")
            await bench.save(leave=False)
        assert [each.document()["exitStatus"] for each in said] == [0]
        assert (await sandbox.wait()).code == 0
        sandbox.close()
        assert await bench.statuses("sb", "c1") == ["stopped", "stopped"]
        assert await bench.fails("wait", "sb") == (
            'waiting on container "sb": sandbox no longer running and its exit status is unavailable'
        )
        await bench.ok("delete", "sb")
        await bench.ok("delete", "c1")


def test_a_checkpoint_where_there_is_one_already_fails_and_harms_nothing(face):
    @on(face)
    async def _(bench):
        await bench.up(c1=COUNT)
        assert await bench.fails("checkpoint", "sb") == "image-path flag must be provided"
        image = await bench.save()
        state = f"{image}/checkpoint.img"
        assert await bench.fails("checkpoint", f"--image-path={image}", "sb") == (
            f'checkpoint failed: creating checkpoint state file "{state}": open {state}: file exists'
        )
        half = bench.image("half")
        await bench.files.make_directory(half)
        await bench.files.replace(half / "pages.img", b"x")
        assert "file exists" in await bench.fails("checkpoint", f"--image-path={half}", "--compression=none", "sb")
        assert await bench.names(half) == {"checkpoint.img", "pages_meta.img", "pages.img"}
        said = await bench.run("checkpoint", f"--image-path={bench.image('x')}", "--compression=zip", "sb")
        assert (said.code, said.log) == (128, ())
        below = half / "pages.img"
        assert await bench.fails("checkpoint", f"--image-path={below}", "sb") == (
            f"making directories at path provided: mkdir {below}: not a directory"
        )
        assert await bench.statuses("sb", "c1") == ["running", "running"]


def test_a_host_network_cannot_be_saved(face):
    @on(face)
    async def _(bench):
        bench.flags = (*bench.flags, "--network=host")
        await bench.up()
        assert await bench.fails("checkpoint", f"--image-path={bench.image()}", "sb") == (
            'checkpoint failed: checkpointing container "sb": checkpoint not supported when using hostinet'
        )
        assert await bench.status("sb") == "running"
