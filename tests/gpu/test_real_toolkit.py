"""The real nvidia-ctk on a mock node: the spec it writes is one that we read and can grant, and how it fails is known.

It ends with the very words that the simulated one ends with, each row of whose failure table is played for real.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
from pathlib import Path
from typing import Any, Final

import attrs
import pytest

from actors.cdi import Spec, read_spec
from actors.cdi.host import lstat
from actors.gpu.granted_edits import granted_edits
from actors.gpu.inventory import Gpu, Inventory
from actors.gpu.spec_check import problems_of
from actors.gpu.toolkit_errors import ToolkitFailure, failure_of, last_error, problem_of
from sim.mock.layout import LIBRARIES
from statemachine.reasons import Reason
from tests.go_programs import nvidia_cdi_hook, nvidia_ctk
from tests.sim.mock.nodes import Node, make_node
from tests.sim.test_nvidia_ctk_failures import FAILURES as SIMULATED

SCRIPTED: Final = {
    "no driver": ["driver=none"],
    "another driver": ["driver=590.48.01"],
    "no access": ["devices=denied"],
    "a lost gpu": ["2=lost"],
    "lost as it is counted": ["nvmlDeviceGetCount_v2=999"],
    "lost at its uuid": ["nvmlDeviceGetUUID=15"],
    "lost at its mode": ["nvmlDeviceGetMigMode=15"],
    "lost at its minor": ["nvmlDeviceGetMinorNumber=15"],
    "lost at its bus": ["nvmlDeviceGetPciInfo_v3=15"],
}
"""What the simulated world's own failures are, in the words of a mock node."""
BY_HAND: Final = {"no library", "no gpus"}
NEWER: Final = {"nodes elsewhere"}
"""What the simulated 1.20.0 refuses and newer ones do not: they have one more hook for each GPU, so none is empty."""
BY_FLAGS: Final = {key: flags for key, (_, flags, _) in SIMULATED.items() if flags and key not in NEWER}
WITHOUT_CLASS: Final = {"lost as it is counted"}
"""Failures that only the tool's own words tell."""


@attrs.frozen
class Ended:
    """How one call ended, and what it wrote."""

    code: int
    stderr: str
    written: bytes | None

    def spec(self) -> Spec:
        assert self.code == 0, self.stderr
        assert self.written
        reading = read_spec(self.written, "spec.json")
        assert reading.spec is not None
        assert not reading.warnings
        return reading.spec


@pytest.fixture(scope="module")
def nodes(tmp_path_factory):
    """Mock nodes, one for each way to number GPUs: compiled once, and reset before each test."""
    nvidia_ctk()
    made: dict[tuple[int, ...], Node] = {}

    def of(*minors: int) -> Node:
        if minors not in made:
            given = f"--minors={','.join(map(str, minors))}"
            made[minors] = make_node(tmp_path_factory.mktemp("mock") / "node", f"--gpus={len(minors)}", given)
        made[minors].reset()
        return made[minors]

    return of


def generate(node: Node, folder: Path, *flags: str, **env: str) -> Ended:
    """As DESIGN's `generate` calls it: a private directory, a clean environment, a deadline."""
    private = folder / "private"
    private.mkdir(mode=0o700, exist_ok=True)
    output = private / "nvidia.json"
    argv = [
        str(nvidia_ctk()), "cdi", "generate", f"--output={output}", f"--driver-root={node.directory / 'driver'}",
        f"--dev-root={node.directory}", f"--nvidia-cdi-hook-path={nvidia_cdi_hook()}", *flags,
    ]  # fmt: skip
    own = {"PATH": "/usr/bin:/bin", "TMPDIR": str(private), **env}
    ended = subprocess.run(argv, env=own, capture_output=True, text=True, timeout=60, check=False)
    return Ended(ended.returncode, ended.stderr, output.read_bytes() if output.exists() else None)


def inventory(node: Node) -> Inventory:
    return Inventory(
        Gpu(uuid=gpu.uuid, minor=gpu.minor, pci_bus_id=gpu.pci_bus_id, model=gpu.model) for gpu in node.state().gpus
    )


def paths(spec: Spec, name: str) -> list[str]:
    device = spec.device(name)
    assert device is not None
    return [node.path for node in device.container_edits.device_nodes]


@pytest.mark.parametrize("minors", [(7, 2, 5, 3), (0, 1, 2, 3), (3, 2), (11,)], ids=str)
def test_each_gpu_is_granted_its_own_node_whatever_its_index_is(nodes, tmp_path, minors):
    node = nodes(*minors)
    spec = generate(node, tmp_path).spec()
    gpus = inventory(node)
    assert problems_of(spec, gpus, lstat=lstat, exists=os.path.lexists) == ()
    for index, gpu in enumerate(node.state().gpus):
        assert gpu.minor == minors[index]
        assert paths(spec, str(index)) == paths(spec, gpu.uuid) == [f"/dev/nvidia{gpu.minor}"]
    for gpu in gpus.usable:
        nodes_of_it = {each.path: each.host_path for each in granted_edits(spec, [gpu]).device_nodes}
        assert nodes_of_it == {
            path: f"{node.directory}{path}"
            for path in (f"/dev/nvidia{gpu.minor}", "/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools")
        }


def test_a_node_that_goes_afterwards_is_found_out(nodes, tmp_path):
    node = nodes(3, 2)
    spec = generate(node, tmp_path).spec()
    gone = node.directory / "dev/nvidia2"
    (problem,) = problems_of(
        spec, inventory(node), lstat=lambda path: None if path == str(gone) else lstat(path), exists=os.path.lexists
    )
    assert problem.reason is Reason.CDI_DEVICE_UNRESOLVED


def test_a_pod_without_uvm_gets_a_spec_that_is_refused(nodes, tmp_path):
    node = nodes(3, 2)
    uvm = node.directory / "dev/nvidia-uvm"
    aside = node.directory / "aside"
    uvm.rename(aside)
    try:
        spec = generate(node, tmp_path).spec()
        problems = problems_of(spec, inventory(node), lstat=lstat, exists=os.path.lexists)
    finally:
        aside.rename(uvm)
    assert {problem.reason for problem in problems} == {Reason.CDI_DEVICE_UNRESOLVED}


def test_a_gpu_in_mig_mode_is_left_out(tmp_path, tmp_path_factory):
    nvidia_ctk()
    node = make_node(tmp_path_factory.mktemp("mock") / "node", "--gpus=2", "--minors=4,1", "--mig=4")
    spec = generate(node, tmp_path).spec()
    assert {device.name for device in spec.devices} == {"1", node.state().gpu(1).uuid, "all"}
    assert paths(spec, "all") == ["/dev/nvidia1"]


def test_with_one_gpu_lost_the_others_are_had_by_name(nodes, tmp_path):
    node = nodes(3, 2)
    node.script("2=lost")
    assert generate(node, tmp_path).code == 1
    spec = generate(node, tmp_path, "--device-id=0").spec()
    assert {device.name for device in spec.devices} == {"0", node.state().gpu(3).uuid, "all"}


def test_its_libraries_and_links_are_those_of_the_driver(nodes, tmp_path):
    node = nodes(3, 2)
    edits = generate(node, tmp_path).spec().container_edits
    libraries = node.directory / LIBRARIES
    mounted = {mount.host_path for mount in edits.mounts if ".so" in mount.host_path}
    assert mounted == {str(path) for path in libraries.iterdir() if not path.is_symlink()}
    assert {mount.container_path for mount in edits.mounts if mount.host_path in mounted} == {
        path.removeprefix(str(node.directory / "driver")) for path in mounted
    }
    assert "NVIDIA_VISIBLE_DEVICES=void" in edits.env


def test_a_variable_of_the_pod_would_change_what_it_writes(nodes, tmp_path):
    """Why it is given a clean environment."""
    node = nodes(3, 2)
    assert generate(node, tmp_path, NVIDIA_CTK_CDI_GENERATE_DISABLED_HOOKS="all").spec().container_edits.hooks == ()
    assert generate(node, tmp_path).spec().container_edits.hooks != ()


# ---- how it fails


def test_every_failure_of_the_simulated_one_is_played_here():
    assert {*SCRIPTED, *BY_HAND, *BY_FLAGS, *NEWER} == set(SIMULATED)


def outcome(ended: Ended) -> tuple[int, bytes | None, str, bool]:
    """Exit code, what was written, the last error, and whether that is of a known class."""
    is_known = failure_of(ended.code, ended.stderr) is not ToolkitFailure.OTHER
    return ended.code, ended.written, last_error(ended.stderr), is_known


def simulated(key: str) -> tuple[int, bytes | None, str, bool]:
    """The same of the simulated one."""
    return 1, None, SIMULATED[key][2], key not in WITHOUT_CLASS


@pytest.mark.parametrize("key", SCRIPTED)
def test_it_fails_with_the_words_that_the_simulated_one_has(nodes, tmp_path, key):
    node = nodes(3, 2)
    node.script(*SCRIPTED[key])
    assert outcome(generate(node, tmp_path)) == simulated(key)


@pytest.mark.parametrize("key", BY_FLAGS)
def test_it_refuses_flags_with_the_words_that_the_simulated_one_has(nodes, tmp_path, key):
    assert outcome(generate(nodes(3, 2), tmp_path, *BY_FLAGS[key])) == simulated(key)


def test_without_the_library_it_says_so(nodes, tmp_path):
    node = nodes(3, 2)
    library, aside = node.nvml, node.directory / "aside"
    library.rename(aside)
    try:
        ended = generate(node, tmp_path)
    finally:
        aside.rename(library)
    assert outcome(ended) == simulated("no library")


def test_without_any_node_of_a_gpu_it_says_so(nodes, tmp_path):
    node = nodes(3, 2)
    there = [node.directory / f"dev/nvidia{minor}" for minor in (3, 2)]
    for path in there:
        path.rename(path.with_name(f"aside{path.name}"))
    try:
        ended = generate(node, tmp_path)
    finally:
        for path in there:
            path.with_name(f"aside{path.name}").rename(path)
    assert outcome(ended) == simulated("no gpus")


@pytest.mark.parametrize("key", sorted(NEWER))
def test_a_spec_that_newer_releases_write_without_any_gpus_node_is_refused(nodes, tmp_path, key):
    node = nodes(3, 2)
    ended = generate(node, tmp_path, *SIMULATED[key][1])
    problems = problems_of(ended.spec(), inventory(node), lstat=lstat, exists=os.path.lexists)
    assert {problem.reason for problem in problems} == {Reason.CDI_DEVICE_UNRESOLVED}


def test_a_crash_in_the_library_is_a_crash(nodes, tmp_path):
    node = nodes(3, 2)
    node.script("nvmlDeviceGetHandleByIndex_v2=crash")
    ended = generate(node, tmp_path)
    assert (ended.code, ended.written) in {(-signal.SIGSEGV, None), (2, None)}
    assert failure_of(ended.code, ended.stderr) is ToolkitFailure.CRASHED


def test_a_library_that_hangs_is_ended_at_the_deadline(nodes, tmp_path, monkeypatch):
    node = nodes(3, 2)
    node.script("nvmlInitWithFlags=hang")
    run: Any = subprocess.run
    monkeypatch.setattr(subprocess, "run", lambda argv, **more: run(argv, **{**more, "timeout": 1}))
    with pytest.raises(subprocess.TimeoutExpired):
        generate(node, tmp_path)
    assert not (tmp_path / "private/nvidia.json").exists()


def test_a_foreign_spec_beside_the_output_is_read_too(nodes, tmp_path):
    """Why its output goes into a directory of its own: releases that hold an old CDI library panic at this one."""
    node = nodes(3, 2)
    (tmp_path / "private").mkdir()
    (tmp_path / "private/other.yaml").write_text("cdiVersion: 0.5.0\nkind: vendor.com/x\n")
    ended = generate(node, tmp_path)
    assert ended.code in {0, 2}
    if ended.code:
        assert problem_of(ended.code, ended.stderr, subject="nvidia-ctk").message.startswith("nvidia-ctk crashed")


def test_it_names_the_release_it_was_built_from():
    asked = subprocess.run([nvidia_ctk(), "--version"], capture_output=True, text=True, timeout=60, check=True)
    assert re.fullmatch(r"NVIDIA Container Toolkit CLI version 1\.\d+\.\d+", asked.stdout.splitlines()[0])
