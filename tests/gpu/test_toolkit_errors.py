"""nvidia-ctk's failures (behaviour I19 and the crash of I20): each class, as the real tool says it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.gpu.toolkit_errors import ToolkitFailure, failure_of, last_error, problem_of
from statemachine.problem import Step
from statemachine.reasons import Reason

F = ToolkitFailure


def logged(message, level="error"):
    quoted = message.replace("\\", "\\\\").replace('"', '\\"')
    return f'time="2026-08-21T10:00:00Z" level={level} msg="{quoted}"\n'


BEFORE = logged("Auto-detected mode as 'nvml'", "info") + logged("Could not locate nvidia-imex", "warning")
MAKING = "failed to generate CDI spec: failed to create device CDI specs: "
BUILDING = f"{MAKING}failed to construct device spec generators: "
INIT = f"{BUILDING}failed to initialize NVML: "
EMPTY = 'failed to write spec: invalid CDI Spec: failed add device "{}": invalid device, empty device edits'
PANIC = "panic: runtime error: slice bounds out of range [1:0]\n\ngoroutine 1 [running]:\nmain.main()\n\t/x/main.go:3\n"

FAILURES = {
    "no library": (1, f"{INIT}ERROR_LIBRARY_NOT_FOUND", F.LIBRARY_NOT_FOUND, Reason.NVML_UNAVAILABLE),
    "no library, 1.13": (
        1,
        "failed to initalize NVML: ERROR_LIBRARY_NOT_FOUND",
        F.LIBRARY_NOT_FOUND,
        Reason.NVML_UNAVAILABLE,
    ),
    "mismatch (18)": (1, f"{INIT}Driver/library version mismatch", F.VERSION_MISMATCH, Reason.NVML_UNAVAILABLE),
    "not loaded (9)": (1, f"{INIT}Driver Not Loaded", F.DRIVER_NOT_LOADED, Reason.NVML_UNAVAILABLE),
    "no access (999)": (1, f"{INIT}Unknown Error", F.NVML_FAILED, Reason.NVML_UNAVAILABLE),
    "no access, 1.13": (1, "failed to initalize NVML: Unknown Error", F.NVML_FAILED, Reason.NVML_UNAVAILABLE),
    "lost at its handle (15)": (
        1,
        f"{BUILDING}error getting device handle for index '1': GPU is lost",
        F.GPU_LOST,
        Reason.GENERATE_FAILED,
    ),
    "lost at its uuid": (1, f"{BUILDING}failed to get device UUID: GPU is lost", F.GPU_LOST, Reason.GENERATE_FAILED),
    "lost at its mode": (1, f"{BUILDING}error getting MIG mode: GPU is lost", F.GPU_LOST, Reason.GENERATE_FAILED),
    "to be reset (16)": (1, f"{BUILDING}x: GPU requires restart", F.GPU_LOST, Reason.GENERATE_FAILED),
    "no gpus": (1, EMPTY.format("all"), F.NO_GPUS, Reason.GPU_NOT_DETECTED),
    "no gpus, management": (1, "no NVIDIA device nodes found", F.NO_GPUS, Reason.GPU_NOT_DETECTED),
    "no nodes": (1, EMPTY.format("1"), F.GPU_WITHOUT_NODES, Reason.GENERATE_FAILED),
    "no libcuda, 1.16": (
        1,
        "failed to get CUDA version: libcuda.so.580.65.06 not found",
        F.CUDA_NOT_FOUND,
        Reason.GENERATE_FAILED,
    ),
    "an index too high": (
        1,
        f"{BUILDING}failed to get device handle from index: Invalid Argument",
        F.UNKNOWN_DEVICE,
        Reason.GENERATE_FAILED,
    ),
    "a uuid of nobody": (
        1,
        f"{BUILDING}failed to get device handle from UUID: Not Found",
        F.UNKNOWN_DEVICE,
        Reason.GENERATE_FAILED,
    ),
    "no id": (
        1,
        f'{BUILDING}identifier is not a valid UUID or index: "x"',
        F.UNKNOWN_DEVICE,
        Reason.GENERATE_FAILED,
    ),
    "an instance": (
        1,
        f"{BUILDING}failed to get MIG handle by index: Not Found",
        F.MIG_DEVICE,
        Reason.MIG_UNSUPPORTED,
    ),
    "one id twice": (
        1,
        'failed to write spec: invalid CDI Spec: invalid spec, multiple device "0"',
        F.DUPLICATE_DEVICE,
        Reason.GENERATE_FAILED,
    ),
    "a mode": (1, "invalid discovery mode: x", F.BAD_ARGUMENTS, Reason.GENERATE_FAILED),
    "a strategy": (1, "invalid device name strategy: x", F.BAD_ARGUMENTS, Reason.GENERATE_FAILED),
    "a vendor": (
        1,
        'invalid CDI vendor name: invalid vendor. "-x", should start with letter',
        F.BAD_ARGUMENTS,
        Reason.GENERATE_FAILED,
    ),
    "a flag": (1, "flag provided but not defined: -device-id", F.BAD_ARGUMENTS, Reason.GENERATE_FAILED),
    "no value": (1, "flag needs an argument: --vendor", F.BAD_ARGUMENTS, Reason.GENERATE_FAILED),
    "a full disk": (
        1,
        "failed to write spec: failed to write Spec file: write /run/x/spec.1.tmp: no space left on device",
        F.OUTPUT_UNWRITABLE,
        Reason.GENERATE_FAILED,
    ),
    "a file above": (
        1,
        "failed to write spec: failed to create Spec dir: mkdir /run/x: not a directory",
        F.OUTPUT_UNWRITABLE,
        Reason.GENERATE_FAILED,
    ),
    "anything else": (1, "failed to do what no release says", F.OTHER, Reason.GENERATE_FAILED),
}


@pytest.mark.parametrize(("code", "line", "failure", "reason"), FAILURES.values(), ids=FAILURES)
def test_i19_each_failure_has_its_class_and_its_reason_by_the_last_error(code, line, failure, reason):
    stderr = BEFORE + logged("another error, which was not the last") + logged(line)
    assert failure_of(code, stderr) is failure
    problem = problem_of(code, stderr, subject="/opt/nvidia-ctk")
    assert (problem.step, problem.reason, problem.subject) == (Step.GENERATE, reason, "/opt/nvidia-ctk")
    assert problem.message.endswith(f": {line}")
    assert problem.detail == stderr.rstrip("\n")
    assert problem.hint


def test_i19_the_three_ways_in_which_nvml_does_not_begin_are_three_classes_with_three_hints():
    words = ("Driver/library version mismatch", "Driver Not Loaded", "ERROR_LIBRARY_NOT_FOUND")
    assert len({failure_of(1, logged(INIT + each)) for each in words}) == 3
    problems = [problem_of(1, logged(INIT + each), subject="nvidia-ctk") for each in words]
    assert {problem.reason for problem in problems} == {Reason.NVML_UNAVAILABLE}
    assert len({problem.hint for problem in problems}) == 3


@pytest.mark.parametrize("code", [2, 127])
def test_a_symbol_that_nvml_lacks_is_nvmls_fault_whatever_the_exit_code(code):
    stderr = "nvidia-ctk: symbol lookup error: nvidia-ctk: undefined symbol: nvmlDeviceGetMaxMigDeviceCount\n"
    problem = problem_of(code, BEFORE + stderr, subject="nvidia-ctk")
    assert failure_of(code, BEFORE + stderr) is F.LIBRARY_INCOMPLETE
    assert problem.reason is Reason.NVML_UNAVAILABLE
    assert problem.message.endswith(stderr.strip())


def test_i20_a_panic_is_a_crash_and_is_told_by_its_first_line():
    assert failure_of(2, BEFORE + PANIC) is F.CRASHED
    problem = problem_of(2, BEFORE + PANIC, subject="nvidia-ctk")
    assert problem.reason is Reason.GENERATE_FAILED
    assert problem.message == "nvidia-ctk crashed: panic: runtime error: slice bounds out of range [1:0]"


@pytest.mark.parametrize(
    ("stderr", "told"),
    [
        ("", "nvidia-ctk crashed: signal 11 ended it"),
        (
            "level=info msg=loaded\n",
            "nvidia-ctk crashed: signal 11 ended it, after level=info msg=loaded",
        ),
    ],
)
def test_a_signal_is_a_crash_and_is_named(stderr, told):
    assert failure_of(-11, stderr) is F.CRASHED
    assert problem_of(-11, stderr, subject="nvidia-ctk").message == told


@pytest.mark.parametrize("code", [126, 127])
def test_a_wrapper_that_cannot_execute_the_program_is_a_toolkit_that_is_not_there(code):
    stderr = "/opt/nvidia-ctk: line 5: /opt/nvidia-ctk.real: No such file or directory\n"
    assert failure_of(code, stderr) is F.PROGRAM_NOT_FOUND
    assert problem_of(code, stderr, subject="nvidia-ctk").reason is Reason.TOOLKIT_NOT_FOUND


def test_who_says_nothing_is_told_by_the_exit_code():
    assert problem_of(3, " \n", subject="x").message == "nvidia-ctk failed: it ended with exit code 3 and said nothing"


@pytest.mark.parametrize(
    ("stderr", "line"),
    [
        (logged("a") + logged("b") + logged("c", "warning"), "b"),
        ("level=error msg=bare\nUSAGE:\n   nvidia-ctk\n", "bare"),
        ('level=error msg="two\\nlines \\"quoted\\" \\\\"\n', 'two lines "quoted" \\'),
        ('level=error msg=""\n', ""),
        ("level=fatal msg=dead\n", "dead"),
        ("Incorrect Usage: x\n\n  \n", "Incorrect Usage: x"),
        ("", ""),
    ],
)
def test_the_last_error_is_what_counts(stderr, line):
    assert last_error(stderr) == line


SECRET = 'hunter"2\\x'


@pytest.mark.parametrize("stderr", [logged(f"cannot reach {SECRET}"), f"cannot reach {SECRET}", f"panic: {SECRET}"])
def test_no_text_carries_a_secret_in_either_spelling(stderr):
    problem = problem_of(1, stderr, subject="x", secrets=[SECRET])
    assert "hunter" not in f"{problem.message} {problem.detail}"
    assert "***" in problem.message


@given(
    st.integers(-64, 255),
    st.text() | st.lists(st.sampled_from([logged(""), logged("x"), PANIC, "level=error msg=\\", "\0"])).map("".join),
)
def test_anything_that_a_tool_may_say_is_a_problem_that_can_be_shown(code, stderr):
    problem = problem_of(code, stderr, subject="nvidia-ctk")
    assert problem.message.isprintable()
    assert problem.step is Step.GENERATE
