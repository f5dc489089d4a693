"""What the GPU monitor tells: one JSON object a line, version 1. Both ends use this module, so they cannot disagree.

NVML lives in a child process (it can hang in the kernel, or crash), and these lines are all that Greenroom knows of it:

    {"v": 1, "type": "inventory", "driver": "570.133.20", "unread": ["NVML_ERROR_GPU_IS_LOST"],
     "gpus": [{"uuid", "minor", "pciBusId", "model", "migDevices", "lost"}, …]}
    {"v": 1, "type": "processes", "gpu": "GPU-…", "pids": [17, 42]}
    {"v": 1, "type": "memory", "gpu": "GPU-…", "usedBytes": 1073741824}
    {"v": 1, "type": "xid", "gpu": "GPU-…" or null, "xid": 79}
    {"v": 1, "type": "error", "call": "nvmlInit", "error": "NVML_ERROR_DRIVER_NOT_LOADED", "gpu": "GPU-…" or null,
     "message": "…"}

An inventory is the whole of it, and the monitor's whole judgement: it lists a GPU as lost until it answers as it
should, also after an XID. A GPU that NVML counts and cannot even name is one error in `unread`. No inventory is sent in
place of an error: "no GPUs" is the inventory with nothing in both lists, and nothing else. `pids` are all compute
processes of that GPU. Of one whose memory NVML does not tell there is no such line. An error without a GPU means that
NVML as a whole does not answer, until the next inventory.
Every field is there in every line; what else is there is refused.

Source: nvml.h, `nvmlReturn_t`; the NVIDIA driver's catalogue of XIDs.
"""

from __future__ import annotations

import json
import re
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, TypeVar

import attrs

from actors.strict_json import parse_object, type_name
from statemachine.wording import one_line

from .inventory import MINOR_MAX, Gpu, Inventory, check_uuid

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from actors.strict_json import JsonObject

T = TypeVar("T")

PROTOCOL: Final = 1
LINE_BYTES_MAX: Final = 1 << 20
PIDS_MAX: Final = 1 << 14
_MIG_DEVICES_MAX: Final = 64
_TEXT_CHARACTERS_MAX: Final = 1024
_PID_MAX: Final = 1 << 22
_BYTES_MAX: Final = (1 << 63) - 1
_XID_MAX: Final = (1 << 32) - 1
_ERROR: Final = re.compile(r"NVML_ERROR_[A-Z0-9_]{1,64}", re.ASCII)

NVML_ERRORS: Final[Mapping[int, str]] = MappingProxyType(
    {
        1: "NVML_ERROR_UNINITIALIZED",
        2: "NVML_ERROR_INVALID_ARGUMENT",
        3: "NVML_ERROR_NOT_SUPPORTED",
        4: "NVML_ERROR_NO_PERMISSION",
        6: "NVML_ERROR_NOT_FOUND",
        7: "NVML_ERROR_INSUFFICIENT_SIZE",
        8: "NVML_ERROR_INSUFFICIENT_POWER",
        9: "NVML_ERROR_DRIVER_NOT_LOADED",
        10: "NVML_ERROR_TIMEOUT",
        11: "NVML_ERROR_IRQ_ISSUE",
        12: "NVML_ERROR_LIBRARY_NOT_FOUND",
        13: "NVML_ERROR_FUNCTION_NOT_FOUND",
        14: "NVML_ERROR_CORRUPTED_INFOROM",
        15: "NVML_ERROR_GPU_IS_LOST",
        16: "NVML_ERROR_RESET_REQUIRED",
        17: "NVML_ERROR_OPERATING_SYSTEM",
        18: "NVML_ERROR_LIB_RM_VERSION_MISMATCH",
        19: "NVML_ERROR_IN_USE",
        20: "NVML_ERROR_MEMORY",
        21: "NVML_ERROR_NO_DATA",
        23: "NVML_ERROR_INSUFFICIENT_RESOURCES",
        25: "NVML_ERROR_ARGUMENT_VERSION_MISMATCH",
        27: "NVML_ERROR_NOT_READY",
        28: "NVML_ERROR_GPU_NOT_FOUND",
        29: "NVML_ERROR_INVALID_STATE",
        999: "NVML_ERROR_UNKNOWN",
    }
)
"""The names of nvml.h by their codes; those that reading facts can meet."""


def error_name(code: int) -> str:
    """The NVML name of a code; `NVML_ERROR_77` for one that has none here."""
    return NVML_ERRORS.get(code, f"NVML_ERROR_{abs(code)}")


class FactError(ValueError):
    """Raised when a line is none of the monitor's: the monitor is not to be believed, and is replaced.

    What it repeats of the line is bounded and on one line.
    """

    def __init__(self, what: str) -> None:
        super().__init__(one_line(what, _TEXT_CHARACTERS_MAX))


def _text(text: str) -> str:
    return one_line(text, _TEXT_CHARACTERS_MAX)


def _each_once(pids: Iterable[int]) -> tuple[int, ...]:
    return tuple(sorted(set(pids)))


def _check_error(_instance: object, _attribute: attrs.Attribute[str], value: str) -> None:
    if not _ERROR.fullmatch(value):
        message = f"{value!r:.60} is no name of an NVML error"
        raise ValueError(message)


def _check_errors(instance: object, attribute: attrs.Attribute[Any], value: tuple[str, ...]) -> None:
    for name in value:
        _check_error(instance, attribute, name)


def _check_pids(_instance: object, _attribute: attrs.Attribute[Any], value: tuple[int, ...]) -> None:
    if len(value) > PIDS_MAX or not all(0 < pid <= _PID_MAX for pid in value):
        message = f"pids are at most {PIDS_MAX} numbers from 1 to {_PID_MAX}"
        raise ValueError(message)


def _check_bytes(_instance: object, _attribute: attrs.Attribute[int], value: int) -> None:
    if not 0 <= value <= _BYTES_MAX:
        message = f"{value} is no size of a memory"
        raise ValueError(message)


def _check_xid(_instance: object, _attribute: attrs.Attribute[int], value: int) -> None:
    if not 0 <= value <= _XID_MAX:
        message = f"{value} is no XID"
        raise ValueError(message)


@attrs.frozen(kw_only=True)
class InventoryFact:
    """NVML answered.

    Attributes:
        driver: the driver's version.
        inventory: all GPUs, the lost ones named as such.
        unread: one error for each GPU that NVML counts and cannot name.
    """

    driver: str = attrs.field(converter=_text)
    inventory: Inventory
    unread: tuple[str, ...] = attrs.field(default=(), validator=_check_errors)


@attrs.frozen(kw_only=True)
class ProcessesFact:
    """All compute processes on one GPU, by pid as NVML tells it."""

    gpu: str = attrs.field(validator=check_uuid)
    pids: tuple[int, ...] = attrs.field(converter=_each_once, validator=_check_pids)


@attrs.frozen(kw_only=True)
class MemoryFact:
    """How much of a GPU's memory is in use, whoever uses it."""

    gpu: str = attrs.field(validator=check_uuid)
    used_bytes: int = attrs.field(validator=_check_bytes)


@attrs.frozen(kw_only=True)
class XidFact:
    """The driver reported an XID; None where it named no GPU that NVML knows."""

    gpu: str | None = attrs.field(validator=attrs.validators.optional(check_uuid))
    xid: int = attrs.field(validator=_check_xid)


@attrs.frozen(kw_only=True)
class ErrorFact:
    """A call failed: for one GPU, or (None) for NVML as a whole."""

    call: str = attrs.field(converter=_text)
    error: str = attrs.field(validator=_check_error)
    gpu: str | None = attrs.field(default=None, validator=attrs.validators.optional(check_uuid))
    message: str = attrs.field(default="", converter=_text)


Fact = InventoryFact | ProcessesFact | MemoryFact | XidFact | ErrorFact


def is_of_nvml(fact: Fact) -> bool:
    """Whether it says that NVML as a whole answers, or that it does not."""
    return isinstance(fact, InventoryFact) or (isinstance(fact, ErrorFact) and fact.gpu is None)


def encode(fact: Fact) -> bytes:
    """The line of a fact, its newline included."""
    document = {"v": PROTOCOL, **_WRITERS[type(fact)](fact)}
    return json.dumps(document, sort_keys=True, separators=(",", ":")).encode("ascii") + b"\n"


def decode(line: bytes) -> Fact:
    """The fact of a line, with its newline or without.

    Raises:
        FactError: too long, not JSON, another version, another type, a field too many or too few or of another type.
    """
    if len(line) > LINE_BYTES_MAX:
        raise FactError(f"a line of {len(line)} bytes is over the limit of {LINE_BYTES_MAX}")
    try:
        return _decoded(parse_object(line))
    except FactError:
        raise
    except ValueError as error:  # no strict JSON, or a value that the class of the fact refuses
        raise FactError(str(error)) from error


def decode_lines(data: bytes) -> tuple[tuple[Fact, ...], bytes]:
    """The facts of all whole lines, and the beginning of the line that is still being written.

    Raises:
        FactError: a line is none of the monitor's, or the last one has no end.
    """
    *lines, rest = data.split(b"\n")
    if len(rest) > LINE_BYTES_MAX:
        raise FactError(f"a line of over {LINE_BYTES_MAX} bytes has no end")
    return tuple(decode(line) for line in lines), rest


# ------------------------------------------------------------------------------------------------------------ writing


def _write_inventory(fact: InventoryFact) -> JsonObject:
    gpus = [
        {
            "uuid": gpu.uuid,
            "minor": gpu.minor,
            "pciBusId": gpu.pci_bus_id,
            "model": gpu.model,
            "migDevices": None if gpu.mig_devices is None else list(gpu.mig_devices),
            "lost": gpu.lost,
        }
        for gpu in fact.inventory.gpus
    ]
    return {"type": "inventory", "driver": fact.driver, "unread": list(fact.unread), "gpus": gpus}


_WRITERS: Final[Mapping[type, Callable[[Any], JsonObject]]] = {
    InventoryFact: _write_inventory,
    ProcessesFact: lambda fact: {"type": "processes", "gpu": fact.gpu, "pids": list(fact.pids)},
    MemoryFact: lambda fact: {"type": "memory", "gpu": fact.gpu, "usedBytes": fact.used_bytes},
    XidFact: lambda fact: {"type": "xid", "gpu": fact.gpu, "xid": fact.xid},
    ErrorFact: lambda fact: {
        "type": "error",
        "call": fact.call,
        "error": fact.error,
        "gpu": fact.gpu,
        "message": fact.message,
    },
}


# ------------------------------------------------------------------------------------------------------------ reading


def _decoded(document: JsonObject) -> Fact:
    if document.get("v") != PROTOCOL or type(document["v"]) is not int:
        raise FactError(f"v is {document.get('v')!r:.40}; this version reads {PROTOCOL}")
    kind = document.get("type")
    reader = _READERS.get(kind) if isinstance(kind, str) else None
    if reader is None:
        raise FactError(f"type is {kind!r:.40}; known are {', '.join(_READERS)}")
    return reader(document)


def _read_inventory(document: JsonObject) -> InventoryFact:
    _require_fields(document, "v", "type", "driver", "unread", "gpus")
    gpus = _list(document, "gpus", dict, most=MINOR_MAX + 1)
    return InventoryFact(
        driver=_value(document, "driver", str),
        inventory=Inventory(map(_read_gpu, gpus)),
        unread=tuple(_list(document, "unread", str, most=MINOR_MAX + 1)),
    )


def _read_gpu(document: JsonObject) -> Gpu:
    _require_fields(document, "uuid", "minor", "pciBusId", "model", "migDevices", "lost")
    mig = document["migDevices"]
    return Gpu(
        uuid=_value(document, "uuid", str),
        minor=_value(document, "minor", int),
        pci_bus_id=_value(document, "pciBusId", str),
        model=_value(document, "model", str),
        mig_devices=None if mig is None else tuple(_list(document, "migDevices", str, most=_MIG_DEVICES_MAX)),
        lost=_value_or_none(document, "lost", str),
    )


def _read_processes(document: JsonObject) -> ProcessesFact:
    _require_fields(document, "v", "type", "gpu", "pids")
    return ProcessesFact(gpu=_value(document, "gpu", str), pids=_list(document, "pids", int, most=PIDS_MAX))


def _read_memory(document: JsonObject) -> MemoryFact:
    _require_fields(document, "v", "type", "gpu", "usedBytes")
    return MemoryFact(gpu=_value(document, "gpu", str), used_bytes=_value(document, "usedBytes", int))


def _read_xid(document: JsonObject) -> XidFact:
    _require_fields(document, "v", "type", "gpu", "xid")
    return XidFact(gpu=_value_or_none(document, "gpu", str), xid=_value(document, "xid", int))


def _read_error(document: JsonObject) -> ErrorFact:
    _require_fields(document, "v", "type", "call", "error", "gpu", "message")
    return ErrorFact(
        call=_value(document, "call", str),
        error=_value(document, "error", str),
        gpu=_value_or_none(document, "gpu", str),
        message=_value(document, "message", str),
    )


_READERS: Final[Mapping[str, Callable[[JsonObject], Fact]]] = {
    "inventory": _read_inventory,
    "processes": _read_processes,
    "memory": _read_memory,
    "xid": _read_xid,
    "error": _read_error,
}


def _require_fields(document: JsonObject, *names: str) -> None:
    absent = [name for name in names if name not in document]
    unknown = sorted(set(document) - set(names))
    if absent or unknown:
        raise FactError(f"absent: {', '.join(absent) or 'none'}; unknown: {', '.join(unknown)[:80] or 'none'}")


def _exactly(value: object, kind: type[T], name: str) -> T:
    # Exactly this type: a flag is no number.
    if type(value) is not kind:
        raise FactError(f"{name} must be of type {kind.__name__}, is {type_name(value)}")
    return value


def _value(document: JsonObject, name: str, kind: type[T]) -> T:
    return _exactly(document[name], kind, name)


def _value_or_none(document: JsonObject, name: str, kind: type[T]) -> T | None:
    return None if document[name] is None else _value(document, name, kind)


def _list(document: JsonObject, name: str, kind: type[T], *, most: int) -> list[T]:
    values = _value(document, name, list)
    if len(values) > most:
        raise FactError(f"{name} has {len(values)} entries, more than {most}")
    return [_exactly(value, kind, name) for value in values]
