"""The runner of the GPU check: where it is not possible, what it makes of what it finds, and that nothing is left."""

import json
import os
import platform
import stat
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.gpu_check import __main__ as runner
from tests.gpu_check import checks, commands
from tests.gpu_check.checks import CHECKS, NEEDS, bus_id, read_nvidia_smi
from tests.gpu_check.commands import CheckError, Clock, require, run, talking
from tests.gpu_check.package import FORMAT, RUN, Package
from tests.gpu_check.packing import PYTHONS, _pack_runner
from tests.gpu_check.places import Bench, Gpu, Places
from tests.gpu_check.reports import Outcome, exit_code
from tests.needs import Tool, need

OWN = f"{sys.version_info.major}.{sys.version_info.minor}"


@pytest.fixture
def package(tmp_path) -> Path:
    """A package with the runner and nothing else."""
    return described(tmp_path / "package")


def described(directory: Path, **changed: object) -> Path:
    directory.mkdir(exist_ok=True)
    _pack_runner(directory)
    facts = {"v": FORMAT, "machine": platform.machine(), "pythons": [OWN], "missing": {}, **changed}
    (directory / "package.json").write_text(json.dumps(facts))
    return directory


@pytest.fixture
def gpu_node(tmp_path) -> Path:
    """A root with a /dev in which one GPU's node is."""
    need(Tool.MKNOD)
    (tmp_path / "node/dev").mkdir(parents=True)
    os.mknod(tmp_path / "node/dev/nvidia3", 0o666 | stat.S_IFCHR, os.makedev(195, 3))
    return tmp_path / "node"


def started(package: Path, *words: str | Path, **env: str) -> "subprocess.CompletedProcess[str]":
    own = {"PATH": os.environ["PATH"], "GPU_CHECK_PYTHON": sys.executable, **env}
    return subprocess.run([package / "run", *words], env=own, capture_output=True, text=True, timeout=120, check=False)


# ---- where it is not possible


def test_without_a_gpu_it_ends_with_77_and_says_why(package, tmp_path):
    (tmp_path / "root/dev").mkdir(parents=True)
    (tmp_path / "root/dev/nvidia0").touch()  # no device
    (tmp_path / "root/dev/nvidiactl").touch()
    report = tmp_path / "out/report.json"
    ended = started(package, f"--dev-root={tmp_path / 'root'}", f"--report={report}")
    why = f"there is no GPU: {tmp_path / 'root/dev'} has no device node nvidia0, nvidia1, …"
    assert (ended.returncode, ended.stdout) == (77, "")
    assert ended.stderr == f"gpu-check: not possible on this machine: {why}\n"
    told = json.loads(report.read_text())
    assert (told["exitCode"], told["ok"], told["notPossible"], told["checks"]) == (77, False, why, [])


def test_without_any_dev_it_says_the_same(package, tmp_path):
    assert started(package, f"--dev-root={tmp_path / 'absent'}").returncode == 77


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"machine": "s390x"}, f"it was packed for s390x, and this is {platform.machine()}"),
        ({"pythons": ["3.9"]}, f"it has wheels for Python 3.9, and this is {OWN} ({sys.executable})"),
    ],
)
def test_a_package_for_another_machine_is_of_no_use(tmp_path, gpu_node, changed, why):
    need(Tool.ROOT)
    ended = started(described(tmp_path / "package", **changed), f"--dev-root={gpu_node}")
    assert (ended.returncode, ended.stderr) == (77, f"gpu-check: not possible on this machine: {why}\n")


def test_without_root_it_is_not_possible(gpu_node, tmp_path, monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    given = Package.at(described(tmp_path / "package"))
    assert runner.obstacle(given, Places(dev_root=gpu_node)) == "gVisor and device nodes need root"


@pytest.mark.parametrize("says", ["exit 1", "exit 0"])
def test_a_python_is_looked_for_and_one_that_is_too_old_is_passed_over(package, tmp_path, says):
    old = tmp_path / "old-python"
    old.write_text(f"#!/bin/sh\n{says}\n")
    old.chmod(0o755)
    ended = started(package, f"--dev-root={tmp_path}", GPU_CHECK_PYTHON=f"{old} {sys.executable}")
    assert ended.returncode == (77 if says == "exit 1" else 0)
    if says == "exit 1":
        ended = started(package, GPU_CHECK_PYTHON=str(old))
        assert (ended.returncode, ended.stderr) == (
            77,
            "gpu-check: not possible on this machine: there is no Python of 3.11 or newer\n",
        )


def test_it_starts_with_a_plain_shell_and_says_its_usage():
    ended = subprocess.run(["sh", "-n"], input=RUN, text=True, capture_output=True, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert "# Usage: run " in RUN


# ---- what it makes of what it finds


def bench(directory: Path, package: Path, **places: object) -> Bench:
    scratch = directory / "scratch"
    scratch.mkdir()
    return Bench(
        package=Package.at(package),
        places=Places(**places),  # type: ignore[arg-type] # by their names
        scratch=scratch,
        clock=Clock(60),
    )


def test_a_check_that_lacks_what_another_should_have_found_is_not_begun(tmp_path, package):
    made = bench(tmp_path, package)
    bad = Outcome(name="toolkit", status="fail", took_s=0, detail="")
    outcome = runner.check(made, "inject", [bad])
    assert (outcome.status, outcome.detail) == ("not reached", "it needs toolkit")


@pytest.mark.parametrize(
    ("error", "detail"), [(CheckError("so it is"), "so it is"), (KeyError("spec"), "KeyError: 'spec'")]
)
def test_whatever_a_check_meets_is_its_detail(tmp_path, package, monkeypatch, error, detail):
    def fails(_bench):
        raise error

    monkeypatch.setitem(CHECKS, "cuda", fails)
    outcome = runner.check(bench(tmp_path, package), "cuda", [])
    assert (outcome.status, outcome.detail) == ("fail", detail)


@pytest.mark.parametrize(("statuses", "code"), [(["ok", "ok"], 0), (["ok", "fail"], 1), (["not reached"], 1), ([], 1)])
def test_only_when_all_is_well_it_ends_with_0(statuses, code):
    assert exit_code([Outcome(name="x", status=each, took_s=0, detail="") for each in statuses]) == code


def test_every_need_is_a_check_before():
    order = list(CHECKS)
    assert all(order.index(need_of) < order.index(name) for name, needs_of in NEEDS.items() for need_of in needs_of)


def test_what_was_not_packed_is_said_by_the_check_that_needs_it_and_nothing_is_left(
    tmp_path, gpu_node, monkeypatch, capsys
):
    need(Tool.ROOT)
    package = described(tmp_path / "package", missing={"greenroom": "no wheel", "nvidia-ctk": "no Go toolchain"})
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    report = tmp_path / "report.json"
    words = [f"--package={package}", f"--dev-root={gpu_node}", f"--report={report}"]
    before = set(tmp_path.iterdir())
    assert runner.main([*words, "--only", "toolkit", "--only", "inject"]) == 1
    assert set(tmp_path.iterdir()) - before == {report}
    told = {each["name"]: (each["status"], each["detail"]) for each in json.loads(report.read_text())["checks"]}
    assert told == {
        "unpack": ("fail", "Greenroom was not packed: no wheel"),
        "toolkit": ("not reached", "it needs unpack"),
        "inject": ("not reached", "it needs toolkit"),
    }
    assert "gpu-check: 0 of 3 checks passed" in capsys.readouterr().out


def test_when_no_time_is_left_the_rest_is_not_begun(tmp_path, package):
    late = bench(tmp_path, package)
    late.clock = Clock(0)
    with pytest.raises(CheckError, match="no time was left"):
        late.clock.within(30)
    assert Clock(10).within(30) <= 10
    assert Clock(100).within(30) == 30


SMI = """<?xml version="1.0" ?>
<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v12.dtd">
<nvidia_smi_log>
  <driver_version>580.159.04</driver_version>
  <gpu id="00000000:3C:00.0">
    <product_name>NVIDIA H200</product_name><uuid>GPU-a</uuid><minor_number>3</minor_number>
  </gpu>
  <gpu id="00000000:3B:00.0">
    <product_name>NVIDIA H200</product_name><uuid>GPU-b</uuid><minor_number>2</minor_number>
  </gpu>
</nvidia_smi_log>
"""
GPUS = (
    Gpu(uuid="GPU-a", minor=3, pci_bus_id="0000:3c:00.0", model="NVIDIA H200"),
    Gpu(uuid="GPU-b", minor=2, pci_bus_id="0000:3b:00.0", model="NVIDIA H200"),
)


def test_nvidia_smi_is_read():
    assert read_nvidia_smi(SMI) == ("580.159.04", GPUS)
    assert bus_id("00010000:3B:00.0") == "10000:3b:00.0"


@pytest.mark.parametrize(
    "text", ["", "NVIDIA-SMI has failed", SMI.replace(">3<", ">N/A<"), SMI.replace("00000000:3C", "")]
)
def test_what_nvidia_smi_says_otherwise_is_not_understood(text):
    with pytest.raises(CheckError, match="is not understood"):
        read_nvidia_smi(text)


@pytest.mark.parametrize(
    ("seen", "detail"),
    [
        (((2, 3), {"GPU-a": (3, "0000:3c:00.0"), "GPU-b": (2, "0000:3b:00.0")}), None),
        (((2,), {}), "nvidia-smi has the minors [2, 3], and /dev has [2]"),
        (((2, 3), {"GPU-a": (2, "0000:3c:00.0"), "GPU-b": (3, "0000:3b:00.0")}), "Greenroom has"),
        (((2, 3), {"GPU-a": (3, "0000:3c:00.0")}), "Greenroom has"),
    ],
)
def test_three_tell_of_the_same_gpus(tmp_path, package, monkeypatch, seen, detail):
    nodes, ours = seen
    made = bench(tmp_path, package)
    monkeypatch.setattr(checks, "require", lambda *_args, **_more: SMI)
    monkeypatch.setattr(checks, "_greenrooms_inventory", lambda _bench: ours)
    monkeypatch.setattr(Places, "gpu_minors", lambda _places: nodes)
    outcome = runner.check(made, "inventory", [])
    if detail is None:
        assert (outcome.status, outcome.detail) == ("ok", "2 of NVIDIA H200, minors [2, 3], driver 580.159.04")
        assert (made.driver, made.gpus) == ("580.159.04", GPUS)
    else:
        assert outcome.status == "fail"
        assert outcome.detail.startswith(detail)


# ---- other programs


def test_a_program_that_fails_is_quoted():
    with pytest.raises(CheckError, match=r"^ls absent ended with \d: .*absent"):
        require(["ls", "-d", "absent"], bound_s=30)
    with pytest.raises(CheckError, match=r"^greenroom plan ended with 3: one \| two$"):
        require(["sh", "-c", "echo one >&2; echo two >&2; exit 3", "greenroom", "plan"], bound_s=30)
    with pytest.raises(CheckError, match="absent cannot be started: No such file"):
        require(["/absent"], bound_s=30)


def test_a_program_that_does_not_end_is_ended_with_all_it_started():
    with pytest.raises(CheckError, match="sh did not end within 3 s: ") as raised:
        run(["sh", "-c", "sleep 1000 & echo $! >&2; wait"], bound_s=3)
    left = Path("/proc", str(raised.value).rsplit(" ", 1)[1], "cmdline")
    until = time.monotonic() + 90
    while left.exists() and b"sleep" in left.read_bytes() and time.monotonic() < until:
        time.sleep(0.01)
    assert not left.exists() or b"sleep" not in left.read_bytes()


def test_what_a_program_says_while_it_runs_is_heard():
    with talking(["sh", "-c", "echo a; echo {b}; read line; exit 4"]) as talker:
        assert talker.line(lambda line: line.startswith("{"), bound_s=30) == "{b}\n"
        assert talker.let_go() == 4
    with talking(["sh", "-c", "echo a; echo b >&2"]) as talker, pytest.raises(CheckError, match=r"sh ended: a \| b"):
        talker.line(lambda line: line.startswith("{"), bound_s=30)


def test_the_environment_has_nothing_of_the_callers_but_the_drivers_libraries(tmp_path, package, monkeypatch):
    monkeypatch.setenv("LD_LIBRARY_PATH", "/usr/local/nvidia/lib64")
    monkeypatch.setenv("NVIDIA_CTK_DEBUG", "true")
    env = bench(tmp_path, package).env
    assert set(env) == {"PATH", "LANG", "PYTHONPATH", "TMPDIR", "LD_LIBRARY_PATH"}


def test_a_mount_that_is_left_in_the_scratch_is_unmounted(tmp_path, monkeypatch):
    lines = [
        f"1 2 0:4 / {path} rw - tmpfs tmpfs rw" for path in ("/", f"{tmp_path}/a", f"{tmp_path}/a/b", f"{tmp_path}x")
    ]
    asked: list[list[str]] = []
    monkeypatch.setattr(Path, "read_text", lambda _path: "\n".join(lines))
    monkeypatch.setattr(runner, "subprocess", SimpleNamespace(run=lambda argv, **_more: asked.append(argv)))
    runner.unmount(tmp_path)
    assert asked == [["umount", "-l", f"{tmp_path}/a/b"], ["umount", "-l", f"{tmp_path}/a"]]


def test_the_pythons_that_are_packed_for_are_those_that_greenroom_takes():
    assert OWN in PYTHONS
    assert commands.tail("  a\n\nb \n") == "a | b"
