"""Containers that end, and signals, held against the model, the fake program and the real binary."""

import anyio
import pytest

from tests.contract.benches import COUNT
from tests.contract.faces import on

# ---------------------------------------------------------------------------------------------------------------- ends


@pytest.mark.parametrize(
    ("script", "status"), [("true", 0), ("sleep 0.1; exit 7", 7), ("kill -9 $$", 137), ("kill -TERM $$", 143)]
)
def test_an_end_is_told_by_the_gofer_by_state_and_by_wait_any_number_of_times(face, script, status):
    @on(face)
    async def _(bench):
        await bench.up()
        await bench.create("c1", "sh", "-c", script)
        await bench.ok("start", "c1")
        gofer = await bench.gofer("c1")
        for _ in range(2):
            assert (await bench.ok("wait", "c1")).document() == {"id": "c1", "exitStatus": status}
        await bench.ended("c1")
        document = (await bench.ok("state", "c1")).document()
        assert (document["status"], document["pid"]) == ("stopped", -1)

        async def gofer_is_gone():
            return not await bench.is_running(gofer)

        await bench.until(gofer_is_gone)
        assert await bench.status("sb") == "running"


def test_what_is_asked_of_a_container_that_has_ended_is_refused(face):
    @on(face)
    async def _(bench):
        await bench.up(c1="exit 3")
        await bench.ended("c1")
        assert await bench.fails("kill", "c1", "TERM") == (
            'signaling container "c1": signaling process in container "c1" PID 0: no such process'
        )
        await bench.ok("kill", "-all", "c1", "KILL")
        assert await bench.fails("exec", "c1", "true") == (
            'executing processes for container: cannot execute in container "c1" in state stopped'
        )
        assert await bench.fails("pause", "c1") == 'pause failed: cannot pause container "c1" in state stopped'
        assert await bench.fails("start", "c1") == 'starting container: cannot start container "c1" in state stopped'
        assert len((await bench.ok("ps", "c1")).stdout.splitlines()) == 1
        said = await bench.run("events", "-stats", "c1")
        assert (said.code, said.stdout, said.stderr, said.log) == (128, "", "", ())
        assert await bench.fails("checkpoint", f"--image-path={bench.image()}", "c1") == (
            'checkpoint failed: cannot checkpoint container "c1" in state stopped'
        )


def test_a_container_is_deleted_and_made_again_in_a_living_sandbox(face):
    @on(face)
    async def _(bench):
        await bench.up(c1="exit 3")
        await bench.ended("c1")
        await bench.ok("delete", "c1")
        await bench.start("c1", "sh", "-c", "exit 5")
        assert (await bench.ok("wait", "c1")).document()["exitStatus"] == 5


@pytest.mark.parametrize(("name", "status"), [("TERM", 143), ("SIGTERM", 143), ("9", 137), ("INT", 130)])
def test_signals_are_named_with_or_without_sig_or_numbered(face, name, status):
    @on(face)
    async def _(bench):
        await bench.up(c1=COUNT)
        await bench.counted("c1", 1)
        await bench.ok("kill", "c1", name)
        assert (await bench.ok("wait", "c1")).document()["exitStatus"] == status


def test_a_signal_that_is_none_is_refused_and_so_is_0(face):
    @on(face)
    async def _(bench):
        await bench.up(c1=COUNT)
        for name in ("0", "FOO", "99"):
            assert await bench.fails("kill", "c1", name) == f'unknown signal "{name}"'


def test_a_shell_acts_on_a_trapped_signal_after_its_child(face):
    @on(face)
    async def _(bench):
        trap = 'trap "echo told; exit 6" TERM; echo up; while :; do sleep 0.02; done'
        await bench.up(c1=trap, c2='trap "" TERM; echo up; while :; do sleep 0.02; done')
        await bench.counted("c1", 1)
        await bench.counted("c2", 1)
        for name in ("c1", "c2"):
            await bench.ok("kill", name)
        assert (await bench.ok("wait", "c1")).document()["exitStatus"] == 6
        assert await bench.lines("c1") == ["up", "told"]
        await bench.blocks("wait", "c2")
        await bench.ok("kill", "c2", "KILL")
        assert (await bench.ok("wait", "c2")).document()["exitStatus"] == 137


def test_an_attached_run_ends_with_the_containers_status_and_leaves_nothing(face):
    @on(face)
    async def _(bench):
        await bench.up()
        bundle = await bench.bundle("c1", "sh", "-c", "exit 9")
        assert (await bench.run("run", f"--bundle={bundle}", "c1")).code == 9
        assert await bench.fails("state", "c1") == "loading container: file does not exist"


def test_the_end_of_the_root_ends_all_and_its_status_is_the_sandboxs(face):
    @on(face)
    async def _(bench):
        await bench.start("sb", "sh", "-c", "sleep 8; exit 7")
        await bench.start("c1", "sh", "-c", COUNT)
        sandbox = await bench.processes.adopt(await bench.pid())
        async with anyio.create_task_group() as group:
            said = {}

            async def wait(name):
                said[name] = await bench.run("wait", name)

            group.start_soon(wait, "sb")
            group.start_soon(wait, "c1")
        assert [said[name].document()["exitStatus"] for name in ("sb", "c1")] == [7, 137]
        assert (await sandbox.wait()).code == 7
        sandbox.close()
        assert await bench.statuses("sb", "c1") == ["stopped", "stopped"]


def test_signals_to_the_root_end_the_sandbox_with_its_status(face):
    @on(face)
    async def _(bench):
        await bench.up(c1=COUNT)
        sandbox = await bench.processes.adopt(await bench.pid())
        await bench.ok("kill", "sb", "TERM")
        assert (await sandbox.wait()).code == 143
        sandbox.close()
        assert await bench.fails("kill", "sb", "KILL") == "sandbox is not running"
        assert await bench.fails("kill", "c1", "KILL") == "sandbox is not running"
