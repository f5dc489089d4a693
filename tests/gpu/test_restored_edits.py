"""A container that is restored has the shape that it had, from where things are today."""

from pathlib import Path

import attrs
import pytest

from actors.assignment import Resources, Rootfs
from actors.bundle.capabilities import Claims
from actors.bundle.config import Membership, container_config
from actors.cdi import ContainerEdits, DeviceNode, HostNode, Mount
from actors.gpu.injection_plan import OwnFiles, plan_injection, with_gpus
from actors.gpu.restored_edits import as_at_snapshot
from actors.manifest import shape_of
from statemachine.problem import Step
from statemachine.reasons import Reason
from tests.gpu.making import CONTROL, gpu, host, problems, spec

TOOLS = DeviceNode(path="/dev/nvidia-uvm-tools")
TOOLS_HERE = {TOOLS.path: HostNode(type="c", major=511, minor=1, mode=0o666)}
OPTIONS_THEN, OPTIONS_NOW = ("ro", "nosuid", "nodev", "bind"), ("ro", "nosuid", "nodev", "rbind", "rprivate")


def mount(name, options, at="/driver"):
    return Mount(host_path=f"{at}/{name}", container_path=f"/usr/lib64/{name}", options=options)


THEN = ContainerEdits(
    device_nodes=(*CONTROL, TOOLS),
    mounts=(mount("libcuda.so.570.1", OPTIONS_THEN), mount("libnvidia-ml.so.570.1", OPTIONS_THEN)),
    additional_gids=(44,),
)
NOW = ContainerEdits(
    device_nodes=(*CONTROL, TOOLS, DeviceNode(path="/dev/nvidia-modeset")),
    mounts=tuple(
        mount(name, OPTIONS_NOW, at="/new")
        for name in ("libnvidia-ml.so.570.1", "libcuda.so.570.1", "libnvidia-new.so.570.1")
    ),
    additional_gids=(44, 109),
)


def pristine():
    return container_config(
        Rootfs(path=Path("/images/trainer"), argv=("train",)),
        membership=Membership(name="trainer", sandbox_id="s1"),
        hostname="trainer-7",
        limits=Resources(),
        claims=Claims.DEVICES,
    )


def plan(common, *minors, here=()):
    modeset = {"/dev/nvidia-modeset": HostNode(type="c", major=195, minor=254, mode=0o666)}
    made = plan_injection(
        spec(*minors, common=common),
        [gpu(minor) for minor in minors],
        container="trainer",
        own=OwnFiles(links=f"/state/{minors}/lib", identity=f"/state/{minors}/gpus.json"),
        found=host(*minors, also={**TOOLS_HERE, **modeset, **dict(here)}),
    )
    assert made is not None
    return made


def shape(made):
    """What a restore compares: of the GPUs' own nodes only how many there are."""
    found = shape_of(made)
    devices = sorted("GPU" if each.path[-1].isdigit() else each.path for each in found.devices)
    mounts = sorted((each.destination, each.type, each.options) for each in found.mounts)
    return attrs.evolve(found, devices=(), mounts=()), devices, mounts


def restored(common=NOW, minors=(5, 7), before=THEN):
    then = with_gpus(pristine(), plan(before, 2, 3))
    today = as_at_snapshot(plan(common, *minors), shape_of(then), without_gpus=shape_of(pristine()))
    return then, today


def test_the_shape_is_that_of_the_snapshot_on_other_gpus_with_another_toolkit():
    then, today = restored()
    made = with_gpus(pristine(), today)
    assert shape(made) == shape(then)
    paths = {node["path"] for node in made["linux"]["devices"]}
    assert {"/dev/nvidia5", "/dev/nvidia7"} <= paths
    assert not {"/dev/nvidia2", "/dev/nvidia3"} & paths


def test_the_sources_are_todays():
    made = with_gpus(pristine(), restored()[1])
    sources = {each["destination"]: each["source"] for each in made["mounts"]}
    assert sources["/usr/lib64/libcuda.so.570.1"] == "/new/libcuda.so.570.1"
    assert sources["/run/greenroom/gpus.json"] == "/state/(5, 7)/gpus.json"


def test_what_today_has_more_is_left_out_and_told():
    _, today = restored()
    assert today.warnings == (
        "/usr/lib64/libnvidia-new.so.570.1 is left out: the snapshot was taken without it",
        "/dev/nvidia-modeset is left out: the snapshot was taken without it",
    )


def test_the_same_spec_again_changes_nothing_but_the_gpus():
    then = with_gpus(pristine(), plan(THEN, 2, 3))
    same = plan(THEN, 2, 3)
    today = as_at_snapshot(same, shape_of(then), without_gpus=shape_of(pristine()))
    assert with_gpus(pristine(), today)["mounts"] == then["mounts"]
    assert today.warnings == ()


@pytest.mark.parametrize(
    ("common", "subject"),
    [
        (attrs.evolve(NOW, mounts=NOW.mounts[:1]), "/usr/lib64/libcuda.so.570.1"),
        (attrs.evolve(NOW, device_nodes=CONTROL), "/dev/nvidia-uvm-tools"),
    ],
)
def test_what_the_snapshot_needs_and_today_has_not_is_refused(common, subject):
    (problem,) = problems(restored, common)
    assert (problem.reason, problem.subject, problem.step) == (Reason.MOUNT_MISSING, subject, Step.RESTORE)
    assert "trainer" in problem.message


def test_what_the_bundle_itself_has_is_not_for_the_spec_to_give():
    origin = pristine()
    origin["mounts"].append({"destination": "/usr/bin/nvidia-smi", "type": "bind", "source": "/own", "options": ["ro"]})
    origin["mounts"].append({"destination": "/own", "type": "bind", "source": "/own", "options": ["ro"]})
    with_tool = attrs.evolve(THEN, mounts=(*THEN.mounts, Mount(host_path="/d", container_path="/usr/bin/nvidia-smi")))
    then = with_gpus(origin, plan(with_tool, 2, 3))
    today = as_at_snapshot(plan(with_tool, 5, 7), shape_of(then), without_gpus=shape_of(origin))
    made = with_gpus(origin, today)
    assert shape(made) == shape(then)
    assert [each["source"] for each in made["mounts"] if each["destination"] == "/usr/bin/nvidia-smi"] == ["/d"]
    assert today.warnings == ()


def test_all_that_is_missing_is_told_at_once():
    assert len(problems(restored, ContainerEdits(device_nodes=CONTROL))) == 3
