"""Real sandboxes in real gVisor: started, looked into, saved, restored."""

import json
import os
from functools import partial

import anyio
import attrs
import pytest

from actors.assignment import Resources
from actors.runsc.activation import start_cold
from actors.runsc.answers import Status
from actors.runsc.driver import Deadlines
from actors.runsc.record import read_record
from statemachine.problem import ProblemError
from statemachine.reasons import Reason
from tests.actors.stage import fingerprint, open_stage, wait_until
from tests.disks import small_disk

pytestmark = [pytest.mark.anyio, pytest.mark.runsc]

TRIES = 6
"""Of what has to come at a moment that a busy machine may miss."""


@pytest.fixture
def anyio_backend():
    return "asyncio"


def counted(lines):
    return lines == [str(number) for number in range(len(lines))]


async def test_two_containers_and_pause_share_one_rootfs_and_each_writes_its_own_log(tmp_path, rootfs):
    before = fingerprint(rootfs)
    writes = ("sh", "-c", "echo from-c2 > /tmp/c2; ls /tmp; exec sleep 60")
    async with open_stage(tmp_path, rootfs) as stage:
        sandbox = await stage.start(stage.container("c1"), stage.container("c2", writes))
        assert counted(await stage.wait_for_lines("c1", 5))
        assert await stage.wait_for_lines("c2", 1) == ["c2"]
        states = [await sandbox.inspect(name) for name in ("pause", "c1", "c2")]
        assert [(state.status, state.pid) for state in states] == [(Status.RUNNING, sandbox.process.identity.pid)] * 3
        assert set(sandbox.gofers) == {"pause", "c1", "c2"}
        assert await read_record(stage.ports.files, sandbox.runsc.activation) == sandbox.record
        assert not list(sandbox.runsc.activation.glob("*-*.log"))
        await stage.end(sandbox)
        assert stage.left() == []
    assert fingerprint(rootfs) == before


async def test_an_actor_goes_on_in_a_fresh_sandbox_exactly_where_it_was_saved(tmp_path, rootfs):
    async with open_stage(tmp_path, rootfs) as stage:
        containers = stage.container("c1"), stage.container("c2")
        sandbox = await stage.start(*containers)
        for life in range(1, 4):
            for name in ("c1", "c2"):
                await stage.wait_for_lines(name, 6 * life)
            image = await stage.suspend(sandbox, f"s{life}")
            assert stage.left() == []
            saved = {name: stage.lines(name) for name in ("c1", "c2")}
            sandbox = await stage.restore(image, *reversed(containers))
            for name, lines in saved.items():
                assert counted(await stage.wait_for_lines(name, len(lines) + 3))
        await stage.end(sandbox)


async def test_a_frozen_sandbox_stands_still_and_answers_until_it_is_thawed(tmp_path, rootfs):
    async with open_stage(tmp_path, rootfs) as stage:
        sandbox = await stage.start(stage.container("c1"))
        await stage.wait_for_lines("c1", 3)
        await sandbox.freeze()
        frozen = stage.lines("c1")
        # Each question takes runsc longer than a counter takes to count.
        for _ in range(5):
            assert (await sandbox.inspect("c1")).status is Status.RUNNING
        assert stage.lines("c1") == frozen
        await sandbox.thaw()
        assert counted(await stage.wait_for_lines("c1", len(frozen) + 3))
        await stage.end(sandbox)


@pytest.mark.parametrize("command", ["/bin/nope", "nope"])
async def test_a_command_that_does_not_exist_is_named(tmp_path, rootfs, command):
    async with open_stage(tmp_path, rootfs) as stage:
        runsc, plan = await stage.plan(stage.container("c1"), stage.container("c2", (command, "hunter2")))
        with pytest.raises(ProblemError) as failed:
            await start_cold(runsc, plan)
        problem = failed.value.problem
        assert (problem.reason, problem.subject) == (Reason.COMMAND_NOT_FOUND, "c2")
        assert repr(command) in problem.message


async def test_a_rootfs_that_does_not_exist_is_refused_before_anything_runs(tmp_path, rootfs):
    async with open_stage(tmp_path, rootfs) as stage:
        with pytest.raises(ProblemError) as refused:
            await stage.plan(stage.container("c1", path=tmp_path / "nowhere"))
        assert refused.value.problem.reason is Reason.ROOTFS_NOT_FOUND


async def test_a_rootfs_that_vanishes_after_that_is_runscs_failure(tmp_path, rootfs):
    vanishing = tmp_path / "vanishing"
    vanishing.mkdir()
    async with open_stage(tmp_path, rootfs) as stage:
        runsc, plan = await stage.plan(stage.container("c1", path=vanishing), stage.container("c2"))
        vanishing.rmdir()
        with pytest.raises(ProblemError) as failed:
            await start_cold(runsc, plan)
        assert failed.value.problem.subject == "c1"
        assert failed.value.problem.reason in {Reason.RUNTIME_FAILED, Reason.SANDBOX_DIED}
        assert failed.value.problem.detail


async def test_a_given_bundle_runs_and_is_not_touched(tmp_path, rootfs):
    bundle = tmp_path / "given"
    bundle.mkdir()
    (bundle / "rootfs").symlink_to(rootfs)
    (bundle / "shared").mkdir()
    (bundle / "shared/word").write_text("from-the-bundle\n")
    document = {
        "ociVersion": "1.0.2",
        "process": {
            "terminal": True,
            "args": ["/bin/cat", "/data/word"],
            "cwd": "/",
            "user": {"uid": 0, "gid": 0},
        },
        "root": {"path": "rootfs"},
        "mounts": [{"destination": "/data", "type": "bind", "source": "shared", "options": ["ro", "rbind"]}],
    }
    (bundle / "config.json").write_text(json.dumps(document))
    before = fingerprint(bundle)
    async with open_stage(tmp_path, rootfs) as stage:
        sandbox = await stage.start(stage.bundle("c1", bundle), stage.container("c2"))
        await sandbox.ended("c1")
        assert await sandbox.exit_code("c1") == 0
        assert stage.lines("c1") == ["from-the-bundle"]
        await stage.end(sandbox)
    assert fingerprint(bundle) == before


async def test_containers_that_end_tell_their_code_and_a_saved_actor_goes_on_without_them(tmp_path, rootfs):
    async with open_stage(tmp_path, rootfs) as stage:
        counting = stage.container("c1")
        ends = [
            stage.container("ok", ("true",)),
            stage.container("seven", ("sh", "-c", "sleep 0.2; exit 7")),
            stage.container("killed", ("sh", "-c", "kill -9 $$")),
        ]
        sandbox = await stage.start(counting, *ends)
        for name, code in {"ok": 0, "seven": 7, "killed": 137}.items():
            await sandbox.ended(name)
            assert await sandbox.exit_code(name) == code
            assert await sandbox.exit_code(name) == code
            assert (await sandbox.inspect(name)).status is Status.STOPPED
            await sandbox.delete_exited(name)
        lines = await stage.wait_for_lines("c1", 3)
        sandbox = await stage.restore(await stage.suspend(sandbox), counting)
        assert counted(await stage.wait_for_lines("c1", len(lines) + 5))
        await stage.end(sandbox)


async def test_commands_run_inside_a_container(tmp_path, rootfs):
    async with open_stage(tmp_path, rootfs) as stage:
        secret = stage.container("c1", env=(("PATH", "/bin"), ("TOKEN", "hunter2-hunter2")))
        sandbox = await stage.start(secret)
        finished = await sandbox.execute("c1", ["sh", "-c", "echo out; echo err >&2; exit 128"], deadline_s=60)
        assert (finished.exit.code, finished.stdout, finished.stderr) == (128, b"out\n", b"err\n")
        finished = await sandbox.execute("c1", ["sh", "-c", "echo $TOKEN $(id -u) $(id -g)"], deadline_s=60, user="7:8")
        assert (finished.exit.code, finished.stdout) == (0, b"hunter2-hunter2 7 8\n")
        with pytest.raises(ProblemError) as failed:
            await sandbox.execute("c1", ["/hunter2-hunter2"], deadline_s=60)
        assert failed.value.problem.reason is Reason.COMMAND_NOT_FOUND
        assert "hunter2" not in str(failed.value.problem) + failed.value.problem.detail
        await stage.end(sandbox)


async def test_the_end_of_a_container_is_noticed_even_after_a_command_failed_to_start_in_it(tmp_path, rootfs):
    async with open_stage(tmp_path, rootfs) as stage:
        sandbox = await stage.start(stage.container("c1"), stage.container("c2"))

        async def kill_it():
            with pytest.raises(ProblemError):
                await sandbox.execute("c1", ["/nope"], deadline_s=60)
            await sandbox.signal("c1", "KILL")

        async with anyio.create_task_group() as group:
            group.start_soon(kill_it)
            with anyio.fail_after(60):
                await sandbox.ended("c1")
        assert await sandbox.exit_code("c1") == 137
        with pytest.raises(ProblemError) as refused:
            await sandbox.delete_exited("c1")
        assert refused.value.problem.reason is Reason.CONTAINER_EXITED
        await stage.end(sandbox)


async def test_a_command_that_outlives_its_deadline_is_ended_and_does_not_spoil_the_next_snapshot(tmp_path, rootfs):
    async with open_stage(tmp_path, rootfs) as stage:
        sandbox = await stage.start(stage.container("c1"))
        with pytest.raises(ProblemError) as failed:
            await sandbox.execute("c1", ["sh", "-c", "sleep 100 & sleep 101; true"], deadline_s=0.5)
        assert failed.value.problem.reason is Reason.STEP_DEADLINE_EXCEEDED
        with anyio.move_on_after(0.5):
            await sandbox.execute("c1", ["sleep", "102"], deadline_s=60)
        roots = [parent for parent in (await sandbox.runsc.ps(sandbox.targets["c1"])).values() if parent == 0]
        assert len(roots) == 1
        lines = stage.lines("c1")
        sandbox = await stage.restore(await stage.suspend(sandbox), stage.container("c1"))
        assert counted(await stage.wait_for_lines("c1", len(lines) + 5))
        await stage.end(sandbox)


async def test_a_snapshot_taken_while_somebody_waits_for_a_container_can_be_restored(tmp_path, rootfs):
    async with open_stage(tmp_path, rootfs) as stage:
        sandbox = await stage.start(stage.container("c1"))
        async with anyio.create_task_group() as group:
            group.start_soon(sandbox._wait_by_command, "c1")
            await stage.wait_for_lines("c1", 5)
            image = await stage.suspend(sandbox)
            group.cancel_scope.cancel()
        lines = stage.lines("c1")
        sandbox = await stage.restore(image, stage.container("c1"))
        assert counted(await stage.wait_for_lines("c1", len(lines) + 5))
        await stage.end(sandbox)


CLAIMS = Resources(devices=(("nvidia.com/gpu", 1),))
CAP_MKNOD_BIT = 27


@pytest.mark.parametrize(("limits", "has_it"), [(Resources(), True), (CLAIMS, False)])
async def test_no_container_of_an_actor_that_claims_a_device_has_cap_mknod(tmp_path, rootfs, limits, has_it):
    shows = ("sh", "-c", "grep -E 'Cap(Bnd|Eff|Prm)' /proc/self/status; exec sleep 60")
    async with open_stage(tmp_path, rootfs) as stage:
        sandbox = await stage.start(stage.container("trainer", limits=limits), stage.container("c1", shows))
        sets = [int(line.split()[1], 16) for line in await stage.wait_for_lines("c1", 3)]
        assert [bool(each >> CAP_MKNOD_BIT & 1) for each in sets] == [has_it] * 3
        await stage.end(sandbox)


MAKES = "mknod /tmp/{n} c 195 0 2>/dev/null; echo $?; unshare -U mknod /tmp/u{n} b 8 0 2>/dev/null; echo $?; "
USER = "70000:70000"


@pytest.mark.parametrize(("limits", "made"), [(Resources(), "0"), (CLAIMS, "1")])
async def test_no_container_of_an_actor_that_claims_a_device_makes_a_device_node(tmp_path, rootfs, limits, made):
    """In a container, in what is executed in it, in a user namespace, as whom ever, before and after a restore."""
    makes = ("sh", "-c", f"{MAKES.format(n='a')} i=0; while :; do {MAKES.format(n='b$i')} i=$((i+1)); sleep 0.05; done")
    async with open_stage(tmp_path, rootfs) as stage:
        containers = stage.container("trainer", limits=limits), stage.container("c1", makes)
        sandbox = await stage.start(*containers)
        for life in range(2):
            lines = await stage.wait_for_lines("c1", len(stage.lines("c1")) + 6)
            assert set(lines) == {made}
            for number, user in enumerate((None, USER)):
                script = MAKES.format(n=f"x{life}{number}")
                finished = await sandbox.execute("c1", ["sh", "-c", script], deadline_s=60, user=user)
                assert finished.stdout.split() == [made.encode()] * 2
            if life == 0:
                image = await stage.suspend(sandbox)
                sandbox = await stage.restore(image, *containers)
        await stage.end(sandbox)


async def test_a_confined_command_is_the_one_that_was_named_with_its_own_environment_and_nothing_to_read(
    tmp_path, rootfs
):
    tells = ["sh", "-c", "cat; echo $0 $1 $HOME_OF; id -u; exit 7", "zero", "one"]
    async with open_stage(tmp_path, rootfs) as stage:
        env = (("PATH", "/nowhere:/bin"), ("HOME_OF", "trainer"))
        sandbox = await stage.start(stage.container("trainer", limits=CLAIMS, env=env))
        finished = await sandbox.execute("trainer", tells, deadline_s=60, user="7:8")
        assert (finished.exit.code, finished.stdout, finished.stderr) == (7, b"zero one trainer\n7\n", b"")
        assert (await sandbox.execute("trainer", ["/bin/true"], deadline_s=60)).exit.code == 0
        for absent in ("/nope", "nope"):
            assert (await sandbox.execute("trainer", [absent], deadline_s=60)).exit.code == 127
        assert not await sandbox.is_frozen()
        await sandbox.freeze()
        assert await sandbox.is_frozen()
        await sandbox.thaw()
        await sandbox.signal("trainer", "KILL")
        with anyio.fail_after(60):
            await sandbox.ended("trainer")
        await stage.end(sandbox)


async def test_a_checkpoint_that_finds_no_room_leaves_the_actor_running(tmp_path, rootfs):
    fills = ("sh", "-c", "dd if=/dev/urandom of=/dev/shm/x bs=1M count=40 2>/dev/null; echo filled; exec sleep 60")
    async with open_stage(tmp_path, rootfs) as stage:
        containers = stage.container("c1"), stage.container("c2", fills)
        sandbox = await stage.start(*containers)
        await stage.wait_for_lines("c2", 1)
        with small_disk(stage.state.actor("a1").snapshot("full"), "20m"):
            await sandbox.freeze()
            with pytest.raises(ProblemError) as failed:
                await sandbox.checkpoint_into(stage.state.actor("a1").snapshot("full"))
        assert failed.value.problem.reason is Reason.INSUFFICIENT_DISK
        frozen = stage.lines("c1")
        await sandbox.thaw()
        assert counted(await stage.wait_for_lines("c1", len(frozen) + 3))
        sandbox = await stage.restore(await stage.suspend(sandbox, "good"), *containers)
        lines = stage.lines("c1")
        assert counted(await stage.wait_for_lines("c1", len(lines) + 3))
        await stage.end(sandbox)


def is_written_to(path):
    return path.exists() and path.stat().st_size > 0


async def test_a_save_that_is_cut_off_is_waited_for_and_the_actor_goes_on(tmp_path, rootfs):
    fills = ("sh", "-c", "dd if=/dev/urandom of=/tmp/x bs=1M count=400 2>/dev/null; echo filled; exec sleep 60")
    async with open_stage(tmp_path, rootfs) as stage:
        containers = stage.container("c1"), stage.container("c2", fills)
        sandbox = await stage.start(*containers)
        await wait_until(lambda: bool(stage.lines("c2")), within_s=90)
        hurried = attrs.evolve(sandbox, runsc=attrs.evolve(sandbox.runsc, deadlines=Deadlines(freeze_s=0.3)))
        for number in range(TRIES):
            await sandbox.freeze()
            frozen = stage.lines("c1")
            image = stage.state.actor("a1").snapshot(f"cut{number}")
            pages = image / "pages.img"
            async with anyio.create_task_group() as group:
                group.start_soon(hurried.checkpoint_into, image)
                await wait_until(partial(is_written_to, pages))
                group.cancel_scope.cancel()
            was_early = pages.stat().st_size < 200 * 2**20
            await hurried.thaw()
            assert pages.stat().st_size > 400 * 2**20
            assert counted(await stage.wait_for_lines("c1", len(frozen) + 3))
            if was_early:  # what was left of the save took longer than a sandbox that hangs is given
                break
        else:
            pytest.fail("it was always cut off too late")
        await stage.end(sandbox)


async def test_an_image_that_is_not_whole_fails_the_restore_and_leaves_nothing(tmp_path, rootfs):
    async with open_stage(tmp_path, rootfs) as stage:
        sandbox = await stage.start(stage.container("c1"))
        await stage.wait_for_lines("c1", 3)
        image = await stage.suspend(sandbox)
        os.truncate(image / "pages.img", 4096)
        with pytest.raises(ProblemError) as failed:
            await stage.restore(image, stage.container("c1"))
        assert failed.value.problem.reason in {Reason.RUNTIME_FAILED, Reason.SANDBOX_DIED}
        (image / "checkpoint.img").unlink()
        with pytest.raises(ProblemError) as failed:
            await stage.restore(image, stage.container("c1"))
        assert (failed.value.problem.reason, failed.value.problem.subject) == (Reason.RUNTIME_FAILED, "pause")
