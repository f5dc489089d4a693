"""Axes of a grid as a command line has them: `suspension.idle_timeout_s=30,60,inf`."""

from __future__ import annotations

import itertools
import tomllib
from collections.abc import Iterator, Sequence
from typing import Any, Final

import attrs

OPENING: Final = "[{"
CLOSING: Final = "]}"
QUOTES: Final = "\"'"


@attrs.frozen
class Axis:
    """A setting by its dotted name, and the values that it takes, each with the words that it was given in."""

    name: str
    values: tuple[tuple[str, Any], ...]


Setting = tuple[tuple[str, str, Any], ...]
"""One value of each axis: name, words, value."""


def read_axis(text: str) -> Axis:
    """An axis out of `NAME=VALUE,VALUE`; values are TOML, and what is no TOML is a word.

    Raises:
        ValueError: it is none.
    """
    name, equals, values = text.partition("=")
    words = tuple(dict.fromkeys(word.strip() for word in _split(values)))
    if not equals or not name.strip() or not all(name.strip().split(".")):
        raise ValueError(f"{text!r:.100} is not NAME=VALUE,VALUE, as suspension.idle_timeout_s=30,60,inf")
    if not all(words):
        raise ValueError(f"{text!r:.100} has a value that is empty")
    return Axis(name.strip(), tuple((word, _value(word)) for word in words))


def settings(axes: Sequence[Axis]) -> Iterator[Setting]:
    """Each with each; the last axis changes fastest. Without axes there is one setting, which changes nothing."""
    for chosen in itertools.product(*(axis.values for axis in axes)):
        yield tuple((axis.name, words, value) for axis, (words, value) in zip(axes, chosen, strict=True))


def _split(text: str) -> Iterator[str]:
    """The values between commas that are in no bracket and no quotes."""
    depth, quote, begin = 0, "", 0
    for place, letter in enumerate(text):
        if quote:
            quote = "" if letter == quote else quote
        elif letter in QUOTES:
            quote = letter
        elif letter in OPENING:
            depth += 1
        elif letter in CLOSING:
            depth -= 1
        elif letter == "," and not depth:
            yield text[begin:place]
            begin = place + 1
    yield text[begin:]


def _value(word: str) -> Any:
    try:
        found = tomllib.loads(f"value = {word}")
    except (tomllib.TOMLDecodeError, RecursionError):
        return word
    return found["value"] if found.keys() == {"value"} else word
