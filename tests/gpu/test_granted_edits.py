import json
from pathlib import Path

import attrs
import pytest

from actors.cdi import ContainerEdits, Device, DeviceNode, HostNode, load
from actors.gpu.granted_edits import GPU_NODE, device_of, granted_edits, host_nodes
from statemachine.problem import Step
from statemachine.reasons import Reason
from tests.gpu.making import CONTROL, gpu, host, problems, spec


def paths(edits):
    return [node.path for node in edits.device_nodes]


@pytest.mark.parametrize("alias", [True, False])
@pytest.mark.parametrize("minors", [(2,), (5, 2), (2, 3, 5, 7)])
def test_a_container_gets_the_common_edits_and_exactly_its_own_devices(minors, alias):
    edits = granted_edits(spec(7, 5, 3, 2, alias=alias), [gpu(minor) for minor in minors])
    assert paths(edits) == ["/dev/nvidiactl", "/dev/nvidia-uvm", *(f"/dev/nvidia{minor}" for minor in minors)]
    assert len(edits.mounts) == 1
    assert len(edits.hooks) == 1


def test_a_gpu_is_known_by_its_node_where_the_spec_has_no_uuids_and_not_by_its_index():
    found = spec(7, 5, alias=False)
    assert device_of(found, gpu(7)).name == "0"
    assert device_of(found, gpu(5)).name == "1"


def test_all_is_a_gpu_only_where_it_is_the_only_name():
    only = spec(2, names="none", alias=False)
    assert device_of(only, gpu(2)).name == "all"
    assert device_of(spec(2, alias=False), gpu(2)).name == "0"
    two = spec(2, 3, names="none", alias=False)
    assert problems(device_of, two, gpu(2))[0].reason == Reason.CDI_DEVICE_UNRESOLVED


def test_a_gpu_that_the_spec_does_not_have_is_named_with_all_that_it_has():
    found = problems(granted_edits, spec(0, 1), [gpu(0), gpu(7), gpu(8)])
    assert [each.subject for each in found] == ["nvidia.com/gpu=GPU-7", "nvidia.com/gpu=GPU-8"]
    assert {each.reason for each in found} == {Reason.CDI_DEVICE_UNRESOLVED}
    assert {each.step for each in found} == {Step.INJECT}
    assert "known: 0, GPU-0, 1, GPU-1, all" in found[0].message


def test_a_spec_of_before_a_gpu_moved_is_refused():
    (problem,) = problems(granted_edits, spec(0, 1), [gpu(3, uuid="GPU-1")])
    assert "/dev/nvidia1 in the CDI spec and /dev/nvidia3 in this pod" in problem.message


def test_a_device_that_brings_another_gpus_node_is_not_taken_for_this_one():
    both = ContainerEdits(device_nodes=(DeviceNode(path="/dev/nvidia0"), DeviceNode(path="/dev/nvidia1")))
    found = attrs.evolve(spec(0, 1), devices=(Device(name="GPU-0", container_edits=both),))
    assert problems(granted_edits, found, [gpu(0)])[0].reason == Reason.CDI_DEVICE_UNRESOLVED


def test_common_edits_with_a_gpu_in_them_are_refused():
    common = ContainerEdits(device_nodes=(*CONTROL, DeviceNode(path="/dev/nvidia1")))
    (problem,) = problems(granted_edits, spec(0, 1, common=common), [gpu(0)])
    assert problem.subject == "/dev/nvidia1"
    assert "exactly" in problem.message


@pytest.mark.parametrize("lacking", CONTROL)
def test_a_spec_without_a_control_node_is_refused(lacking):
    common = ContainerEdits(device_nodes=tuple(node for node in CONTROL if node != lacking))
    (problem,) = problems(granted_edits, spec(0, common=common), [gpu(0)])
    assert problem.subject == lacking.path


def test_a_mig_device_is_refused():
    nodes = (DeviceNode(path="/dev/nvidia0"), DeviceNode(path="/dev/nvidia-caps/nvidia-cap3"))
    mig = Device(name="0:0", container_edits=ContainerEdits(device_nodes=nodes))
    (problem,) = problems(granted_edits, attrs.evolve(spec(1), devices=(mig,)), [gpu(0)])
    assert (problem.reason, problem.subject) == (Reason.MIG_UNSUPPORTED, "nvidia.com/gpu=0:0")


# ------------------------------------------------------------------------------------------------------------- nodes

NODES = (*CONTROL, DeviceNode(path="/dev/nvidia2"))


def test_what_the_spec_leaves_open_is_taken_from_the_host():
    nodes, warnings = host_nodes(NODES, host(2, uvm=507))
    assert [(node.path, node.type, node.major, node.minor, node.file_mode) for node in nodes] == [
        ("/dev/nvidiactl", "c", 195, 255, 0o666),
        ("/dev/nvidia-uvm", "c", 507, 0, 0o666),
        ("/dev/nvidia2", "c", 195, 2, 0o666),
    ]
    assert warnings == ()


def test_the_host_wins_over_the_spec_and_the_warning_has_both_numbers():
    stale = DeviceNode(path="/dev/nvidia-uvm", major=510, type="b", file_mode=0o600)
    ((node,), warnings) = host_nodes([stale], host(uvm=511))
    assert (node.type, node.major, node.minor, node.file_mode) == ("c", 511, 0, 0o600)
    assert len(warnings) == 2
    assert "510:0 in the CDI spec and 511:0 on this host" in warnings[1]
    assert all(warning.startswith("/dev/nvidia-uvm has type b") or "510" in warning for warning in warnings)


def test_the_same_numbers_in_spec_and_host_are_no_warning():
    assert host_nodes([DeviceNode(path="/dev/nvidia2", major=195, minor=2)], host(2))[1] == ()


@pytest.mark.parametrize("path", ["/dev/nvidia2", "/dev/nvidiactl", "/dev/nvidia-uvm"])
@pytest.mark.parametrize(("there", "why"), [(None, "no such device node"), (HostNode(type=""), "not a character")])
def test_a_node_that_is_needed_and_is_none_is_refused(path, there, why):
    (problem,) = problems(host_nodes, NODES, host(2, also={path: there}))
    assert (problem.reason, problem.subject) == (Reason.CDI_DEVICE_UNRESOLVED, path)
    assert why in problem.message


def test_all_that_is_wrong_is_told_at_once():
    assert len(problems(host_nodes, NODES, {}.get)) == 3


def test_an_optional_node_that_is_absent_is_left_out_with_a_warning():
    nodes, warnings = host_nodes([*NODES, DeviceNode(path="/dev/nvidia-modeset")], host(2))
    assert len(nodes) == 3
    assert warnings == ("/dev/nvidia-modeset is in the CDI spec and not on this host",)


@pytest.mark.parametrize("there", [HostNode(type="b", major=195, minor=254), HostNode(type=""), HostNode(type="p")])
def test_an_optional_node_that_is_something_else_is_refused(there):
    found = host(2, also={"/dev/nvidia-modeset": there})
    (problem,) = problems(host_nodes, [DeviceNode(path="/dev/nvidia-modeset")], found)
    assert problem.subject == "/dev/nvidia-modeset"


def test_a_node_that_is_another_gpu_is_refused_under_its_name_and_under_any_other():
    other = HostNode(type="c", major=195, minor=3, mode=0o666)
    (problem,) = problems(host_nodes, NODES, host(2, also={"/dev/nvidia2": other}))
    assert "its minor is 3" in problem.message
    hidden = DeviceNode(path="/dev/card", host_path="/dev/nvidia3")
    (problem,) = problems(host_nodes, [hidden], host(2, 3))
    assert "minor 3 under another name, /dev/card" in problem.message
    (problem,) = problems(host_nodes, [DeviceNode(path="/dev/nvidia2", host_path="/dev/nvidia3")], host(2, 3))
    assert "another GPU" in problem.message


def test_a_node_of_two_edits_is_given_once():
    nodes, _ = host_nodes([*NODES, *NODES], host(2))
    assert len(nodes) == 3


SAMPLES = Path(__file__).resolve().parents[3] / "shared" / "data" / "cases" / "fixtures"


@pytest.mark.skipif(not SAMPLES.is_dir(), reason="the samples are not beside this checkout")
@pytest.mark.parametrize(("name", "table"), [("cdi-2gpu", "devtable-2gpu"), ("cdi-odd-minors", "devtable-odd")])
def test_the_fixtures_of_the_cases_give_each_gpu_once(name, table):
    found = load((SAMPLES / f"{name}.json").read_bytes(), name)
    nodes = json.loads((SAMPLES / f"{table}.json").read_text())
    on_host = {path: HostNode(type=kind, major=major, minor=minor) for path, (kind, major, minor) in nodes.items()}
    minors = sorted(node.minor for path, node in on_host.items() if GPU_NODE.fullmatch(path))
    named = {paths(each.container_edits)[0]: each.name for each in found.devices if each.name.startswith("GPU-")}
    assert len(minors) == len(named) == 2
    for minor in minors:
        granted = gpu(minor, uuid=named[f"/dev/nvidia{minor}"])
        complete, warnings = host_nodes(granted_edits(found, [granted]).device_nodes, on_host.get)
        assert warnings == ()
        assert [node.path for node in complete if GPU_NODE.fullmatch(node.path)] == [f"/dev/nvidia{minor}"]
