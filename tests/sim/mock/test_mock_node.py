"""`greenroom mock-node`: what it makes and what it leaves alone, how it is scripted, and where it is not possible."""

import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from elftools.elf.elffile import ELFFile

import greenroom
from sim.mock import making
from sim.mock.layout import LIBRARIES, OWN_NAMES
from sim.mock.making import NotPossibleError, choose_uvm_major
from sim.mock.shared_library import shared_library
from sim.mock.state import NodeState, StateError, cuda_version, read_state, write_state
from sim.world.gpus import GIB, ComputeProcess, Health, proc_files, some_gpus
from sim.world.nvml import Symbol
from tests.needs import ROOT, Tool, need
from tests.sim.mock.nodes import make_node

FOUR = ("--gpus=4", "--minors=7,2,5,3")


def everything(directory: Path) -> dict[str, tuple[str, Any]]:
    """What is in a directory: kind, mode, and content, target or numbers."""
    found: dict[str, tuple[str, Any]] = {}
    for path in sorted(directory.rglob("*")):
        told = path.lstat()
        content: Any = None
        if stat.S_ISLNK(told.st_mode):
            content = str(path.readlink())
        elif stat.S_ISREG(told.st_mode):
            content = path.read_bytes()
        elif stat.S_ISCHR(told.st_mode):
            content = (os.major(told.st_rdev), os.minor(told.st_rdev))
        found[str(path.relative_to(directory))] = (stat.filemode(told.st_mode), content)
    return found


def run(capsys, directory, *options) -> tuple[int, str]:
    """The exit code and stderr."""
    code = greenroom.run(["mock-node", "--dir", str(directory), *options])
    return code, capsys.readouterr().err


@pytest.fixture(scope="module")
def one_node(tmp_path_factory):
    return make_node(tmp_path_factory.mktemp("mock") / "node", *FOUR)


@pytest.fixture
def node(tmp_path):
    return make_node(tmp_path / "node", *FOUR)


def test_the_nodes_are_character_devices_with_the_numbers_of_the_driver(one_node):
    found = everything(one_node.directory / "dev")
    assert {name: content for name, (_, content) in found.items() if not name.startswith("nvidia-uvm")} == {
        **{f"nvidia{minor}": (195, minor) for minor in (2, 3, 5, 7)},
        "nvidiactl": (195, 255),
    }
    (_, (uvm, zero)), (_, (tools, one)) = found["nvidia-uvm"], found["nvidia-uvm-tools"]
    assert (uvm, zero, one) == (tools, 0, 1)
    assert {mode for mode, _ in found.values()} == {"crw-rw-rw-"}


def test_each_library_has_the_soname_that_a_link_beside_it_has(one_node):
    libraries = one_node.directory / LIBRARIES
    links = {path.name: path.resolve() for path in libraries.iterdir() if path.is_symlink()}
    sonames = {}
    for path in libraries.iterdir():
        if not path.is_symlink():
            assert path.name.endswith(".so.580.65.06")
            with path.open("rb") as file:
                dynamic: Any = ELFFile(file).get_section_by_name(".dynamic")
                (soname,) = [tag.soname for tag in dynamic.iter_tags() if tag.entry.d_tag == "DT_SONAME"]
            sonames[path] = soname
    assert {links[soname]: soname for soname in sonames.values()} == sonames
    assert {"libcuda.so.1", "libnvidia-ml.so.1", "libnvidia-nvvm.so.4"} <= set(sonames.values())
    assert links["libcuda.so"] == libraries / "libcuda.so.580.65.06"


def test_proc_shows_what_the_simulated_world_shows(one_node):
    proc = one_node.directory / "proc/driver/nvidia"
    shown = {name: content for name, (_, content) in everything(proc).items() if content is not None}
    expected = proc_files(some_gpus(4, minors=(7, 2, 5, 3)), "580.65.06")
    assert shown == {name: text.encode() for name, text in expected.items()}


def test_without_minors_they_go_downwards_and_mig_mode_is_of_the_named_ones(tmp_path):
    state = make_node(tmp_path / "node", "--gpus=3", "--mig=0,2", "--driver=570.124.06").state()
    assert [(gpu.minor, gpu.is_in_mig_mode) for gpu in state.gpus] == [(2, True), (1, False), (0, True)]
    assert (state.loaded_version, state.cuda_version) == ("570.124.06", 12080)


def test_a_node_may_have_no_gpu_at_all(tmp_path):
    node = make_node(tmp_path / "node", "--gpus=0")
    assert set(everything(node.directory / "dev")) == {"nvidiactl", "nvidia-uvm", "nvidia-uvm-tools"}
    assert node.asked("nvmlInit()\ntell(nvmlDeviceGetCount())") == 0


def test_made_twice_it_is_the_same_and_what_was_right_was_not_touched(node):
    before = everything(node.directory)
    inodes = {path: path.lstat().st_ino for path in (node.directory / "dev").iterdir()}
    make_node(node.directory, *FOUR)
    assert everything(node.directory) == before
    assert {path: path.lstat().st_ino for path in (node.directory / "dev").iterdir()} == inodes


def test_made_anew_with_other_things_nothing_of_the_old_is_left(tmp_path, node):
    node.script("7=lost", "driver=none")
    make_node(node.directory, "--gpus=2", "--driver=570.124.06")
    other = make_node(tmp_path / "other", "--gpus=2", "--driver=570.124.06")
    ours, theirs = everything(node.directory), everything(other.directory)
    # The path of its directory is compiled into each NVML, and is written into what serves without one.
    for name in (str(LIBRARIES / "libnvidia-ml.so.570.124.06"), "toolkit/nvidia-ctk", "monitor"):
        assert ours.pop(name) != theirs.pop(name)
    assert ours == theirs


def test_what_stands_in_the_way_of_a_link_or_node_is_replaced(node):
    before = everything(node.directory)
    for path in (node.directory / "dev/nvidia5", node.directory / LIBRARIES / "libcuda.so.1"):
        path.unlink()
        path.write_text("something")
    (node.directory / "dev/nvidia7").unlink()
    (node.directory / "dev/nvidia7").symlink_to("nvidia2")
    (node.directory / "dev/nvidiactl").chmod(0o600)
    make_node(node.directory, *FOUR)
    assert everything(node.directory) == before


@pytest.mark.parametrize("name", sorted(OWN_NAMES))
def test_nothing_outside_its_directory_is_touched_whatever_leads_there(tmp_path, capsys, name):
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "nvidia9").write_text("ours")
    directory = tmp_path / "node"
    directory.mkdir()
    (directory / name).symlink_to(outside)
    need(Tool.MKNOD)
    before = everything(outside)
    code, err = run(capsys, directory, *FOUR)
    assert (code, err.splitlines()[-1].split(": ")[1]) == (1, "StateUnwritable")
    assert everything(outside) == before
    assert set(tmp_path.iterdir()) == {outside, directory}


def test_a_directory_of_somebody_else_is_refused_and_left_alone(tmp_path, capsys):
    (tmp_path / "dev").mkdir()
    (tmp_path / "etc").mkdir()
    before = everything(tmp_path)
    code, err = run(capsys, tmp_path, *FOUR)
    assert (code, err.splitlines()[-1]) == (
        1,
        f"error: InvalidValue: {tmp_path} holds something that is not of a mock node: etc",
    )
    assert everything(tmp_path) == before


@pytest.mark.parametrize("place", ["missing/node", "file/node", "file"])
def test_a_place_where_no_directory_can_be_is_a_reason(tmp_path, capsys, place):
    (tmp_path / "file").touch()
    code, err = run(capsys, tmp_path / place, *FOUR)
    assert code == 1
    assert err.splitlines()[-1].startswith("error: StateUnwritable: the mock node cannot be written: ")
    assert set(everything(tmp_path)) == {"file"}


# ---- where it is not possible


@pytest.mark.parametrize("existed", [True, False])
def test_who_may_make_no_nodes_is_told_so_and_nothing_is_left(tmp_path, existed):
    need(Tool.SETPRIV)
    directory = tmp_path / "node"
    if existed:
        directory.mkdir()
    drop = ["setpriv", "--bounding-set=-mknod", "--inh-caps=-mknod"] if os.geteuid() == 0 else []
    argv = [*drop, sys.executable, str(ROOT / "greenroom.py"), "mock-node", "--dir", str(directory), *FOUR]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, cwd=ROOT)
    assert (done.returncode, done.stdout) == (77, "")
    assert done.stderr == (
        "greenroom mock-node: not possible on this machine: "
        "device nodes are made by root with CAP_MKNOD, which this process is not or has not\n"
    )
    assert set(everything(tmp_path)) == ({"node"} if existed else set())


@pytest.fixture
def made_with(tmp_path, capsys, monkeypatch):
    """A node of four, made with this text as the C compiler; what was said last, and how the node looks."""
    need(Tool.MKNOD)

    def make(compiler: str | None) -> tuple[Path, list[str], dict[str, tuple[str, Any]]]:
        folder = tmp_path / "bin"
        folder.mkdir()
        if compiler is not None:
            (folder / "cc").write_text(compiler)
            (folder / "cc").chmod(0o755)
        monkeypatch.setenv("PATH", str(folder))
        capsys.readouterr()
        assert greenroom.run(["mock-node", "--dir", str(tmp_path / "node"), *FOUR]) == 0
        out, err = capsys.readouterr()
        assert err == ""
        return folder / "cc", out.splitlines()[-2:], everything(tmp_path / "node")

    return make


WITHOUT = "so neither a monitor without --gpu-monitor nor the real nvidia-ctk works with this node"


def test_without_a_compiler_there_is_a_node_whose_nvml_answers_nothing_and_that_is_said(made_with):
    _, said, found = made_with(None)
    assert said == [
        "its NVML answers nothing, as it is not compiled: there is no C compiler (`cc`) in PATH",
        WITHOUT,
    ]
    name = str(LIBRARIES / "libnvidia-ml.so.580.65.06")
    assert found[name] == ("-rwxr-xr-x", shared_library("libnvidia-ml.so.1", os.uname().machine))
    assert found[str(LIBRARIES / "libnvidia-ml.so.1")][1] == "libnvidia-ml.so.580.65.06"


@pytest.mark.parametrize("was_there", [True, False])
def test_a_compiler_that_fails_is_quoted_and_all_but_the_nvml_is_as_it_should_be(tmp_path, made_with, was_there):
    compiled = make_node(tmp_path / ("node" if was_there else "other"), *FOUR)
    before = everything(compiled.directory)
    cc, said, found = made_with("#!/bin/sh\necho 'stdio.h: No such file' >&2\nexit 1\n")
    assert said[0] == f"its NVML answers nothing, as it is not compiled: {cc} cannot compile it: stdio.h: No such file"
    others = {str(LIBRARIES / "libnvidia-ml.so.580.65.06")} | (
        set() if was_there else {"toolkit/nvidia-ctk", "monitor"}
    )
    assert {name for name, content in found.items() if content != before[name]} == others
    assert found.keys() == before.keys()


def test_a_compiler_that_never_ends_is_ended(made_with, monkeypatch):
    monkeypatch.setattr(making, "_COMPILE_S", 0.1)
    cc, said, _ = made_with("#!/bin/sh\nexec /bin/sleep 1000\n")
    assert said[0] == f"its NVML answers nothing, as it is not compiled: {cc} did not end within 0.1 s"


def test_the_number_of_uvm_is_no_other_drivers_and_a_real_gpu_node_is_refused():
    free = "Character devices:\n  1 mem\n{}\nBlock devices:\n511 a block device\n"
    assert choose_uvm_major(free.format("")) == 511
    assert choose_uvm_major(free.format("511 something\n510 other")) == 509
    with pytest.raises(NotPossibleError, match="nvidia-frontend"):
        choose_uvm_major(free.format("195 nvidia-frontend"))


# ---- its state


def test_words_change_the_state_and_the_rest_stays(node):
    before = node.state()
    node.script(
        "7=lost", "5=xid:48", "5=process:4242", "devices=denied", "nvmlDeviceGetUUID@3=15", "nvmlInitWithFlags=hang"
    )
    state = node.state()
    assert (state.gpu(7).health, state.gpu(7).xids) == (Health.LOST, (79,))
    assert (state.gpu(5).xids, state.gpu(5).processes) == ((48,), (ComputeProcess(pid=4242, used_bytes=GIB),))
    assert not state.may_open_devices
    assert [(each.symbol, each.minor, each.what) for each in state.faults] == [
        (Symbol.UUID, 3, 15),
        (Symbol.INIT, None, "hang"),
    ]
    assert state.gpu(2) == before.gpu(2)
    node.script("7=healthy", "5=idle", "devices=allowed", "nvmlDeviceGetUUID@3=ok", "nvmlInitWithFlags=ok")
    after = node.state()
    assert (after.gpu(7).health, after.gpu(5).processes, after.faults) == (Health.HEALTHY, (), ())


def test_proc_follows_the_driver(node):
    proc = node.directory / "proc/driver/nvidia"
    node.script("driver=none")
    assert not proc.exists()
    node.script("driver=570.124.06")
    assert "570.124.06" in (proc / "version").read_text()
    assert len(list((proc / "gpus").iterdir())) == 4


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("lost", "is not of the form"),
        ("9=lost", "no GPU has the minor 9; there are 7, 2, 5, 3"),
        ("7=broken", "is nothing that happens to a GPU"),
        ("7=xid:many", "is nothing that happens to a GPU"),
        ("7=lost:1", "is nothing that happens to a GPU"),
        ("driver=new", "is no version of a driver"),
        ("devices=gone", "is not of the form"),
        ("nvmlNothing=hang", "nvmlNothing"),
        ("nvmlInitWithFlags=4711", "4711 is no code that NVML returns"),
        ("nvmlInitWithFlags=sleep", "'sleep' is no code that NVML returns, nor one of hang, crash"),
        ("nvmlDeviceGetUUID@9=hang", "no GPU has the minor 9"),
    ],
)
def test_a_word_that_says_nothing_is_wrong_usage_and_changes_nothing(one_node, capsys, word, said):
    capsys.readouterr()
    code, err = run(capsys, one_node.directory, "--set=7=lost", f"--set={word}")
    assert code == 2
    assert said in err
    assert (one_node.directory / "mock-node.json").read_bytes() == one_node.fresh


@pytest.mark.parametrize(
    "options",
    [
        (),
        ("--gpus=65",),
        ("--gpus=2", "--minors=1"),
        ("--gpus=2", "--minors=1,1"),
        ("--gpus=1", "--minors=255"),
        ("--gpus=1", "--minors=²"),
        ("--gpus=1", "--mig=1"),
        ("--gpus=1", "--driver=../580"),
        ("--gpus=1", "--driver=580.65.06\n"),
    ],
)
def test_wrong_usage_makes_nothing(tmp_path, capsys, options):
    code, _ = run(capsys, tmp_path / "node", *options)
    assert code == 2
    assert not list(tmp_path.iterdir())


def test_where_no_node_is_there_is_nothing_to_script(tmp_path, capsys):
    code, err = run(capsys, tmp_path, "--set=7=lost")
    assert code == 1
    assert err.splitlines()[-2:] == [
        "hint: Make the mock node first: `greenroom mock-node --gpus N --dir DIR`.",
        f"error: UnreadableFile: {tmp_path}/mock-node.json: No such file or directory",
    ]


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (b'"minor": 7', b'"minor": "7"', "another type"),
        (b'"minor": 7', b'"miner": 7', "minor"),
        (b'"xids": []', b'"xids": [], "colour": 1', "a key is unknown"),
        (b'"Healthy"', b'"Fine"', "health"),
        (b'"formatVersion": 1', b'"formatVersion": 2', "2 is not 1"),
        (b"{", b"[", "line 2"),
        (b'"faults": []', b'"faults": [{"symbol": "nvmlInitWithFlags", "what": "sleep"}]', "faults"),
    ],
)
def test_a_damaged_state_file_is_a_reason_and_is_left_as_it_is(tmp_path, capsys, old, new, said):
    state = make_state()
    (tmp_path / "mock-node.json").write_bytes(damaged := state.replace(old, new, 1))
    assert damaged != state
    with pytest.raises(StateError, match=said):
        read_state(damaged)
    code, err = run(capsys, tmp_path, "--set=7=lost")
    assert code == 1
    assert err.splitlines()[-1].startswith(f"error: MalformedDocument: {tmp_path}/mock-node.json: ")
    assert (tmp_path / "mock-node.json").read_bytes() == damaged


def make_state() -> bytes:
    return write_state(NodeState(loaded_version="580.65.06", cuda_version=13000, gpus=some_gpus(1, minors=(7,))))


def test_a_path_with_any_characters_reaches_the_library(tmp_path):
    node = make_node(tmp_path / 'a "b" \\ %s ü\n??/c'.replace("/", "_"), "--gpus=1")
    assert node.init_code() == 0
    shutil.rmtree(node.directory)


def test_cuda_is_the_one_that_the_driver_knows():
    assert [cuda_version(each) for each in ("535.129.03", "550.54.14", "580.65.06")] == [12020, 12040, 13000]


def test_its_own_names_are_all_that_it_makes(one_node):
    assert {path.name for path in one_node.directory.iterdir()} <= OWN_NAMES
