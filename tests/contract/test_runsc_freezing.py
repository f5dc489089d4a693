"""pause and resume, held against the model, the fake program and the real binary."""

import anyio

from tests.contract.benches import COUNT
from tests.contract.faces import on

# -------------------------------------------------------------------------------------------------------------- frozen


async def stands_still(bench, name):
    """Whether a counter does not count while another command runs."""
    before = await bench.lines(name)
    await bench.blocks("wait", name)
    return await bench.lines(name) == before


def test_a_pause_freezes_the_whole_sandbox_whichever_container_is_named_and_a_resume_thaws_it(face):
    @on(face)
    async def _(bench):
        await bench.up(c1=COUNT, c2=COUNT)
        await bench.counted("c1", 3)
        await bench.ok("pause", "c2")
        # It is written down for the one that was named only.
        assert await bench.statuses("sb", "c1", "c2") == ["running", "running", "paused"]
        assert await stands_still(bench, "c1")
        await bench.ok("resume", "c2")
        lines = await bench.lines("c1")
        lines = await bench.counted("c1", len(lines) + 3)
        assert lines == [str(number) for number in range(len(lines))]


def test_pauses_nest_and_the_same_one_twice_is_refused(face):
    @on(face)
    async def _(bench):
        await bench.up(c1=COUNT)
        await bench.ok("pause", "c1")
        assert await bench.fails("pause", "c1") == 'pause failed: cannot pause container "c1" in state paused'
        await bench.ok("pause", "sb")
        await bench.ok("resume", "c1")
        assert await stands_still(bench, "c1")
        await bench.ok("resume", "sb")
        lines = await bench.lines("c1")
        await bench.counted("c1", len(lines) + 3)


def test_a_frozen_sandbox_answers_and_what_is_executed_in_it_waits(face):
    @on(face)
    async def _(bench):
        await bench.up(c1=COUNT)
        await bench.ok("pause", "sb")
        assert await bench.statuses("sb", "c1") == ["paused", "running"]
        await bench.ok("ps", "c1")
        await bench.ok("events", "-stats", "c1")
        assert await bench.fails("exec", "sb", "true") == (
            'executing processes for container: cannot execute in container "sb" in state paused'
        )
        assert await bench.fails("kill", "sb", "TERM") == 'cannot signal container "sb" in state paused'
        async with anyio.create_task_group() as group:
            said = []

            async def execute():
                said.append(await bench.run("exec", "c1", "sh", "-c", "echo thawed"))

            group.start_soon(execute)
            await bench.blocks("wait", "c1")
            assert said == []
            await bench.ok("resume", "sb")
        assert [each.stdout for each in said] == ["thawed\n"]


def test_a_signal_to_a_frozen_container_acts_when_it_is_thawed(face):
    @on(face)
    async def _(bench):
        await bench.up(c1=COUNT)
        await bench.ok("pause", "sb")
        await bench.ok("kill", "c1", "KILL")
        assert await bench.status("c1") == "running"
        await bench.ok("resume", "sb")
        assert (await bench.ok("wait", "c1")).document()["exitStatus"] == 137


def test_containers_are_made_in_a_frozen_sandbox_and_begin_when_it_is_thawed(face):
    @on(face)
    async def _(bench):
        await bench.up(c1=COUNT)
        await bench.ok("pause", "sb")
        await bench.start("c2", "sh", "-c", COUNT)
        await bench.blocks("wait", "c2")
        assert await bench.lines("c2") == []
        await bench.ok("resume", "sb")
        await bench.counted("c2", 1)


def test_a_delete_of_a_frozen_container_waits_and_its_state_with_it_until_the_thaw(face):
    @on(face)
    async def _(bench):
        await bench.up(c1=COUNT)
        await bench.ok("pause", "sb")
        async with anyio.create_task_group() as group:
            group.start_soon(bench.ok, "delete", "-force", "c1")
            await bench.blocks("wait", "c1")
            await bench.blocks("state", "c1")
            assert await bench.status("sb") == "paused"
            await bench.ok("resume", "sb")
        assert await bench.fails("state", "c1") == "loading container: file does not exist"


def test_a_frozen_root_can_be_deleted_and_takes_all_with_it(face):
    @on(face)
    async def _(bench):
        await bench.up(c1=COUNT)
        await bench.ok("pause", "sb")
        await bench.ok("delete", "-force", "sb")
        assert await bench.names() == {"c1_sandbox:sb.state", "c1_sandbox:sb.lock"}
        assert await bench.status("c1") == "stopped"


def test_a_container_that_has_ended_is_waited_for_and_deleted_in_a_frozen_sandbox_too(face):
    @on(face)
    async def _(bench):
        await bench.up(c1="exit 4")
        await bench.ended("c1")
        await bench.ok("pause", "sb")
        assert (await bench.ok("wait", "c1")).document() == {"id": "c1", "exitStatus": 4}
        await bench.ok("delete", "c1")
        assert await bench.status("sb") == "paused"
