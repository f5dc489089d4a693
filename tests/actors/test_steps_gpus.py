"""Detect, generate, partition, inject: exactly the GPUs that were claimed, or a reason why not."""

import errno
import json
from pathlib import Path
from typing import Any

import attrs
import pytest
from structlog.testing import capture_logs

from actors.cdi import DeviceNode, Hook
from actors.gpu.partition import Claim
from actors.steps.bundles import bundles_of
from actors.steps.performer import Steps
from statemachine import commands as c
from statemachine import events as e
from statemachine.actor import Resource
from statemachine.problem import Problem, ProblemError, Step
from statemachine.reasons import Reason
from tests.actors.gpu_stage import (
    LIBRARY,
    MINORS,
    UP,
    a_desk,
    bring_up,
    config_of,
    given,
    gpu_stage,
    identity_of,
    links_of,
    nodes_of,
    problem_of,
    with_common,
)
from tests.actors.step_stage import an_actor, reason_of
from tests.gpu.making import CONTROL, LINKS, gpu, spec

pytestmark = pytest.mark.anyio


def nodes(*minors):
    """The device nodes of a container with these GPUs."""
    return sorted(["/dev/nvidia-uvm", "/dev/nvidiactl", *(f"/dev/nvidia{minor}" for minor in minors)])


# ----------------------------------------------------------------------------------------------------------- the way up


async def test_each_container_gets_exactly_what_it_claims_and_pause_nothing():
    stage = gpu_stage(trainer=1, logger=0, eval=2)
    answers = await bring_up(stage)
    assert answers == [e.GpusDetected(), e.SpecGenerated(), e.GpusPartitioned(), e.EditsInjected()]
    configs = {name: config_of(stage, name) for name in ("trainer", "logger", "eval", "pause")}
    assert {name: nodes_of(config) for name, config in configs.items()} == {
        "trainer": nodes(2),
        "logger": [],
        "eval": nodes(3, 5),
        "pause": [],
    }
    for name in ("logger", "pause"):
        assert "nvidia" not in json.dumps(configs[name]).lower()
    assert "NVIDIA_VISIBLE_DEVICES=void" in configs["trainer"]["process"]["env"]
    for name in ("trainer", "eval"):
        for node in configs[name]["linux"]["devices"]:
            assert {"type", "major", "minor", "fileMode"} <= node.keys()


async def test_a_container_is_told_its_gpus_by_ordinal():
    stage = gpu_stage(trainer=1, eval=2)
    await bring_up(stage)
    found = identity_of(stage, "eval")
    assert [(each["ordinal"], each["now"]["minor"], each["atSnapshot"]) for each in found["gpus"]] == [
        (0, 3, None),
        (1, 5, None),
    ]
    (mount,) = [
        each for each in config_of(stage, "eval")["mounts"] if each["destination"] == "/run/greenroom/gpus.json"
    ]
    assert mount["source"] == str(stage.activation / "gpus/eval/gpus.json")
    assert {"ro", "bind"} <= set(mount["options"])


async def test_the_host_says_which_numbers_a_node_has_not_the_spec():
    nodes = (CONTROL[0], DeviceNode(path="/dev/nvidia-uvm", type="c", major=510, minor=0))
    stage = gpu_stage(trainer=1, desk=with_common(device_nodes=nodes))
    with capture_logs() as logs:
        await bring_up(stage)
    (uvm,) = [each for each in config_of(stage, "trainer")["linux"]["devices"] if each["path"] == "/dev/nvidia-uvm"]
    assert (uvm["major"], uvm["minor"]) == (511, 0)
    (told,) = [each["warning"] for each in logs if each["event"] == "injected"]
    assert "510:0" in told
    assert "511:0" in told


@pytest.mark.parametrize("place", [{"/dev/nvidia-uvm": b"a file"}, {"/dev/nvidia2": b"a file"}, {"/dev/nvidia2": None}])
async def test_a_node_that_is_none_is_refused_and_no_config_is_written(place):
    stage = gpu_stage(trainer=1)
    files: Any = stage.ports.files
    for path, data in place.items():
        del files.devices[Path(path)], files.content[Path(path)]
        if data is not None:
            files.put(Path(path), data)
    problem = await problem_of(bring_up(stage))
    assert (problem.step, problem.reason) == (Step.INJECT, Reason.CDI_DEVICE_UNRESOLVED)
    assert problem.subject == next(iter(place))
    assert not [path for path in files.below(stage.activation) if path.endswith("trainer/config.json")]


async def test_a_gpu_that_the_spec_has_not_is_refused_before_anything_is_made():
    stage = gpu_stage(trainer=1, desk=a_desk(*MINORS, spec=spec(3, 5, 7)))
    problem = await problem_of(bring_up(stage))
    assert (problem.step, problem.reason) == (Step.INJECT, Reason.CDI_DEVICE_UNRESOLVED)
    assert "known: 0, GPU-3" in problem.message
    assert stage.activation is None


async def test_what_cannot_be_injected_into_a_document_is_the_bundles_fault():
    odd = given(linux={"resources": {"devices": {}}})
    stage = gpu_stage(trainer=1, bundles={"trainer": odd})
    problem = await problem_of(bring_up(stage))
    assert (problem.step, problem.reason, problem.subject) == (Step.INJECT, Reason.INVALID_BUNDLE, "trainer")
    assert "linux.resources.devices" in problem.message


@pytest.mark.parametrize(
    ("operation", "path"),
    [("make_links", "lib-*"), ("make_tree", "gpus.json"), ("make_tree", "config.json"), ("lstat", "lib-*")],
)
async def test_a_state_directory_that_cannot_be_written_is_a_problem_of_inject(operation, path):
    stage = gpu_stage(trainer=1)
    stage.ports.files.fail(operation, path, errno.EROFS)
    problem = await problem_of(bring_up(stage))
    assert (problem.step, problem.reason) == (Step.INJECT, Reason.STATE_UNWRITABLE)


async def test_what_inject_has_made_goes_with_the_activation_but_for_the_links():
    stage = gpu_stage(trainer=1)
    await bring_up(stage)
    assert stage.ports.files.below(stage.state_dir.sandboxes)
    await Steps(stage).perform(c.RollBack(undo=(Resource.BUNDLES, Resource.GRANT)), an_actor())
    assert not stage.ports.files.below(stage.state_dir.sandboxes)
    assert len(links_of(stage)) == 1


async def test_the_bundles_that_inject_made_are_taken_by_create_and_only_once():
    stage = gpu_stage(trainer=1, logger=0)
    await bring_up(stage)
    plan, activation = stage.plan, stage.activation
    assert plan is not None
    assert plan.names == ("trainer", "logger")
    assert await bundles_of(stage, stage.assignment.containers, step=Step.CREATE) is plan
    assert stage.activation is activation
    with pytest.raises(ValueError, match="no devices were injected for trainer, logger"):
        await bundles_of(stage, stage.assignment.containers, step=Step.CREATE)


async def test_an_actor_with_a_claim_is_never_created_without_its_devices():
    stage = gpu_stage(trainer=1)
    with pytest.raises(ValueError, match="no devices were injected"):
        await Steps(stage).perform(c.CreateSandbox(), an_actor())
    with pytest.raises(ValueError, match="nothing to inject"):
        await Steps(stage).perform(c.InjectEdits(), an_actor())
    assert not stage.ports.files.below(stage.state_dir.sandboxes)


async def test_only_the_rootfs_of_a_container_with_mounts_of_ours_is_covered():
    stage = gpu_stage(trainer=1, logger=0)
    await bring_up(stage)
    assert stage.plan is not None
    trainer, logger = stage.plan.containers
    assert logger.cover is None
    assert trainer.cover is not None
    assert trainer.cover.rootfs == Path("/assignments/rootfs")
    assert trainer.cover.program.is_relative_to(stage.activation)
    assert trainer.cover.scratch in stage.ports.files.content


async def test_a_second_activation_pays_nothing_for_the_links():
    stage, made = gpu_stage(trainer=1), []
    for _ in range(2):
        await bring_up(stage)
        await Steps(stage).perform(c.RollBack(undo=(Resource.BUNDLES, Resource.GRANT)), an_actor())
        made.append(len([each for each in stage.ports.files.done if each[0] == "make_links"]))
    assert made == [1, 1]


async def test_the_links_lead_to_the_mounted_libraries_and_are_mounted_from_beside_their_spec():
    stage = gpu_stage(trainer=1)
    await bring_up(stage)
    ((directory, links),) = links_of(stage).items()
    assert links == dict.fromkeys(("libcuda.so", "libcuda.so.1", "libcuda.so.570.1"), LIBRARY)
    assert directory.parent == stage.state_dir.cdi / "00ff"
    (mount,) = [each for each in config_of(stage, "trainer")["mounts"] if each["destination"] == "/run/greenroom/lib"]
    assert mount["source"] == str(directory)


async def test_other_links_never_replace_those_that_an_actor_may_use():
    stage = gpu_stage(trainer=1)
    await bring_up(stage)
    before = links_of(stage)
    await Steps(stage).perform(c.RollBack(undo=(Resource.BUNDLES, Resource.GRANT)), an_actor())
    stage.gpus = a_desk(*MINORS, libraries=())
    await bring_up(stage)
    after = links_of(stage)
    assert before.items() <= after.items()


async def test_case_014_allowlisted_hooks_are_written_as_the_toolkits_own_program_and_no_other_is():
    evil = attrs.evolve(LINKS, path="/tmp/evil", env=("LD_PRELOAD=/tmp/evil.so",))
    odd = Hook(hook_name="createContainer", path="/x", args=("nvidia-cdi-hook", "brand-new-hook"))
    stage = gpu_stage(a=1, b=0, desk=with_common(hooks=(odd, evil, LINKS), hook=Path("/toolkit/nvidia-cdi-hook")))
    await bring_up(stage)
    written = {"path": "/toolkit/nvidia-cdi-hook", "args": list(LINKS.args)}
    assert config_of(stage, "a")["hooks"] == {"createContainer": [written]}
    assert "hooks" not in config_of(stage, "b")


async def test_skipped_hooks_and_warnings_are_told_once_however_many_containers_there_are():
    odd = Hook(hook_name="createContainer", path="/x", args=("nvidia-cdi-hook", "brand-new-hook"))
    nodes = (*CONTROL, DeviceNode(path="/dev/nvidia-modeset"))
    stage = gpu_stage(a=1, b=1, d=1, desk=with_common(hooks=(LINKS, odd), device_nodes=nodes))
    with capture_logs() as logs:
        await bring_up(stage)
    skipped = [each["name"] for each in logs if each["event"] == "skipped"]
    warnings = [each["warning"] for each in logs if each["event"] == "injected"]
    assert skipped == ["brand-new-hook"]
    assert warnings == ["/dev/nvidia-modeset is in the CDI spec and not on this host"]
    assert "hooks" not in config_of(stage, "a")


# ------------------------------------------------------------------------------------------------ what the desk refuses


@pytest.mark.parametrize(("what", "step", "command"), [
    ("inventory", Step.DETECT, c.DetectGpus),
    ("spec", Step.GENERATE, c.GenerateSpec),
    ("grant", Step.PARTITION, c.PartitionGpus),
])  # fmt: skip
async def test_what_the_desk_refuses_ends_the_step_with_its_reason(what, step, command):
    stage = gpu_stage(trainer=1)
    problem = Problem(step=step, reason=Reason.NVML_UNAVAILABLE, subject="nvml", message="it hangs")
    desk: Any = stage.gpus
    desk.fails[what] = ProblemError(problem)
    assert await problem_of(bring_up(stage)) == problem
    assert isinstance(UP[[type(each) for each in UP].index(command)], command)
    assert stage.activation is None


@pytest.mark.parametrize(
    ("claims", "minors", "reason"),
    [({"a": 3, "b": 2}, MINORS, Reason.INSUFFICIENT_GPUS), ({"a": 1}, (), Reason.GPU_NOT_DETECTED)],
)
async def test_more_than_the_pod_has_is_refused_before_a_spec_is_made(claims, minors, reason):
    stage = gpu_stage(minors=minors, **claims)
    problem = await problem_of(bring_up(stage))
    assert (problem.step, problem.reason) == (Step.DETECT, reason)
    desk: Any = stage.gpus
    assert desk.story == ["inventory"]


async def test_what_others_hold_is_for_partition_to_say():
    stage = gpu_stage(trainer=2)
    desk: Any = stage.gpus
    await desk.grant("other", [Claim("main", 3)])
    problem = await problem_of(bring_up(stage))
    assert (problem.step, problem.reason) == (Step.PARTITION, Reason.INSUFFICIENT_GPUS)
    assert "other holds 3" in problem.message


async def test_a_kept_grant_stays_although_one_of_its_gpus_alone_would_not_do():
    stage = gpu_stage(trainer=4)
    await bring_up(stage, until=c.PartitionGpus)
    first = stage.granted
    desk: Any = stage.gpus
    desk.gpus = desk.gpus.with_lost("GPU-5", "XID 79")
    assert await Steps(stage).perform(c.DetectGpus(), an_actor()) == e.GpusDetected()
    problem = await problem_of(Steps(stage).perform(c.PartitionGpus(), an_actor()))
    assert problem.reason is Reason.GPU_LOST
    assert stage.granted == first


async def test_a_gpu_that_came_since_detect_looked_is_looked_at():
    stage = gpu_stage(trainer=2, minors=(2, 3))
    desk: Any = stage.gpus
    await bring_up(stage, until=c.GenerateSpec)
    desk.gpus = attrs.evolve(desk.gpus, gpus=(gpu(1), gpu(3)))
    await Steps(stage).perform(c.PartitionGpus(), an_actor())
    assert [each.minor for each in stage.granted["trainer"]] == [1, 3]


# ------------------------------------------------------------------------------------------------------- giving it back

UNDO = (Resource.BUNDLES, Resource.GRANT)


@pytest.mark.parametrize("command", [
    c.RollBack(undo=UNDO), c.StopContainers(undo=UNDO, grace_s=0.0), c.ReleaseSandbox(undo=UNDO)
])  # fmt: skip
async def test_the_grant_is_given_back_once_the_sandbox_is_ended(command):
    stage = gpu_stage(trainer=1)
    await bring_up(stage)
    desk: Any = stage.gpus
    stage.ports.files.fail("remove_tree", stage.activation, errno.EBUSY)
    assert await reason_of(Steps(stage).perform(command, an_actor())) is Reason.STATE_UNWRITABLE
    assert desk.grants("a1") != ()
    assert stage.granted
    stage.ports.files.failures.clear()
    await Steps(stage).perform(command, an_actor())
    assert desk.grants("a1") == ()
    assert not stage.granted


async def test_a_grant_that_is_kept_over_a_backoff_stays():
    stage = gpu_stage(trainer=1)
    await bring_up(stage)
    held = stage.gpus.grants("a1")
    await Steps(stage).perform(c.RollBack(undo=(Resource.BUNDLES,)), an_actor())
    assert stage.gpus.grants("a1") == held
    await bring_up(stage)
    assert stage.gpus.grants("a1") == held
    assert nodes_of(config_of(stage, "trainer")) == nodes(2)


# ------------------------------------------------------------------------------------------------------------ its price


class Counted:
    """Files, with a count of the calls."""

    def __init__(self, files):
        self._files, self.calls = files, []

    def __getattr__(self, name):
        self.calls.append(name)
        return getattr(self._files, name)


async def test_from_detect_to_injected_with_a_warm_spec_a_few_calls_of_the_port_are_made():
    stage = gpu_stage(trainer=1, eval=1, logger=0)
    await bring_up(stage)
    await Steps(stage).perform(c.RollBack(undo=UNDO), an_actor())
    counted: Any = Counted(stage.ports.files)
    ports: Any = stage.ports
    ports.files = counted
    await bring_up(stage)
    # The nodes, the links, every rootfs; and all that is made.
    assert counted.calls == ["lstat_each", "lstat", "stat_each", "make_tree"]
