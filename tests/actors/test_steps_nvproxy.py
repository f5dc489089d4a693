"""What a claim tells the sandbox as a whole: flags, the annotation of pause, filters; and a driver that is unknown."""

from pathlib import Path
from typing import Any

import attrs
import pytest

from actors.bundle.activation_tree import confine_path
from actors.confine_elf import confine_elf
from actors.ports import Exit, Finished
from actors.runsc.nvproxy import Nvproxy, SupportedDrivers
from actors.runsc.version import RuntimeVersion
from actors.steps.bundles import driver, flags_of, prepare, require_known_driver
from actors.steps.performer import Steps
from statemachine import commands as c
from statemachine.events import RestoreRefused
from statemachine.problem import Step
from statemachine.reasons import Reason
from tests.actors.gpu_stage import bring_up, config_of, gpu_stage, problem_of
from tests.actors.scripted_processes import ScriptedProcesses
from tests.actors.step_stage import an_actor
from tests.actors.test_steps_gpus_over_snapshots import manifest_of, suspended

pytestmark = pytest.mark.anyio

R24, CURRENT = "0.0~20240729.0", "release-20260901.0"
SECCOMP, FLAG, ANNOTATION = "--oci-seccomp=true", "--nvproxy=true", "dev.gvisor.internal.nvproxy"


def a_stage_of(version, wanted=Nvproxy.AUTO, *, known=None, **claims):
    stage = gpu_stage(**(claims or {"trainer": 1, "logger": 0}))
    drivers = None
    if known is not None:
        listing = Finished(exit=Exit(code=0), stdout="\n".join(known).encode())
        drivers = SupportedDrivers(ScriptedProcesses(answer=lambda _verb, _argv: listing), Path("/runsc"))
    stage.runtime = attrs.evolve(stage.runtime, version=RuntimeVersion.of(version), nvproxy=wanted, drivers=drivers)
    return stage


@pytest.mark.parametrize(
    ("version", "wanted", "flags", "annotation"),
    [
        (R24, Nvproxy.AUTO, (FLAG, SECCOMP), None),
        (CURRENT, Nvproxy.AUTO, (SECCOMP,), "true"),
        (R24, Nvproxy.OFF, (SECCOMP,), None),
        (CURRENT, Nvproxy.OFF, (SECCOMP,), None),
    ],
)
async def test_the_sandbox_is_told_as_a_whole_and_recorded_with_it(version, wanted, flags, annotation):
    stage = a_stage_of(version, wanted)
    await bring_up(stage)
    assert stage.flags.extra == flags
    assert stage.plan.record.flags == driver(stage).flags == stage.flags
    assert config_of(stage, "pause")["annotations"].get(ANNOTATION) == annotation
    for name in ("trainer", "logger"):
        assert ANNOTATION not in config_of(stage, name)["annotations"]
    assert driver(stage).nvidia_driver == ("570.1" if wanted is Nvproxy.AUTO else None)


@pytest.mark.parametrize("version", [R24, CURRENT])
async def test_it_is_one_container_that_claims_and_the_whole_sandbox_that_is_told_and_confined(version):
    """Case 004: the root has no GPU, and the sandbox's flag is on when any container has one."""
    stage = a_stage_of(version, trainer=1, logger=0, sidecar=0)
    await bring_up(stage)
    filters = {
        name: config_of(stage, name)["linux"].get("seccomp") for name in ("trainer", "logger", "sidecar", "pause")
    }
    assert filters["trainer"] == filters["logger"] == filters["sidecar"] is not None
    assert filters["pause"] is None
    assert stage.ports.files.content[confine_path(stage.activation)] == confine_elf("x86_64")
    assert driver(stage).confine == confine_path(stage.activation)


@pytest.mark.parametrize("version", [R24, CURRENT])
async def test_an_actor_without_a_claim_is_told_nothing_on_a_node_with_gpus(version):
    stage = a_stage_of(version, known=("1.2.3",), web=0)
    await prepare(stage, stage.assignment.containers, step=Step.CREATE)
    assert stage.flags == stage.runtime.flags == driver(stage).flags
    assert ANNOTATION not in config_of(stage, "pause")["annotations"]
    assert "seccomp" not in config_of(stage, "web")["linux"]
    assert confine_path(stage.activation) not in stage.ports.files.content
    assert (driver(stage).confine, driver(stage).nvidia_driver) == (None, None)


@pytest.mark.parametrize("version", [R24, CURRENT])
def test_a_snapshot_tells_whether_calls_were_passed_on(version):
    auto, off = (flags_of(a_stage_of(version, wanted)).as_list() for wanted in (Nvproxy.AUTO, Nvproxy.OFF))
    assert set(auto) != set(off)


# ------------------------------------------------------------------------------------------ case 018: an unknown driver


async def test_a_driver_that_runsc_does_not_know_is_told_before_a_sandbox_is_made():
    stage = a_stage_of(R24, known=("535.129.03", "570.2", "570.124.06"))
    await bring_up(stage)
    problem = await problem_of(Steps(stage).perform(c.CreateSandbox(), an_actor()))
    assert (problem.step, problem.reason) == (Step.CREATE, Reason.DRIVER_UNSUPPORTED_BY_RUNTIME)
    assert problem.subject == "driver 570.1"
    assert "570.2" in problem.message
    assert stage.sandbox is None


@pytest.mark.parametrize(("wanted", "known"), [(Nvproxy.OFF, ("1.2.3",)), (Nvproxy.AUTO, None)])
async def test_where_nothing_is_passed_on_or_nothing_is_known_it_goes_on(wanted, known):
    stage = a_stage_of(R24, wanted, known=known)
    await bring_up(stage)
    await require_known_driver(stage, step=Step.CREATE)  # raises otherwise
    assert driver(stage).nvidia_driver == (None if wanted is Nvproxy.OFF else "570.1")


# ------------------------------------------------------------------------------------------------------ over a snapshot


@pytest.mark.parametrize(("version", "word"), [(R24, FLAG), (CURRENT, f"{ANNOTATION}=true")])
async def test_a_snapshot_is_restored_only_where_calls_are_passed_on_as_they_were(version, word):
    stage = a_stage_of(version)
    snapshot = await suspended(stage)
    assert {word, SECCOMP} <= set((await manifest_of(stage, snapshot)).runsc.flags)

    stage.runtime = attrs.evolve(stage.runtime, nvproxy=Nvproxy.OFF)
    refused: Any = await Steps(stage).perform(c.RestoreSandbox(snapshot=snapshot), an_actor())
    assert isinstance(refused, RestoreRefused)
    assert refused.problem.reason is Reason.SNAPSHOT_INCOMPATIBLE
    name, _, value = word.partition("=")
    assert refused.problem.subject in {f"flag {name}", f"annotation {name}"}
    assert f"was {value} in the snapshot" in refused.problem.message


async def test_a_restore_is_refused_where_runsc_does_not_know_the_driver_and_the_snapshot_stays():
    stage = a_stage_of(R24)
    snapshot = await suspended(stage)
    known = a_stage_of(R24, known=("1.2.3",)).runtime.drivers
    stage.runtime = attrs.evolve(stage.runtime, drivers=known)
    await bring_up(stage, origin=snapshot)
    refused: Any = await Steps(stage).perform(c.RestoreSandbox(snapshot=snapshot), an_actor())
    assert isinstance(refused, RestoreRefused)
    assert (refused.problem.reason, refused.problem.step) == (Reason.DRIVER_UNSUPPORTED_BY_RUNTIME, Step.RESTORE)
    assert await manifest_of(stage, snapshot)
