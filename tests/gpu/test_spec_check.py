"""A generated spec against the pod that it is for (behaviour I18, and what DESIGN's `generate` verifies)."""

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.cdi import ContainerEdits, Device, DeviceNode, Hook, HostNode, Mount
from actors.gpu.injection_plan import OwnFiles, plan_injection
from actors.gpu.spec_check import problems_of
from statemachine.problem import ProblemError, Step
from statemachine.reasons import Reason
from tests.gpu.making import CONTROL, LIBRARY, gpu, host, inventory, spec

ALL_THERE = frozenset({LIBRARY.host_path})


def found(made, pod, lstat, *, there=ALL_THERE, **more):
    return problems_of(made, pod, lstat=lstat, exists=there.__contains__, **more)


def told(*args, **kwargs):
    return [(each.reason, each.subject) for each in found(*args, **kwargs)]


def with_device(made, name, *paths):
    edits = ContainerEdits(device_nodes=tuple(DeviceNode(path=path) for path in paths))
    devices = (each for each in made.devices if each.name != name)
    return attrs.evolve(made, devices=(*devices, Device(name=name, container_edits=edits)))


def test_a_spec_that_has_each_gpu_the_control_nodes_and_the_files_is_good():
    assert found(spec(2, 5), inventory(2, 5), host(2, 5)) == ()


@pytest.mark.parametrize("alias", [True, False])
def test_i18_a_device_without_its_gpus_node_is_refused_though_it_has_others(alias):
    made = spec(0, alias=alias)
    for name in ("1", "GPU-1") if alias else ("1",):
        made = with_device(made, name, "/dev/dri/card1", "/dev/dri/renderD129")
    (problem,) = found(made, inventory(0, 1), host(0))
    assert (problem.reason, problem.subject) == (Reason.CDI_DEVICE_UNRESOLVED, "nvidia.com/gpu=GPU-1")
    assert problem.step is Step.GENERATE
    assert "/dev/nvidia1" in problem.message


def test_i18_a_device_whose_node_is_not_in_the_pod_is_refused():
    assert told(spec(0, 1), inventory(0, 1), host(0)) == [(Reason.CDI_DEVICE_UNRESOLVED, "/dev/nvidia1")]


@pytest.mark.parametrize(
    "there",
    [
        HostNode(type="b", major=195, minor=1),
        HostNode(type=""),
        HostNode(type="p"),
        HostNode(type="c", major=195, minor=0),
    ],
    ids=["block device", "file", "fifo", "another GPU"],
)
def test_a_gpus_node_that_is_something_else_is_refused(there):
    pod = host(0, also={"/dev/nvidia1": there})
    assert told(spec(0, 1), inventory(0, 1), pod) == [(Reason.CDI_DEVICE_UNRESOLVED, "/dev/nvidia1")]


def test_a_gpu_without_a_device_is_refused_with_the_names_that_are_known():
    (problem,) = found(spec(0), inventory(0, 7), host(0, 7))
    assert problem.subject == "nvidia.com/gpu=GPU-7"
    assert "known: 0, GPU-0, all" in problem.message


@pytest.mark.parametrize("node", CONTROL, ids=lambda node: node.path)
def test_a_control_node_that_is_not_in_the_edits_or_not_in_the_pod_is_told_once_for_all_gpus(node):
    rest = attrs.evolve(spec(0, 1).container_edits, device_nodes=tuple(each for each in CONTROL if each != node))
    expected = [(Reason.CDI_DEVICE_UNRESOLVED, node.path)]
    assert told(spec(0, 1, common=rest), inventory(0, 1), host(0, 1)) == expected
    assert told(spec(0, 1), inventory(0, 1), host(0, 1, also={node.path: None})) == expected


def test_a_node_that_gvisor_does_not_need_may_be_absent():
    common = attrs.evolve(spec(0).container_edits, device_nodes=(*CONTROL, DeviceNode(path="/dev/nvidia-modeset")))
    assert found(spec(0, common=common), inventory(0), host(0)) == ()


def test_files_to_mount_that_are_absent_are_one_problem_that_names_them():
    mounts = tuple(Mount(host_path=f"/driver/{each}", container_path=f"/usr/{each}") for each in "abc")
    common = attrs.evolve(spec(0).container_edits, mounts=mounts)
    (problem,) = found(spec(0, common=common), inventory(0), host(0), there={"/driver/b"})
    assert (problem.reason, problem.subject) == (Reason.GENERATE_FAILED, "/driver/a")
    assert "2 of 3 files" in problem.message
    assert problem.message.endswith("/driver/a, /driver/c")


def test_a_hundred_absent_files_are_counted_and_the_first_are_named():
    mounts = tuple(Mount(host_path=f"/driver/{each:03}", container_path=f"/usr/{each}") for each in range(100))
    common = attrs.evolve(spec(0).container_edits, mounts=mounts)
    (problem,) = found(spec(0, common=common), inventory(0), host(0), there=set())
    assert "100 of 100" in problem.message
    assert problem.message.endswith("/driver/015, …")


def test_the_mounts_of_a_device_are_looked_at_and_those_of_a_lost_one_are_not():
    made = spec(0, 1)
    own = ContainerEdits(
        device_nodes=(DeviceNode(path="/dev/nvidia1"),), mounts=(Mount(host_path="/x", container_path="/x"),)
    )
    devices = (each for each in made.devices if each.name != "GPU-1")
    made = attrs.evolve(made, devices=(*devices, Device(name="GPU-1", container_edits=own)))
    assert told(made, inventory(0, 1), host(0, 1)) == [(Reason.GENERATE_FAILED, "/x")]
    assert found(made, inventory(0, 1, lost={1: "XID 79"}), host(0)) == ()


def test_a_gpu_in_mig_mode_is_passed_over_and_one_whose_device_is_an_instance_is_refused():
    split = attrs.evolve(inventory(0), gpus=(gpu(0), gpu(1, mig_devices=("MIG-a",))))
    assert found(spec(0), split, host(0)) == ()
    made = with_device(spec(1), "GPU-0", "/dev/nvidia0", "/dev/nvidia-caps/nvidia-cap3")
    assert [reason for reason, _ in told(made, inventory(0, 1), host(0, 1))] == [Reason.MIG_UNSUPPORTED]


def test_no_hooks_program_needs_to_be_there():
    hooks = tuple(
        Hook(hook_name=stage, path="/absent", args=("x", "create-symlinks"))
        for stage in ("createContainer", "prestart")
    )
    common = attrs.evolve(spec(0).container_edits, hooks=hooks)
    assert found(spec(0, common=common), inventory(0), host(0)) == ()


def test_everything_that_is_wrong_is_told_at_once_and_under_the_step_that_looked():
    problems = found(spec(0, 1), inventory(0, 1, 2), host(0), there=frozenset(), step=Step.DETECT)
    assert [each.subject for each in problems] == ["/dev/nvidia1", "nvidia.com/gpu=GPU-2", LIBRARY.host_path]
    assert {each.step for each in problems} == {Step.DETECT}


MINORS = st.sets(st.integers(0, 4))


@given(in_spec=MINORS, in_pod=MINORS, known=MINORS, control=st.booleans())
def test_what_is_good_can_be_injected_for_each_gpu_and_for_all_and_what_is_not_cannot(in_spec, in_pod, known, control):
    made, pod, lstat = spec(*sorted(in_spec)), inventory(*known), host(*in_pod) if control else {}.get
    try:
        for gpus in ([each] for each in pod.usable):
            plan_injection(made, gpus, container="x", own=OwnFiles(links="/l", identity="/i"), found=lstat)
        plan_injection(made, pod.usable, container="x", own=OwnFiles(links="/l", identity="/i"), found=lstat)
    except ProblemError:
        assert found(made, pod, lstat)
    else:
        assert found(made, pod, lstat) == ()
