"""What only the model of runsc can show: times, a reaper that is stuck, injected failures, the life after a kill."""

import anyio
import attrs
import pytest

from actors.ports import AppendTo, DeadlineExceededError, Output
from sim.world.process_table import INIT_PID
from sim.world.processes import SimProcesses
from sim.world.runsc import programs
from sim.world.runsc.settings import Flavour
from tests.contract.benches import COUNT, DEFAULT_OVERLAY
from tests.contract.faces import Face

FLAVOURS = [Flavour.R24, Flavour.HEAD]


@pytest.fixture
def model(tmp_path):
    return Face(kind="model", directory=tmp_path)


def on(face, **changes):
    return attrs.evolve(face, **changes).run


async def took_s(call):
    """The virtual seconds that something takes."""
    began_s = anyio.current_time()
    await call
    return round(anyio.current_time() - began_s, 3)


# -------------------------------------------------------------------------------------------------------------- times


def test_commands_take_what_was_measured(model):
    @on(model, is_instant=False)
    async def _(bench):
        bundle = await bench.bundle("sb", "sleep", "1000")
        assert await took_s(bench.run("list")) == 0.02
        assert (
            await took_s(bench.run("create", f"--bundle={bundle}", f"--pid-file={bench.pid_file('sb')}", "sb")) == 0.09
        )
        assert await took_s(bench.run("start", "sb")) == 0.07
        await bench.start("c1", "sh", "-c", COUNT)
        assert await took_s(bench.save(leave=False)) == 0.11
        fresh = bench.elsewhere("s2")
        assert await took_s(fresh.restore("s2", bench.image(), called="pause")) == 0.135
        assert await took_s(fresh.restore("c1", bench.image())) == 0.185


def test_output_comes_at_its_times_and_a_pause_is_not_counted(model):
    @on(model, programs={("count",): programs.counter(1.0, first=1)})
    async def _(bench):
        await bench.up()
        await bench.start("c1", "count")
        await anyio.sleep(2.5)
        assert await bench.lines("c1") == ["1", "2", "3"]
        await bench.ok("pause", "sb")
        await anyio.sleep(100)
        await bench.ok("resume", "sb")
        await anyio.sleep(0.4)
        assert await bench.lines("c1") == ["1", "2", "3"]
        await anyio.sleep(0.2)
        assert await bench.lines("c1") == ["1", "2", "3", "4"]


def test_the_same_run_is_the_same_to_the_byte(model):
    seen = []

    def run():
        @on(model)
        async def _(bench):
            await bench.up(c1=COUNT)
            await anyio.sleep(1)
            image = await bench.save()
            await bench.run("state", "nope")
            files = [
                await bench.files.read(image / name, limit_bytes=1 << 20) for name in sorted(await bench.names(image))
            ]
            log = await bench.files.read(bench.directory / f"root-{bench.calls}.log", limit_bytes=1 << 20)
            seen.append((files, log, await bench.lines("c1")))

    run()
    run()
    assert seen[0] == seen[1]
    assert all(seen[0])


# ----------------------------------------------------------------------------------------------------------- behaviours


@pytest.mark.parametrize(
    ("program", "signal", "status", "after_s"),
    [
        (programs.exits_with(7, after_s=3.0), None, 7, 3.0),
        (programs.runs_forever(), "TERM", 143, 0.0),
        (programs.exits_on_term(5, after_s=2.0), "TERM", 5, 2.0),
        (programs.counter(10.0, on_term=4), "TERM", 4, 0.0),
        (programs.counter(10.0), "TERM", 143, 0.0),
        (programs.ignores_term(), "KILL", 137, 0.0),
        (programs.writes("a", "b", then=programs.exits_with(6, after_s=1.0)), None, 6, 1.0),
    ],
)
def test_programs_behave_as_they_are_called(model, program, signal, status, after_s):
    @on(model, programs={("app",): program})
    async def _(bench):
        await bench.up()
        await bench.start("c1", "app")
        began_s = anyio.current_time()
        if signal:
            await bench.ok("kill", "c1", signal)
        assert (await bench.ok("wait", "c1")).document()["exitStatus"] == status
        assert round(anyio.current_time() - began_s, 6) == after_s
        if program.name == "writes":
            assert await bench.lines("c1") == ["a", "b"]


def test_what_ignores_term_lives_on(model):
    @on(model, programs={("app",): programs.ignores_term()})
    async def _(bench):
        await bench.up()
        await bench.start("c1", "app")
        await bench.ok("kill", "c1", "TERM")
        await bench.blocks("wait", "c1", for_s=1000)
        assert await bench.status("c1") == "running"


# ------------------------------------------------------------------------------------------------------- a stuck reaper


def test_r24_waits_for_the_zombie_of_a_gofer_to_be_reaped_five_seconds(model):
    @on(model)
    async def _(bench):
        await bench.up(c1="exit 3", c2=COUNT)
        bench.processes.process.reaps = False
        await bench.kill(await bench.gofer("c2"))
        late = "destroying container: stopping container: context deadline exceeded"
        began_s = anyio.current_time()
        assert await bench.fails("delete", "c2") == late
        assert 5.0 <= anyio.current_time() - began_s < 5.2
        assert await bench.status("c2") == "stopped"
        assert await bench.fails("delete", "-force", "c2") == late
        assert await bench.fails("state", "c2") == "loading container: file does not exist"


def test_r24_waits_for_the_zombie_of_a_sandbox_to_be_reaped_two_minutes_and_calls_it_running_meanwhile(model):
    @on(model)
    async def _(bench):
        await bench.up()
        bench.processes.process.reaps = False
        await bench.kill(await bench.pid())
        assert await bench.status("sb") == "running"
        began_s = anyio.current_time()
        assert await bench.fails("delete", "-force", "sb", deadline_s=200) == (
            'destroying container: stopping container: destroying container "sb": '
            'waiting sandbox "sb" stop: context deadline exceeded'
        )
        assert 120.0 <= anyio.current_time() - began_s < 120.2
        assert not [name for name in await bench.names() if name.endswith(".state")]


def test_head_knows_a_zombie(model):
    @on(model, flavour=Flavour.HEAD)
    async def _(bench):
        await bench.up()
        bench.processes.process.reaps = False
        await bench.kill(await bench.pid())
        assert await bench.status("sb") == "stopped"
        assert await took_s(bench.ok("delete", "-force", "sb")) < 0.1


# ------------------------------------------------------------------------------------------------- killed and injected


@pytest.mark.parametrize("after_s", [0.03, 0.06, 0.08])
def test_a_create_that_is_killed_takes_its_sandbox_along_and_leaves_a_filestore_that_spoils_the_next(model, after_s):
    @on(model, is_instant=False, flags=DEFAULT_OVERLAY)
    async def _(bench):
        bundle = await bench.bundle("sb", "sleep", "1000")
        with pytest.raises(DeadlineExceededError):
            await bench.run("create", f"--bundle={bundle}", "sb", deadline_s=after_s)
        assert await bench.names() == {"runsc-sb.sock", "sb_sandbox:sb.lock"}
        assert await bench.processes.find_arguments(prefix="--root=") == ()
        assert "already has a filestore file" in await bench.fails("create", f"--bundle={bundle}", "sb")


def test_a_pause_that_is_killed_may_have_frozen_and_not_written_it_down(model):
    @on(model, is_instant=False)
    async def _(bench):
        await bench.up(c1=COUNT)
        sandbox = bench.execution.sandboxes[await bench.pid()]
        sandbox.sentry.pauses = 1
        assert await bench.status("sb") == "running"
        assert await bench.fails("resume", "sb") == 'resume failed: cannot resume container "sb" in state running'
        await bench.ok("pause", "sb")
        await bench.ok("resume", "sb")
        await bench.blocks("exec", "c1", "true")


@pytest.mark.parametrize("flavour", FLAVOURS)
@pytest.mark.parametrize("leave", [True, False])
def test_a_save_that_fails_destroys_the_sandbox_unless_it_is_left_running(model, flavour, leave):
    @on(model, flavour=flavour)
    async def _(bench):
        await bench.up(c1=COUNT)
        sandbox = bench.execution.sandboxes[await bench.pid()]
        sandbox.sentry.save_fails = "endpoint cannot be saved in connected state"
        options = ("--leave-running",) if leave else ()
        assert await bench.fails("checkpoint", f"--image-path={bench.image()}", *options, "sb") == (
            'checkpoint failed: checkpointing container "sb": endpoint cannot be saved in connected state'
        )
        assert await bench.statuses("sb", "c1") == (["running"] * 2 if leave else ["stopped"] * 2)


# ----------------------------------------------------------------------------------------------- lives of a supervisor


def test_a_supervisor_that_is_killed_leaves_its_command_and_its_sandboxes_behind(model):
    @on(model, is_instant=False)
    async def _(bench):
        await bench.up(c1=COUNT)
        pid = await bench.pid()
        returned = []

        async def pause():
            returned.append(await bench.run("pause", "sb"))

        async with anyio.create_task_group() as group:
            group.start_soon(pause)
            await anyio.wait_all_tasks_blocked()
            dead, bench.processes = bench.processes, SimProcesses(bench.execution)
            dead.die()
            await anyio.sleep(1)
            assert returned == []
            group.cancel_scope.cancel()
        assert await bench.status("sb") == "paused"
        sandbox = bench.execution.table.get(pid)
        assert sandbox.parent == INIT_PID
        with pytest.raises(ProcessLookupError):
            await bench.processes.adopt(pid)
        for identity, _ in await bench.processes.find_arguments(prefix=f"--root={bench.root}"):
            await bench.processes.kill_and_wait(identity, deadline_s=1)
        assert bench.execution.table.get(pid) is None


def test_a_dead_supervisor_starts_nothing_any_more(model):
    @on(model)
    async def _(bench):
        dead, bench.processes = bench.processes, SimProcesses(bench.execution)
        dead.die()
        count = len(list(bench.execution.table))
        with anyio.move_on_after(10) as scope:
            await dead.spawn(
                ["/bin/sleep", "1"], env={}, stdout=Output.DISCARD, stderr=AppendTo(bench.directory / "never")
            )
        assert scope.cancelled_caught
        assert len(list(bench.execution.table)) == count
        assert await bench.files.stat(bench.directory / "never") is None
