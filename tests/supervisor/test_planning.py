"""The plan of an assignment's GPUs: what would be granted and written, by the functions that do it; nothing is done."""

import json
import re
from pathlib import Path

import attrs
import pytest

from actors.admission import decode
from actors.assignment import Bundle
from actors.bundle.capabilities import Claims
from actors.bundle.composing import compose_each
from actors.bundle.config import hostname_of
from actors.gpu.desk import KeptSpec
from actors.gpu.injection_plan import MARKER
from actors.gpu.inventory import Inventory
from actors.gpu.links import Library
from actors.gpu.spec_inventory import spec_inventory
from actors.layout import StateDir
from actors.ports import FileKind
from statemachine.problem import ProblemError
from statemachine.reasons import Reason
from supervisor.planning import ACTIVATION, SANDBOX, Given, claims_any, difference, make_plan
from tests.actors.gpu_stage import MINORS, bring_up, config_of, gpu_stage, kept_spec
from tests.actors.memory_files import DIRECTORY, MemoryFiles
from tests.gpu.making import host, inventory, spec

pytestmark = pytest.mark.anyio
STATE = StateDir(Path("/state"))
ROOTFS = Path("/a/rootfs")


def assignment(*claims, **spec_fields):
    containers = [
        {"name": name, "rootfs": "rootfs", "command": ["x"]}
        | ({"resources": {"limits": {"nvidia.com/gpu": count}}} if count else {})
        for name, count in claims
    ]
    document = {
        "apiVersion": "greenroom.dev/v1alpha1",
        "kind": "WorkerAssignment",
        "metadata": {"uid": "a1", "generation": 1},
        "spec": {"desiredState": "Running", "containers": containers, **spec_fields},
    }
    return decode(json.dumps(document).encode(), base=Path("/a"))


class Node(MemoryFiles):
    """A pod's files in memory, with the device nodes of some GPUs."""

    def __init__(self, *minors, content=()):
        super().__init__({ROOTFS: DIRECTORY, **dict(content)})
        self.nodes = host(*minors)

    async def lstat(self, path):
        found = self.nodes(str(path))
        if found is None:
            return await super().lstat(path)
        return attrs.evolve(
            await super().lstat(ROOTFS),
            mode=found.mode,
            device=(found.major, found.minor),
            kind=FileKind.CHARACTER_DEVICE,
        )


def kept(*minors, **more):
    return KeptSpec(
        identity="0123456789abcdef",
        path=Path("/spec.json"),
        spec=spec(*minors, **more),
        driver="570.1",
        toolkit="1.20.0",
        libraries=(Library(path="/usr/lib64/libcuda.so.570.1", soname="libcuda.so.1"),),
    )


def given(*minors, **lost):
    return Given(inventory=inventory(*minors, **lost), spec=kept(*minors))


async def planned(wanted, what, files):
    before = dict(files.content)
    try:
        return await make_plan(files, wanted, what, state_dir=STATE)
    finally:
        assert files.content == before


THREE = (("trainer", 2), ("eval", 1), ("logger", 0))


async def test_each_container_gets_the_lowest_free_gpus_in_the_order_of_declaration_and_pause_none():
    plan = await planned(assignment(*THREE), given(7, 2, 5, 3), Node(2, 3, 5, 7))
    assert plan.as_json()["grants"] == {
        "pause": [],
        "trainer": [
            {"ordinal": 0, "uuid": "GPU-2", "minor": 2, "path": "/dev/nvidia2"},
            {"ordinal": 1, "uuid": "GPU-3", "minor": 3, "path": "/dev/nvidia3"},
        ],
        "eval": [{"ordinal": 0, "uuid": "GPU-5", "minor": 5, "path": "/dev/nvidia5"}],
        "logger": [],
    }


async def test_the_answer_has_the_shape_that_is_promised():
    plan = (await planned(assignment(*THREE), given(2, 3, 5), Node(2, 3, 5))).as_json()
    assert list(plan) == ["actor", "inventory", "grants", "diffs", "warnings"]
    assert plan["actor"] == "a1"
    assert plan["inventory"][0] == {
        "minor": 2, "uuid": "GPU-2", "path": "/dev/nvidia2", "pciBusId": "0000:ee:00.0", "model": "NVIDIA H100",
        "migDevices": None, "lost": None,
    }  # fmt: skip
    assert list(plan["diffs"]) == ["pause", "trainer", "eval", "logger"]
    json.dumps(plan)


def added(diff):
    return "\n".join(line[1:] for line in diff.splitlines() if line.startswith("+"))


def nodes_in(diff):
    return set(re.findall(r"/dev/nvidia[\w-]*", added(diff)))


async def test_a_diff_has_exactly_what_is_injected_and_what_gets_nothing_has_none():
    plan = await planned(assignment(*THREE), given(2, 3, 5), Node(2, 3, 5))
    control = {"/dev/nvidiactl", "/dev/nvidia-uvm"}
    assert nodes_in(plan.diffs["trainer"]) == {"/dev/nvidia2", "/dev/nvidia3", *control}
    assert nodes_in(plan.diffs["eval"]) == {"/dev/nvidia5", *control}
    assert (plan.diffs["logger"], plan.diffs["pause"]) == ("", "")
    text = added(plan.diffs["eval"])
    for part in (
        "NVIDIA_VISIBLE_DEVICES=void",
        "LD_LIBRARY_PATH=/run/greenroom/lib",
        "/state/sandboxes/ACTIVATION/gpus/eval/gpus.json",
        "/state/cdi/0123456789abcdef/lib-",
        '"major": 511',
    ):
        assert part in text
    assert plan.diffs["eval"].startswith("--- eval/config.json without GPUs\n+++ eval/config.json\n@@ ")


async def test_an_actor_that_claims_nothing_is_left_alone_gpu_in_the_pod_or_not():
    wanted = assignment(("web", 0))
    assert not claims_any(wanted)
    for what in (Given(), given(2)):
        plan = await planned(wanted, what, Node())
        assert (dict(plan.grants), dict(plan.diffs)) == ({"pause": (), "web": ()}, {"pause": "", "web": ""})


@pytest.mark.parametrize(
    ("what", "reason"),
    [
        (given(2), Reason.INSUFFICIENT_GPUS),
        (given(2, 3, lost={3: "XID 79"}), Reason.INSUFFICIENT_GPUS),
        (Given(inventory=Inventory(), spec=kept()), Reason.GPU_NOT_DETECTED),
        (Given(inventory=inventory(2, 3), spec=kept(2)), Reason.CDI_DEVICE_UNRESOLVED),
    ],
)
async def test_what_a_worker_would_refuse_is_refused_with_its_reason(what, reason):
    with pytest.raises(ProblemError) as caught:
        await planned(assignment(("trainer", 2)), what, Node(2, 3))
    assert caught.value.problem.reason is reason


async def test_a_node_that_is_not_there_is_told():
    with pytest.raises(ProblemError) as caught:
        await planned(assignment(("trainer", 2)), given(2, 3), Node(2))
    assert (caught.value.problem.reason, caught.value.problem.subject) == (
        Reason.CDI_DEVICE_UNRESOLVED,
        "/dev/nvidia3",
    )


async def test_a_bundle_that_brings_a_gpu_by_itself_is_refused_even_when_it_claims_none():
    config = {
        "ociVersion": "1.0.2",
        "process": {"args": ["x"], "cwd": "/"},
        "root": {"path": "rootfs"},
        "linux": {"devices": [{"path": "/dev/nvidia0", "type": "c", "major": 195, "minor": 0}]},
    }
    content = {"/b/config.json": json.dumps(config).encode(), "/b/rootfs": DIRECTORY}
    wanted = assignment(("web", 0))
    bundle = attrs.evolve(wanted.containers[0], source=Bundle(Path("/b")))
    with pytest.raises(ProblemError) as caught:
        await planned(attrs.evolve(wanted, containers=(bundle,)), Given(), Node(content=content))
    assert caught.value.problem.reason is Reason.INVALID_BUNDLE
    assert "/dev/nvidia0" in caught.value.problem.message


async def test_with_a_spec_alone_the_numbers_are_those_of_the_spec_and_what_is_not_known_is_said():
    told = spec_inventory(spec(2, 5, alias=False))
    what = Given(
        inventory=told.inventory,
        told=told.named,
        spec=attrs.evolve(kept(2, 5, alias=False), libraries=()),
        warnings=told.warnings,
    )
    plan = await planned(assignment(("trainer", 1)), what, Node())
    found = plan.as_json()
    assert found["grants"]["trainer"] == [{"ordinal": 0, "uuid": None, "minor": 2, "path": "/dev/nvidia2"}]
    assert [gpu["pciBusId"] for gpu in found["inventory"]] == [None, None]
    assert nodes_in(plan.diffs["trainer"]) == {"/dev/nvidia2", "/dev/nvidiactl", "/dev/nvidia-uvm"}
    assert any("/dev/nvidia-uvm are known on its own machine only" in warning for warning in plan.warnings)
    assert any("NVML was not asked" in warning for warning in plan.warnings)


async def test_a_plan_of_an_actor_with_a_snapshot_says_that_it_is_of_a_cold_start():
    wanted = assignment(("trainer", 1), snapshot={"uri": "file:///s"})
    plan = await planned(wanted, given(2), Node(2))
    assert any("cold start" in warning for warning in plan.warnings)


async def test_the_same_plan_twice_is_the_same_to_the_byte():
    plans = [await planned(assignment(*THREE), given(2, 3, 5), Node(2, 3, 5)) for _ in range(2)]
    assert plans[0].as_json() == plans[1].as_json()


async def test_a_difference_shows_values_of_any_script_and_order_does_not_count():
    assert difference({"a": 1, "b": "é"}, {"b": "é", "a": 1}, "web") == ""
    assert '+  "b": "ü"' in difference({"b": "é"}, {"b": "ü"}, "web")


async def test_a_plan_is_what_the_steps_write_but_for_names_that_only_a_start_has():
    stage = gpu_stage(trainer=2, eval=1, logger=0)
    what = Given(inventory=await stage.gpus.inventory(), spec=kept_spec(*MINORS))
    plan = await make_plan(stage.ports.files, stage.assignment, what, state_dir=stage.state_dir)
    await bring_up(stage)
    composed = await compose_each(
        stage.ports.files,
        stage.assignment.containers,
        sandbox_id=SANDBOX,
        hostname=hostname_of(stage.assignment),
        claims=Claims.DEVICES,
    )
    for container in stage.assignment.containers:
        written = json.dumps(config_of(stage, container.name)).replace(stage.activation.name, ACTIVATION)
        named = json.loads(written)
        named["annotations"]["io.kubernetes.cri.sandbox-id"] = SANDBOX
        expected = difference(composed[container.name], named, container.name)
        assert without_marker(plan.diffs[container.name]) == without_marker(expected)
        assert bool(expected) == (container.name != "logger")


def without_marker(diff):
    """The digest is of the paths as well, which are others."""
    return [line for line in diff.splitlines() if MARKER not in line]
