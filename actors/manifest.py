"""The manifest of a snapshot, format 1: written last, so that a directory without one is no snapshot.

Fields may be added to a format, so unknown ones are passed over; none is ever renamed. What is there must have its
type: a manifest that is not to be believed in one field is not to be believed at all.

Source: DESIGN, "JSON shapes".
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, TypeVar, get_args

import attrs
import cattrs
from cattrs.gen import make_dict_structure_fn, make_dict_unstructure_fn, override
from cattrs.v import format_exception

from actors.assignment import SnapshotScope
from actors.ports import TooLargeError
from actors.strict_json import StrictJsonError, canonical, parse_object
from statemachine.problem import Problem, ProblemError, Step
from statemachine.reasons import Reason

if TYPE_CHECKING:
    from pathlib import Path

    from actors.ports import Files
    from actors.strict_json import JsonObject

FORMAT: Final = 1
MANIFEST_NAME: Final = "manifest.json"
CHECKPOINT_FILES: Final = ("checkpoint.img", "pages_meta.img", "pages.img")
"""What runsc writes without compression; measured on runsc 20240729."""

_MANIFEST_BYTES_MAX: Final = 64 << 20  # it may repeat the arguments of many containers
_SMALL_BYTES: Final = 1 << 14  # most have some two thousand
_NAME_BYTES_MAX: Final = 255
_DIGEST: Final = re.compile(r"[0-9a-f]{64}")

_T = TypeVar("_T")


def is_plain_name(name: str) -> bool:
    """Whether a name is that of a file directly in the snapshot's directory, and not the manifest's own."""
    return (
        name not in {"", ".", "..", MANIFEST_NAME}
        and not set(name) & {"/", "\0"}
        and len(name.encode("utf-8", "replace")) <= _NAME_BYTES_MAX
    )


def _check_name(_instance: object, _attribute: attrs.Attribute[str], value: str) -> None:
    if not is_plain_name(value):
        message = f"{value!r} is no plain file name"
        raise ValueError(message)


def _check_digest(_instance: object, _attribute: attrs.Attribute[str], value: str) -> None:
    if not _DIGEST.fullmatch(value):
        message = f"{value!r} is not 64 hex digits"
        raise ValueError(message)


def _check_not_negative(_instance: object, attribute: attrs.Attribute[int], value: int) -> None:
    if value < 0:
        message = f"{attribute.name} is {value}"
        raise ValueError(message)


@attrs.frozen(kw_only=True)
class SnapshotFile:
    """One file of the snapshot: its plain name, its size and its BLAKE3 as 64 hex digits."""

    name: str = attrs.field(validator=_check_name)
    size_bytes: int = attrs.field(validator=_check_not_negative)
    blake3: str = attrs.field(validator=_check_digest)


@attrs.frozen(kw_only=True)
class RuntimeFacts:
    """The runsc that took the snapshot: its own version text, the file's digest, platform, all other global flags."""

    version: str
    sha256: str = attrs.field(validator=_check_digest)
    platform: str
    flags: tuple[str, ...]


@attrs.frozen(kw_only=True)
class ShapeUser:
    """Who a container's first process is."""

    uid: int
    gid: int
    additional_gids: tuple[int, ...] = ()


@attrs.frozen(kw_only=True)
class ShapeMount:
    """A mount as far as a restore may compare it; its source may differ."""

    destination: str
    type: str
    options: tuple[str, ...]


@attrs.frozen(kw_only=True)
class ShapeDevice:
    """A device node: its path in the container and its type (c, b)."""

    path: str
    type: str


@attrs.frozen(kw_only=True)
class Shape:
    """What of a container's config.json must be the same at a restore."""

    args: tuple[str, ...]
    user: ShapeUser
    mounts: tuple[ShapeMount, ...]
    devices: tuple[ShapeDevice, ...]
    capabilities: tuple[str, ...]


@attrs.frozen(kw_only=True)
class SnapshotGpu:
    """A GPU that the container held, at its ordinal."""

    ordinal: int = attrs.field(validator=_check_not_negative)
    uuid: str
    model: str
    minor: int
    pci_bus_id: str


@attrs.frozen(kw_only=True)
class SnapshotContainer:
    """One application container.

    Attributes:
        exited: its exit code when it had ended before the snapshot; it is not part of the image then.
    """

    name: str
    image_digest: str | None
    shape: Shape
    gpus: tuple[SnapshotGpu, ...]
    exited: int | None


@attrs.frozen(kw_only=True)
class Manifest:
    """What a snapshot is, and everything that decides whether it can be restored.

    Attributes:
        actor: the actor's uid.
        id: the snapshot's name, which is its directory's.
        created_at: RFC 3339, UTC.
        generation: of the assignment.
        scope: what it holds.
        greenroom: the version that wrote it.
        boot_id: of the kernel that it was taken under.
        arch: the machine, as `uname -m` names it.
        runsc: what it was taken with.
        driver: the NVIDIA driver's version; None without a GPU.
        toolkit: the NVIDIA container toolkit's version; None without a GPU.
        containers: in the order of declaration, those that had exited included.
        volumes: names of the durable volumes in it.
        files: every file but the manifest.
    """

    actor: str
    id: str
    created_at: str
    generation: int
    scope: SnapshotScope
    greenroom: str
    boot_id: str
    arch: str
    runsc: RuntimeFacts
    driver: str | None
    toolkit: str | None
    containers: tuple[SnapshotContainer, ...]
    volumes: tuple[str, ...]
    files: tuple[SnapshotFile, ...] = attrs.field()

    @files.validator
    def _no_name_twice(self, _attribute: attrs.Attribute[Any], value: tuple[SnapshotFile, ...]) -> None:
        if len({file.name for file in value}) != len(value):
            message = "a file name stands twice"
            raise ValueError(message)

    @property
    def restorable(self) -> tuple[str, ...]:
        """The names of the containers that are in the image: those that had not exited."""
        return tuple(container.name for container in self.containers if container.exited is None)


def shape_of(config: JsonObject) -> Shape:
    """Return the shape of a container from the config.json that it was started with (ours, so it has all members)."""
    process, linux = config["process"], config.get("linux") or {}
    user = process.get("user") or {}
    return Shape(
        args=tuple(process["args"]),
        user=ShapeUser(
            uid=user.get("uid") or 0, gid=user.get("gid") or 0, additional_gids=tuple(user.get("additionalGids") or ())
        ),
        mounts=tuple(
            ShapeMount(
                destination=mount["destination"],
                type=mount.get("type") or "",
                options=tuple(mount.get("options") or ()),
            )
            for mount in config.get("mounts") or ()
        ),
        devices=tuple(ShapeDevice(path=device["path"], type=device["type"]) for device in linux.get("devices") or ()),
        capabilities=tuple((process.get("capabilities") or {}).get("bounding") or ()),
    )


def as_json(manifest: Manifest) -> JsonObject:
    """Return format 1."""
    document: JsonObject = {"v": FORMAT, **_CONVERTER.unstructure(manifest)}
    return document


async def write_manifest(files: Files, directory: Path, manifest: Manifest) -> None:
    """Make a directory of proven files a snapshot: atomically, durably, last.

    Raises:
        OSError: it cannot be written; the directory is no snapshot then.
        ProblemError: it could not be read back, so it is not written either.
    """
    path, data = directory / MANIFEST_NAME, canonical(as_json(manifest))
    # Once it stands there the sandbox is ended, and a manifest that cannot be believed would be the end of the actor.
    parse_manifest(data, path=path, step=Step.SUSPEND)
    await files.replace(path, data)


async def read_manifest(files: Files, directory: Path, *, step: Step = Step.RESTORE) -> Manifest:
    """Read the manifest of a snapshot.

    Raises:
        ProblemError: SnapshotMissing when there is none, SnapshotCorrupt when it cannot be believed, NewerFormat.
    """
    path = directory / MANIFEST_NAME
    try:
        data = await files.read(path, limit_bytes=_MANIFEST_BYTES_MAX)
    except TooLargeError as error:
        raise ProblemError(_too_large(step, path)) from error
    except OSError as error:
        message = f"there is no snapshot at {directory}: {MANIFEST_NAME}: {error.strerror or error}"
        raise ProblemError(_problem(step, Reason.SNAPSHOT_MISSING, path, message)) from error
    return parse_manifest(data, path=path, step=step)


def parse_manifest(data: bytes, *, path: Path, step: Step = Step.RESTORE) -> Manifest:
    """Read a manifest's bytes.

    Raises:
        ProblemError: SnapshotCorrupt, NewerFormat.
    """
    if len(data) > _MANIFEST_BYTES_MAX:
        raise ProblemError(_too_large(step, path))
    try:
        return _parse_again(data) if len(data) <= _SMALL_BYTES else _parse(data)
    except _FormatError as error:
        raise ProblemError(_problem(step, error.reason, path, f"{path} has {error}")) from error
    except StrictJsonError as error:
        raise ProblemError(_problem(step, Reason.SNAPSHOT_CORRUPT, path, f"{path} is damaged: {error}")) from error
    except Exception as error:  # cattrs raises groups, KeyError, TypeError, ValueError
        said = "; ".join(cattrs.transform_error(error, path="$", format_exception=_say))
        raise ProblemError(_problem(step, Reason.SNAPSHOT_CORRUPT, path, f"{path} is damaged: {said}")) from error


class _FormatError(Exception):
    """Raised for another format than ours."""

    def __init__(self, reason: Reason, text: str) -> None:
        super().__init__(text)
        self.reason = reason


def _parse(data: bytes) -> Manifest:
    document = parse_object(data)
    version = document.get("v")
    if isinstance(version, int) and not isinstance(version, bool) and version > FORMAT:
        raise _FormatError(Reason.NEWER_FORMAT, f"format {version}; this version reads up to {FORMAT}")
    if isinstance(version, bool) or version != FORMAT:
        raise _FormatError(Reason.SNAPSHOT_CORRUPT, f"no known format: {version!r}")
    return _CONVERTER.structure(document, Manifest)


# The same bytes are the same manifest, and each is read again at every suspend, restore and release of its actor.
_parse_again: Final = lru_cache(maxsize=256)(_parse)


def _too_large(step: Step, path: Path) -> Problem:
    message = f"{path} is larger than {_MANIFEST_BYTES_MAX >> 20} MiB"
    return _problem(step, Reason.SNAPSHOT_CORRUPT, path, message)


def _problem(step: Step, reason: Reason, path: Path, message: str) -> Problem:
    return Problem(step=step, reason=reason, subject=str(path), message=message)


# ---------------------------------------------------------------------------------------------- structuring, strictly


def _camel(name: str) -> str:
    first, *rest = name.removesuffix("_bytes").split("_")
    return first + "".join(word.capitalize() for word in rest)


def _exactly(value: object, kind: type[_T]) -> _T:
    """Return the value when it has just this type: no number from text, no flag from a number."""
    if type(value) is not kind:
        message = f"must be {kind.__name__}, is {value!r:.60}"
        raise TypeError(message)
    return value


def _strict_converter() -> cattrs.Converter:
    converter = cattrs.Converter(detailed_validation=True)
    converter.register_structure_hook(str, _exactly)
    converter.register_structure_hook(int, _exactly)
    # A word of text: the hook of str would take it for one of its own and ask for an exact text.
    converter.register_structure_hook(SnapshotScope, lambda value, kind: kind(_exactly(value, str)))
    converter.register_unstructure_hook(SnapshotScope, str)
    converter.register_structure_hook_factory(
        lambda kind: getattr(kind, "__origin__", None) is tuple,
        lambda kind: _array_hook(converter, get_args(kind)[0]),
    )
    converter.register_unstructure_hook_factory(
        lambda kind: getattr(kind, "__origin__", None) is tuple,
        lambda kind: _list_hook(converter, get_args(kind)[0]),
    )

    def renames(kind: type) -> dict[str, Any]:
        return {field.name: override(rename=_camel(field.name)) for field in attrs.fields(kind)}

    converter.register_structure_hook_factory(
        attrs.has, lambda kind: make_dict_structure_fn(kind, converter, **renames(kind))
    )
    converter.register_unstructure_hook_factory(
        attrs.has, lambda kind: make_dict_unstructure_fn(kind, converter, **renames(kind))
    )
    return converter


def _array_hook(converter: cattrs.Converter, element: Any) -> Any:
    def structure(value: object, _kind: object) -> tuple[Any, ...]:
        if not isinstance(value, list):  # a text is a sequence too, of one-letter texts
            message = f"must be an array, is {value!r:.60}"
            raise TypeError(message)
        return tuple(converter.structure(value, array))

    array = list[element]
    return structure


def _list_hook(converter: cattrs.Converter, element: Any) -> Any:
    def unstructure(values: tuple[Any, ...]) -> list[Any]:
        return [converter.unstructure(each, element) for each in values]

    return unstructure


def _say(error: BaseException, kind: type | None) -> str:
    """Say what is wrong with one value: our own words where we refused it."""
    return str(error) if isinstance(error, TypeError | ValueError) else format_exception(error, kind)


_CONVERTER: Final = _strict_converter()
