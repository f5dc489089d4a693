"""What travels to a machine with a GPU and no network: it is whole, small, and says what it lacks."""

import ast
import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from packaging.utils import canonicalize_name

from sim.mock.layout import LIBRARIES
from tests.gpu_check import packing
from tests.gpu_check.package import MODULES, PROGRAMS, Package
from tests.gpu_check.packing import PYTHONS, ROOT, SIZE_BYTES_MAX, CannotPackError, size_of
from tests.needs import Tool, need
from tests.sim.mock.nodes import make_node

HERE = Path(__file__).parent
COMPILED = {"backports_zstd", "blake3", "msgspec", "orjson", "pyyaml"}


def imported(path: Path) -> set[tuple[int, str]]:
    """The modules that a file imports: how many dots, and the first name."""
    found: set[tuple[int, str]] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {(0, alias.name.split(".")[0]) for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names = [node.module] if node.module else [alias.name for alias in node.names]
            found |= {(node.level, name.split(".")[0]) for name in names}
    return found


def test_the_runner_needs_nothing_but_the_standard_library_and_what_travels_with_it():
    for name in MODULES:
        for dots, module in imported(HERE / name):
            assert dots <= 1
            assert module in sys.stdlib_module_names if dots == 0 else f"{module}.py" in MODULES, (name, module)


def test_only_what_greenroom_needs_when_it_runs_is_locked_for_the_package():
    names = {line.split("==")[0] for line in packing._locked()}
    listed = {"anyio", "attrs", "blake3", "cattrs", "click", "nvidia-ml-py", "orjson", "rich", "trio"}
    assert names >= listed | {"idna", "outcome", "sniffio"}
    assert not names & {"pytest", "ruff", "mypy", "hypothesis", "hatchling"}
    assert all(" --hash=sha256:" in line and ";" not in line for line in packing._locked())


def test_a_dependency_that_is_not_locked_cannot_be_forgotten():
    wanted = packing._needed_by_greenroom()
    locked = {canonicalize_name(line.split("==")[0]) for line in packing._locked()}
    lock = (ROOT / "requirements.lock").read_text()
    assert {name for name in wanted - locked if f"\n{name}==" in lock} == set()


def test_what_only_another_system_or_an_extra_needs_is_not_packed():
    wanted = packing._needed_by_greenroom()
    assert {"trio", "obstore"} <= wanted
    assert not {"cffi", "opentelemetry-sdk"} & wanted


@pytest.mark.parametrize(
    ("wheel", "expected"),
    [
        ("attrs-26.1.0-py3-none-any.whl", True),
        ("watchfiles-1.3.0-cp310-abi3-manylinux_2_17_x86_64.manylinux2014_x86_64.whl", True),
        ("obstore-0.12.1-cp311-abi3-manylinux_2_17_x86_64.whl", True),
        ("later-1.0-cp312-abi3-manylinux_2_17_x86_64.whl", False),
        ("orjson-3.13.0-cp311-cp311-manylinux_2_17_x86_64.whl", False),
    ],
)
def test_a_wheel_comes_once_that_is_the_same_for_every_python(wheel, expected):
    assert packing.is_for_all(Path(wheel)) is expected


def test_without_go_it_says_what_is_not_packed(tmp_path, monkeypatch):
    bare = tmp_path / "bin"
    bare.mkdir()
    for name in ("bash", "env", "dirname", "cat", "sha256sum", "cut", "sed"):
        (bare / name).symlink_to(str(shutil.which(name)))
    monkeypatch.setenv("PATH", str(bare))
    monkeypatch.setattr(packing, "PYTHONS", ())
    monkeypatch.setattr(packing, "_pack_greenroom", lambda _wheels: None)
    missing = packing.pack(tmp_path / "package")
    assert set(missing) == set(PROGRAMS)
    assert all("no Go toolchain: there is no go in PATH" in why for why in missing.values())
    assert Package.at(tmp_path / "package").missing == missing
    assert os.access(tmp_path / "package/run", os.X_OK)


def test_what_cannot_be_fetched_is_said_and_what_was_there_stays(tmp_path, monkeypatch):
    def fails(_argv, what, _bound_s=0):
        raise CannotPackError(f"{what} could not be made: no network")

    (tmp_path / "wheels/greenroom").mkdir(parents=True)
    (tmp_path / "wheels/greenroom/greenroom-0.whl").touch()
    monkeypatch.setattr(packing, "_run", fails)
    missing = packing.pack(tmp_path)
    assert missing["greenroom"] == "Greenroom's wheel could not be made: no network"
    assert set(missing) == {"greenroom", *(f"wheels for Python {each}" for each in PYTHONS), *PROGRAMS}
    assert (tmp_path / "wheels/greenroom/greenroom-0.whl").exists()
    assert not list(tmp_path.rglob(".new-*"))


def test_a_package_that_is_too_large_is_said(tmp_path, monkeypatch):
    monkeypatch.setattr(packing, "PROGRAMS", ())
    monkeypatch.setattr(packing, "PYTHONS", ())
    monkeypatch.setattr(packing, "_pack_greenroom", lambda _wheels: None)
    assert packing.pack(tmp_path / "package") == {}
    monkeypatch.setattr(packing, "SIZE_BYTES_MAX", 1000)
    assert "may have 1000" in packing.pack(tmp_path / "package")["room"]


def test_wheels_of_another_lock_are_forgotten(tmp_path):
    packing._forget_others(tmp_path, "one")
    old = tmp_path / "any/attrs-1-py3-none-any.whl"
    old.parent.mkdir()
    old.touch()
    packing._forget_others(tmp_path, "one")
    assert old.exists()
    packing._forget_others(tmp_path, "two")
    assert not old.exists()


def test_of_a_wheel_only_what_belongs_into_site_packages_is_unpacked(tmp_path):
    package = tmp_path / "package"
    (package / "wheels/any").mkdir(parents=True)
    with zipfile.ZipFile(package / "wheels/any/x-1-py3-none-any.whl", "w") as wheel:
        wheel.writestr("x/__init__.py", "")
        wheel.writestr("x-1.data/scripts/x", "")
    Package(directory=package, machine="", pythons=(), missing={}).unpack(tmp_path / "there")
    assert {path.name for path in (tmp_path / "there/site").iterdir()} == {"x"}


# ---- the whole of it: fetches, builds and packs, then plays on a mock node what needs no silicon


@pytest.fixture(scope="module")
def whole():
    need(Tool.GO, Tool.COMPILER, Tool.PACKAGE_INDEX)
    directory = ROOT / "build" / "gpu-check"
    assert packing.pack(directory) == {}
    return directory


@pytest.mark.campaign
def test_the_whole_package_is_small_enough_and_has_wheels_for_every_python(whole):
    assert size_of(whole) <= SIZE_BYTES_MAX
    shared = {path.name.split("-")[0].lower() for path in (whole / "wheels/any").iterdir()}
    for version in PYTHONS:
        own = {path.name.split("-")[0].lower() for path in (whole / "wheels" / version).glob("*.whl")}
        assert own == COMPILED
    assert {"anyio", "attrs", "trio", "nvidia_ml_py", "obstore", "watchfiles"} <= shared
    assert {path.stem for path in (whole / "programs").glob("*.xz")} == set(PROGRAMS)
    assert len(list((whole / "wheels/greenroom").iterdir())) == 1


@pytest.mark.campaign
def test_where_there_is_no_gpu_make_packs_it_and_says_why_it_is_not_run(whole, tmp_path):
    argv = [str(ROOT / "scripts/gpu-check"), f"--dev-root={tmp_path}"]
    ended = subprocess.run(argv, capture_output=True, text=True, timeout=600, check=False)
    assert ended.returncode == 77
    assert ended.stdout.startswith("gpu-check: build/gpu-check is packed, ")
    assert ended.stderr.startswith("gpu-check: not possible on this machine: there is no GPU: ")


@pytest.mark.campaign
def test_on_a_mock_node_what_needs_no_silicon_is_well_and_the_rest_is_named(whole, tmp_path):
    need(Tool.ROOT)
    node = make_node(tmp_path / "node", "--gpus=2", "--minors=3,2").directory
    report = tmp_path / "report.json"
    roots = [f"--dev-root={node}", f"--driver-root={node / 'driver'}", f"--proc-root={node / 'proc'}"]
    only = [word for name in ("toolkit", "inject", "cuda", "gvisor", "cuda-inside") for word in ("--only", name)]
    ended = subprocess.run(
        [whole / "run", f"--report={report}", *roots, *only],
        env={**os.environ, "GPU_CHECK_PYTHON": sys.executable},
        capture_output=True, text=True, timeout=360, check=False,
    )  # fmt: skip
    checks = {each["name"]: each for each in json.loads(report.read_text())["checks"]}
    assert ended.returncode == 1
    assert {name for name, each in checks.items() if each["status"] == "ok"} == {"unpack", "toolkit", "inject"}
    assert (
        f"and {len([path for path in (node / LIBRARIES).iterdir() if not path.is_symlink()])} libraries"
        in (checks["inject"]["detail"])
    )
    assert checks["cuda"]["detail"] == "cuInit: the library has no such function"
    for name in ("gvisor", "cuda-inside"):
        assert "failed to get Nvidia driver version" in checks[name]["detail"]
