"""cuda-checkpoint, NVIDIA's program that takes a process off its GPUs and puts it back: where a container has it.

gVisor runs it inside, by one path in every container that has a process with an open device. Whether it is there is
looked at from outside, in the container's document: its root file system, and what is mounted over that.

Source: gVisor 20260905, pkg/sentry/control/state_cuda.go: the path is that of the process' own mount namespace, its
environment the container's; drivers before 550 refuse it.
"""

from __future__ import annotations

import posixpath
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from actors.ports import FileKind

if TYPE_CHECKING:
    from collections.abc import Mapping

    from actors.ports import Files

NAME: Final = "cuda-checkpoint"
DRIVER_MIN: Final = 550
_EXECUTABLE: Final = 0o111

_PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def is_driver_new_enough(version: str) -> bool:
    """Whether this driver's release can do it; of a version that is none, nobody knows, and it is tried."""
    release = version.partition(".")[0]
    return not (release.isascii() and release.isdecimal()) or int(release) >= DRIVER_MIN


async def places_in(files: Files, config: Mapping[str, Any]) -> tuple[str, ...]:
    """The paths at which a container has the program, in the order of its PATH.

    Args:
        files: of the host.
        config: the container's config.json, with an absolute root.path.
    """
    return tuple([path for path in _candidates(config) if await _is_program(files, config, path)])


def _candidates(config: Mapping[str, Any]) -> tuple[str, ...]:
    env = (config.get("process") or {}).get("env") or ()
    path = next((each.removeprefix("PATH=") for each in env if each.startswith("PATH=")), _PATH)
    folders = (posixpath.normpath(each) for each in path.split(":") if each.startswith("/"))
    return tuple(dict.fromkeys(posixpath.join(folder, NAME) for folder in folders))


async def _is_program(files: Files, config: Mapping[str, Any], path: str) -> bool:
    behind = _behind(config, path)
    if behind is None:
        return False
    directory, inside = behind
    try:
        # Nothing is inside of a file that is mounted by itself.
        told = await files.stat(await files.find_in(directory, inside) if inside else directory)
    except OSError:  # what cannot be looked at is not there
        return False
    return told is not None and told.kind is FileKind.REGULAR and bool(told.mode & _EXECUTABLE)


def _behind(config: Mapping[str, Any], path: str) -> tuple[Path, str] | None:
    """What of the host is at a path: a directory and the path below it; None where no file of the host can be."""
    found: tuple[Path, str] | None = Path(str((config.get("root") or {}).get("path", ""))), path
    for mount in config.get("mounts") or ():
        destination = posixpath.normpath(mount["destination"])
        if path == destination or path.startswith(f"{destination}/"):
            # The last one counts: it covers those before it.
            is_bind = mount.get("type") == "bind" or {"bind", "rbind"} & set(mount.get("options") or ())
            found = (Path(mount["source"]), path[len(destination) :]) if is_bind else None
    return found
