"""Suspend and resume with GPUs: what a snapshot says of them, and on which others it can be restored."""

import json
from typing import Any

import attrs
import pytest

from actors.cdi import Mount
from actors.manifest import SnapshotGpu, read_manifest
from actors.steps.performer import Steps
from actors.steps.suspend import save_snapshot
from statemachine import commands as c
from statemachine import events as e
from statemachine.actor import Actor, ContainerFate, OnDifference, Resource
from statemachine.problem import Step
from statemachine.reasons import Reason
from statemachine.states import State
from tests.actors.gpu_stage import (
    MINORS,
    a_desk,
    bring_up,
    config_of,
    gpu_stage,
    identity_of,
    nodes_of,
    put_nodes,
    with_common,
)
from tests.actors.step_stage import an_actor, saved, shaped
from tests.fakes.gpus import FakeDesk
from tests.fakes.sandbox import FakeSandbox
from tests.gpu.making import LIBRARY, gpu, spec

pytestmark = pytest.mark.anyio

UNDO = (Resource.UNPROVEN_SNAPSHOT, Resource.SANDBOX, Resource.BUNDLES, Resource.GRANT)
CLAIMS = {"trainer": 2, "logger": 0, "eval": 1}
OTHER = (10, 11, 12)
CONTROL = ("/dev/nvidia-uvm", "/dev/nvidiactl")
SOCKET = Mount(host_path="/run/nvidia-persistenced/socket", container_path="/run/nvidia-persistenced/socket")


def running(stage, *, exited=None):
    """What is at hand once create has been: a sandbox of these containers. The actor, as the machine has it."""
    names = [each.name for each in stage.assignment.containers]
    sandbox: Any = FakeSandbox(stage.ports.files, tuple(names))
    stage.sandbox = sandbox
    fates = tuple(ContainerFate(name=name, exit_code=(exited or {}).get(name)) for name in names)
    return Actor(state=State.SUSPENDING, containers=fates)


async def refusal_of(stage, snapshot, **more):
    """Why the snapshot must not be restored, as inject answers."""
    *_, refused = await bring_up(stage, origin=snapshot, **more)
    assert isinstance(refused, e.RestoreRefused)
    return refused.problem


async def suspended(stage, **exited):
    """The snapshot of an actor that was brought up, saved and released."""
    await bring_up(stage)
    proven: Any = await save_snapshot(stage, running(stage, exited=exited))
    assert isinstance(proven, e.SnapshotProven)
    actor = attrs.evolve(an_actor(), last_good=proven.snapshot)
    assert await Steps(stage).perform(c.ReleaseSandbox(undo=UNDO), actor) == e.SandboxReleased()
    return proven.snapshot


async def manifest_of(stage, snapshot):
    return await read_manifest(stage.ports.files, stage.directory.snapshot(snapshot.id))


def on_other_gpus(stage, *minors, **changes):
    """The actor is on another pod now."""
    put_nodes(stage.ports.files, *minors)
    stage.gpus = a_desk(*minors, **changes)


async def test_a_snapshot_says_which_gpus_each_container_had_and_by_which_driver():
    stage = gpu_stage(**CLAIMS)
    manifest = await manifest_of(stage, await suspended(stage))
    assert (manifest.driver, manifest.toolkit) == ("570.1", "1.20.0")
    assert {each.name: [gpu.uuid for gpu in each.gpus] for each in manifest.containers} == {
        "trainer": ["GPU-2", "GPU-3"],
        "logger": [],
        "eval": ["GPU-5"],
    }
    assert manifest.containers[2].gpus == (
        SnapshotGpu(ordinal=0, uuid="GPU-5", model="NVIDIA H100", minor=5, pci_bus_id="0000:eb:00.0"),
    )
    shape = manifest.containers[0].shape
    assert [each.path for each in shape.devices] == sorted([*(f"/dev/nvidia{n}" for n in (2, 3)), *CONTROL])
    assert {"/run/greenroom/lib", "/run/greenroom/gpus.json"} <= {each.destination for each in shape.mounts}


async def test_a_snapshot_without_gpus_names_no_driver():
    stage, _, _ = shaped()
    manifest = await manifest_of(stage, await saved(stage))
    assert (manifest.driver, manifest.toolkit, manifest.containers[0].gpus) == (None, None, ())


async def test_a_restore_on_other_gpus_keeps_ordinals_and_says_what_changed():
    stage = gpu_stage(**CLAIMS)
    snapshot = await suspended(stage)
    on_other_gpus(stage, *OTHER)
    assert (await bring_up(stage, origin=snapshot))[-1] == e.EditsInjected()
    assert nodes_of(config_of(stage, "trainer")) == sorted(["/dev/nvidia10", "/dev/nvidia11", *CONTROL])
    found = identity_of(stage, "trainer")["gpus"]
    assert [(each["atSnapshot"]["uuid"], each["now"]["uuid"]) for each in found] == [
        ("GPU-2", "GPU-10"),
        ("GPU-3", "GPU-11"),
    ]
    assert [each["atSnapshot"]["minor"] for each in identity_of(stage, "eval")["gpus"]] == [5]
    assert "nvidia" not in json.dumps(config_of(stage, "logger"))


async def test_a_cold_start_after_a_restore_was_never_at_a_snapshot():
    stage = gpu_stage(trainer=1)
    snapshot = await suspended(stage)
    await bring_up(stage, origin=snapshot)
    await Steps(stage).perform(c.RollBack(undo=UNDO), an_actor())
    await bring_up(stage)
    assert identity_of(stage, "trainer")["gpus"][0]["atSnapshot"] is None


async def test_the_mounts_are_the_snapshots_from_where_the_files_are_today():
    old = Mount(host_path="/driver/old", container_path="/usr/lib64/libold.so.1", options=("ro", "bind"))
    stage = gpu_stage(trainer=1, desk=with_common(mounts=(LIBRARY, old)))
    snapshot = await suspended(stage)
    (container,) = (await manifest_of(stage, snapshot)).containers
    then = {each.destination: (each.type, list(each.options)) for each in container.shape.mounts}
    moved = (attrs.evolve(LIBRARY, host_path="/new/libcuda.so.570.1"), attrs.evolve(old, host_path="/new/old"), SOCKET)
    stage.gpus = with_common(mounts=moved)
    await bring_up(stage, origin=snapshot)
    now = {each["destination"]: each for each in config_of(stage, "trainer")["mounts"]}
    assert {path: (each["type"], each["options"]) for path, each in now.items()} == then
    assert now["/usr/lib64/libold.so.1"]["source"] == "/new/old"


@pytest.mark.parametrize("on_difference", OnDifference)
async def test_a_mount_that_is_missing_today_is_refused_before_anything_is_made_and_cannot_be_forced(on_difference):
    stage = gpu_stage(trainer=1, desk=with_common(mounts=(LIBRARY, SOCKET)))
    snapshot = await suspended(stage)
    stage.gpus = a_desk(*MINORS)
    problem = await refusal_of(stage, snapshot, on_difference=on_difference)
    assert (problem.step, problem.reason, problem.subject) == (
        Step.RESTORE,
        Reason.MOUNT_MISSING,
        "trainer: mount /run/nvidia-persistenced/socket",
    )
    assert stage.activation is None
    assert not stage.ports.files.below(stage.state_dir.sandboxes)


OTHER_PODS = {
    "a driver": (lambda: a_desk(*OTHER, driver="580.65"), "driver", "570.1", "580.65"),
    "a model": (
        lambda: FakeDesk([gpu(10), gpu(11, model="NVIDIA A100"), gpu(12)], a_desk(*OTHER).kept),
        "trainer: GPU 1",
        "NVIDIA H100",
        "NVIDIA A100",
    ),
}


@pytest.mark.parametrize("pod", OTHER_PODS)
async def test_another_pod_on_which_it_cannot_run_is_refused_before_anything_is_made(pod):
    stage = gpu_stage(**CLAIMS)
    snapshot = await suspended(stage)
    put_nodes(stage.ports.files, *OTHER)
    make, subject, then, now = OTHER_PODS[pod]
    stage.gpus = make()
    problem = await refusal_of(stage, snapshot)
    assert (problem.step, problem.reason, problem.subject) == (Step.RESTORE, Reason.SNAPSHOT_INCOMPATIBLE, subject)
    assert then in problem.message
    assert now in problem.message
    assert stage.activation is None


def with_arguments(stage, *argv):
    """The actor's assignment, with other arguments for its first container."""
    first, *others = stage.assignment.containers
    changed = attrs.evolve(first, source=attrs.evolve(first.source, argv=argv))
    return attrs.evolve(stage.assignment, containers=(changed, *others))


async def test_other_arguments_beside_a_grant_are_refused_before_anything_is_made_and_forced_where_wished():
    stage = gpu_stage(**CLAIMS)
    snapshot = await suspended(stage)
    stage.assignment = with_arguments(stage, "/bin/app", "--new")
    problem = await refusal_of(stage, snapshot)
    assert (problem.reason, problem.subject) == (Reason.BUNDLE_CHANGED, "trainer: argument 1")
    assert stage.activation is None
    answers = await bring_up(stage, origin=snapshot, on_difference=OnDifference.FORCE)
    assert answers[-1] == e.EditsInjected()
    command = c.RestoreSandbox(snapshot=snapshot)
    # Once all is injected, restore finds the same.
    refused: Any = await Steps(stage).perform(command, an_actor())
    assert refused.problem.subject == "trainer: argument 1"


@pytest.mark.parametrize(("trainer", "eval_"), [(1, 1), (3, 1), (1, 2), (2, 0)])
async def test_another_number_of_gpus_than_in_the_snapshot_is_refused_before_anything_is_made(trainer, eval_):
    stage = gpu_stage(**CLAIMS)
    snapshot = await suspended(stage)
    other = gpu_stage(trainer=trainer, logger=0, eval=eval_)
    stage.assignment = other.assignment
    problem = await refusal_of(stage, snapshot)
    assert (problem.step, problem.reason) == (Step.RESTORE, Reason.SNAPSHOT_INCOMPATIBLE)
    assert problem.subject in {"trainer: GPUs", "eval: GPUs"}
    assert "cannot be forced" in problem.hint
    assert stage.activation is None


async def test_a_snapshot_with_gpus_is_not_restored_by_an_actor_that_claims_none():
    stage = gpu_stage(**CLAIMS)
    snapshot = await suspended(stage)
    plain = gpu_stage(trainer=0, logger=0, eval=0)
    stage.assignment, stage.spec = plain.assignment, None
    refused: Any = await Steps(stage).perform(c.RestoreSandbox(snapshot=snapshot), an_actor())
    assert refused.problem.reason is Reason.SNAPSHOT_INCOMPATIBLE
    assert stage.activation is None


@pytest.mark.parametrize(("damage", "reason"), [("gone", Reason.SNAPSHOT_MISSING), ("odd", Reason.SNAPSHOT_CORRUPT)])
async def test_a_snapshot_that_cannot_be_read_is_refused_before_anything_is_made(damage, reason):
    stage = gpu_stage(trainer=1)
    snapshot = await suspended(stage)
    path = stage.directory.snapshot(snapshot.id) / "manifest.json"
    files: Any = stage.ports.files
    if damage == "gone":
        del files.content[path]
    else:
        files.put(path, b"{")
    problem = await refusal_of(stage, snapshot)
    assert (problem.step, problem.reason) == (Step.RESTORE, reason)
    assert stage.activation is None


async def test_a_container_that_had_exited_keeps_its_claim_and_is_not_made_again():
    stage = gpu_stage(**CLAIMS)
    snapshot = await suspended(stage, eval=0)
    manifest = await manifest_of(stage, snapshot)
    assert [gpu.uuid for gpu in manifest.containers[2].gpus] == ["GPU-5"]
    await bring_up(stage, origin=snapshot)
    assert stage.plan is not None
    assert stage.plan.names == ("trainer", "logger")
    assert stage.exited == {"eval": 0}
    assert [each.minor for each in stage.granted["eval"]] == [5]


async def test_restore_takes_the_bundles_that_inject_made_for_it():
    stage = gpu_stage(**CLAIMS)
    snapshot = await suspended(stage)
    await bring_up(stage, origin=snapshot)
    activation = stage.activation
    with pytest.raises(AttributeError):  # the fakes have no process to run, which is the next thing it wants
        await Steps(stage).perform(c.RestoreSandbox(snapshot=snapshot), an_actor())
    assert stage.activation is activation
    assert stage.plan is None


async def test_a_spec_that_is_made_anew_later_is_for_whoever_comes_next():
    stage = gpu_stage(trainer=1)
    await bring_up(stage, until=c.GenerateSpec)
    kept = stage.spec
    desk: Any = stage.gpus
    desk.kept = a_desk(*MINORS, spec=spec(3, 5, 7), driver="580.65").kept
    for command in (c.PartitionGpus(), c.InjectEdits()):
        await Steps(stage).perform(command, an_actor())
    assert stage.spec is kept
