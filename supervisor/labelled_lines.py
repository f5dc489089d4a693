"""A line of a container as one JSON object that says whose it is, in a way that no line can forge.

A line that is a JSON object stays as it is, to the digit, and gets our labels; anything else becomes the `message` of
an object. Labels of ours that a container writes are taken out of both keys that log collectors read labels from, so
that a filter for one actor never shows another one's lines. What comes out has no control character and no byte that is
not UTF-8, and is never more than one line.

Pure. Source: ateom's log contract (`labels`, on GCE `logging.googleapis.com/labels`, keys `ate.dev/*`).
"""

from __future__ import annotations

import json
from json.decoder import JSONDecodeError
from typing import TYPE_CHECKING, Any, Final, NoReturn

import attrs

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from actors.assignment import WorkerAssignment

LABELS: Final = "labels"
"""The key that has ours."""
LABEL_KEYS: Final = frozenset({LABELS, "logging.googleapis.com/labels"})
"""The keys that collectors read labels from."""
OURS: Final = ("ate.dev/", "ate.actor.")
"""How the keys begin that only we say, in the present form and in the peers' next one."""

_WHITESPACE: Final = " \t\r"
# Where JSON lets them stand in a line they are only space, or harmless for a machine and not for a terminal.
_PLAIN: Final = str.maketrans(
    {"\t": " ", "\r": " "} | {chr(code): f"\\u{code:04x}" for code in (*range(0x7F, 0xA0), 0x2028, 0x2029)}
)


@attrs.frozen(kw_only=True)
class Part:
    """Which part of a line it is that is longer than one may be.

    Attributes:
        number: from 1.
        is_last: whether the line ends with it.
    """

    number: int
    is_last: bool


def labels_of(assignment: WorkerAssignment, container: str) -> str:
    """Whose line it is, as `label_members`. What an actor has no name for is left out."""
    found = {
        "ate.dev/actor_atespace": assignment.namespace,
        "ate.dev/actor_name": assignment.name,
        "ate.dev/actor_uid": assignment.uid,
        "ate.dev/actor_generation": str(assignment.generation),
        "ate.dev/container_name": container,
    }
    return label_members({key: value for key, value in found.items() if value})


def label_members(labels: Mapping[str, str]) -> str:
    """Labels, of which there is one at least, as members of a JSON object: made once for many lines."""
    return _text(labels)[1:-1]


def labelled(line: bytes, labels: str, *, at: str) -> bytes:
    """One line of a container, without its end, as one of ours, with its end. `at` is when it was read, RFC 3339."""
    try:
        kept = _kept(line.decode("utf-8"), labels)
    except (UnicodeDecodeError, ValueError, RecursionError):  # it is no JSON object that could carry our labels
        kept = None
    return _line(kept) if kept is not None else _wrapped(line, labels, at=at)


def labelled_part(piece: bytes, labels: str, *, at: str, part: Part) -> bytes:
    """A part of a line that is too long to be one."""
    return _wrapped(piece, labels, at=at, part=part)


def dropped(count_bytes: int, labels: str, *, at: str) -> bytes:
    """What stands in the place of output that was gone before it could be told."""
    message = f"{count_bytes} bytes of this container's output were dropped: it wrote them faster than they were taken"
    return _line(_object({"time": at, "message": message, "dropped_bytes": count_bytes}, labels))


def _kept(text: str, labels: str) -> str | None:
    """A JSON object with our labels; None when what it has for labels is no object.

    Raises:
        ValueError: it is no JSON object.
        RecursionError: it is nested too deeply.
    """
    members, theirs = list[str](), list[str]()
    for key, raw_key, raw_value in _members(text):
        if key in LABEL_KEYS:
            if not raw_value.startswith("{"):
                return None
            kept = [f"{raw}:{value}" for each, raw, value in _members(raw_value) if not _is_ours(each)]
            if key == LABELS:
                theirs += kept
            else:
                members.append(f"{raw_key}:{{{','.join(kept)}}}")
        elif not _is_ours(key):
            members.append(f"{raw_key}:{raw_value}")
    # Ours come last: whoever reads a key twice keeps the last one.
    return "{" + ",".join([*members, f'"{LABELS}":{{{",".join([*theirs, labels])}}}']) + "}"


def _members(text: str) -> Iterator[tuple[str, str, str]]:
    """The members of a JSON object: each key, and key and value as they are written.

    Raises:
        ValueError: it is none, or not to its end.
    """
    at = _past(text, 0, "{")
    if text[at : at + 1] != "}":
        while True:
            if text[at : at + 1] != '"':
                raise JSONDecodeError("no key", text, at)
            key, end = _DECODER.raw_decode(text, at)
            value_at = _past(text, end, ":")
            _, value_end = _DECODER.raw_decode(text, value_at)
            yield key, text[at:end], text[value_at:value_end]
            at = _skip(text, value_end)
            if text[at : at + 1] != ",":
                break
            at = _skip(text, at + 1)
    if _past(text, at, "}") != len(text):
        raise JSONDecodeError("something follows", text, at)


def _past(text: str, at: int, mark: str) -> int:
    """The place behind a mark and the space around it."""
    at = _skip(text, at)
    if text[at : at + 1] != mark:
        raise JSONDecodeError(f"no {mark}", text, at)
    return _skip(text, at + 1)


def _skip(text: str, at: int) -> int:
    while text[at : at + 1] and text[at] in _WHITESPACE:
        at += 1
    return at


def _no_number(word: str) -> NoReturn:
    raise ValueError(f"{word} is no JSON")


_ENCODER: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))
# Numbers are not read: none is too large, and each stays as it was written.
_DECODER: Final = json.JSONDecoder(parse_int=str, parse_float=str, parse_constant=_no_number)


def _is_ours(key: str) -> bool:
    return key.casefold().startswith(OURS)


def _wrapped(line: bytes, labels: str, *, at: str, part: Part | None = None) -> bytes:
    content: dict[str, Any] = {"time": at, "message": line.decode("utf-8", "backslashreplace")}
    if part is not None:
        content |= {"part": part.number, "more": not part.is_last}
    return _line(_object(content, labels))


def _object(content: Mapping[str, Any], labels: str) -> str:
    return f'{_text(content)[:-1]},"{LABELS}":{{{labels}}}}}'


def _text(content: Mapping[str, Any]) -> str:
    return _ENCODER.encode(content)


def _line(text: str) -> bytes:
    # Half of a surrogate pair can only come from a name of ours; nothing is worth a fault here.
    return text.translate(_PLAIN).encode("utf-8", "replace") + b"\n"
