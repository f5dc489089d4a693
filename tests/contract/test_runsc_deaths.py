"""Deaths, hangs and deletions, filestores and nvproxy, held against the model, the fake program and the real binary."""

import signal

import anyio
import pytest

from actors.ports import DeadlineExceededError
from tests.contract.benches import COUNT, DEFAULT_OVERLAY
from tests.contract.faces import on
from tests.contract.images import restored, saved

# -------------------------------------------------------------------------------------------------------------- deaths


def test_a_killed_sandbox_takes_all_with_it_and_every_command_says_so(face):
    @on(face)
    async def _(bench):
        await bench.up(c1=COUNT)
        pid, gofer = await bench.pid(), await bench.gofer("c1")
        async with anyio.create_task_group() as group:
            said = {}

            async def ask(*argv):
                said[argv[:2]] = await bench.run(*argv)

            for argv in (("wait", "c1"), ("wait", "sb"), ("exec", "c1", "sleep", "1000")):
                group.start_soon(ask, *argv)
            await bench.blocks("wait", "c1")
            await bench.kill(pid)
        assert said["wait", "c1"].error == 'waiting on container "c1": urpc method "containerManager.Wait" failed: EOF'
        assert said["wait", "sb"].error == (
            'waiting on container "sb": sandbox no longer running and its exit status is unavailable'
        )
        assert said["exec", "c1"].error.startswith("waiting on pid ")
        assert 'urpc method "containerManager.WaitPID" failed: EOF' in said["exec", "c1"].error
        assert not await bench.is_running(gofer)
        assert await bench.statuses("sb", "c1") == ["stopped", "stopped"]
        refused = f"connecting to control server at PID {pid}: connection refused"
        assert await bench.fails("wait", "c1") == f'waiting on container "c1": {refused}'
        assert await bench.fails("kill", "c1", "KILL") == "sandbox is not running"
        assert await bench.fails("pause", "sb") == 'pause failed: cannot pause container "sb" in state stopped'
        assert await bench.fails("ps", "c1") == (
            f"getting processes for container: retrieving process data from sandbox: {refused}"
        )
        bundle = await bench.bundle("c9", "true")
        assert await bench.fails("create", f"--bundle={bundle}", "c9") == (
            f'creating container: cannot create subcontainer: creating sub-container "c9": {refused}'
        )
        await bench.ok("delete", "c1")
        await bench.ok("delete", "sb")
        assert not [name for name in await bench.names() if name.endswith(".state")]


def test_a_paused_sandbox_that_died_is_still_called_paused(face):
    @on(face)
    async def _(bench):
        await bench.up(c1=COUNT)
        await bench.ok("pause", "sb")
        pid = await bench.pid()
        await bench.kill(pid)
        document = (await bench.ok("state", "sb")).document()
        assert (document["status"], document["pid"]) == ("paused", pid)
        assert await bench.status("c1") == "stopped"


def test_sigterm_to_the_sandboxs_process_ends_it_with_143(face):
    @on(face)
    async def _(bench):
        await bench.up(c1=COUNT)
        sandbox = await bench.processes.adopt(await bench.pid())
        sandbox.signal(signal.SIGTERM)
        assert (await sandbox.wait()).code == 143
        sandbox.close()
        assert await bench.statuses("sb", "c1") == ["stopped", "stopped"]


def test_a_killed_gofer_is_the_end_of_its_container_and_the_roots_of_all(face):
    @on(face)
    async def _(bench):
        await bench.up(c1=COUNT, c2=COUNT)
        await bench.kill(await bench.gofer("c1"))
        await bench.ended("c1")
        assert (await bench.ok("wait", "c1")).document()["exitStatus"] == 137
        assert await bench.statuses("sb", "c2") == ["running", "running"]
        await bench.kill(await bench.gofer("sb"))
        await bench.ended("sb")
        assert await bench.status("c2") == "stopped"


def test_a_killed_gofer_of_a_restored_container_is_missed_by_nobody(face):
    @on(face)
    async def _(bench):
        image, _ = await saved(bench)
        fresh = await restored(bench, image, "c1", "c2")
        for name in ("c1", "s2"):
            await fresh.kill(await fresh.gofer(name))
        await fresh.blocks("wait", "c1")
        await fresh.counted("c1", len(await fresh.lines("c1")) + 3)
        assert await fresh.statuses("s2", "c1", "c2") == ["running"] * 3
        assert (await fresh.run("exec", "c1", "true")).code == 0
        await fresh.ok("kill", "c1", "TERM")
        assert (await fresh.ok("wait", "c1")).document()["exitStatus"] == 143


@pytest.mark.parametrize("name", ["s2", "c1"])
def test_a_restore_is_not_completed_once_a_gofer_was_killed(face, name):
    @on(face)
    async def _(bench):
        image, _ = await saved(bench)
        fresh = await restored(bench, image, "c1")
        await fresh.kill(await fresh.gofer(name))
        assert await fresh.statuses("s2", "c1") == ["running", "running"]
        said = await fresh.restore("c2", image)
        assert (said.code, said.error.endswith(": input/output error")) == (128, True)


HUNG = [
    ("state", "c1"),
    ("list", "--format=json"),
    ("kill", "c1", "KILL"),
    ("wait", "c1"),
    ("exec", "c1", "true"),
    ("pause", "sb"),
    ("delete", "-force", "c1"),
]


def test_a_hung_sandbox_holds_up_every_command_until_it_is_killed(face):
    @on(face)
    async def _(bench):
        await bench.up(c1=COUNT)
        pid = await bench.pid()
        bench.send(pid, signal.SIGSTOP)
        for argv in HUNG:
            await bench.blocks(*argv, for_s=0.3)
        assert (await bench.ok("list", "-quiet")).stdout == "c1\nsb\n"
        async with anyio.create_task_group() as group:
            said = []

            async def checkpoint():
                said.append(await bench.run("checkpoint", f"--image-path={bench.image()}", "--leave-running", "sb"))

            group.start_soon(checkpoint)
            with pytest.raises(DeadlineExceededError):
                await bench.run("state", "c1", deadline_s=0.3)
            await bench.kill(pid)
        # `connection refused` or `state stopped`: whether it had loaded its container by then.
        assert [each.code for each in said] == [128]


# ----------------------------------------------------------------------------------------------------------- deletions


def test_a_living_container_is_deleted_by_force_only(face):
    @on(face)
    async def _(bench):
        await bench.up(c1=COUNT, c2=COUNT)
        assert await bench.fails("delete", "c1") == "cannot delete container that is not stopped without --force flag"
        await bench.ok("delete", "-force", "c1")
        assert await bench.statuses("sb", "c2") == ["running", "running"]
        pid = await bench.pid()
        await bench.ok("delete", "-force", "sb")
        assert not await bench.is_running(pid)
        assert await bench.names() == {"c2_sandbox:sb.state", "c2_sandbox:sb.lock"}
        await bench.ok("delete", "c2")
        assert await bench.names() == set()


def test_what_was_only_created_is_deleted_without_force(face):
    @on(face)
    async def _(bench):
        await bench.create("sb", "sleep", "10000")
        await bench.create("c1", "sleep", "10000")
        await bench.ok("delete", "c1")
        pid = await bench.pid()
        await bench.ok("delete", "sb")
        assert not await bench.is_running(pid)
        assert await bench.names() == set()


def test_a_missing_id_ends_a_forced_delete_well_and_skips_the_rest(face):
    @on(face)
    async def _(bench):
        await bench.up(c1=COUNT)
        assert await bench.fails("delete", "nope") == 'loading container "nope": file does not exist'
        await bench.ok("delete", "-force", "nope", "c1")
        assert await bench.status("c1") == "running"
        await bench.ok("delete", "-force", "c1", "nope", "sb")
        assert await bench.status("sb") == "running"


# ----------------------------------------------------------------------------------------- filestores, nvproxy, killing


def test_the_default_overlay_puts_a_file_into_each_rootfs_that_only_delete_takes_away(face):
    @on(face)
    async def _(bench):
        bench.flags = DEFAULT_OVERLAY
        roots = {name: await bench.own_rootfs(name) for name in ("sb", "c1")}
        await bench.start("sb", "sleep", "10000", root={"path": roots["sb"]})
        await bench.start("c1", "sh", "-c", COUNT, root={"path": roots["c1"]})
        for rootfs in roots.values():
            assert ".gvisor.filestore.sb" in await bench.names(rootfs)
        await bench.create("c2", "sleep", "10000", root={"path": roots["c1"]})
        again = (
            f'"{roots["c1"]}" mount source already has a filestore file at "{roots["c1"]}/.gvisor.filestore.sb"; '
            "repeated submounts are not supported with overlay optimizations"
        )
        assert await bench.fails("start", "c2") == f"starting container: {again}"
        await bench.ok("delete", "-force", "c1")
        assert ".gvisor.filestore.sb" not in await bench.names(roots["c1"])
        await bench.kill(await bench.pid())
        assert ".gvisor.filestore.sb" in await bench.names(roots["sb"])
        fresh = bench.elsewhere("sb")
        bundle = await fresh.bundle("sb", "sleep", "10000", root={"path": roots["sb"]})
        assert "already has a filestore file" in await fresh.fails("create", f"--bundle={bundle}", "sb")


def test_in_memory_two_containers_share_a_rootfs_and_leave_nothing_in_it(face):
    @on(face)
    async def _(bench):
        rootfs = await bench.own_rootfs("shared")
        before = await bench.names(rootfs)
        await bench.start("sb", "sleep", "10000", root={"path": rootfs})
        for name in ("c1", "c2"):
            await bench.start(name, "sh", "-c", COUNT, root={"path": rootfs})
        await bench.kill(await bench.pid())
        assert await bench.names(rootfs) == before


def test_nvproxy_without_a_driver_fails_every_sandbox(face):
    @on(face)
    async def _(bench):
        bench.flags = (*bench.flags, "--nvproxy")
        bundle = await bench.bundle("sb", "sleep", "10000")
        assert await bench.fails("create", f"--bundle={bundle}", "sb") == (
            "creating container: cannot create sandbox: cannot create sandbox process: "
            "failed to get Nvidia driver version: failed to open /dev/nvidiactl: no such file or directory"
        )
        assert await bench.names() == set()
