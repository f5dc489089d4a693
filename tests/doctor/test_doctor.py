"""`greenroom doctor` as a command: with no GPU it says what is missing, on a mock node that all is well."""

import itertools
import json
from pathlib import Path

import pytest

import greenroom
from statemachine.reasons import Reason
from supervisor.cli import doctor as command
from tests.gpu.libraries import program
from tests.needs import Tool, need
from tests.sim.mock.nodes import make_node

NAMES = [
    "orphans", "proc", "pidfd", "capabilities", "system-calls", "open-files", "runsc", "platform", "device-nodes",
    "cdi-mode", "driver-params", "driver-root", "driver-libraries", "interpreter", "nvml", "toolkit", "inventory",
    "cdi-spec", "driver-support", "cgroup", "state-dir", "run-dir", "clock",
]  # fmt: skip


@pytest.fixture(autouse=True)
def nothing_is_found_by_chance(monkeypatch, tmp_path):
    """A machine that has neither GPU nor driver nor toolkit, whatever runs this; and no sandbox is tried."""
    for name in ("DEV_ROOT", "PROC_ROOT", "DRIVER_ROOT"):
        monkeypatch.setenv(f"GREENROOM_{name}", str(tmp_path / "nowhere"))
    monkeypatch.setenv("GREENROOM_TOOLKIT_DIR", str(tmp_path / "nowhere"))
    monkeypatch.setattr(command, "effective_uid", lambda: 65534)


def ran(capsys, *arguments):
    code = greenroom.run(["doctor", *map(str, arguments)])
    return code, *capsys.readouterr()


def checks(capsys, *arguments):
    """Every check by its name."""
    code, out, _err = ran(capsys, "--json", *arguments)
    document = json.loads(out)
    assert list(document) == ["ok", "checks"]
    assert document["ok"] == (code == 0)
    assert [set(check) for check in document["checks"]] == [{"name", "status", "reason", "message", "hint"}] * len(
        NAMES
    )
    return {check["name"]: check for check in document["checks"]}


def test_on_a_machine_with_no_gpu_it_says_precisely_what_is_missing(capsys, tmp_path):
    found = checks(capsys)
    assert list(found) == NAMES
    expected = {
        "device-nodes": ("GpuNotDetected", "No such file"),
        "driver-root": ("NvmlUnavailable", "libnvidia-ml.so.1 and libcuda.so.1 are missing below"),
        "toolkit": ("ToolkitNotFound", "nvidia-ctk was not found"),
        "inventory": ("GpuNotDetected", "no device node"),
    }
    for name, (reason, words) in expected.items():
        assert (found[name]["status"], found[name]["reason"]) == ("fail", reason)
        assert words in found[name]["message"]
    for check in found.values():
        assert (check["status"] == "ok") == (check["reason"] is None) == (check["hint"] is None)
        assert check["reason"] is None or Reason(check["reason"])


def test_what_needs_root_is_a_warning_without_it(capsys):
    platform = checks(capsys)["platform"]
    assert (platform["status"], platform["reason"]) == ("warn", "RuntimeUnavailable")
    assert "needs root" in platform["message"]


def test_the_first_thing_in_the_way_is_the_last_line_of_stderr(capsys):
    code, out, err = ran(capsys)
    assert code == 1
    lines = out.splitlines()
    first = next(line for line in lines if line.startswith("FAIL"))
    reason, name = err.splitlines()[-1].split(": ")[1:3]
    assert first.split()[1:3] == [name, f"{reason}:"]
    told = [line for line in lines if not line.startswith(" ")]
    assert [line.split()[1] for line in told] == NAMES
    # Below what is not ok stands what to do.
    for line, after in itertools.pairwise(lines):
        assert line.startswith(("ok", " ")) or "-> " in after


def test_a_runsc_that_is_none_is_told(capsys, tmp_path):
    found = checks(capsys, "--runsc", tmp_path / "runsc")
    assert (found["runsc"]["status"], found["runsc"]["reason"]) == ("fail", "RuntimeUnavailable")


def test_places_are_judged_by_their_own_flags(capsys, tmp_path):
    (tmp_path / "file").write_text("")
    found = checks(capsys, "--state-dir", tmp_path / "file", "--run-dir", tmp_path / ("x" * 100))
    assert (found["state-dir"]["status"], found["state-dir"]["reason"]) == ("fail", "StateUnwritable")
    assert "no directory" in found["state-dir"]["message"]
    assert (found["run-dir"]["status"], "at most 107" in found["run-dir"]["message"]) == ("fail", True)
    assert not (tmp_path / ("x" * 100)).exists()


def test_a_toolkit_for_another_c_library_is_told_by_the_linker_that_is_missing(capsys, tmp_path):
    tool = tmp_path / "toolkit" / "nvidia-ctk"
    tool.parent.mkdir()
    tool.write_bytes(program(b"/lib64/ld-nowhere.so.2\0"))
    tool.chmod(0o755)
    found = checks(capsys, "--toolkit-dir", tool.parent)["toolkit"]
    assert (found["status"], found["reason"]) == ("fail", "ToolkitNotFound")
    assert "/lib64/ld-nowhere.so.2" in found["message"]


def test_a_wrapper_without_its_shell_is_told(capsys, tmp_path):
    tool = tmp_path / "toolkit" / "nvidia-ctk"
    tool.parent.mkdir()
    tool.write_text("#!/no/such/shell\n")
    tool.chmod(0o755)
    found = checks(capsys, "--toolkit-dir", tool.parent)["toolkit"]
    assert (found["status"], "/no/such/shell is not in this pod" in found["message"]) == ("fail", True)


def node_flags(node: Path):
    return [
        "--dev-root", node, "--driver-root", node / "driver", "--proc-root", node / "proc",
        "--toolkit-dir", node / "toolkit", "--nvproxy", "off",
    ]  # fmt: skip


@pytest.fixture(scope="module")
def node(tmp_path_factory):
    return make_node(tmp_path_factory.mktemp("doctor") / "node", "--gpus=4", "--minors=7,2,5,3")


@pytest.fixture
def fresh(node):
    node.reset()
    return node


def test_on_a_mock_node_everything_about_the_gpus_is_well(capsys, fresh):
    found = checks(capsys, *node_flags(fresh.directory))
    about_gpus = NAMES[NAMES.index("device-nodes") : NAMES.index("cgroup")]
    told = {name: found[name]["message"] for name in about_gpus if found[name]["status"] != "ok"}
    assert set(told) == {"driver-params"}  # a mock module says ModifyDeviceFiles: 1, as most nodes do
    assert "nvidia2, nvidia3, nvidia5, nvidia7" in found["device-nodes"]["message"]
    assert found["inventory"]["message"] == "4 of 4 can be granted"


@pytest.mark.parametrize(
    ("word", "status", "reason", "told"),
    [
        ("5=lost", "warn", "GpuLost", "1 that it cannot name: NVML_ERROR_GPU_IS_LOST"),
        ("driver=none", "fail", "NvmlUnavailable", "DRIVER_NOT_LOADED"),
        ("driver=570.133.20", "fail", "NvmlUnavailable", "LIB_RM_VERSION_MISMATCH"),
        ("devices=denied", "fail", "NvmlUnavailable", "NVML_ERROR_UNKNOWN"),
        ("nvmlInitWithFlags=crash", "fail", "NvmlUnavailable", "without an answer"),
    ],
)
def test_what_nvml_meets_on_a_node_is_told(request, word, status, reason, told):
    capsys, fresh = request.getfixturevalue("capsys"), request.getfixturevalue("fresh")
    fresh.script(word)
    capsys.readouterr()
    found = checks(capsys, *node_flags(fresh.directory))["nvml"]
    assert (found["status"], found["reason"]) == (status, reason)
    assert told in found["message"]


@pytest.mark.runsc
def test_a_sandbox_is_started_and_ended_and_nothing_is_left(capsys, monkeypatch):
    need(Tool.RUNSC, Tool.ROOT, Tool.NAMESPACES)
    monkeypatch.undo()
    found = checks(capsys)
    assert (found["runsc"]["status"], found["platform"]["status"]) == ("ok", "ok")
    assert "a sandbox was started on systrap and ended again" in found["platform"]["message"]
