"""The driver of actors/runsc on the model, the fake program and the real binary: whole lives of sandboxes."""

import random

import anyio
import attrs
import pytest

from actors.assignment import Container, Resources, Rootfs
from actors.bundle.activation_tree import (
    ContainerFiles,
    activation_tree,
    bundle_directory,
    confine_path,
    pause_bundle,
    programs_for_claims,
)
from actors.bundle.capabilities import Claims, claims_of
from actors.bundle.composing import compose_each
from actors.bundle.seccomp import flags_for
from actors.runsc.activation import ContainerPlan, SandboxPlan, start_cold, start_restored
from actors.runsc.answers import Status
from actors.runsc.driver import Deadlines, Runsc
from actors.runsc.flags import GlobalFlags
from actors.runsc.ids import fresh_activation, fresh_container_ids
from actors.runsc.record import ROOT_CONTAINER, SandboxRecord, read_record
from actors.runsc.teardown import RUNSC_ROOT, end_activation, find_leftovers
from actors.runsc.version import Flavour, runtime_version
from sim.world.wall import SimWall
from statemachine.problem import ProblemError, Step
from statemachine.reasons import Reason
from tests.contract.benches import COUNT
from tests.contract.faces import on


class Stage:
    """Activations on a bench."""

    def __init__(self, bench):
        self.bench = bench
        self.wall = SimWall(random.Random(7))
        self.sandboxes = bench.directory / "sandboxes"

    def container(self, name, *argv, limits=Resources()):
        source = Rootfs(path=bench_path(self.bench), argv=argv or ("sh", "-c", COUNT), env=(("PATH", "/bin"),))
        return Container(name=name, source=source, limits=limits)

    async def plan(self, *containers, deadlines=Deadlines()):
        bench = self.bench
        activation = self.sandboxes / fresh_activation(self.wall)
        ids = fresh_container_ids(self.wall, [ROOT_CONTAINER, *(each.name for each in containers)])
        path = bench_path(bench, bench.runsc)
        version = await runtime_version(bench.processes, path, step=Step.CREATE)
        claims = claims_of(containers)
        record = SandboxRecord(
            activation=activation.name,
            actor="a1",
            boot_id=self.wall.boot_id(),
            runtime_path=path,
            runtime_version=version.text,
            flags=GlobalFlags().more(extra=flags_for(claims)),
            container_ids=ids,
        )
        sandbox_id = ids[ROOT_CONTAINER]
        composed = await compose_each(bench.files, containers, sandbox_id=sandbox_id, hostname="a1", claims=claims)
        pause = pause_bundle(activation, hostname="a1", machine="x86_64")
        made = {name: ContainerFiles(config=config) for name, config in composed.items()}
        await bench.files.make_tree(activation, activation_tree(pause, made, programs_for_claims("x86_64")))
        plans = []
        for name, config in composed.items():
            bundle, env = bundle_directory(activation, name), tuple(config["process"]["env"])
            plans.append(ContainerPlan(name=name, bundle=bundle, log=bench.out(name), env=env))
        runsc = Runsc(
            path=path,
            flags=record.flags,
            processes=bench.processes,
            files=bench.files,
            root=activation / RUNSC_ROOT,
            deadlines=deadlines,
            confine=None if claims is Claims.NONE else confine_path(activation),
        )
        pause_directory = bundle_directory(activation, ROOT_CONTAINER)
        return runsc, SandboxPlan(record=record, pause_bundle=pause_directory, containers=tuple(plans))

    async def start(self, *containers):
        return await start_cold(*await self.plan(*containers))

    async def restore(self, image, *containers):
        runsc, plan = await self.plan(*containers)
        return await start_restored(runsc, plan, image)

    async def end(self, sandbox):
        bench = self.bench
        await end_activation(bench.processes, bench.files, sandbox.runsc.activation, owned=sandbox.owned)
        sandbox.close()

    async def suspend(self, sandbox, name="s1"):
        image = self.bench.directory / "images" / name
        await sandbox.freeze()
        await sandbox.checkpoint_into(image)
        await self.end(sandbox)
        return image

    async def leftovers(self):
        return await find_leftovers(self.bench.processes, self.bench.files, self.sandboxes)


def bench_path(bench, path=None):
    return type(bench.directory)(path or bench.rootfs)


def test_an_actor_goes_on_over_three_lives_and_leaves_nothing(every_face):
    @on(every_face)
    async def _(bench):
        stage = Stage(bench)
        containers = stage.container("c1"), stage.container("c2")
        sandbox = await stage.start(*containers)
        assert set(sandbox.gofers) == {"pause", "c1", "c2"}
        assert await read_record(bench.files, sandbox.runsc.activation) == sandbox.record
        for life in range(1, 4):
            for name in ("c1", "c2"):
                await bench.counted(name, 4 * life)
            image = await stage.suspend(sandbox, f"s{life}")
            assert await stage.leftovers() == ()
            sandbox = await stage.restore(image, *reversed(containers))
        for name in ("c1", "c2"):
            lines = await bench.counted(name, 16)
            assert lines == [str(number) for number in range(len(lines))]
        await stage.end(sandbox)
        assert await stage.leftovers() == ()


def test_ends_are_noticed_told_and_left_out_of_the_snapshot(every_face):
    @on(every_face)
    async def _(bench):
        stage = Stage(bench)
        ends = {"ok": ("true",), "seven": ("sh", "-c", "sleep 0.2; exit 7"), "killed": ("sh", "-c", "kill -9 $$")}
        sandbox = await stage.start(
            stage.container("c1"), *(stage.container(name, *argv) for name, argv in ends.items())
        )
        for name, code in {"ok": 0, "seven": 7, "killed": 137}.items():
            await sandbox.ended(name)
            assert await sandbox.exit_code(name) == code
            assert (await sandbox.inspect(name)).status is Status.STOPPED
            await sandbox.delete_exited(name)
        sandbox = await stage.restore(await stage.suspend(sandbox), stage.container("c1"))
        count = len(await bench.lines("c1"))
        await bench.counted("c1", count + 3)
        await stage.end(sandbox)


def test_whether_it_is_frozen_is_asked_of_the_sandbox(every_face):
    @on(every_face)
    async def _(bench):
        stage = Stage(bench)
        sandbox = await stage.start(stage.container("c1"))
        assert not await sandbox.is_frozen()
        await sandbox.freeze()
        assert await sandbox.is_frozen()
        await sandbox.thaw()
        assert not await sandbox.is_frozen()
        await stage.end(sandbox)


def test_a_failed_command_is_classified_and_the_end_is_noticed_all_the_same(every_face):
    @on(every_face)
    async def _(bench):
        stage = Stage(bench)
        sandbox = await stage.start(stage.container("c1"), stage.container("c2"))
        with pytest.raises(ProblemError) as failed:
            await sandbox.execute("c1", ["/nope"], deadline_s=60)
        assert failed.value.problem.reason is Reason.COMMAND_NOT_FOUND
        await sandbox.signal("c1", "KILL")
        with anyio.fail_after(60):
            await sandbox.ended("c1")
        assert await sandbox.exit_code("c1") == 137
        await stage.end(sandbox)


def test_a_command_that_outlives_its_deadline_does_not_spoil_the_next_snapshot(face):
    @on(face)
    async def _(bench):
        stage = Stage(bench)
        sandbox = await stage.start(stage.container("c1"))
        with pytest.raises(ProblemError) as failed:
            await sandbox.execute("c1", ["sh", "-c", "sleep 100 & sleep 101; true"], deadline_s=0.5)
        assert failed.value.problem.reason is Reason.STEP_DEADLINE_EXCEEDED
        sandbox = await stage.restore(await stage.suspend(sandbox), stage.container("c1"))
        await stage.end(sandbox)


def test_what_a_command_leaves_running_is_seen_before_it_spoils_a_snapshot(face):
    @on(face)
    async def _(bench):
        stage = Stage(bench)
        sandbox = await stage.start(stage.container("c1"))
        assert (await sandbox.execute("c1", ["true"], deadline_s=60)).exit.code == 0
        await sandbox.freeze()
        assert not await sandbox.is_executing()
        await sandbox.thaw()
        assert (await sandbox.execute("c1", ["sh", "-c", "sleep 100 & true"], deadline_s=60)).exit.code == 0
        await sandbox.freeze()
        assert await sandbox.is_executing()
        await stage.end(sandbox)
        assert not await sandbox.is_executing()


def test_a_start_of_a_command_that_does_not_exist_is_undone_by_the_teardown(face):
    @on(face)
    async def _(bench):
        stage = Stage(bench)
        runsc, plan = await stage.plan(stage.container("c1"), stage.container("c2", "/nope"))
        with pytest.raises(ProblemError) as failed:
            await start_cold(runsc, plan)
        assert (failed.value.problem.reason, failed.value.problem.subject) == (Reason.COMMAND_NOT_FOUND, "c2")
        await end_activation(bench.processes, bench.files, runsc.activation)
        assert await stage.leftovers() == ()


@pytest.mark.parametrize("after_ms", [0, 10, 40, 90, 150, 220])
def test_a_start_that_is_cancelled_at_any_time_leaves_nothing(face, after_ms):
    @on(attrs.evolve(face, is_instant=False))
    async def _(bench):
        stage = Stage(bench)
        runsc, plan = await stage.plan(stage.container("c1"), stage.container("c2"))
        with anyio.move_on_after(after_ms / 1000):
            (await start_cold(runsc, plan)).close()
        await end_activation(bench.processes, bench.files, runsc.activation)
        assert await stage.leftovers() == ()


def test_a_hung_sandbox_is_told_at_the_deadline_and_ends_all_the_same(face):
    @on(face)
    async def _(bench):
        stage = Stage(bench)
        runsc, plan = await stage.plan(stage.container("c1"), deadlines=Deadlines(query_s=0.3, freeze_s=0.3))
        sandbox = await start_cold(runsc, plan)
        bench.send(sandbox.process.identity.pid, 19)
        for question in (sandbox.inspect("c1"), sandbox.freeze()):
            with pytest.raises(ProblemError) as failed:
                await question
            assert failed.value.problem.reason is Reason.STEP_DEADLINE_EXCEEDED
        await stage.end(sandbox)
        assert await stage.leftovers() == ()


def test_a_sandbox_that_died_is_noticed_at_once_and_what_is_asked_of_it_says_so(face):
    @on(face)
    async def _(bench):
        stage = Stage(bench)
        sandbox = await stage.start(stage.container("c1"))
        sandbox.process.signal(9)
        assert (await sandbox.died()).code == -9
        await sandbox.ended("c1")
        for ask in (sandbox.exit_code("c1"), sandbox.freeze(), sandbox.checkpoint_into(bench.directory / "i")):
            with pytest.raises(ProblemError) as failed:
                await ask
            assert failed.value.problem.reason in {Reason.SANDBOX_DIED, Reason.RUNTIME_FAILED}
        await stage.end(sandbox)


CLAIMS = Resources(devices=(("nvidia.com/gpu", 1),))
MAKES = "mknod /tmp/{n} c 195 0 2>/dev/null; echo c $?; mknod /tmp/p{n} p 2>/dev/null; echo p $?"
REPEATS = f"i=0; while :; do {MAKES.format(n='n$i')}; i=$((i+1)); sleep 0.05; done"


@pytest.mark.parametrize(("limits", "made"), [(Resources(), "c 0"), (CLAIMS, "c 1")], ids=["no claim", "a claim"])
def test_no_container_of_an_actor_that_claims_a_device_makes_a_device_node(every_face, limits, made):
    """Neither itself nor by what is executed in it, before and after a restore, and whoever claims."""

    @on(every_face)
    async def _(bench):
        stage = Stage(bench)
        containers = stage.container("trainer", limits=limits), stage.container("c1", "sh", "-c", REPEATS)
        sandbox = await stage.start(*containers)
        for life in range(2):
            lines = await bench.counted("c1", len(await bench.lines("c1")) + 4)
            assert {line for line in lines if line.startswith("c")} == {made}
            finished = await sandbox.execute("c1", ["sh", "-c", MAKES.format(n=f"x{life}")], deadline_s=60)
            assert finished.stdout.decode().splitlines() == [made, "p 0"]
            sandbox = await stage.restore(await stage.suspend(sandbox, f"s{life}"), *containers)
        await stage.end(sandbox)
        assert await stage.leftovers() == ()


def test_a_confined_command_that_does_not_exist_ends_with_127_and_leaks_nothing(face):
    @on(face)
    async def _(bench):
        stage = Stage(bench)
        sandbox = await stage.start(stage.container("trainer", limits=CLAIMS))
        for absent in ("/nope", "nope"):
            assert (await sandbox.execute("trainer", [absent], deadline_s=60)).exit.code == 127
        assert (await sandbox.execute("trainer", ["true"], deadline_s=60)).exit.code == 0
        assert (await sandbox.execute("trainer", ["/bin/false"], deadline_s=60)).exit.code == 1
        assert not await sandbox.is_frozen()
        await sandbox.signal("trainer", "KILL")
        with anyio.fail_after(60):
            await sandbox.ended("trainer")
        await stage.end(sandbox)


def test_a_confined_command_that_outlives_its_deadline_is_killed_too(face):
    @on(face)
    async def _(bench):
        stage = Stage(bench)
        sandbox = await stage.start(stage.container("c1", limits=CLAIMS))
        with pytest.raises(ProblemError) as failed:
            await sandbox.execute("c1", ["sh", "-c", "sleep 100 & sleep 101; true"], deadline_s=0.5)
        assert failed.value.problem.reason is Reason.STEP_DEADLINE_EXCEEDED
        sandbox = await stage.restore(await stage.suspend(sandbox), stage.container("c1", limits=CLAIMS))
        await stage.end(sandbox)


def test_both_flavours_are_known_by_their_versions(head):
    @on(head)
    async def _(bench):
        version = await runtime_version(bench.processes, bench_path(bench, bench.runsc), step=Step.CREATE)
        assert version.flavour is Flavour.HEAD
