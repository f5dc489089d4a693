"""Reading what was given to make our bundles of; what stands in them is decided in `config` and `given`."""

from __future__ import annotations

import posixpath
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from actors.assignment import Rootfs
from actors.ports import FileKind, TooLargeError
from statemachine.problem import Problem, ProblemError, Step
from statemachine.reasons import Reason

from .activation_tree import CONFIG_NAME
from .config import Membership, container_config
from .given import CONFIG_BYTES_MAX, given_config, parse_config
from .mounts import is_within

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from actors.assignment import Container
    from actors.ports import Files
    from actors.strict_json import JsonObject

    from .capabilities import Claims
    from .mounts import Mount

_NO_MOUNTS: Final[Mapping[str, tuple[Mount, ...]]] = MappingProxyType({})


async def compose_each(
    files: Files,
    containers: Sequence[Container],
    *,
    sandbox_id: str,
    hostname: str,
    claims: Claims,
    extra_mounts: Mapping[str, tuple[Mount, ...]] = _NO_MOUNTS,
) -> dict[str, JsonObject]:
    """Return the config.json of application containers by name, whichever way each was given; nothing is written.

    Args:
        files: only read.
        containers: those of one sandbox.
        sandbox_id: the id of its root.
        hostname: the actor's.
        claims: what all of them together claim.
        extra_mounts: what each gets besides, by its name.

    Raises:
        ProblemError: InvalidBundle, BundleNotFound, RootfsNotFound: of the first that has one.
    """
    composed: dict[str, JsonObject] = {}
    for each in containers:
        composed[each.name] = await _compose(
            files,
            each,
            membership=Membership(name=each.name, sandbox_id=sandbox_id),
            hostname=hostname,
            claims=claims,
            extra_mounts=extra_mounts.get(each.name, ()),
        )
    await _require_rootfs(files, composed)
    return composed


async def _compose(
    files: Files,
    container: Container,
    *,
    membership: Membership,
    hostname: str,
    claims: Claims,
    extra_mounts: tuple[Mount, ...],
) -> JsonObject:
    source = container.source
    if isinstance(source, Rootfs):
        return container_config(
            source,
            membership=membership,
            hostname=hostname,
            limits=container.limits,
            claims=claims,
            extra_mounts=extra_mounts,
        )
    config = given_config(
        await read_given(files, source.path),
        source.path,
        membership=membership,
        limits=container.limits,
        claims=claims,
        extra_mounts=extra_mounts,
    )
    _require_apart(config, extra_mounts, container.name)
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


def _require_apart(config: JsonObject, extra_mounts: tuple[Mount, ...], name: str) -> None:
    """What a given bundle mounts is its own, and ours, which come last, must not hide it."""
    theirs = [mount["destination"] for mount in config["mounts"][: len(config["mounts"]) - len(extra_mounts)]]
    for mount in extra_mounts:
        hidden = [each for each in theirs if is_within(posixpath.normpath(each), mount.destination)]
        if hidden:
            message = f"the bundle of {name} mounts something at {hidden[0]} itself, where a volume is to be"
            raise ProblemError(_problem(Reason.INVALID_BUNDLE, name, message))


async def _require_rootfs(files: Files, composed: Mapping[str, JsonObject]) -> None:
    """Say it here, in our words: runsc's own for an absent rootfs come from deep inside a gofer."""
    paths = {name: Path(config["root"]["path"]) for name, config in composed.items()}
    images = tuple(dict.fromkeys(paths.values()))  # often all are of one
    try:
        found = dict(zip(images, await files.stat_each(images), strict=True))
    except OSError as error:
        message = f"the rootfs of a container cannot be looked at: {error.filename or ''}: {error.strerror or error}"
        raise ProblemError(_problem(Reason.ROOTFS_NOT_FOUND, next(iter(paths)), message)) from error
    for name, rootfs in paths.items():
        stat = found[rootfs]
        if stat is None or stat.kind is not FileKind.DIRECTORY:
            message = f"the rootfs of container {name!r} is not a directory: {rootfs}"
            raise ProblemError(_problem(Reason.ROOTFS_NOT_FOUND, name, message))


def _problem(reason: Reason, subject: str, message: str) -> Problem:
    return Problem(step=Step.CREATE, reason=reason, subject=subject, message=message)
