"""What stands below `sandboxes/<activation>` before its sandbox is started: where each thing is, and all of it at once.

    bundles/pause/          the sandbox's root: config.json, and rootfs/ with the program of `actors.pause_elf`
    bundles/<container>/    its config.json
    gpus/<container>/       gpus.json, for a container with a grant
    covers/<container>/     where the mount points are made that its rootfs has not
    confine/, cover/, enter/    the programs of `actors.confine_elf` and so on, outside of every bundle

What a container's own user reads or runs is open to everybody, with the directory that holds it; all above is not, so
that nobody else on the host reaches it.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Final

import attrs

from actors.confine_elf import confine_elf
from actors.cover_elf import cover_elf
from actors.enter_elf import enter_elf
from actors.pause_elf import pause_elf
from actors.ports import NewDirectory, NewEntry, NewFile
from actors.strict_json import canonical, parse_object

from .config import NO_ANNOTATIONS, PAUSE_NAME, pause_config

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from actors.ports import Files
    from actors.strict_json import JsonObject

CONFIG_NAME: Final = "config.json"
_CONFIG_BYTES_MAX: Final = 8 << 20
"""More than a given one may have (`given.CONFIG_BYTES_MAX`): devices and mounts come into what is written of it."""
_PROGRAM_MODE: Final = 0o755
_READABLE_MODE: Final = 0o644
_OPEN_MODE: Final = 0o755
_NO_PROGRAMS: Final[Mapping[str, NewEntry]] = MappingProxyType({})


def bundle_directory(activation: Path, name: str) -> Path:
    """Return where the bundle of a container (or `pause`) of an activation stands."""
    return activation / "bundles" / name


def config_path(activation: Path, name: str) -> Path:
    """Return where the document of a container (or `pause`) stands, with which runsc makes it."""
    return bundle_directory(activation, name) / CONFIG_NAME


async def read_config(files: Files, activation: Path, name: str) -> JsonObject:
    """Return the document of a container, as it was written.

    Raises:
        OSError, ValueError: it cannot be read.
    """
    return parse_object(await files.read(config_path(activation, name), limit_bytes=_CONFIG_BYTES_MAX))


def confine_path(activation: Path) -> Path:
    """Return where the program of `actors.confine_elf` stands."""
    return activation / "confine" / "confine"


def cover_path(activation: Path) -> Path:
    """Return where the program of `actors.cover_elf` stands."""
    return activation / "cover" / "cover"


def enter_path(activation: Path) -> Path:
    """Return where the program of `actors.enter_elf` stands."""
    return activation / "enter" / "enter"


def identity_path(activation: Path, container: str) -> Path:
    """Return where the file stands from which a container learns which GPUs it has."""
    return activation / "gpus" / container / "gpus.json"


def scratch_path(activation: Path, container: str) -> Path:
    """Return the directory in which what lies over a container's rootfs is made."""
    return activation / "covers" / container


@attrs.frozen(kw_only=True)
class ContainerFiles:
    """What an application container has there.

    Attributes:
        config: its config.json.
        identity: its gpus.json, if it has one.
        is_covered: whether something lies over its rootfs.
    """

    config: JsonObject = attrs.field(repr=False)
    identity: bytes | None = None
    is_covered: bool = False


def pause_bundle(
    activation: Path, *, hostname: str, machine: str, annotations: Mapping[str, str] = NO_ANNOTATIONS
) -> NewDirectory:
    """Return the bundle of the sandbox's root, with its program.

    Raises:
        UnsupportedMachineError: there is no pause program for this machine.
    """
    rootfs = bundle_directory(activation, PAUSE_NAME) / "rootfs"
    config = pause_config(rootfs, hostname=hostname, annotations=annotations)
    # Its program runs as nobody: measured on runsc 20240729, a 0700 directory of root's ends in `failed to load /pause:
    # permission denied`.
    return NewDirectory({**_bundle(config).entries, "rootfs": _program("pause", pause_elf(machine))})


def programs_for_claims(machine: str) -> Mapping[str, NewEntry]:
    """Return what the containers of an actor with a claim are run by way of: they must not make device nodes.

    Raises:
        UnsupportedMachineError: there is no such program for this machine.
    """
    return {"confine": _program("confine", confine_elf(machine)), **program_to_cover(machine)}


def program_to_cover(machine: str) -> Mapping[str, NewEntry]:
    """Return what a container is started by way of in whose rootfs mount points may have to be made.

    Raises:
        UnsupportedMachineError: there is no such program for this machine.
    """
    return {"cover": _program("cover", cover_elf(machine))}


def program_to_enter(machine: str) -> Mapping[str, NewEntry]:
    """Return what every process is begun by way of that belongs into the activation's cgroup.

    Raises:
        UnsupportedMachineError: there is no such program for this machine.
    """
    return {"enter": _program("enter", enter_elf(machine))}


def activation_tree(
    pause: NewDirectory,
    containers: Mapping[str, ContainerFiles],
    programs: Mapping[str, NewEntry] = _NO_PROGRAMS,
) -> NewDirectory:
    """Return the directory of an activation."""
    bundles = {PAUSE_NAME: pause, **{name: _bundle(each.config) for name, each in containers.items()}}
    identities = {name: _readable(each.identity) for name, each in containers.items() if each.identity is not None}
    covers = {name: NewDirectory() for name, each in containers.items() if each.is_covered}
    parts = {"bundles": bundles, "gpus": identities, "covers": covers}
    return NewDirectory({**programs, **{name: NewDirectory(part) for name, part in parts.items() if part}})


def _bundle(config: JsonObject) -> NewDirectory:
    return NewDirectory({CONFIG_NAME: NewFile(canonical(config))})


def _program(name: str, code: bytes) -> NewDirectory:
    return NewDirectory({name: NewFile(code, mode=_PROGRAM_MODE)}, mode=_OPEN_MODE)


def _readable(identity: bytes) -> NewDirectory:
    return NewDirectory({"gpus.json": NewFile(identity, mode=_READABLE_MODE)}, mode=_OPEN_MODE)
