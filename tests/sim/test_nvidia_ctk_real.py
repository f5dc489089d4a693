"""nvidia-ctk of the simulated world beside the real one: the same command lines, exit codes, errors and specs.

The real one is built from its module and asks the NVML of a mock node; the simulated machine has what the mock node has
in its directory. Both are 1.20.0, to the byte of a spec; `tests/gpu/test_real_toolkit.py` has a newer one.
"""

import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import attrs
import orjson
import pytest
import yaml

from actors.gpu.toolkit_errors import ToolkitFailure, failure_of, last_error
from sim.mock.layout import LIBRARIES
from sim.world import scenery
from sim.world.disk import SimDisk
from sim.world.gpu_node import GpuNode
from sim.world.gpus import Driver, Toolkit, some_gpus
from sim.world.nodes import SpecialNode
from sim.world.nvidia_ctk import Ctk
from sim.world.nvml import Return, Symbol
from tests.gpu.oracle.toolkit import NVIDIA_CTK, built
from tests.sim.mock.nodes import Node, make_node

MODELLED: Final = ("libcuda", "libnvidia-ml", "libnvidia-ptxjitcompiler")
NOW_NS: Final = 10**18
NO_FLAGS: Final = ()


@attrs.frozen
class Ended:
    """How a call ended: its exit code, the words of its last error, what it wrote to stdout and into files."""

    code: int
    error: str
    failure: ToolkitFailure | None
    stdout: Any
    files: dict[str, Any]


@attrs.define
class Pair:
    """A mock node and a simulated one that have the same."""

    real: Node
    simulated: GpuNode
    out: Path
    env: dict[str, str]

    def roots(self) -> tuple[str, ...]:
        return (f"--driver-root={self.real.directory / 'driver'}", f"--dev-root={self.real.directory}")

    def spoil(self, symbol: Symbol, code: Return, minor: int | None = None) -> None:
        self.real.script(f"{symbol}{'' if minor is None else f'@{minor}'}={int(code)}")
        self.simulated.spoil(symbol, code, minor=minor)

    def set_node(self, name: str, *, gid: int, mode: int) -> None:
        path = self.real.directory / "dev" / name
        os.chown(path, 0, gid)
        path.chmod(mode)
        node = self.simulated.disk.find(path)
        assert isinstance(node, SpecialNode)
        node.gid = gid
        self.simulated.disk.change_mode(node, mode)

    def remove(self, path: Path) -> None:
        path.unlink()
        self.simulated.disk.remove(self.simulated.disk.find_directory(path.parent), path.name)

    def put_spec(self, name: str, text: str) -> None:
        (self.out / name).write_text(text)
        scenery.put_file(self.simulated.disk, self.out / name, text.encode())

    def reset(self) -> None:
        """As it was made."""
        self.real.reset()
        self.simulated.nvml_faults.clear()
        self.simulated.reload_driver()
        for path in (self.real.directory / "dev").iterdir():
            self.set_node(path.name, gid=0, mode=0o666)
        shutil.rmtree(self.out)
        self.out.mkdir()
        there = self.simulated.disk.find_directory(self.out)
        for name in tuple(self.simulated.disk.names(there)):
            self.simulated.disk.remove(there, name)

    def call(self, flags: tuple[str, ...], env: Mapping[str, str] = MappingProxyType({})) -> tuple[Ended, Ended]:
        """The real one's end and the simulated one's."""
        argv = ("cdi", "generate", *flags)
        variables = {**self.env, **env}
        simulated = Ctk(self.simulated.disk, self.simulated, variables).call(argv)
        found = scenery.snapshot(self.simulated.disk, self.out)
        ours = ended(simulated.code, simulated.stdout, simulated.stderr, found)
        done = subprocess.run([built(NVIDIA_CTK), *argv], env=variables, capture_output=True, timeout=60, check=False)
        return ended(done.returncode, done.stdout, done.stderr, contents(self.out)), ours


def contents(directory: Path) -> dict[str, bytes]:
    return {str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()}


def ended(code: int, stdout: bytes, stderr: bytes, files: Mapping[str, Any]) -> Ended:
    text = stderr.decode()
    read = {name: (data if name.endswith(".json") else yaml.safe_load(data)) for name, data in files.items() if data}
    failure = failure_of(code, text) if code else None
    # What is printed when the flags are wrong is the help, which is not modelled.
    printed = yaml.safe_load(stdout) if code == 0 else None
    return Ended(code=code, error=last_error(text) if code else "", failure=failure, stdout=printed, files=read)


def mirrored(directory: Path, minors: tuple[int, ...]) -> GpuNode:
    """A simulated machine with everything that a mock node has and the simulated driver does not bring itself."""
    disk = SimDisk(now_ns=lambda: NOW_NS)
    driver = Driver(root=directory / "driver", dev_root=directory, proc_root=directory / "proc")
    node = GpuNode(disk, some_gpus(len(minors), minors=minors), driver=driver, toolkit=Toolkit())
    node.boot()
    for path in directory.rglob("*"):
        if path.is_symlink() and not path.is_dir():
            scenery.put_symlink(disk, path, str(path.readlink()))
    for path in (directory / "dev").iterdir():
        numbers = path.stat().st_rdev
        found = disk.find(path)
        assert isinstance(found, SpecialNode)
        found.device = (os.major(numbers), os.minor(numbers))
    return node


def make_pair(tmp_path: Path, minors: tuple[int, ...]) -> Pair:
    real = make_node(tmp_path / "node", f"--gpus={len(minors)}", f"--minors={','.join(map(str, minors))}")
    for library in (real.directory / LIBRARIES).iterdir():
        if library.name.partition(".so")[0] not in MODELLED:
            library.unlink()
    simulated = mirrored(real.directory, minors)
    out, temporary = tmp_path / "out", tmp_path / "tmp"
    for folder in (out, temporary):
        folder.mkdir()
        scenery.put_directory(simulated.disk, folder)
    return Pair(real, simulated, out, {"PATH": "/nowhere", "TMPDIR": str(temporary)})


@pytest.fixture(scope="module")
def shared_pair(tmp_path_factory):
    built(NVIDIA_CTK)
    return make_pair(tmp_path_factory.mktemp("toolkit"), (3, 2))


@pytest.fixture
def two(shared_pair):
    """Two GPUs, which every test finds as they were made."""
    shared_pair.reset()
    return shared_pair


@pytest.fixture
def own_pair(tmp_path):
    """Other GPUs, or two that will not be as they were: a second to make."""
    built(NVIDIA_CTK)
    return lambda *minors: make_pair(tmp_path, minors)


def same_end(pair: Pair, *flags: str, env: Mapping[str, str] = MappingProxyType({})) -> Ended:
    """Both ends, which are the same one."""
    real, simulated = pair.call((*pair.roots(), *flags), env)
    assert simulated == real
    return real


JSON: Final = "--output={out}/x.json"
LINES: Final = [
    # I1
    (JSON,),
    ("--output={out}/x.yaml",),
    ("--output={out}/x",),
    ("--output={out}/x.yml",),
    ("--output={out}/x", "--format=json"),
    ("--output={out}/x.yaml", "--format=json"),
    (),
    ("--format=json",),
    # I4
    (JSON, "--device-id=none"),
    (JSON, "--device-id=none,0"),
    (JSON, "--device-id=none", "--no-all-device"),
    ("--device-id=none",),
    # I5
    (JSON, "--device-id=1"),
    (JSON, "--device-id=0,1"),
    (JSON, "--devices=all"),
    (JSON, "--device-ids=GPU-00000000-0000-4000-8000-000000000001"),
    # I19's kind
    (JSON, "--device-id=9"),
    (JSON, "--device-id=bogus"),
    (JSON, "--device-id=0:0"),
    (JSON, "--device-id=9:0"),
    (JSON, "--device-id=GPU-00000000-0000-4000-8000-000000000009"),
    (JSON, "--device-id=0", "--device-id=0"),
    (JSON, "--dev-root=/nowhere"),
    (JSON, "--driver-root=/nowhere"),
    (JSON, "--mode=x"),
    (JSON, "--mode=nvml"),
    (JSON, "--device-name-strategy=x"),
    (JSON, "--device-name-strategy=uuid"),
    (JSON, "--device-name-strategy=index"),
    (JSON, "--device-name-strategy=type-index"),
    (JSON, "--device-name-strategy=uuid,index"),
    (JSON, "--vendor=-x"),
    (JSON, "--vendor=a!b"),
    (JSON, "--vendor="),
    (JSON, "--vendor=x"),
    (JSON, "--class=ab_"),
    (JSON, "--class=x"),
    (JSON, "-class=aa"),
    (JSON, "--format=xml"),
    (JSON, "--no-all-device"),
    (JSON, "--disable-hook=all"),
    (JSON, "--disable-hook=create-symlinks,update-ldcache"),
    (JSON, "--nvidia-cdi-hook-path=/opt/h"),
    (JSON, "--ldconfig-path=/sbin/ldconfig"),
    (JSON, "--feature-flag=unknown"),
    (JSON, "--bogus"),
    ("--output",),
]


@pytest.mark.parametrize("flags", LINES, ids=lambda flags: " ".join(flags) or "nothing")
def test_i1_i4_i5_a_command_line_ends_as_the_real_one_does(two, flags):
    real, simulated = two.call((*two.roots(), *(flag.format(out=two.out) for flag in flags)))
    assert simulated == real


def test_i2_one_gpu_is_as_the_real_one_has_it(own_pair):
    pair = own_pair(4)
    made = orjson.loads(same_end(pair, f"--output={pair.out}/x.json").files["x.json"])
    assert [device["name"] for device in made["devices"]] == ["0", pair.simulated.gpu(4).uuid, "all"]


@pytest.mark.parametrize("minors", [(7, 2, 5, 3), tuple(range(12))])
def test_i1_many_gpus_are_as_the_real_one_has_them(own_pair, minors):
    pair = own_pair(*minors)
    assert same_end(pair, f"--output={pair.out}/x.json").code == 0


def test_i3_a_gpu_in_mig_mode_without_instances_is_not_listed(own_pair):
    pair = own_pair(1, 0)
    pair.simulated.split(1)
    state = pair.real.state()
    pair.real.put(state.with_gpu(attrs.evolve(state.gpu(1), is_in_mig_mode=True)))
    made = orjson.loads(same_end(pair, f"--output={pair.out}/x.json").files["x.json"])
    assert [device["name"] for device in made["devices"]] == ["1", pair.simulated.gpu(0).uuid, "all"]


@pytest.mark.parametrize("node", ["nvidia3", "nvidiactl"])
@pytest.mark.parametrize(
    ("gid", "mode"), [(44, 0o660), (44, 0o664), (44, 0o662), (44, 0o666), (0, 0o660), (44, 0o600), (44, 0)]
)
def test_i9_i11_groups_of_nodes_are_as_the_real_one_lists_them(two, node, gid, mode):
    two.set_node(node, gid=gid, mode=mode)
    assert same_end(two, f"--output={two.out}/x.json").code == 0
    assert same_end(two, "--feature-flag=no-additional-gids-for-device-nodes").code == 0


def no_library(pair: Pair) -> None:
    pair.remove(pair.real.directory / LIBRARIES / "libnvidia-ml.so.1")


def no_driver(pair: Pair) -> None:
    pair.real.script("driver=none")
    pair.simulated.unload_driver()


def another_driver(pair: Pair) -> None:
    pair.spoil(Symbol.INIT, Return.LIB_RM_VERSION_MISMATCH)


@pytest.mark.parametrize(
    ("spoil", "failure"),
    [
        (no_library, ToolkitFailure.LIBRARY_NOT_FOUND),
        (no_driver, ToolkitFailure.DRIVER_NOT_LOADED),
        (another_driver, ToolkitFailure.VERSION_MISMATCH),
    ],
)
def test_i19_the_ways_in_which_nvml_does_not_begin_are_the_real_ones(own_pair, spoil, failure):
    pair = own_pair(3, 2)
    spoil(pair)
    same = same_end(pair, f"--output={pair.out}/x.json")
    assert (same.code, same.failure, same.files) == (1, failure, {})


@pytest.mark.parametrize("symbol", [Symbol.HANDLE_BY_INDEX, Symbol.UUID, Symbol.MINOR, Symbol.PCI, Symbol.MIG_MODE])
@pytest.mark.parametrize("flags", [(), ("--device-id=0",)], ids=["all", "the other"])
def test_i19_a_lost_gpu_ends_as_the_real_one_does(two, symbol, flags):
    two.spoil(symbol, Return.GPU_IS_LOST, 2)
    same = same_end(two, f"--output={two.out}/x.json", *flags)
    assert same.failure is (None if flags else ToolkitFailure.GPU_LOST)


def test_i18_a_gpu_without_its_node_and_without_any_other_fails_as_the_real_one_does(two, tmp_path):
    # It has no graphics nodes: those are below the machine's own /sys, where none can be put.
    same = same_end(two, f"--output={two.out}/x.json", f"--dev-root={tmp_path}/nowhere")
    assert same.failure is ToolkitFailure.GPU_WITHOUT_NODES


@pytest.mark.parametrize("where", ["x.json", None], ids=["beside the output", "beside stdout's"])
def test_i20_a_foreign_spec_makes_the_real_one_panic_too(two, where):
    two.put_spec(
        "other.yaml", "cdiVersion: 0.5.0\nkind: vendor.com/x\ndevices:\n- name: a\n  containerEdits:\n    env: [A=b]\n"
    )
    same = same_end(two, f"--output={two.out}/{where}") if where else same_end(two, env={"TMPDIR": str(two.out)})
    assert (same.code, same.failure) == (2, ToolkitFailure.CRASHED)


def test_variables_count_as_flags_do(two):
    env = {
        "NVIDIA_CTK_CDI_OUTPUT_FILE_PATH": f"{two.out}/e.json",
        "NVIDIA_CTK_CDI_GENERATE_DISABLED_HOOKS": "all",
        "NVIDIA_CTK_CDI_GENERATE_DEVICE_IDS": "1",
        "NVIDIA_CTK_CDI_GENERATE_NO_ALL_DEVICE": "true",
    }
    assert same_end(two, env=env).code == 0
