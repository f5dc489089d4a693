"""The checks before any silicon, on a mock node with the real tools; and the container that they make, in gVisor."""

import json
import subprocess
from pathlib import Path

import pytest

from tests.go_programs import nvidia_cdi_hook, nvidia_ctk
from tests.gpu_check import checks, container
from tests.gpu_check.checks import inject, inventory, toolkit
from tests.gpu_check.commands import CheckError, Clock, require
from tests.gpu_check.package import Package
from tests.gpu_check.places import Bench, Places
from tests.needs import ROOT, Tool, find, need
from tests.sim.mock.nodes import Node, make_node

SMI = """#!/bin/sh
[ "$*" = "-q -x" ] && cat <<'END'
<nvidia_smi_log><driver_version>580.65.06</driver_version>{gpus}</nvidia_smi_log>
END
"""
GPU = '<gpu id="{bus}"><product_name>Mock</product_name><uuid>{uuid}</uuid><minor_number>{minor}</minor_number></gpu>'


@pytest.fixture
def node(tmp_path) -> Node:
    return make_node(tmp_path / "node", "--gpus=2", "--minors=3,2")


@pytest.fixture
def bench(tmp_path, node) -> Bench:
    """What would have been unpacked, from the checkout."""
    scratch = tmp_path / "scratch"
    (scratch / "bin").mkdir(parents=True)
    (scratch / "site").mkdir()
    for program in (nvidia_ctk(), nvidia_cdi_hook()):
        (scratch / "bin" / program.name).symlink_to(program)
    for name in ("greenroom.py", "actors", "sim", "statemachine", "supervisor"):
        (scratch / "site" / name).symlink_to(ROOT / name)
    gpus = "".join(GPU.format(bus=gpu.pci_bus_id, uuid=gpu.uuid, minor=gpu.minor) for gpu in node.state().gpus)
    smi = tmp_path / "nvidia-smi"
    smi.write_text(SMI.format(gpus=gpus))
    smi.chmod(0o755)
    return Bench(
        package=Package(directory=tmp_path, machine="", pythons=(), missing={}),
        places=Places(
            dev_root=node.directory, driver_root=node.directory / "driver", proc_root=node.directory / "proc",
            nvidia_smi=str(smi),
        ),
        scratch=scratch,
        clock=Clock(300),
    )  # fmt: skip


def test_greenroom_and_nvidia_smi_tell_of_the_same_gpus(bench, node):
    assert inventory(bench) == "2 of Mock, minors [2, 3], driver 580.65.06"
    node.script("2=lost")
    with pytest.raises(CheckError):
        inventory(bench)


def test_a_gpu_whose_node_is_missing_is_found_out(bench, node):
    (node.directory / "dev/nvidia2").unlink()
    with pytest.raises(CheckError, match=r"nvidia-smi has the minors \[2, 3\], and /dev has \[3\]"):
        inventory(bench)


def test_the_failure_of_the_toolkit_is_quoted(bench, node):
    node.script("driver=none")
    with pytest.raises(CheckError, match=r"nvidia-ctk cdi generate ended with 1: .*Driver Not Loaded"):
        toolkit(bench)


@pytest.mark.runsc
def test_the_container_has_its_python_and_of_the_driver_what_the_spec_mounts(bench, node):
    need(Tool.RUNSC, Tool.ROOT, Tool.NAMESPACES)
    assert "nvidia.com/gpu" in toolkit(bench)
    told = inject(bench)
    assert "/dev/nvidia-uvm, /dev/nvidia-uvm-tools, /dev/nvidiactl, /dev/nvidia3 and 6 libraries" in told
    assert bench.bundle is not None
    assert not list((bench.scratch / "rootfs").rglob("libcuda*"))
    args = [str(container.interpreter()), "-I", container.PROGRAM]
    without_nodes = json.loads((bench.bundle / "injected.json").read_text())
    without_nodes["linux"]["devices"] = []
    container.write_bundle(bench.bundle, {**without_nodes, "annotations": {}}, args)
    flags = [f"--root={bench.scratch / 'runsc'}", "--platform=systrap", "--network=none", "--ignore-cgroups"]
    argv = [str(find(Tool.RUNSC)), *flags, "--overlay2=root:memory", "run", f"--bundle={bench.bundle}", "check"]
    with (bench.scratch / "out").open("wb") as out:
        subprocess.run(argv, stdin=subprocess.DEVNULL, stdout=out, stderr=out, timeout=300, check=False)
    # The library was found by its SONAME, through a link that the real nvidia-cdi-hook made, and it is the mock's.
    said = Path(bench.scratch / "out").read_text()
    assert json.loads(said) == {"ok": False, "error": "cuInit: the library has no such function"}


def test_a_gpu_with_other_numbers_than_its_node_is_not_taken(bench, monkeypatch):
    toolkit(bench)

    def other_numbers(argv, **more):
        injected = json.loads(require(argv, **more))
        injected["linux"]["devices"][0]["minor"] += 1
        return json.dumps(injected)

    monkeypatch.setattr(checks, "require", other_numbers)
    with pytest.raises(CheckError, match="here, and was injected as"):
        inject(bench)
