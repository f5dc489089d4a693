"""A container for the program: a small root filesystem with this very Python, and the bundle of one sandbox.

The root filesystem has nothing of the driver: what a program finds of it inside came with the CDI spec.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from .commands import CheckError

PROGRAM: Final = "/cuda.py"
_LEFT_OUT: Final = (
    "site-packages", "dist-packages", "test", "tests", "idlelib", "tkinter", "turtledemo", "ensurepip", "lib2to3",
    "pydoc_data", "__pycache__", "config-*", "*.a",
)  # fmt: skip
_LIBRARY: Final = re.compile(r"(?:=> )?(/\S+) \(0x")
_LDD_S: Final = 60.0


def interpreter() -> Path:
    """This Python itself, not the link in a virtual environment."""
    return Path(sys.executable).resolve()


def make_rootfs(rootfs: Path, *, for_libraries: Iterable[Path], without: Iterable[str]) -> None:
    """Put this Python, the program, and the libraries that they and others need into a directory.

    Args:
        rootfs: a new directory.
        for_libraries: programs and libraries of the driver; what they need besides the driver is put there too.
        without: names of files that are the driver's own.
    """
    for name in ("proc", "tmp", "dev", "run", "etc", "sys"):
        (rootfs / name).mkdir(parents=True)
    python = interpreter()
    _put(python, rootfs)
    for name in dict.fromkeys((sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib"))):
        ignored = shutil.ignore_patterns(*_LEFT_OUT)
        shutil.copytree(name, rootfs / name.lstrip("/"), ignore=ignored, dirs_exist_ok=True, symlinks=False)
    shutil.copyfile(Path(__file__).with_name("cuda.py"), rootfs / PROGRAM.lstrip("/"))
    drivers_own = frozenset(without)
    for needed in sorted({path for each in (python, *_extensions(), *for_libraries) for path in _needed_by(each)}):
        if needed.resolve().name not in drivers_own:
            _put(needed, rootfs)


def _extensions() -> list[Path]:
    """The compiled modules of the standard library."""
    folder = sysconfig.get_config_var("DESTSHARED")
    return sorted(Path(folder).glob("*.so")) if folder else []


def _needed_by(path: Path) -> list[Path]:
    """What the dynamic linker loads for a file, by its absolute paths; nothing for a static one."""
    try:
        asked = subprocess.run(["ldd", str(path)], capture_output=True, text=True, timeout=_LDD_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise CheckError(f"ldd {path} does not work: {error}") from error
    return [Path(each) for each in _LIBRARY.findall(asked.stdout)]


def _put(path: Path, rootfs: Path) -> None:
    into = rootfs / str(path).lstrip("/")
    into.parent.mkdir(parents=True, exist_ok=True)
    if not into.exists():
        shutil.copy(path, into, follow_symlinks=True)


def config() -> dict[str, Any]:
    """An OCI configuration without any GPU."""
    return {
        "ociVersion": "1.1.0",
        "process": {
            "user": {"uid": 0, "gid": 0},
            "args": ["/bin/false"],
            "env": ["PATH=/usr/local/nvidia/bin:/usr/bin:/bin", "LANG=C.UTF-8"],
            "cwd": "/",
        },
        "root": {"path": "rootfs"},
        "hostname": "gpu-check",
        "mounts": [
            {"destination": "/proc", "type": "proc", "source": "proc"},
            {"destination": "/tmp", "type": "tmpfs", "source": "tmpfs"},
        ],
        "linux": {"namespaces": [{"type": each} for each in ("pid", "network", "ipc", "uts", "mount")]},
        # What a current runsc decides by whether the sandbox passes calls on to the driver.
        "annotations": {"dev.gvisor.internal.nvproxy": "true"},
    }


def libraries(injected: dict[str, Any]) -> list[dict[str, Any]]:
    """The mounts of shared libraries in an injected configuration."""
    return [mount for mount in injected["mounts"] if ".so" in Path(mount["destination"]).name]


def write_bundle(bundle: Path, injected: dict[str, Any], args: list[str]) -> None:
    """Write the configuration of a bundle whose root filesystem is there, with these words to run.

    Its hooks are left out: they would run in the middle of a start, where it is not seen how they end.
    """
    folders = dict.fromkeys(str(Path(mount["destination"]).parent) for mount in libraries(injected))
    env = [*injected["process"]["env"], f"LD_LIBRARY_PATH={':'.join(folders)}"]
    process = {**injected["process"], "args": args, "env": env}
    without_hooks = {key: value for key, value in injected.items() if key != "hooks"}
    (bundle / "config.json").write_text(json.dumps({**without_hooks, "process": process}, indent=2))
