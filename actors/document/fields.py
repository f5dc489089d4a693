"""The set of decoders that fields are made of: texts, whole numbers, seconds, words of an enum, lists, maps."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, TypeVar

from statemachine.reasons import Reason

from .decoding import RefusedError, UnsetError, given_entries, item, mapping
from .limits import TEXT_BYTES_MAX
from .nodes import Node, ScalarKind, ScalarNode, SequenceNode
from .wording import listed, nearest, shown

if TYPE_CHECKING:
    import enum

    from .decoding import Decoder, Spot

T = TypeVar("T")
E = TypeVar("E", bound="enum.StrEnum")

_WHOLE: Final = re.compile(r"0|-?[1-9][0-9]*+")
_DECIMAL: Final = re.compile(r"(?:0|[1-9][0-9]*+)(?:\.[0-9]++)?")
_DIGITS_MAX: Final = 20
"""2^63 has 19; longer ones are out of every range, and Python refuses to turn thousands of digits into an int."""
_NUL: Final = "\0"


def any_text(node: Node, spot: Spot) -> str:
    """A free text (an argument, a variable's value), exactly as written.

    Plain YAML stays what it says: `on`, `1:30`, `0x10`, `~`, `null` and `true` are texts here. JSON says its types
    itself: a number or a boolean is WrongType. Nothing at all, and JSON null, is unset.
    """
    if not isinstance(node, ScalarNode):
        spot.refuse_type(node, "text")
    if node.is_nothing:
        raise UnsetError
    if node.kind not in {ScalarKind.PLAIN, ScalarKind.TEXT}:
        spot.refuse_type(node, "text (in quotes)")
    if _NUL in node.text:
        spot.refuse(Reason.INVALID_VALUE, f"{spot.name} holds a NUL character: {shown(node.text)}")
    size = len(node.text.encode())
    if size > TEXT_BYTES_MAX:
        spot.refuse(Reason.INVALID_VALUE, f"{spot.name} has {size} bytes; {TEXT_BYTES_MAX} are the most")
    return node.text


def given_text(node: Node, spot: Spot) -> str:
    """A text that names something (a uid, a path): as `any_text`, but `null` and `~` mean that none is given."""
    if isinstance(node, ScalarNode) and node.is_null:
        raise UnsetError
    return any_text(node, spot)


def text_like(pattern: re.Pattern[str], rule: str, reason: Reason = Reason.INVALID_VALUE) -> Decoder[str]:
    """A text that a pattern matches whole; `rule` says in words which that are, after "must be"."""

    def decode(node: Node, spot: Spot) -> str:
        text = given_text(node, spot)
        if not pattern.fullmatch(text):
            spot.refuse(reason, f"{spot.name} {shown(text)} must be {rule}")
        return text

    return decode


def whole(least: int, most: int) -> Decoder[int]:
    """A whole number in plain decimal digits: a quoted one, `0x10`, `1_000`, `010` and `1.0` are WrongType."""

    def decode(node: Node, spot: Spot) -> int:
        text = _number(node, spot, _WHOLE, "a whole number")
        value = int(text) if len(text) <= _DIGITS_MAX else None
        if value is None or not least <= value <= most:
            spot.refuse(Reason.INVALID_VALUE, f"{spot.name} must be {least} to {most}, not {shown(text)}")
        return value

    return decode


def seconds(most: int) -> Decoder[float]:
    """A number of seconds above zero; a fraction is fine."""

    def decode(node: Node, spot: Spot) -> float:
        text = _number(node, spot, _DECIMAL, "a number of seconds")
        value = float(text) if len(text) <= _DIGITS_MAX else None
        if value is None or not 0 < value <= most:
            spot.refuse(Reason.INVALID_VALUE, f"{spot.name} must be above 0, at most {most} seconds, not {shown(text)}")
        return value

    return decode


def _number(node: Node, spot: Spot, pattern: re.Pattern[str], wanted: str) -> str:
    if not isinstance(node, ScalarNode):
        spot.refuse_type(node, wanted)
    if node.is_null:
        raise UnsetError
    if node.kind not in {ScalarKind.PLAIN, ScalarKind.NUMBER}:
        spot.refuse_type(node, f"{wanted} without quotes")
    if not pattern.fullmatch(node.text):
        spot.refuse_type(node, f"{wanted} in decimal digits")
    return node.text


def word_of(words: type[E], reason: Reason = Reason.INVALID_VALUE) -> Decoder[E]:
    """A word of an enum, spelled exactly."""

    def decode(node: Node, spot: Spot) -> E:
        text = given_text(node, spot)
        known = [word.value for word in words]
        if text not in known:
            guess = nearest(text, known)
            better = f"; did you mean {guess}?" if guess else ""
            spot.refuse(reason, f"{spot.name} must be {listed(known)}, not {shown(text)}{better}")
        return words(text)

    return decode


def list_of(decoder: Decoder[T], *, most: int) -> Decoder[tuple[T, ...]]:
    """A list; over `most` items it is refused without a look at them."""

    def decode(node: Node, spot: Spot) -> tuple[T, ...]:
        if isinstance(node, ScalarNode) and node.is_null:
            raise UnsetError
        if not isinstance(node, SequenceNode):
            spot.refuse_type(node, "a list")
        if len(node.items) > most:
            spot.refuse(Reason.INVALID_VALUE, f"{spot.name} has {len(node.items)} items; {most} are the most")
        values = []
        for index, member in enumerate(node.items):
            if spot.findings.is_full:
                raise RefusedError
            try:
                values.append(item(member, spot.child(index, member.place), decoder))
            except RefusedError:
                continue
        if len(values) < len(node.items):
            raise RefusedError
        return tuple(values)

    return decode


def some_of(decoder: Decoder[T], *, most: int) -> Decoder[tuple[T, ...]]:
    """A list with at least one item."""
    decode_list = list_of(decoder, most=most)

    def decode(node: Node, spot: Spot) -> tuple[T, ...]:
        values = decode_list(node, spot)
        if not values:
            spot.refuse(Reason.INVALID_VALUE, f"{spot.name} must have at least one item")
        return values

    return decode


def map_of(decoder: Decoder[T], *, most: int) -> Decoder[dict[str, T]]:
    """A mapping whose keys are data, in document order."""

    def decode(node: Node, spot: Spot) -> dict[str, T]:
        found = mapping(node, spot)
        if len(found.entries) > most:
            spot.refuse(Reason.INVALID_VALUE, f"{spot.name} has {len(found.entries)} entries; {most} are the most")
        values: dict[str, T] = {}
        for entry, at in given_entries(found, spot):
            try:
                values[entry.key] = item(entry.value, at, decoder)
            except RefusedError:
                continue
        if len(values) < len(found.entries):
            raise RefusedError
        return values

    return decode
