"""`greenroom plan` as a command: one document or a text, exit codes, and nothing that it leaves or touches."""

import json

import pytest

import greenroom
from actors.cdi import SpecFormat, encode
from tests.gpu.making import spec
from tests.sim.mock.nodes import make_node

DOCUMENT = """\
apiVersion: greenroom.dev/v1alpha1
kind: WorkerAssignment
metadata: {{uid: a1, generation: 1}}
spec:
  desiredState: Running
  containers:
  - name: trainer
    rootfs: rootfs
    command: [train]
    resources: {{limits: {{nvidia.com/gpu: {count}}}}}
  - {{name: logger, rootfs: rootfs, command: [log]}}
"""


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A directory with an assignment and a spec, on a machine that has neither GPU nor driver, whatever runs this."""
    (tmp_path / "rootfs").mkdir()
    (tmp_path / "a.yaml").write_text(DOCUMENT.format(count=1))
    (tmp_path / "spec.yaml").write_bytes(encode(spec(2, 5), SpecFormat.YAML))
    for name in ("DEV_ROOT", "PROC_ROOT", "DRIVER_ROOT"):
        monkeypatch.setenv(f"GREENROOM_{name}", str(tmp_path / "nowhere"))
    monkeypatch.setenv("GREENROOM_TOOLKIT_DIR", str(tmp_path / "nowhere"))
    return tmp_path


def ran(capsys, *arguments):
    code = greenroom.run(["plan", *map(str, arguments)])
    return code, *capsys.readouterr()


def files_of(directory):
    return {str(path.relative_to(directory)): path.stat().st_mtime_ns for path in directory.rglob("*")}


def test_with_a_spec_alone_the_plan_is_one_document_and_nothing_is_touched(place, capsys):
    before = files_of(place)
    state = place / "state"
    code, out, err = ran(capsys, place / "a.yaml", "--cdi-spec", place / "spec.yaml", "--json", "--state-dir", state)
    assert (code, err) == (0, "")
    found = json.loads(out)
    assert found["grants"] == {
        "pause": [],
        "trainer": [{"ordinal": 0, "uuid": "GPU-2", "minor": 2, "path": "/dev/nvidia2"}],
        "logger": [],
    }
    assert [gpu["minor"] for gpu in found["inventory"]] == [2, 5]
    assert "/dev/nvidia2" in found["diffs"]["trainer"]
    assert (found["diffs"]["logger"], found["diffs"]["pause"]) == ("", "")
    assert any("NVML was not asked" in warning for warning in found["warnings"])
    assert any("GpuNotDetected" in warning for warning in found["warnings"])
    assert files_of(place) == before


def test_for_a_person_it_is_a_table_the_diffs_and_warnings_on_stderr(place, capsys):
    code, out, err = ran(capsys, place / "a.yaml", "--cdi-spec", place / "spec.yaml")
    assert code == 0
    lines = out.splitlines()
    assert lines[:8] == [
        "actor a1",
        "inventory: 2 GPUs",
        "  /dev/nvidia2  GPU-2",
        "  /dev/nvidia5  GPU-5",
        "grants:",
        "  pause    none",
        "  trainer  0: /dev/nvidia2  GPU-2",
        "  logger   none",
    ]
    assert "--- trainer/config.json without GPUs" in lines
    assert not any("logger/config.json" in line for line in lines)
    assert err.startswith("warning: the 2 GPUs are those of the CDI spec")


def test_without_a_gpu_and_without_a_spec_the_reason_is_that_of_a_worker(place, capsys):
    code, out, err = ran(capsys, place / "a.yaml", "--json")
    assert code == 1
    assert json.loads(out)["error"]["reason"] == "GpuNotDetected"
    assert err.splitlines()[-1].startswith("error: GpuNotDetected: ")


def test_an_actor_that_claims_nothing_needs_no_gpu(place, capsys):
    (place / "a.yaml").write_text(DOCUMENT.format(count=0))
    code, out, _err = ran(capsys, place / "a.yaml", "--json")
    assert code == 0
    assert set(json.loads(out)["diffs"].values()) == {""}


@pytest.mark.parametrize(
    ("document", "reason"),
    [
        (DOCUMENT.format(count=3), "InsufficientGpus"),
        (DOCUMENT.format(count="500m"), "FractionalDevice"),
        (DOCUMENT.format(count=1).replace("trainer", "TRAINER"), "InvalidContainerName"),
        (DOCUMENT.format(count=1).replace("rootfs: rootfs", "rootfs: gone", 1), "RootfsNotFound"),
        ("", "EmptyDocument"),
        (DOCUMENT.format(count=1).replace("spec:", "spec: {}\nother:"), "UnknownField"),
    ],
)
def test_what_a_worker_refuses_is_refused(document, reason, place, capsys):
    (place / "a.yaml").write_text(document)
    code, out, err = ran(capsys, place / "a.yaml", "--cdi-spec", place / "spec.yaml", "--json")
    assert code == 1
    assert reason in {each["reason"] for each in json.loads(out)["errors"]}
    assert "Traceback" not in err


@pytest.mark.parametrize(
    ("data", "reason"),
    [(b"", "GenerateFailed"), (b"\xff", "GenerateFailed"), (b"cdiVersion: 0.5.0\n", "GenerateFailed")],
)
def test_a_spec_that_is_none_is_refused(data, reason, place, capsys):
    (place / "spec.yaml").write_bytes(data)
    code, out, _err = ran(capsys, place / "a.yaml", "--cdi-spec", place / "spec.yaml", "--json")
    assert (code, json.loads(out)["error"]["reason"]) == (1, reason)


def test_files_that_are_not_there_are_told_by_name(place, capsys):
    code, _out, err = ran(capsys, place / "gone.yaml", "--cdi-spec", place / "spec.yaml")
    assert (code, err.splitlines()[-1].startswith("error: UnreadableFile: ")) == (1, True)
    assert "gone.yaml" in err
    code, _out, err = ran(capsys, place / "a.yaml", "--cdi-spec", place / "gone-spec.yaml")
    assert (code, err.splitlines()[-1].startswith("error: UnreadableFile: ")) == (1, True)
    assert "gone-spec.yaml" in err


def test_what_a_document_holds_is_shown_without_acting_on_a_terminal(place, capsys):
    text = DOCUMENT.format(count=1).replace("command: [train]", 'command: ["\\e[2J\\u009b"]')
    (place / "a.yaml").write_text(text)
    _code, out, err = ran(capsys, place / "a.yaml", "--cdi-spec", place / "spec.yaml")
    assert all(line.isprintable() for line in (out + err).splitlines())


def test_on_a_mock_node_the_plan_is_made_of_what_nvml_and_the_toolkit_say(place, capsys, tmp_path_factory):
    node = make_node(tmp_path_factory.mktemp("plan") / "node", "--gpus=4", "--minors=7,2,5,3").directory
    capsys.readouterr()
    (place / "a.yaml").write_text(DOCUMENT.format(count=3))
    flags = ["--dev-root", node, "--driver-root", node / "driver", "--proc-root", node / "proc"]
    code, out, err = ran(capsys, place / "a.yaml", "--json", *flags, "--toolkit-dir", node / "toolkit")
    assert (code, err) == (0, "")
    found = json.loads(out)
    assert [gpu["minor"] for gpu in found["inventory"]] == [2, 3, 5, 7]
    assert all(gpu["pciBusId"] and gpu["model"] for gpu in found["inventory"])
    assert [gpu["path"] for gpu in found["grants"]["trainer"]] == ["/dev/nvidia2", "/dev/nvidia3", "/dev/nvidia5"]
    assert "libcuda.so." in found["diffs"]["trainer"]
    assert "/dev/nvidia7" not in found["diffs"]["trainer"]
    assert found["diffs"]["logger"] == ""
