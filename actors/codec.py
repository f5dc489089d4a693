"""One form for journal, API, status and traces: attrs classes as JSON objects, camelCase keys, a `type` for unions.

Source: DESIGN section 3, "Events carry facts, commands carry what is to be done".
"""

from __future__ import annotations

import datetime as dt
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, TypeVar, cast, get_args

import attrs
import cattrs
import orjson
from cattrs.gen import make_dict_structure_fn, make_dict_unstructure_fn, override
from cattrs.preconf.orjson import make_converter
from cattrs.strategies import configure_tagged_union

from actors.assignment import (
    Bundle,
    ColdStart,
    ExecAction,
    HttpGetAction,
    Rootfs,
    SignalAction,
    SnapshotAt,
    TcpSocketAction,
)
from statemachine.commands import Command
from statemachine.events import Event

T = TypeVar("T")

_UNITS: Final = ("_s", "_bytes", "_milli")
JSON_LIMIT_BYTES: Final = 8 << 20


class CodecError(ValueError):
    """Raised when bytes are not the JSON of the class that they should be; the message says where."""


def camel(name: str) -> str:
    """`exit_code` -> `exitCode`. A unit suffix keeps its underscore: `delay_s`, `size_bytes`."""
    unit = next((suffix for suffix in _UNITS if name.endswith(suffix)), "")
    head, *tail = name.removesuffix(unit).split("_")
    return head + "".join(part.capitalize() for part in tail) + unit


def _is_attrs(cls: Any) -> bool:
    return attrs.has(getattr(cls, "__origin__", cls))


def _renames(cls: type) -> dict[str, Any]:
    return {field.name: override(rename=camel(field.name)) for field in attrs.fields(cls)}


def _make() -> cattrs.Converter:
    converter = make_converter()
    converter.register_unstructure_hook(Path, str)
    converter.register_structure_hook(Path, lambda value, _cls: Path(value))
    converter.register_structure_hook_factory(
        _is_attrs, lambda cls: make_dict_structure_fn(cls, converter, **_renames(cls))
    )
    converter.register_unstructure_hook_factory(
        _is_attrs, lambda cls: make_dict_unstructure_fn(cls, converter, **_renames(cls))
    )
    return converter


def _unions(converter: cattrs.Converter) -> cattrs.Converter:
    for union in (Event, Command, Rootfs | Bundle, ExecAction | HttpGetAction | TcpSocketAction):
        configure_tagged_union(union, converter, tag_name="type")
    hook = ExecAction | SignalAction
    configure_tagged_union(hook, converter, tag_name="type")
    converter.register_structure_hook(
        hook | None, lambda value, _cls: None if value is None else converter.structure(value, cast("type[Any]", hook))
    )
    converter.register_unstructure_hook(
        hook | None, lambda value: None if value is None else converter.unstructure(value, unstructure_as=hook)
    )
    # By predicate: the orjson preset treats a union with an enum as native JSON and would come first otherwise.
    converter.register_structure_hook_func(
        lambda cls: ColdStart in get_args(cls), lambda value, _cls: _snapshot_from(converter, value)
    )
    return converter


def _snapshot_from(converter: cattrs.Converter, value: Any) -> SnapshotAt | ColdStart | None:
    if value is None:
        return None
    return converter.structure(value, SnapshotAt) if isinstance(value, dict) else converter.structure(value, ColdStart)


@lru_cache(maxsize=1)
def _converter() -> cattrs.Converter:
    """Made at its first use: that takes longer than most imports, and a worker listens before it needs one."""
    return _unions(_make())


def dumps(value: Any, as_type: Any = None) -> bytes:
    """The JSON of a value in the order of its fields, without a newline; `as_type` names the union where it is one."""
    return orjson.dumps(_converter().unstructure(value, unstructure_as=as_type))


def plain(value: Any, as_type: Any = None) -> Any:
    """The JSON-like form of a value, for embedding."""
    return _converter().unstructure(value, unstructure_as=as_type)


def structure(value: Any, cls: type[T]) -> T:
    """The class from its JSON-like form.

    Raises:
        CodecError: it is not of that form.
    """
    try:
        return _converter().structure(value, cls)
    except Exception as error:  # cattrs raises groups, KeyError, ValueError, TypeError: all mean "not of that form"
        problems = "; ".join(cattrs.transform_error(error)[:3])
        raise CodecError(f"not a {getattr(cls, '__name__', 'known kind of event')}: {problems}") from error


def loads(data: bytes) -> Any:
    """JSON-like from bytes, with a limit.

    Raises:
        CodecError: too large, or not JSON.
    """
    if len(data) > JSON_LIMIT_BYTES:
        raise CodecError(f"{len(data)} bytes of JSON are over the limit of {JSON_LIMIT_BYTES}")
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError as error:
        raise CodecError(str(error)) from error


_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_LAST_S: Final = 253_402_300_799.0
"""The last second of the year 9999, beyond which there is no text for it."""


@lru_cache(maxsize=256)
def rfc3339(epoch_s: float) -> str:
    """Seconds since 1970 as RFC 3339 UTC with milliseconds: `2026-11-29T15:04:05.678Z`.

    What a broken clock or a damaged file says outside the years 1970 to 9999 is told as their first or last second:
    a date is no reason to lose an actor.
    """
    # To the nearest millisecond: cut off, what was written and read back would now and then be one less.
    moment = _EPOCH + dt.timedelta(milliseconds=round(min(max(epoch_s, 0.0), _LAST_S) * 1000))
    return moment.isoformat(timespec="milliseconds").removesuffix("+00:00") + "Z"


def epoch_s(text: str) -> float:
    """Seconds since 1970 of an RFC 3339 time, UTC where it names no zone; 0 when it is none."""
    try:
        moment = dt.datetime.fromisoformat(text)
        return (moment if moment.tzinfo else moment.replace(tzinfo=dt.UTC)).timestamp()
    except (ValueError, OverflowError):
        return 0.0
