"""gpus.json, format 1: what tells a container which GPUs it has now, and which it had when the snapshot was taken.

    {"v": 1, "container": "trainer", "gpus": [{"ordinal": 0,
      "now":        {"uuid": "GPU-…", "pciBusId": "0000:3b:00.0", "minor": 2, "model": "…"},
      "atSnapshot": null | {…}}]}

A program that was restored has the UUIDs of another machine in its memory; the ordinal is what did not change. The file
is a bind mount of a single file, written before create or restore and never after: its content is decided by the grant
and the manifest alone, and the same ones give the same bytes.

Fields may be added to a format, so unknown ones are passed over.

Source: DESIGN, "JSON shapes" and rule 9.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeVar

import attrs

from actors.strict_json import canonical, member, parse_object, type_name

if TYPE_CHECKING:
    from collections.abc import Sequence

    from actors.strict_json import JsonObject

    from .inventory import Gpu

T = TypeVar("T")

FORMAT: Final = 1
IDENTITY_PATH: Final = "/run/greenroom/gpus.json"
"""Where it stands in a container."""
IDENTITY_BYTES_MAX: Final = 1 << 20
_NAMES: Final = {"uuid": "uuid", "pci_bus_id": "pciBusId", "minor": "minor", "model": "model"}


class IdentityError(ValueError):
    """Raised when bytes are no gpus.json that this version reads; the message says where."""


@attrs.frozen(kw_only=True)
class GpuIdentity:
    """A GPU as a container may know it. The same four fields are in a snapshot's manifest."""

    uuid: str
    pci_bus_id: str
    minor: int
    model: str

    @classmethod
    def of(cls, gpu: Gpu) -> GpuIdentity:
        """The identity of a GPU of the inventory."""
        return cls(uuid=gpu.uuid, pci_bus_id=gpu.pci_bus_id, minor=gpu.minor, model=gpu.model)


@attrs.frozen(kw_only=True)
class GpuAtOrdinal:
    """What is at one ordinal now, and what was at the snapshot (None without one)."""

    now: GpuIdentity
    at_snapshot: GpuIdentity | None = None

    @property
    def changed(self) -> tuple[str, ...]:
        """The names of the fields that are not what they were; none without a snapshot."""
        if self.at_snapshot is None:
            return ()
        return tuple(
            name for field, name in _NAMES.items() if getattr(self.now, field) != getattr(self.at_snapshot, field)
        )


@attrs.frozen(kw_only=True)
class IdentityFile:
    """The content of gpus.json; the position of an entry is its ordinal."""

    container: str
    gpus: tuple[GpuAtOrdinal, ...]


def identity_file(
    container: str, now: Sequence[GpuIdentity], *, at_snapshot: Sequence[GpuIdentity] | None = None
) -> IdentityFile:
    """The content for a container with its grant in order, and with what a snapshot of it says, in order of ordinals.

    Raises:
        ValueError: the snapshot has another number of GPUs: then no ordinal means what it meant.
    """
    if at_snapshot is not None and len(at_snapshot) != len(now):
        message = f"{container} has {len(now)} GPUs and had {len(at_snapshot)} in the snapshot"
        raise ValueError(message)
    then: Sequence[GpuIdentity | None] = [None] * len(now) if at_snapshot is None else at_snapshot
    pairs = zip(now, then, strict=True)
    return IdentityFile(container=container, gpus=tuple(GpuAtOrdinal(now=a, at_snapshot=b) for a, b in pairs))


def encode(content: IdentityFile) -> bytes:
    """The bytes of the file."""
    gpus = [
        {"ordinal": ordinal, "now": _as_json(gpu.now), "atSnapshot": gpu.at_snapshot and _as_json(gpu.at_snapshot)}
        for ordinal, gpu in enumerate(content.gpus)
    ]
    return canonical({"v": FORMAT, "container": content.container, "gpus": gpus})


def decode(data: bytes) -> IdentityFile:
    """The content of a file's bytes.

    Raises:
        IdentityError: too large, not strict JSON, another format, a field that is absent or has another type, ordinals
            that do not count from 0.
    """
    if len(data) > IDENTITY_BYTES_MAX:
        raise IdentityError(f"{len(data)} bytes are over the limit of {IDENTITY_BYTES_MAX}")
    try:
        document = parse_object(data)
    except ValueError as error:
        raise IdentityError(str(error)) from error
    version = _field(document, "$", "v", int)
    if version != FORMAT:
        raise IdentityError(f"$.v: format {version} is not {FORMAT}, which this version reads")
    entries = _field(document, "$", "gpus", list)
    return IdentityFile(
        container=_field(document, "$", "container", str),
        gpus=tuple(_entry(entry, ordinal) for ordinal, entry in enumerate(entries)),
    )


def _as_json(gpu: GpuIdentity) -> JsonObject:
    return {name: getattr(gpu, field) for field, name in _NAMES.items()}


def _entry(value: object, ordinal: int) -> GpuAtOrdinal:
    path = member("$.gpus", ordinal)
    entry = _exactly(value, dict, path)
    if _field(entry, path, "ordinal", int) != ordinal:
        raise IdentityError(f"{path}.ordinal: is not {ordinal}, its place")
    if "atSnapshot" not in entry:
        raise IdentityError(f"{path}.atSnapshot: absent")
    then = entry["atSnapshot"]
    return GpuAtOrdinal(
        now=_identity(_field(entry, path, "now", dict), f"{path}.now"),
        at_snapshot=None
        if then is None
        else _identity(_exactly(then, dict, f"{path}.atSnapshot"), f"{path}.atSnapshot"),
    )


def _identity(document: JsonObject, path: str) -> GpuIdentity:
    minor = _field(document, path, "minor", int)
    if minor < 0:
        raise IdentityError(f"{path}.minor: is {minor}")
    return GpuIdentity(
        uuid=_field(document, path, "uuid", str),
        pci_bus_id=_field(document, path, "pciBusId", str),
        minor=minor,
        model=_field(document, path, "model", str),
    )


def _field(document: JsonObject, path: str, name: str, kind: type[T]) -> T:
    if name not in document:
        raise IdentityError(f"{member(path, name)}: absent")
    return _exactly(document[name], kind, member(path, name))


def _exactly(value: Any, kind: type[T], path: str) -> T:
    if type(value) is not kind:  # exactly: a flag is no number
        raise IdentityError(f"{path}: must be of type {kind.__name__}, is {type_name(value)}")
    return value
