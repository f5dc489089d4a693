"""Images that cannot be taken back, or should not be, held against the model, the fake program and the real binary."""

import anyio
import pytest

from tests.contract.benches import COUNT, DEFAULT_OVERLAY
from tests.contract.faces import on
from tests.contract.images import LIMBO, goes_on, restored, saved

# --------------------------------------------------------------------------------- what cannot, or can, be taken back


def test_with_memory_files_of_their_own_an_image_with_an_ended_container_is_lost(face):
    @on(face)
    async def _(bench):
        bench.flags = DEFAULT_OVERLAY
        roots = {name: {"root": {"path": await bench.own_rootfs(name)}} for name in ("sb", "c1", "c2")}
        await bench.start("sb", "sleep", "10000", **roots["sb"])
        await bench.start("c1", "sh", "-c", COUNT, **roots["c1"])
        await bench.start("c2", "sh", "-c", "exit 0", **roots["c2"])
        await bench.ended("c2")
        image = await bench.save()
        await bench.ok("delete", "-force", "c2", "c1", "sb")
        fresh = bench.elsewhere("s2")
        for name, like in (("s2", "sb"), ("c1", "c1")):
            called = "pause" if name == "s2" else name
            assert (await fresh.restore(name, image, called=called, **roots[like])).code == 0
        error = (await fresh.restore("c2", image, **roots["c2"])).error
        assert "inconsistent private memory files on restore" in error


@pytest.mark.parametrize("how", ["ended", "created"])
def test_in_memory_an_image_with_a_container_that_does_not_run_restores_and_lies_about_it(face, how):
    @on(face)
    async def _(bench):
        await bench.up(c1=COUNT)
        if how == "ended":
            await bench.start("c2", "sh", "-c", "exit 3")
            await bench.ended("c2")
        else:
            await bench.create("c2", "sh", "-c", COUNT)
        image = await bench.save(leave=False)
        fresh = await restored(bench, image, "c1", "c2")
        await fresh.counted("c1", 1)
        assert await fresh.statuses("s2", "c1", "c2") == ["running"] * 3
        assert await fresh.fails("wait", "c2") == 'waiting on container "c2": container "c2" not started'
        assert await fresh.fails("exec", "c2", "true") == LIMBO.replace("c1", "c2")
        assert await fresh.fails("delete", "c2") == "cannot delete container that is not stopped without --force flag"


def test_a_sandbox_that_was_only_created_is_saved_and_dies_of_its_restore(face):
    @on(face)
    async def _(bench):
        await bench.create("sb", "sleep", "10000")
        image = await bench.save()
        assert await bench.status("sb") == "created"
        fresh = bench.elsewhere("s2")
        error = (await fresh.restore("s2", image, called="pause")).error
        assert error == (
            'starting container: restoring container "s2": urpc method "containerManager.Restore" failed: EOF'
        )
        assert not [name for name in await fresh.names() if name.endswith(".state")]


@pytest.mark.parametrize("is_killed", [False, True])
def test_an_image_taken_while_a_command_is_executed_or_after_its_exec_was_killed_cannot_be_restored(face, is_killed):
    @on(face)
    async def _(bench):
        await bench.up(c1=COUNT)
        if is_killed:
            await bench.blocks("exec", "c1", "sleep", "1000")
            image = await bench.save()
        else:
            inside = bench.directory / "inside"
            async with anyio.create_task_group() as group:
                group.start_soon(bench.run, "exec", f"--internal-pid-file={inside}", "c1", "sleep", "1000")

                async def has_begun():
                    return await bench.files.stat(inside) is not None

                await bench.until(has_begun)
                image = await bench.save()
                group.cancel_scope.cancel()
        fresh = await restored(bench, image)
        assert "no host FD available for :host:" in (await fresh.restore("c1", image)).error


def test_an_image_taken_while_somebody_waits_is_good(face):
    @on(face)
    async def _(bench):
        await bench.up(c1=COUNT)
        await bench.counted("c1", 2)
        async with anyio.create_task_group() as group:
            group.start_soon(bench.run, "wait", "c1")
            await bench.blocks("wait", "c1")
            image = await bench.save()
            group.cancel_scope.cancel()
        fresh = await restored(bench, image, "c1")
        lines = await fresh.counted("c1", 2)
        assert int(lines[0]) >= 2
        assert goes_on(lines, int(lines[0]))


def test_a_container_that_a_command_could_not_start_in_spoils_every_image_after_it_is_deleted(face):
    @on(face)
    async def _(bench):
        await bench.up(c1=COUNT, c2=COUNT)
        await bench.fails("exec", "c1", "/nope")
        good = await bench.save("good")
        await bench.ok("kill", "c1", "KILL")
        await bench.ended("c1")
        await bench.ok("delete", "c1")
        spoilt = await bench.save("spoilt")
        fresh = await restored(bench, spoilt)
        error = (await fresh.restore("c2", spoilt)).error
        assert "no server FD available for filesystem with unique ID c1:/" in error
        await restored(bench, good, "c1", "c2", sandbox_id="s3")


# -------------------------------------------------------------------------------------------------------------- damage


def cut(data):
    return data[: len(data) // 2]


def flipped(data):
    middle = len(data) // 2
    return data[:middle] + bytes(byte ^ 0xFF for byte in data[middle : middle + 64]) + data[middle + 64 :]


def flipped_at(begin):
    return lambda data: data[:begin] + bytes(byte ^ 0xFF for byte in data[begin : begin + 64]) + data[begin + 64 :]


def emptied(data):
    return b""


AT_THE_ROOT = [
    ("checkpoint.img", None, "opening state file"),
    ("checkpoint.img", emptied, "statefile cannot be empty"),
    ("checkpoint.img", flipped_at(0), "reading metadata from statefile: bad magic header"),
    ("checkpoint.img", flipped_at(16), "reading metadata from statefile: invalid character"),
    ("pages_meta.img", None, "opening restore image file"),
]
AT_THE_LAST = [
    ("checkpoint.img", cut, "EOF"),
    ("checkpoint.img", flipped, "error decoding from"),
    ("pages.img", None, "header error: EOF"),
    ("pages.img", cut, "EOF"),
    ("pages.img", emptied, "EOF"),
    ("pages_meta.img", cut, "EOF"),
    ("pages_meta.img", emptied, "header error: EOF"),
]


async def damage(bench, path, how):
    if how is None:
        await bench.files.remove_file(path)
    else:
        await bench.rewrite(path, how)


@pytest.mark.parametrize(("name", "how", "text"), AT_THE_ROOT)
def test_a_damage_that_the_root_sees_fails_its_restore_and_leaves_nothing(face, name, how, text):
    @on(face)
    async def _(bench):
        image, _ = await saved(bench)
        await damage(bench, image / name, how)
        fresh = bench.elsewhere("s2")
        said = await fresh.restore("s2", image, called="pause")
        assert (said.code, text in said.error) == (128, True), said
        assert not [each for each in await fresh.names() if not each.endswith(".lock")]
        assert not await bench.processes.find_arguments(prefix=f"--root={fresh.root}")


@pytest.mark.parametrize(("name", "how", "text"), AT_THE_LAST)
def test_a_damage_that_only_the_last_restore_sees_leaves_the_others_in_limbo(face, name, how, text):
    @on(face)
    async def _(bench):
        image, _ = await saved(bench)
        await damage(bench, image / name, how)
        fresh = await restored(bench, image, "c1")
        said = await fresh.restore("c2", image)
        assert (said.code, text in said.error) == (128, True), said
        assert await fresh.statuses("s2", "c1") == ["running", "running"]
        assert await fresh.fails("state", "c2") == "loading container: file does not exist"
        assert await fresh.is_running(await fresh.pid())


def test_damaged_pages_are_not_noticed_by_anybody(face):
    @on(face)
    async def _(bench):
        image, _ = await saved(bench)
        await damage(bench, image / "pages.img", flipped)
        fresh = await restored(bench, image, "c1", "c2")
        if bench.kind != "real":  # what becomes of a real one depends on which of its pages it was
            await fresh.ended("c1")
            assert (await fresh.ok("wait", "c1")).document()["exitStatus"] == 139


@pytest.mark.parametrize("how", [cut, flipped])
def test_a_damaged_flate_image_fails_the_last_restore(face, how):
    @on(face)
    async def _(bench):
        image, _ = await saved(bench, compression="flate-best-speed")
        await damage(bench, image / "checkpoint.img", how)
        fresh = await restored(bench, image, "c1")
        assert (await fresh.restore("c2", image)).code == 128
