"""JSON read strictly: no key twice, no NaN, a bound on depth, and every complaint names the place in the document.

For documents that programs write (OCI configurations, manifests, runsc's state files). Assignments, which people write,
have a reader of their own.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from contextlib import suppress
from functools import partial
from typing import Any, Final, NoReturn, TypeAlias

import orjson

JsonObject: TypeAlias = "dict[str, Any]"

DEPTH_MAX: Final = 64
_CANONICAL: Final = orjson.OPT_SORT_KEYS | orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE


class StrictJsonError(ValueError):
    """Raised when bytes are not one strict JSON document.

    Attributes:
        path: where, as `$.process.args[0]`; `$` for the whole document.
        message: what is wrong there.
    """

    def __init__(self, path: str, message: str) -> None:
        super().__init__(f"{path}: {message}")
        self.path = path
        self.message = message


class DuplicateKeyError(StrictJsonError):
    """Raised when an object has a key twice."""


class _Twice(dict[str, Any]):
    """An object with a key that stands twice; the walk that follows the parse knows its path, the parser does not."""

    key: str


_BYTE_ORDER_MARK: Final = "\ufeff"
_DELETE: Final = b"\x7f"
"""The one ASCII character that only Python's writer escapes."""
_NESTED: Final = frozenset({dict, list, _Twice})
_PLAIN: Final = frozenset({str, int, bool, type(None)})


def member(path: str, key: str | int) -> str:
    """Return the path of an object's member or an array's element."""
    if isinstance(key, int):
        return f"{path}[{key}]"
    return f"{path}.{key}" if key.replace("_", "").replace("-", "").isalnum() else f"{path}[{json.dumps(key)}]"


def parse(data: bytes) -> object:
    """Parse one JSON document.

    Raises:
        StrictJsonError: not UTF-8, not JSON, a key twice, a number that is no finite number, deeper than 64.
    """
    twice: list[_Twice] = []
    try:
        document = _loads(data.decode("utf-8"), twice)
    except UnicodeDecodeError as error:
        raise StrictJsonError("$", f"not UTF-8 at byte {error.start}") from error
    except json.JSONDecodeError as error:
        raise StrictJsonError("$", f"{error.msg} at line {error.lineno} column {error.colno}") from error
    except RecursionError as error:
        raise StrictJsonError("$", f"deeper than {DEPTH_MAX} levels") from error
    except ValueError as error:  # a number that Python refuses to read: thousands of digits, or not finite
        raise StrictJsonError("$", str(error)) from error
    if twice or _is_too_deep(document):
        _look_through(document)
    return document


def _loads(text: str, twice: list[_Twice]) -> object:
    """Nearly every document has no key twice, and one decoder is enough for all of those."""
    with suppress(_TwiceError):
        if not text.startswith(_BYTE_ORDER_MARK):
            document: object = _DECODER.decode(text)
            return document
    again: object = json.loads(
        text, object_pairs_hook=partial(_object, twice), parse_constant=_refuse_constant, parse_float=_finite
    )
    return again


def parse_object(data: bytes) -> JsonObject:
    """Parse one JSON document that must be an object.

    Raises:
        StrictJsonError: as `parse`, or it is no object.
    """
    document = parse(data)
    if not isinstance(document, dict):
        raise StrictJsonError("$", f"must be an object, is {type_name(document)}")
    return document


def type_name(value: object) -> str:
    """Return JSON's own name of a value's type."""
    names: dict[type, str] = {
        dict: "an object",
        list: "an array",
        str: "a string",
        bool: "a boolean",
        type(None): "null",
    }
    for kind, name in names.items():
        if isinstance(value, kind):
            return name
    return "a number"


def canonical(document: object) -> bytes:
    """Return a document's one byte form: sorted keys, indented by two spaces, ASCII, a newline at the end."""
    # Nearly every document is plain ASCII, and orjson, which is much faster, has the same bytes for those.
    if _is_plain(document):
        with suppress(TypeError):  # a lone surrogate, an integer of more than 64 bits
            data = orjson.dumps(document, option=_CANONICAL)
            if data.isascii() and _DELETE not in data:
                return data
    return (json.dumps(document, sort_keys=True, indent=2, allow_nan=False) + "\n").encode("ascii")


def _object(twice: list[_Twice], pairs: list[tuple[str, Any]]) -> JsonObject:
    document = dict(pairs)
    if len(document) == len(pairs):
        return document
    found = _Twice(document)
    found.key = next(key for key, count in Counter(key for key, _ in pairs).items() if count > 1)
    twice.append(found)
    return found


class _TwiceError(Exception):
    """Raised for a key that stands twice."""


def _object_without(pairs: list[tuple[str, Any]]) -> JsonObject:
    document = dict(pairs)
    if len(document) != len(pairs):
        raise _TwiceError
    return document


def _refuse_constant(word: str) -> NoReturn:
    message = f"{word} is no JSON number"
    raise ValueError(message)


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        message = f"the number {text[:40]} is out of range"
        raise ValueError(message)
    return value


_DECODER: Final = json.JSONDecoder(
    object_pairs_hook=_object_without, parse_constant=_refuse_constant, parse_float=_finite
)


def _is_too_deep(document: object) -> bool:
    """Whether it goes deeper than it may; `_look_through` says where, which costs a path for each value."""
    level: list[Any] = [document]
    for _ in range(DEPTH_MAX + 1):
        level = [value for value in level if type(value) in _NESTED]
        if not level:
            return False
        level = [child for value in level for child in (value if type(value) is list else value.values())]
    return True


def _is_plain(document: object) -> bool:
    """Whether all writers write it alike: there are only objects, arrays, texts, integers, flags and nulls in it."""
    level: list[Any] = [document]
    while level:
        deeper: list[Any] = []
        for value in level:
            kind = type(value)
            if kind is dict:
                deeper += value.values()
            elif kind is list or kind is tuple:
                deeper += value
            elif kind not in _PLAIN:
                return False
        level = deeper
    return True


def _look_through(document: object) -> None:
    """Find what the parser let pass, without recursion: the document may be as deep as the parser could bear."""
    waiting: list[tuple[str, int, object]] = [("$", 1, document)]
    while waiting:
        path, depth, value = waiting.pop()
        if not isinstance(value, dict | list):
            continue
        if depth > DEPTH_MAX:
            raise StrictJsonError(path, f"deeper than {DEPTH_MAX} levels")
        if isinstance(value, _Twice):
            raise DuplicateKeyError(member(path, value.key), "the key stands twice")
        children = value.items() if isinstance(value, dict) else enumerate(value)
        waiting.extend((member(path, key), depth + 1, child) for key, child in children)
