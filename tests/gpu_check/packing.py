"""Packs what the check of a real GPU needs on a machine without a network, and says what could not be packed and why.

    python3 -m tests.gpu_check.packing DIRECTORY

DIRECTORY/run              starts the check there; needs a POSIX shell and a Python for which there are wheels
DIRECTORY/gpu_check/…      the check itself: these modules, which need nothing but the standard library
DIRECTORY/wheels/…         Greenroom's own wheel, and those that requirements.lock has for what it needs
DIRECTORY/programs/…       runsc, nvidia-ctk and nvidia-cdi-hook, compressed
DIRECTORY/package.json     what this is, and what is missing

What was packed from the same source before is kept.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import lzma
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name, parse_wheel_filename

from .package import FORMAT, MODULES, PROGRAMS, RUN

ROOT: Final = Path(__file__).resolve().parent.parent.parent
PYTHONS: Final = ("3.11", "3.12", "3.13")
SIZE_BYTES_MAX: Final = 48 << 20
_LAYOUT: Final = 2
"""Of the wheels' directory: what was packed in another one is packed anew."""
GLIBC_MINORS: Final = range(28, 4, -1)
"""Of glibc 2, newest first: wheels for a newer one would not run on systems in use."""
_BUILD_BOUND_S: Final = 1260
_FETCH_BOUND_S: Final = 300


class CannotPackError(Exception):
    """Raised when a part of the package cannot be had here, and why."""


def pack(directory: Path) -> dict[str, str]:
    """Make or refresh a package; returns what is missing in it, with the reasons."""
    directory.mkdir(parents=True, exist_ok=True)
    missing: dict[str, str] = {}

    def part(name: str, make: Callable[[], None]) -> None:
        try:
            make()
        except CannotPackError as error:
            missing[name] = str(error)

    part("runner", partial(_pack_runner, directory))
    part("greenroom", partial(_pack_greenroom, directory / "wheels"))
    for version in PYTHONS:
        part(f"wheels for Python {version}", partial(_pack_wheels, directory / "wheels", version))
    for name in PROGRAMS:
        part(name, partial(_pack_program, name, directory / "programs"))
    (directory / "package.json").write_text(json.dumps(_description(missing), indent=2) + "\n")
    size_bytes = size_of(directory)
    if size_bytes > SIZE_BYTES_MAX:
        missing["room"] = f"the package has {size_bytes} bytes, and may have {SIZE_BYTES_MAX}"
    return missing


def size_of(directory: Path) -> int:
    """How many bytes travel."""
    return sum(path.stat().st_size for path in directory.rglob("*") if path.is_file())


def _description(missing: dict[str, str]) -> dict[str, Any]:
    return {
        "v": FORMAT, "machine": platform.machine(), "pythons": list(PYTHONS), "missing": missing,
    }  # fmt: skip


def _pack_runner(directory: Path) -> None:
    into = directory / "gpu_check"
    shutil.rmtree(into, ignore_errors=True)
    into.mkdir()
    for name in MODULES:
        shutil.copyfile(Path(__file__).with_name(name), into / name)
    (directory / "run").write_text(RUN)
    (directory / "run").chmod(0o755)


# ---- wheels


def _pack_greenroom(wheels: Path) -> None:
    into = wheels / "greenroom"
    with tempfile.TemporaryDirectory() as scratch:
        _run(
            [sys.executable, "-m", "pip", "wheel", "--quiet", "--disable-pip-version-check", "--no-deps", "--no-index",
             "--no-build-isolation", "--wheel-dir", scratch, str(ROOT)], "Greenroom's wheel",
        )  # fmt: skip
        _replace(into, lambda fresh: shutil.copytree(scratch, fresh))


def _pack_wheels(wheels: Path, version: str) -> None:
    """The locked wheels for one Python; those that are the same for all come once."""
    lines = "".join(_locked())
    _forget_others(wheels, hashlib.sha256(f"{_LAYOUT} {platform.machine()} {lines}".encode()).hexdigest())
    into = wheels / version
    if into.exists():
        return

    def fetch(fresh: Path) -> None:
        with tempfile.TemporaryDirectory() as scratch:
            requirements = Path(scratch) / "requirements"
            requirements.write_text(lines)
            argv = [
                sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-input",
                "--no-deps", "--only-binary", ":all:", "--require-hashes", "--requirement", str(requirements),
                "--implementation", "cp", "--python-version", version, *_platforms(), "--dest", str(fresh),
            ]  # fmt: skip
            _run(argv, f"the wheels for Python {version}")
        for wheel in filter(is_for_all, fresh.glob("*.whl")):
            shared = wheels / "any" / wheel.name
            shared.parent.mkdir(exist_ok=True)
            wheel.replace(shared)

    _replace(into, fetch)


def is_for_all(wheel: Path) -> bool:
    """Whether a wheel is the same for every Python: it has no compiled code, or what keeps to the ABI of the oldest."""
    _, _, _, tags = parse_wheel_filename(wheel.name)
    oldest = min(PYTHONS, key=lambda version: int(version.partition(".")[2]))
    abis = {f"cp3{minor}" for minor in range(2, int(oldest.partition(".")[2]) + 1)}
    return all(tag.platform == "any" or (tag.abi == "abi3" and tag.interpreter in abis) for tag in tags)


def _forget_others(wheels: Path, key: str) -> None:
    """Wheels of another lock go: two versions of one package would be unpacked over each other."""
    noted = wheels / "key"
    if not noted.exists() or noted.read_text() != key:
        for name in ("any", *PYTHONS):
            shutil.rmtree(wheels / name, ignore_errors=True)
        wheels.mkdir(parents=True, exist_ok=True)
        noted.write_text(key)


def _platforms() -> Iterator[str]:
    machine = platform.machine()
    names = [f"manylinux_2_{minor}_{machine}" for minor in GLIBC_MINORS]
    for name in [*names, f"manylinux2014_{machine}", f"manylinux2010_{machine}", f"manylinux1_{machine}"]:
        yield from ("--platform", name)


def _locked() -> Iterator[str]:
    """The entries of requirements.lock that Greenroom needs when it runs, with their hashes, for every Python."""
    wanted = _needed_by_greenroom()
    for entry in re.findall(r"^\S.*(?:\n[ \t].*)*", (ROOT / "requirements.lock").read_text(), re.MULTILINE):
        found = re.match(r"([A-Za-z0-9._-]+)==([^\s;]+)[^\\\n]*", entry)
        if found and canonicalize_name(found[1]) in wanted:
            # Without its marker: this Python is not the one that it will be judged by.
            hashes = re.findall(r"--hash=\S+", entry)
            yield f"{found[1]}=={found[2]} {' '.join(hashes)}\n"


def _needed_by_greenroom() -> set[str]:
    listed = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    found: set[str] = set()
    left = [Requirement(each) for each in listed]
    while left:
        requirement = left.pop()
        name = canonicalize_name(requirement.name)
        if name not in found and _is_wanted(requirement):
            found.add(name)
            try:
                left += map(Requirement, importlib.metadata.requires(name) or ())
            except importlib.metadata.PackageNotFoundError:
                continue  # of another Python: the lock says whether there is one to be packed
    return found


def _is_wanted(requirement: Requirement) -> bool:
    """Whether its marker holds on this system for any of the Pythons, without an extra."""
    environments = ({"extra": "", "python_version": each, "python_full_version": f"{each}.0"} for each in PYTHONS)
    return requirement.marker is None or any(map(requirement.marker.evaluate, environments))


# ---- programs


def _pack_program(name: str, programs: Path) -> None:
    source = _program(name)
    key = hashlib.sha256(source.read_bytes()).hexdigest()
    packed, noted = programs / f"{name}.xz", programs / f"{name}.key"
    if packed.exists() and noted.exists() and noted.read_text() == key:
        return
    programs.mkdir(exist_ok=True)
    noted.unlink(missing_ok=True)
    packed.write_bytes(lzma.compress(source.read_bytes(), preset=3))
    noted.write_text(key)


def _program(name: str) -> Path:
    built = "gvisor" if name == "runsc" else "toolkit"
    return Path(_run([str(ROOT / "scripts/build-go"), built], name, _BUILD_BOUND_S).strip()) / name


def _run(argv: list[str], what: str, bound_s: float = _FETCH_BOUND_S) -> str:
    try:
        ended = subprocess.run(argv, capture_output=True, text=True, timeout=bound_s, check=False, cwd=ROOT)
    except subprocess.TimeoutExpired:
        raise CannotPackError(f"{what} could not be made within {bound_s:g} s") from None
    if ended.returncode != 0:
        said = " | ".join(ended.stderr.strip().splitlines()[-3:])
        raise CannotPackError(f"{what} could not be made: {said or f'exit code {ended.returncode}'}")
    return ended.stdout


def _replace(directory: Path, make: Callable[[Path], object]) -> None:
    """Make a directory anew beside the old one, and put it in its place when it is whole."""
    directory.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=directory.parent, prefix=".new-") as scratch:
        fresh = Path(scratch) / "fresh"
        make(fresh)
        shutil.rmtree(directory, ignore_errors=True)
        fresh.rename(directory)


if __name__ == "__main__":
    lacks = pack(Path(sys.argv[1]))
    size_mib = size_of(Path(sys.argv[1])) / (1 << 20)
    sys.stdout.write(f"gpu-check: {sys.argv[1]} is packed, {size_mib:.1f} MiB\n")
    for part_name, why in lacks.items():
        sys.stdout.write(f"gpu-check: not packed: {part_name}: {why}\n")
    sys.exit(1 if lacks else 0)
