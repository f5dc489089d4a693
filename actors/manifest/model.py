"""What a manifest says: of the snapshot, of what it was taken under, and of each container that is in it."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, Final

import attrs
from blake3 import blake3

from actors.assignment import SnapshotScope

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from actors.strict_json import JsonObject

MANIFEST_NAME: Final = "manifest.json"
CHECKPOINT_FILES: Final = ("checkpoint.img", "pages_meta.img", "pages.img")
"""What runsc writes without compression; measured on runsc 20240729."""
VOLUMES_NAME: Final = "volumes.tar"
"""The durable volumes, in one file."""

_NAME_BYTES_MAX: Final = 255
_VALUE_SHOWN: Final = 100
_DIGEST_SHOWN: Final = 16
_DIGEST: Final = re.compile(r"[0-9a-f]{64}")


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
class ShapeMember:
    """Another member of config.json by its name, as JSON or, where that is long, as a digest of it."""

    name: str
    value: str


@attrs.frozen(kw_only=True)
class Shape:
    """What of a container's config.json must be the same at a restore.

    Attributes:
        others: further members that a current runsc compares, those that are there; None where they were not noted.
    """

    args: tuple[str, ...]
    user: ShapeUser
    mounts: tuple[ShapeMount, ...]
    devices: tuple[ShapeDevice, ...]
    capabilities: tuple[str, ...]
    others: tuple[ShapeMember, ...] | None = None


@attrs.frozen(kw_only=True)
class SnapshotGpu:
    """A GPU that the container held, at its ordinal."""

    ordinal: int = attrs.field(validator=_check_not_negative)
    uuid: str
    model: str
    minor: int
    pci_bus_id: str


def _check_ordinals(_instance: object, _attribute: object, value: tuple[SnapshotGpu, ...]) -> None:
    if [gpu.ordinal for gpu in value] != list(range(len(value))):
        message = f"the ordinals {', '.join(str(gpu.ordinal) for gpu in value)} are not their places"
        raise ValueError(message)


@attrs.frozen(kw_only=True)
class SnapshotContainer:
    """One application container.

    Attributes:
        exited: its exit code when it had ended before the snapshot; it is not part of the image then.
    """

    name: str
    image_digest: str | None
    shape: Shape
    gpus: tuple[SnapshotGpu, ...] = attrs.field(validator=_check_ordinals)
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
        cpu_features: of its processor, as the kernel names them; None where it was not noted.
        runsc: what it was taken with.
        driver: the NVIDIA driver's version; None without a GPU.
        toolkit: the NVIDIA container toolkit's version; None without a GPU.
        cuda_checkpoint: the program inside that took CUDA contexts off their GPUs; None where there were none.
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
    cpu_features: tuple[str, ...] | None = None
    runsc: RuntimeFacts
    driver: str | None
    toolkit: str | None
    cuda_checkpoint: str | None = None
    containers: tuple[SnapshotContainer, ...]
    volumes: tuple[str, ...]
    files: tuple[SnapshotFile, ...] = attrs.field()

    @files.validator
    def _no_name_twice(self, _attribute: attrs.Attribute[Any], value: tuple[SnapshotFile, ...]) -> None:
        if len({file.name for file in value}) != len(value):
            message = "a file name stands twice"
            raise ValueError(message)

    @property
    def demanded(self) -> tuple[str, ...]:
        """The names of the files without which it is no snapshot of its scope."""
        return demanded(self.scope, self.volumes)

    @property
    def absent(self) -> tuple[str, ...]:
        """The demanded files that it does not name, or names as empty: a checkpoint has no empty one, and no tar is."""
        named = {file.name for file in self.files if file.size_bytes}
        return tuple(name for name in self.demanded if name not in named)

    @property
    def restorable(self) -> tuple[str, ...]:
        """The names of the containers that are in the image: those that had not exited."""
        return tuple(container.name for container in self.containers if container.exited is None)

    @property
    def exited(self) -> tuple[tuple[str, int], ...]:
        """The others, each with its exit code."""
        return tuple((each.name, each.exited) for each in self.containers if each.exited is not None)

    @property
    def size_bytes(self) -> int:
        """What its files have together."""
        return sum(file.size_bytes for file in self.files)


def demanded(scope: SnapshotScope, volumes: Collection[str]) -> tuple[str, ...]:
    """The names of the files without which a snapshot of these volumes is none of its scope."""
    image = CHECKPOINT_FILES if scope is SnapshotScope.FULL else ()
    has_volumes = volumes or scope is SnapshotScope.DATA
    return (*image, VOLUMES_NAME) if has_volumes else image


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
        others=tuple(_others(config)),
    )


def _json(value: object) -> str:
    return json.dumps(value, sort_keys=True)


def _others(config: JsonObject) -> Iterator[ShapeMember]:
    """In an order that says nothing, and of namespaces only which there are."""
    process, linux = config["process"], config.get("linux") or {}
    members = {
        "cwd": process.get("cwd"),
        "namespaces": sorted(each["type"] for each in linux.get("namespaces") or ()),
        "readonly": (config.get("root") or {}).get("readonly") or None,
        "rlimits": sorted(process.get("rlimits") or (), key=_json),
        "seccomp": linux.get("seccomp"),
        "sysctl": linux.get("sysctl"),
    }
    for name, value in members.items():
        if value:
            text = _json(value)
            long = f"of digest {blake3(text.encode()).hexdigest()[:_DIGEST_SHOWN]}"
            yield ShapeMember(name=name, value=text if len(text) <= _VALUE_SHOWN else long)
