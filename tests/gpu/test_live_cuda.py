"""What two witnesses of a live CUDA context come to: open device files, and NVML's processes."""

import pytest

from actors.gpu.live_cuda import Witnesses, computing, device_files
from actors.ports import OpenFile
from statemachine.problem import Problem, Step
from statemachine.reasons import Reason
from tests.gpu.making import gpu

UNANSWERED = Problem(step=Step.SUSPEND, reason=Reason.NVML_UNAVAILABLE, subject="nvml", message="it hangs")


def node(path, major=195, minor=0):
    return OpenFile(path=path, device=(major, minor))


@pytest.mark.parametrize(
    ("path", "major"),
    [
        ("/dev/nvidia0", 195),
        # Of a process with a root of its own.
        ("/root/dev/nvidia11", 195),
        ("/nvidiactl", 195),
        ("/dev/nvidia-modeset", 195),
        # Another number after each boot; and on a mock node any number.
        ("/dev/nvidia-uvm", 511),
        ("/dev/nvidia-uvm-tools", 234),
        ("/dev/nvidia-caps/nvidia-cap21", 236),
        ("/mocks/nvidia0", 1),
        # By a name that nobody knows, by the driver's number.
        ("/dev/renamed", 195),
    ],
)
def test_a_node_of_the_driver_is_known_by_its_name_or_its_number(path, major):
    assert device_files([node(path, major)]) == (f"/dev/{path.rpartition('/')[2]}",)


@pytest.mark.parametrize(
    "held",
    [
        OpenFile(path="/images/app/nvidia0"),
        OpenFile(path="/usr/lib64/libnvidia-ml.so.1"),
        node("/dev/null", 1, 3),
        node("/dev/nvidia0x", 1),
        node("/dev/notnvidia0", 1),
    ],
)
def test_what_is_no_node_of_the_driver_is_no_witness(held):
    assert device_files([held]) == ()


def test_a_node_that_several_processes_hold_is_told_once():
    assert device_files([node("/dev/nvidia1"), node("/root/dev/nvidia1"), node("/dev/nvidia0")]) == (
        "/dev/nvidia0", "/dev/nvidia1",
    )  # fmt: skip


def test_only_processes_on_the_gpus_of_the_grant_count():
    told = {"GPU-0": (), "GPU-1": (7, 9), "GPU-2": (5,)}
    assert computing(told, [gpu(0), gpu(1)]) == {"/dev/nvidia1": (7, 9)}


@pytest.mark.parametrize(
    ("testimony", "expected"),
    [
        (Witnesses(), (False, True, False)),
        (Witnesses(files=("/dev/nvidia0",)), (True, False, False)),
        (Witnesses(processes={"/dev/nvidia0": (7,)}), (True, False, True)),
        (Witnesses(files=("/dev/nvidia0",), processes={"/dev/nvidia0": (7,)}), (True, False, False)),
        (Witnesses(unanswered=UNANSWERED), (False, False, False)),
        (Witnesses(files=("/dev/nvidia0",), unanswered=UNANSWERED), (True, False, False)),
    ],
)
def test_a_context_is_live_or_surely_none_or_nobody_knows(testimony, expected):
    assert (testimony.is_live, testimony.is_clear, testimony.may_be_old) == expected


def test_what_is_told_names_files_pids_and_gpus_and_not_without_end():
    many = tuple(f"/dev/nvidia{number}" for number in range(12))
    said = str(Witnesses(files=many, processes={"/dev/nvidia0": (7,), "/dev/nvidia1": (8, 9)}))
    assert said.startswith("the sandbox holds /dev/nvidia0, ")
    assert "/dev/nvidia7 and 4 more open; process computes on /dev/nvidia0: pid 7" in said
    assert said.endswith("processes compute on /dev/nvidia1: pid 8, 9")
