"""The driver's files, and whether programs of this pod can load them: they are all for glibc."""

from __future__ import annotations

import enum
import posixpath
from typing import TYPE_CHECKING, Final

import attrs

from actors.gpu.driver_files import library_folder, library_folders
from actors.gpu.driver_folders import NVML
from actors.gpu.elf import ElfError, read_linkage
from statemachine.reasons import Reason

from .check import fail, listed, ok, warn

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from actors.gpu.elf import Linkage
    from actors.ports import Files

    from .check import Check

LIBRARIES: Final = (NVML, "libcuda.so.1")
"""Under the names that programs load them by: the first tells of the GPUs, the second computes."""
_MUSL_HINT: Final = "Use an image with glibc (Debian, Ubuntu, UBI): what an image with musl has cannot load the driver."


class Libc(enum.Enum):
    """The C library that a file was built for."""

    GLIBC = "glibc"
    MUSL = "musl"
    NONE = "no C library"
    """Linked statically, or in need of nothing."""
    UNKNOWN = "an unknown C library"


def libc_of(linkage: Linkage) -> Libc:
    """The C library that a file was built for, by its dynamic linker and what it needs.

    Only programs name a linker; a library is known by what it needs. Source: ld.so(8); musl's naming.
    """
    linker = posixpath.basename(linkage.interpreter or "")
    if linker.startswith("ld-musl-") or any(name.startswith("libc.musl-") for name in linkage.needed):
        return Libc.MUSL
    if linker.startswith("ld-linux") or "libc.so.6" in linkage.needed:
        return Libc.GLIBC
    if not linker and not linkage.needed:
        return Libc.NONE
    # musl's own build names its library `libc.so`.
    return Libc.MUSL if "libc.so" in linkage.needed else Libc.UNKNOWN


@attrs.frozen(kw_only=True)
class DriverFacts:
    """What is below the driver root.

    Attributes:
        root: the driver root.
        found: the path of each of `LIBRARIES` that is there.
        libcs: the C library that each of them was built for.
        unreadable: why some of them are no libraries, each with its path.
    """

    root: Path
    found: Mapping[str, Path] = attrs.field(factory=dict, hash=False)
    libcs: Mapping[str, Libc] = attrs.field(factory=dict, hash=False)
    unreadable: tuple[str, ...] = ()


async def linkage_or_why(files: Files, path: Path) -> Linkage | str:
    """What a file needs to be loaded, or why that cannot be told."""
    try:
        return await read_linkage(files, path)
    except ElfError as error:
        return f"{path}: {error}"
    except OSError as error:
        return f"{path} cannot be read: {error.strerror or error}"


async def look_at_driver(files: Files, root: Path) -> DriverFacts:
    """Look for the driver's libraries and read what they were built for."""
    found: dict[str, Path] = {}
    libcs: dict[str, Libc] = {}
    unreadable: list[str] = []
    for name in LIBRARIES:
        folder = await library_folder(files, root, name)
        if folder is None:
            continue
        found[name] = path = folder / name
        linkage = await linkage_or_why(files, path)
        if isinstance(linkage, str):
            unreadable.append(linkage)
        else:
            libcs[name] = libc_of(linkage)
    return DriverFacts(root=root, found=found, libcs=libcs, unreadable=tuple(unreadable))


def judge_driver_root(facts: DriverFacts) -> Check:
    """Both libraries are there."""
    name = "driver-root"
    absent = tuple(each for each in LIBRARIES if each not in facts.found)
    if not absent:
        return ok(name, f"{listed(tuple(str(path) for path in facts.found.values()))}")
    folders = ", ".join(map(str, library_folders(facts.root)))
    verb = "is" if len(absent) == 1 else "are"
    reason = Reason.NVML_UNAVAILABLE if NVML in absent else Reason.GENERATE_FAILED
    return fail(
        name,
        reason,
        f"{' and '.join(absent)} {verb} missing below {facts.root} (looked into {folders})",
        "Mount the driver's files into the pod and name the directory with --driver-root.",
    )


def judge_driver_libraries(facts: DriverFacts) -> Check:
    """They are libraries, and for glibc."""
    name = "driver-libraries"
    if facts.unreadable:
        message = f"not to be loaded: {'; '.join(facts.unreadable)}"
        return fail(name, Reason.NVML_UNAVAILABLE, message, "Mount the driver's files again; these are damaged.")
    musl = tuple(str(facts.found[each]) for each, libc in facts.libcs.items() if libc is Libc.MUSL)
    if musl:
        hint = "Mount the driver of the node; no driver is built for musl."
        return fail(name, Reason.NVML_UNAVAILABLE, f"built for musl: {listed(musl)}", hint)
    if not facts.libcs:
        return warn(
            name,
            Reason.NVML_UNAVAILABLE,
            f"there are none below {facts.root} to be looked at",
            "See driver-root.",
        )
    told = (f"{each} needs {libc.value}" for each, libc in facts.libcs.items())
    return ok(name, ", ".join(told))


def judge_interpreter(path: Path, linkage: Linkage | str) -> Check:
    """NVML is loaded by a child of our own interpreter."""
    name = "interpreter"
    if isinstance(linkage, str):
        message = f"what our interpreter was built for cannot be told: {linkage}"
        return warn(name, Reason.NVML_UNAVAILABLE, message, "Let the file be read, or run the doctor as root.")
    libc = libc_of(linkage)
    if libc in {Libc.MUSL, Libc.NONE}:
        message = f"{path} was built for {libc.value}; the driver's libraries are for glibc and cannot be loaded by it"
        return fail(name, Reason.NVML_UNAVAILABLE, message, _MUSL_HINT)
    if libc is Libc.UNKNOWN:
        message = f"{path} was built for {libc.value} ({listed(linkage.needed)}); the driver's libraries are for glibc"
        return warn(name, Reason.NVML_UNAVAILABLE, message, _MUSL_HINT)
    return ok(name, f"{path} is for glibc")
