"""From plain values to the model: each field's type, key by key, with every problem remarked and nothing raised.

A value that is refused leaves its field empty, so that the rest is still looked at; whoever checks the model afterwards
leaves out what lies at or around a remark (`Decoding.undoubted`). Keys are compared without regard to case, as the Go
library does, and one that stands twice in two spellings is refused, which it does not see.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

import attrs

from actors.document.values import Plain
from actors.document.wording import nearest

from .model import ContainerEdits, Device, DeviceNode, Hook, IntelRdt, Mount, NetDevice, Spec
from .problems import REMARKS_MAX, ROOT, CdiReason, Path, Remark, Remarks, quoted
from .scalars import as_int, as_text, is_null, resolved

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from actors.document.values import Value

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

_LATIN_FOLDS: Final = str.maketrans({"\u017f": "s", "\u212a": "k"})
"""What encoding/json takes for s and k besides their capitals."""
_UNWRITABLE: Final = "\0"


def folded(key: str) -> str:
    """A key without regard to case."""
    return (key if key.isascii() else key.translate(_LATIN_FOLDS)).lower()


@attrs.define
class Decoding:
    """What was met while one spec was decoded."""

    remarks: Remarks = attrs.field(factory=Remarks)
    warnings: Remarks = attrs.field(factory=Remarks)
    """What engines with newer Go libraries (1.1.1 and later) read differently, or refuse."""
    removed: list[Path] = attrs.field(factory=list)
    """Fields that 1.1.0 removed; whether they may stand is a matter of the declared version."""

    def undoubted(self, remarks: Iterable[Remark]) -> Iterator[Remark]:
        """The remarks on values that are what the file says: nothing at, in or around them was refused."""
        refused = {remark.path.segments for remark in self.remarks}
        around = {segments[:end] for segments in refused for end in range(len(segments) + 1)}
        for remark in remarks:
            segments = remark.path.segments
            inside = any(segments[:end] in refused for end in range(len(segments) + 1))
            if not inside and segments not in around:
                yield remark


class Decoder(Protocol[T_co]):
    """Gives a value that is not null its type; the empty value of that type when it has none.

    It gets the path around the value and the last segment apart: most values are right and never need their path.
    """

    def __call__(self, value: Value, around: Path, segment: str | int, decoding: Decoding, /) -> T_co:
        """The value; what is wrong with it is remarked."""
        ...


def _refuse_type(value: Value, at: Path, decoding: Decoding, wanted: str) -> None:
    name = next((segment for segment in reversed(at.segments) if isinstance(segment, str)), "the document")
    message = f"{name} must be {wanted}; this is {_described(value)}"
    decoding.remarks.add(CdiReason.WRONG_TYPE, at, message, _shown_value(value))


def _described(value: Value) -> str:
    match value:
        case dict():
            return "a mapping"
        case list():
            return "a list"
        case bool():
            return "true" if value else "false"
        case Plain() if not is_null(value):
            return f"the unquoted {quoted(str(value))}"
        case str() if not isinstance(value, Plain):
            return f"the text {quoted(value)}"
        case _:
            return "null"


def _shown_value(value: Value) -> str:
    return "" if isinstance(value, dict | list) or value is None else str(value)


def _written(value: Plain | bool) -> str:  # noqa: FBT001  (a boolean of the document, no switch)
    return str(value).lower() if isinstance(value, bool) else str(value)


def text(value: Value, around: Path, segment: str | int, decoding: Decoding) -> str:
    """A string: quoted as it is, unquoted by the table of `scalars`."""
    if type(value) is not str:
        if not isinstance(value, Plain | bool):
            if value is not None:
                _refuse_type(value, around / segment, decoding, "text")
            return ""
        written, value = _written(value), as_text(value)
        if value not in {written, ""} and not decoding.warnings.is_full:
            message = f"{quoted(written)} without quotes is read as {quoted(value)}, but not by newer engines; quote it"
            decoding.warnings.add(CdiReason.READ_DIFFERENTLY, around / segment, message, written)
    if _UNWRITABLE in value:
        decoding.remarks.add(CdiReason.BAD_TEXT, around / segment, f"{quoted(value)} holds a NUL character", value)
    return value


def integer(value: Value, around: Path, segment: str | int, decoding: Decoding) -> int:
    """A whole number without quotes, in any of YAML's forms. Its range is a matter of validation."""
    number = as_int(value) if isinstance(value, Plain) else None
    if number is None:
        if not is_null(value):
            _refuse_type(value, around / segment, decoding, "a whole number without quotes")
        return 0
    return number


def boolean(value: Value, around: Path, segment: str | int, decoding: Decoding) -> bool:
    """True or false without quotes, in any of YAML 1.1's spellings."""
    inner = resolved(value) if isinstance(value, Plain) else value
    if not isinstance(inner, bool):
        _refuse_type(value, around / segment, decoding, "true or false without quotes")
        return False
    return inner


def _removed(value: Value, around: Path, segment: str | int, decoding: Decoding) -> None:
    boolean(value, around, segment, decoding)
    if len(decoding.removed) < REMARKS_MAX:
        decoding.removed.append(around / segment)


def many(item: Decoder[T]) -> Decoder[tuple[T, ...]]:
    """A list. A null item of a list of texts or numbers is the empty text or 0."""

    def decode(value: Value, around: Path, segment: str | int, decoding: Decoding) -> tuple[T, ...]:
        at = around / segment
        if type(value) is not list:
            _refuse_type(value, at, decoding, "a list")
            return ()
        return tuple([item(member, at, index, decoding) for index, member in enumerate(value)])

    return decode


def texts_by_key(value: Value, around: Path, segment: str | int, decoding: Decoding) -> dict[str, str]:
    """A map of texts."""
    at = around / segment
    if type(value) is not dict:
        _refuse_type(value, at, decoding, "a mapping")
        return {}
    return {key: text(member, at, key, decoding) for key, member in value.items()}


@attrs.frozen
class _Record:
    """An object of the spec: what it makes, its fields by their JSON names, and what stands for a field not given."""

    make: Callable[..., Any]
    fields: Mapping[str, tuple[str, Decoder[Any]]]
    blank: Mapping[str, object] = attrs.field(factory=dict)
    by_fold: Mapping[str, str] = attrs.field(init=False)

    @by_fold.default
    def _folds(self) -> dict[str, str]:
        return {folded(name): name for name in self.fields}

    def __call__(self, value: Value, around: Path, segment: str | int, decoding: Decoding) -> Any:
        return self.at(value, around / segment, decoding)

    def at(self, value: Value, at: Path, decoding: Decoding) -> Any:
        """Decode the object at a path."""
        if type(value) is not dict:
            wanted = "a mapping; null has no place here" if is_null(value) else "a mapping"
            _refuse_type(value, at, decoding, wanted)
            return self.make(**self.blank)
        given = dict(self.blank)
        respelled: set[str] = set()
        for key, member in value.items():
            field = self.fields.get(key)
            name = key
            if field is None:
                found = self._respelled(key, at, decoding)
                if found is None:
                    continue
                if found in value or found in respelled:
                    message = f"the key {found} stands twice, in two spellings"
                    decoding.remarks.add(CdiReason.DUPLICATE_KEY, at / found, message, key)
                    continue
                respelled.add(found)
                name, field = found, self.fields[found]
            if member is None or (type(member) is Plain and is_null(member)):
                continue
            attribute, decode = field
            given[attribute] = decode(member, at, name, decoding)
        # What was removed from the format is looked at and has no attribute.
        given.pop("", None)
        return self.make(**given)

    def _respelled(self, key: str, at: Path, decoding: Decoding) -> str | None:
        """The field that a key means which is not spelled as in SPEC.md, or None."""
        name = self.by_fold.get(folded(key))
        if name is None:
            self._unknown(key, at, decoding)
        else:
            message = f"{quoted(key)} is taken for {name}; newer engines refuse it"
            decoding.warnings.add(CdiReason.READ_DIFFERENTLY, at / name, message, key)
        return name

    def _unknown(self, key: str, at: Path, decoding: Decoding) -> None:
        if decoding.remarks.is_full:
            # Looking for what was meant takes long, and nobody would read it.
            return
        guess = nearest(key, sorted(self.fields))
        better = f"did you mean {guess}?" if guess else f"known are {', '.join(sorted(self.fields))}"
        decoding.remarks.add(CdiReason.UNKNOWN_FIELD, at / key, f"there is no field {quoted(key)} here; {better}", key)


_TEXTS: Final = many(text)
_NODE: Final = _Record(
    DeviceNode,
    {
        "path": ("path", text),
        "hostPath": ("host_path", text),
        "type": ("type", text),
        "major": ("major", integer),
        "minor": ("minor", integer),
        "fileMode": ("file_mode", integer),
        "permissions": ("permissions", text),
        "uid": ("uid", integer),
        "gid": ("gid", integer),
    },
    {"path": ""},
)
_NET_DEVICE: Final = _Record(
    NetDevice,
    {"hostInterfaceName": ("host_interface_name", text), "name": ("name", text)},
    {"host_interface_name": "", "name": ""},
)
_HOOK: Final = _Record(
    Hook,
    {
        "hookName": ("hook_name", text),
        "path": ("path", text),
        "args": ("args", _TEXTS),
        "env": ("env", _TEXTS),
        "timeout": ("timeout", integer),
    },
    {"hook_name": "", "path": ""},
)
_MOUNT: Final = _Record(
    Mount,
    {
        "hostPath": ("host_path", text),
        "containerPath": ("container_path", text),
        "options": ("options", _TEXTS),
        "type": ("type", text),
    },
    {"host_path": "", "container_path": ""},
)
_INTEL_RDT: Final = _Record(
    IntelRdt,
    {
        "closID": ("clos_id", text),
        "l3CacheSchema": ("l3_cache_schema", text),
        "memBwSchema": ("mem_bw_schema", text),
        "schemata": ("schemata", _TEXTS),
        "enableMonitoring": ("enable_monitoring", boolean),
        "enableCMT": ("", _removed),
        "enableMBM": ("", _removed),
    },
)
_EDITS: Final = _Record(
    ContainerEdits,
    {
        "env": ("env", _TEXTS),
        "deviceNodes": ("device_nodes", many(_NODE)),
        "netDevices": ("net_devices", many(_NET_DEVICE)),
        "hooks": ("hooks", many(_HOOK)),
        "mounts": ("mounts", many(_MOUNT)),
        "intelRdt": ("intel_rdt", _INTEL_RDT),
        "additionalGids": ("additional_gids", many(integer)),
    },
)
_DEVICE: Final = _Record(
    Device,
    {
        "name": ("name", text),
        "annotations": ("annotations", texts_by_key),
        "containerEdits": ("container_edits", _EDITS),
    },
    {"name": "", "container_edits": ContainerEdits()},
)
_SPEC: Final = _Record(
    Spec,
    {
        "cdiVersion": ("cdi_version", text),
        "kind": ("kind", text),
        "annotations": ("annotations", texts_by_key),
        "devices": ("devices", many(_DEVICE)),
        "containerEdits": ("container_edits", _EDITS),
    },
    {"cdi_version": "", "kind": "", "devices": ()},
)


FIELD_NAMES: Final = frozenset(
    name for record in (_SPEC, _DEVICE, _EDITS, _NODE, _NET_DEVICE, _HOOK, _MOUNT, _INTEL_RDT) for name in record.fields
)
"""The names of all fields of all objects; none of them is a word that YAML takes for anything but text."""


def decode_spec(value: Value, decoding: Decoding) -> Spec:
    """The spec as far as it could be understood; sound when nothing was remarked and validation says so too."""
    spec: Spec = _SPEC.at(value, ROOT, decoding)
    return spec
