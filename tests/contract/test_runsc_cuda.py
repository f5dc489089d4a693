"""Open devices of the driver: what holds of the real binary without one, and what stand-ins show of one with a driver.

No GPU was used: what a save says of an open device was read, in gVisor's source (20260905) and in the program of
20240729.
"""

from pathlib import Path

import attrs
import pytest

from actors.runsc.checkpoint_flags import CUDA_FLAGS, parse_flags
from actors.runsc.errors import Call, classify
from actors.runsc.log import words
from sim.world.runsc.programs import Program
from sim.world.runsc.settings import Flavour
from statemachine.problem import Step
from statemachine.reasons import Reason
from tests.contract.faces import on
from tests.contract.images import restored

GPU = {"path": "/dev/nvidia0", "type": "c", "major": 195, "minor": 0, "fileMode": 0o666}
LINUX = {"linux": {"namespaces": [], "devices": [GPU]}}
HOLDS = Program((("open", "/dev/nvidia0"), ("write", "held $?\n", 1), ("sleep", float("inf"), True)), name="trainer")
LETS_GO = Program(
    (("open", "/dev/nvidia0"), ("close", "/dev/nvidia0"), ("write", "held $?\n", 1), ("sleep", float("inf"), True)),
    name="polite",
)
HAS_NONE = Program((("open", "/dev/nvidia1"), ("write", "held $?\n", 1), ("sleep", float("inf"), True)), name="other")
PROGRAM = "/usr/bin/cuda-checkpoint"


def test_it_says_which_flags_its_checkpoint_takes_and_none_is_of_cuda(face):
    @on(face)
    async def _(bench):
        known = parse_flags((await bench.ok("help", "checkpoint")).stdout.encode())
        assert known is not None
        assert {"image-path", "leave-running", "compression"} <= known
        assert not known & CUDA_FLAGS


def test_a_current_one_says_that_it_has_those_of_cuda(head):
    @on(head)
    async def _(bench):
        known = parse_flags((await bench.ok("help", "checkpoint")).stdout.encode())
        assert known is not None
        assert known >= CUDA_FLAGS


@pytest.fixture(params=Flavour)
def either(request, stand_in):
    return attrs.evolve(stand_in, flavour=request.param)


def on_one_with(face, program):
    """On that face, where `app` is this program."""
    return on(attrs.evolve(face, programs={("app",): program}))


async def start(bench, **more):
    await bench.up()
    await bench.start("c1", "app", **LINUX, **more)
    return (await bench.counted("c1", 1))[0]


async def with_program(bench):
    """A rootfs that has cuda-checkpoint."""
    rootfs = await bench.own_rootfs("c1")
    await bench.files.make_directory(Path(rootfs) / "usr/bin")
    await bench.files.replace(Path(rootfs) / PROGRAM[1:], b"ELF")
    return {"root": {"path": rootfs}}


def saving(bench, *flags, name="image", sandbox="sb"):
    return "checkpoint", f"--image-path={bench.image(name)}", "--leave-running", *flags, sandbox


BY_PROGRAM = (f"--cuda-checkpoint-path={PROGRAM}", "--cuda-checkpoint-sequential")


def test_an_open_device_fails_a_save_and_leaves_the_sandbox_running(either):
    @on_one_with(either, HOLDS)
    async def _(bench):
        assert await start(bench) == "held 0"
        said = await bench.run(*saving(bench))
        assert said.code == 128
        call = Call(step=Step.SUSPEND, verb="checkpoint", subject="sb")
        assert classify(call, words(said.raw_log.encode(), b""), status="").reason is Reason.LIVE_CUDA_CONTEXT
        assert await bench.statuses("sb", "c1") == ["running", "running"]


def test_a_device_that_is_not_there_cannot_be_opened_and_is_no_hindrance(either):
    @on_one_with(either, HAS_NONE)
    async def _(bench):
        assert await start(bench) == "held 1"
        await bench.ok(*saving(bench))


def test_a_device_that_was_closed_is_no_hindrance(either):
    @on_one_with(either, LETS_GO)
    async def _(bench):
        assert await start(bench) == "held 0"
        await bench.ok(*saving(bench))


@pytest.mark.parametrize("frozen", [True, False])
def test_with_cuda_checkpoint_in_the_container_it_is_saved_and_open_again_after_the_restore(head, frozen):
    @on_one_with(head, HOLDS)
    async def _(bench):
        root = await with_program(bench)
        await start(bench, **root)
        if frozen:
            await bench.ok("pause", "sb")
        await bench.ok(*saving(bench, *BY_PROGRAM))
        assert await bench.status("sb") == ("paused" if frozen else "running")
        fresh = await restored(bench, bench.image())
        assert (await fresh.restore("c1", bench.image(), "app", **LINUX, **root)).code == 0
        assert "not restorable" in await fresh.fails(*saving(bench, name="second", sandbox="s2"))


def test_without_the_program_in_the_container_the_save_fails_and_the_sandbox_stays_as_it_was(head):
    @on_one_with(head, HOLDS)
    async def _(bench):
        await start(bench)
        await bench.ok("pause", "sb")
        said = await bench.fails(*saving(bench, *BY_PROGRAM))
        assert f"failed to load {PROGRAM}: no such file" in said
        assert await bench.status("sb") == "paused"
        await bench.ok("resume", "sb")


def test_what_was_signalled_while_frozen_is_delivered_when_it_unfreezes_itself_for_a_moment(head):
    @on_one_with(head, HOLDS)
    async def _(bench):
        await start(bench, **await with_program(bench))
        await bench.ok("pause", "sb")
        await bench.ok("kill", "c1", "KILL")
        assert await bench.status("c1") == "running"
        await bench.ok(*saving(bench, *BY_PROGRAM))
        assert await bench.status("c1") == "stopped"
