"""The simulated nvidia-ctk as a program of a mock node: a real process, files that the CDI library reads, real ends."""

import os
import shutil
import signal
import subprocess
from pathlib import Path
from typing import Any

import orjson
import pytest

from actors.cdi import load
from actors.gpu.toolkit_errors import ToolkitFailure, failure_of
from sim.mock.layout import LIBRARIES
from tests.gpu.oracle.toolkit import NVIDIA_CTK, built
from tests.sim.mock.nodes import make_node, make_node_without_compiler

FOUR = ("--gpus=4", "--minors=7,2,5,3")
CLEAN = {"PATH": "/usr/bin:/bin", "LC_ALL": "C"}
BOUND_S = 60
FOREIGN = "cdiVersion: 0.5.0\nkind: vendor.com/x\ndevices:\n- name: a\n  containerEdits:\n    env: [A=b]\n"


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    return make_node_without_compiler(tmp_path_factory.mktemp("mock") / "node", *FOUR)


@pytest.fixture
def node(made):
    """The node as it was made."""
    made.reset()
    return made


@pytest.fixture
def own_node(tmp_path):
    """One that will not be as it was."""
    return make_node_without_compiler(tmp_path / "node", *FOUR)


def roots(node):
    return [f"--driver-root={node.directory / 'driver'}", f"--dev-root={node.directory}"]


def begun(node, *words, env=None):
    return subprocess.Popen(
        [node.toolkit, *words], env={**CLEAN, **(env or {})}, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )


def called(node, *words, env=None):
    """Exit code, stdout and stderr of a call."""
    with begun(node, *words, env=env) as process:
        try:
            out, err = process.communicate(timeout=BOUND_S)
        finally:
            process.kill()
    return process.returncode, out, err.decode()


def generate(node, out, *words, env=None):
    return called(node, "cdi", "generate", *roots(node), f"--output={out}", *words, env=env)


def everything(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def minors_of(spec: Any) -> dict[str, list[int]]:
    return {device.name: sorted(node.minor for node in device.container_edits.device_nodes) for device in spec.devices}


def test_it_answers_for_its_version_as_the_real_one_does(node):
    code, out, err = called(node, "--version")
    assert (code, err) == (0, "")
    assert out.startswith(b"NVIDIA Container Toolkit CLI version 1.20.0\n")


def test_the_cdi_library_reads_what_it_wrote_and_it_has_each_gpu_by_index_and_uuid(node, tmp_path):
    out = tmp_path / "new/deep/nvidia.json"
    code, said, _ = generate(node, out)
    assert (code, said) == (0, b"")
    spec = load(out.read_bytes(), "nvidia.json")
    minors = minors_of(spec)
    assert {name: minors[name] for name in ("0", "1", "2", "3")} == {"0": [7], "1": [2], "2": [5], "3": [3]}
    assert {name: minors[name] for name in minors if name.startswith("GPU-")} == {
        gpu.uuid: [gpu.minor] for gpu in node.state().gpus
    }
    assert minors["all"] == [2, 3, 5, 7]
    paths = [Path(mount.host_path) for mount in spec.container_edits.mounts]
    assert node.directory / LIBRARIES / "libcuda.so.580.65.06" in paths
    assert all(path.exists() for path in paths)
    assert out.stat().st_mode & 0o777 == 0o644
    assert [path.name for path in out.parent.iterdir()] == ["nvidia.json"]


def test_without_an_output_it_writes_the_spec_as_yaml_to_stdout(node, tmp_path):
    code, out, _ = called(node, "cdi", "generate", *roots(node), env={"TMPDIR": str(tmp_path)})
    assert code == 0
    assert len(load(out, "spec.yaml").devices) == 9
    assert list(tmp_path.iterdir()) == []


def test_it_writes_what_the_real_one_writes_about_the_same_node(tmp_path):
    program = built(NVIDIA_CTK)
    node = make_node(tmp_path / "node", *FOUR)
    env = {**CLEAN, "TMPDIR": str(tmp_path)}
    flags = ["--nvidia-cdi-hook-path=/usr/bin/nvidia-cdi-hook"]
    argv = [program, "cdi", "generate", *roots(node), f"--output={tmp_path / 'real/x.json'}", *flags]
    subprocess.run(argv, env=env, check=True, timeout=BOUND_S, capture_output=True)
    assert generate(node, tmp_path / "fake/x.json", *flags, env=env)[0] == 0
    real, fake = (orjson.loads((tmp_path / name / "x.json").read_bytes()) for name in ("real", "fake"))
    assert fake == real


# ---- how it fails


@pytest.mark.parametrize(
    ("word", "failure"),
    [
        ("driver=none", ToolkitFailure.DRIVER_NOT_LOADED),
        ("driver=590.48.01", ToolkitFailure.VERSION_MISMATCH),
        ("nvmlDeviceGetUUID@5=15", ToolkitFailure.GPU_LOST),
    ],
)
def test_what_is_scripted_of_the_node_ends_it_with_that_failure_and_nothing_is_written(node, tmp_path, word, failure):
    node.script(word)
    code, _, err = generate(node, tmp_path / "x.json")
    assert (code, failure_of(code, err)) == (1, failure)
    assert list(tmp_path.iterdir()) == []


def test_a_gpu_that_is_lost_altogether_fails_it_unless_only_others_are_asked_for(node, tmp_path):
    node.script("5=lost")
    code, _, err = generate(node, tmp_path / "x.json")
    assert (code, failure_of(code, err)) == (1, ToolkitFailure.GPU_LOST)
    others = [f"--device-id={gpu.uuid}" for gpu in node.state().gpus if gpu.minor != 5]
    code, _, _ = generate(node, tmp_path / "x.json", *others)
    assert code == 0
    minors = minors_of(load((tmp_path / "x.json").read_bytes(), "x.json"))
    assert {minor for each in minors.values() for minor in each} == {2, 3, 7}


def test_without_a_library_it_fails_by_that(own_node, tmp_path):
    (own_node.directory / LIBRARIES / "libnvidia-ml.so.1").unlink()
    (tmp_path / "out").mkdir()
    code, _, err = generate(own_node, tmp_path / "out/x.json")
    assert (code, failure_of(code, err)) == (1, ToolkitFailure.LIBRARY_NOT_FOUND)
    assert everything(tmp_path / "out") == {}


def test_a_gpu_whose_node_was_removed_is_none_for_it(own_node, tmp_path):
    (own_node.directory / "dev/nvidia2").unlink()
    assert generate(own_node, tmp_path / "x.json")[0] == 0
    minors = minors_of(load((tmp_path / "x.json").read_bytes(), "x.json"))
    assert (minors["all"], minors["1"]) == ([3, 5, 7], [5])


def test_one_that_hangs_says_what_it_did_until_then_and_dies_of_sigkill(node, tmp_path):
    node.script("nvmlDeviceGetUUID@5=hang")
    with begun(node, "cdi", "generate", *roots(node), f"--output={tmp_path / 'x.json'}") as process:
        try:
            assert process.stderr is not None
            said = process.stderr.readline()
            assert process.poll() is None
        finally:
            process.kill()
    assert (process.returncode, b"level=" in said) == (-signal.SIGKILL, True)
    assert list(tmp_path.iterdir()) == []


def test_a_crash_of_nvml_is_its_death_by_sigsegv(node, tmp_path):
    node.script("nvmlInitWithFlags=crash")
    code, out, err = generate(node, tmp_path / "x.json")
    assert (code, out, "Traceback" in err) == (-signal.SIGSEGV, b"", False)
    assert list(tmp_path.iterdir()) == []


def test_beside_a_foreign_spec_it_panics_as_the_real_one_does_and_leaves_that_alone(node, tmp_path):
    (tmp_path / "other.yaml").write_text(FOREIGN)
    code, _, err = generate(node, tmp_path / "x.json")
    assert (code, failure_of(code, err)) == (2, ToolkitFailure.CRASHED)
    assert everything(tmp_path) == {"other.yaml": FOREIGN.encode()}


def test_where_nothing_can_be_written_it_fails_and_leaves_nothing(node, tmp_path):
    (tmp_path / "file").touch()
    code, _, err = generate(node, tmp_path / "file/x.json")
    assert code == 1
    assert "failed to " in err
    assert everything(tmp_path) == {"file": b""}


def test_a_damaged_state_file_is_no_spec(own_node, tmp_path):
    (own_node.directory / "mock-node.json").write_text("{")
    (tmp_path / "out").mkdir()
    code, _, err = generate(own_node, tmp_path / "out/x.json")
    assert code not in {0, None}
    assert err
    assert everything(tmp_path / "out") == {}


def test_it_needs_nothing_of_the_place_or_the_environment_where_it_is_called(node, tmp_path, monkeypatch):
    (tmp_path / "sim").mkdir()
    (tmp_path / "sim/__init__.py").write_text("raise SystemExit('a stranger')\n")
    monkeypatch.chdir(tmp_path)
    code, _, err = called(node, "--version", env={"PYTHONPATH": str(tmp_path), "PYTHONHOME": "/nowhere"})
    assert (code, err) == (0, "")


def test_it_goes_with_its_node(own_node):
    shutil.rmtree(own_node.directory / "dev")
    code, _, err = called(own_node, "cdi", "generate", *roots(own_node))
    assert (code, failure_of(code, err)) == (1, ToolkitFailure.DRIVER_NOT_LOADED)
    assert os.access(own_node.toolkit, os.X_OK)
