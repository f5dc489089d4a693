"""The driver's libraries below its root: in which directory they are, and of which driver they are.

Libraries and kernel module are of one version, or nothing works. An upgrade of the node exchanges the libraries at
once and the module when it is loaded anew; in between, every library refuses, and a spec would mount what fails later.

Source: facts of nvidia-ctk, sections 1 and 9.
"""

from __future__ import annotations

import re
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from statemachine.problem import Problem, ProblemError, Step
from statemachine.reasons import Reason

from .driver_folders import FURTHER, NVML, SEARCHED

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path

    from actors.ports import Files

_VERSIONED: Final = re.compile(r"lib(?:cuda|nvidia-ml)\.so\.(\d{3,}\.\d+(?:\.\d+)?)", re.ASCII)


def library_folders(driver_root: Path) -> tuple[Path, ...]:
    """Every directory that may come to hold the driver's libraries, the likeliest first."""
    return tuple(driver_root / name for name in (*SEARCHED, *FURTHER))


async def library_folder(files: Files, driver_root: Path, name: str = NVML) -> Path | None:
    """The directory that holds the driver's libraries, judged by this one; None when there is none below the root."""
    for folder in library_folders(driver_root):
        with suppress(OSError):
            if await files.stat(folder / name) is not None:
                return folder
    return None


async def library_versions(files: Files, folder: Path | None) -> tuple[str, ...]:
    """The driver's versions that the names of its libraries tell; none where they do not tell."""
    if folder is None:
        return ()
    try:
        names = await files.list_directory(folder)
    except OSError:
        return ()
    return tuple(sorted({found[1] for name in names if (found := _VERSIONED.fullmatch(name))}))


def require_loaded(versions: Collection[str], loaded: str, folder: Path | None) -> None:
    """Refuse libraries that are not of the driver that is loaded.

    Args:
        versions: as `library_versions` has them.
        loaded: what NVML says of the driver; empty when it is not known.
        folder: where the libraries are.

    Raises:
        ProblemError: NvmlUnavailable.
    """
    if not loaded or not versions or loaded in versions:
        return
    raise ProblemError(
        Problem(
            step=Step.GENERATE,
            reason=Reason.NVML_UNAVAILABLE,
            subject=str(folder),
            message=f"driver {' and '.join(versions)} in {folder} vs loaded {loaded}: Driver/library version mismatch",
            hint="The driver was upgraded below this pod: reload its module or reboot the node.",
        )
    )
