"""Reading what was given and writing our bundles; what stands in them is decided in `config` and `given`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from actors.assignment import Rootfs
from actors.confine_elf import confine_elf
from actors.cover_elf import cover_elf
from actors.pause_elf import pause_elf
from actors.ports import FileKind, TooLargeError
from actors.strict_json import canonical
from statemachine.problem import Problem, ProblemError, Step
from statemachine.reasons import Reason

from .config import NO_ANNOTATIONS, PAUSE_NAME, container_config, pause_config
from .given import CONFIG_BYTES_MAX, given_config, parse_config

if TYPE_CHECKING:
    from collections.abc import Mapping

    from actors.assignment import Container
    from actors.ports import Files
    from actors.strict_json import JsonObject

    from .capabilities import Claims
    from .config import Membership
    from .mounts import Mount

CONFIG_NAME: Final = "config.json"


def bundle_directory(activation: Path, name: str) -> Path:
    """Return where the bundle of a container (or `pause`) of an activation stands."""
    return activation / "bundles" / name


def confine_path(activation: Path) -> Path:
    """Return where the program of `actors.confine_elf` stands, outside of every bundle."""
    return activation / "confine" / "confine"


def cover_path(activation: Path) -> Path:
    """Return where the program of `actors.cover_elf` stands."""
    return activation / "cover" / "cover"


async def compose(
    files: Files,
    container: Container,
    *,
    membership: Membership,
    hostname: str,
    claims: Claims,
    extra_mounts: tuple[Mount, ...] = (),
) -> JsonObject:
    """Return the config.json of an application container, whichever way it was given; nothing is written.

    Raises:
        ProblemError: InvalidBundle, BundleNotFound, RootfsNotFound.
    """
    source = container.source
    if isinstance(source, Rootfs):
        config = container_config(
            source,
            membership=membership,
            hostname=hostname,
            limits=container.limits,
            claims=claims,
            extra_mounts=extra_mounts,
        )
    else:
        config = given_config(
            await read_given(files, source.path),
            source.path,
            membership=membership,
            limits=container.limits,
            claims=claims,
            extra_mounts=extra_mounts,
        )
    await _check_rootfs(files, Path(config["root"]["path"]), container.name)
    return config


async def read_given(files: Files, bundle: Path) -> JsonObject:
    """Read the config.json of a bundle that we were given.

    Raises:
        ProblemError: BundleNotFound when it is absent or cannot be read, InvalidBundle for what stands in it.
    """
    path = bundle / CONFIG_NAME
    try:
        data = await files.read(path, limit_bytes=CONFIG_BYTES_MAX)
    except TooLargeError as error:
        message = f"the file is larger than {CONFIG_BYTES_MAX >> 20} MiB"
        raise ProblemError(_problem(Reason.INVALID_BUNDLE, str(path), message)) from error
    except OSError as error:
        message = f"{path} cannot be read: {error.strerror or error}"
        raise ProblemError(_problem(Reason.BUNDLE_NOT_FOUND, str(bundle), message)) from error
    return parse_config(data, subject=str(path))


async def write_bundle(files: Files, directory: Path, config: JsonObject) -> Path:
    """Write a container's config.json into its bundle directory (made when absent) and return the directory.

    Raises:
        OSError: it cannot be written.
    """
    await files.make_directory_for_boot(directory)
    await _write_config(files, directory, config)
    return directory


async def write_pause_bundle(
    files: Files, activation: Path, *, hostname: str, machine: str, annotations: Mapping[str, str] = NO_ANNOTATIONS
) -> Path:
    """Write the bundle of the sandbox's root, with the program in it, and return its directory.

    Raises:
        OSError: it cannot be written.
        UnsupportedMachineError: there is no pause program for this machine.
    """
    directory = bundle_directory(activation, PAUSE_NAME)
    rootfs = directory / "rootfs"
    program = pause_elf(machine)
    # Directory and program are open to all inside the sandbox, where pause runs as nobody: measured on runsc 20240729,
    # a 0700 directory of root's ends in `failed to load /pause: permission denied`.
    await files.replace_executable(rootfs / "pause", program)
    await _write_config(files, directory, pause_config(rootfs, hostname=hostname, annotations=annotations))
    return directory


async def write_confine(files: Files, activation: Path, *, machine: str) -> None:
    """Write the program by way of which commands are run in containers that must not make device nodes.

    Raises:
        OSError: it cannot be written.
        UnsupportedMachineError: there is no such program for this machine.
    """
    await files.replace_executable(confine_path(activation), confine_elf(machine))


async def write_cover(files: Files, activation: Path, *, machine: str) -> None:
    """Write the program that lays something over a rootfs in which mount points would be made.

    Raises:
        OSError: it cannot be written.
        UnsupportedMachineError: there is no such program for this machine.
    """
    await files.replace_executable(cover_path(activation), cover_elf(machine))


async def _write_config(files: Files, directory: Path, config: JsonObject) -> None:
    await files.replace_for_boot(directory / CONFIG_NAME, canonical(config))


async def _check_rootfs(files: Files, rootfs: Path, name: str) -> None:
    """Say it here, in our words: runsc's own for an absent rootfs come from deep inside a gofer."""
    found = await files.stat(rootfs)
    if found is None or found.kind is not FileKind.DIRECTORY:
        message = f"the rootfs of container {name!r} is not a directory: {rootfs}"
        raise ProblemError(_problem(Reason.ROOTFS_NOT_FOUND, name, message))


def _problem(reason: Reason, subject: str, message: str) -> Problem:
    return Problem(step=Step.CREATE, reason=reason, subject=subject, message=message)
