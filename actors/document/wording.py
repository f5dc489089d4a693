"""How problems speak of what a document says: bounded, on one line, without characters that a terminal acts upon."""

from __future__ import annotations

import difflib
import re
from typing import TYPE_CHECKING, Final

from statemachine.wording import as_escape

from .limits import SHOWN_CHARACTERS_MAX

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_FIELD_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*", re.ASCII)


def shown(text: str) -> str:
    """The text in double quotes, cut to 80 characters, with control and other unprintable characters escaped."""
    ellipsis = "…" if len(text) > SHOWN_CHARACTERS_MAX else ""
    return f'"{escaped(text[:SHOWN_CHARACTERS_MAX])}{ellipsis}"'


def escaped(text: str) -> str:
    """The text on one line: backslashes, quotes and whatever `str.isprintable` refuses as escapes."""
    return "".join(_escaped_character(character) for character in text)


def _escaped_character(character: str) -> str:
    return f"\\{character}" if character in '"\\' else as_escape(character)


def document_path(segments: Iterable[str | int]) -> str:
    """A path such as `spec.containers[1].resources.limits["nvidia.com/gpu"]`; `document` for the root."""
    path = "".join(_segment(segment) for segment in segments)
    return path.removeprefix(".") or "document"


def _segment(segment: str | int) -> str:
    if isinstance(segment, int):
        return f"[{segment}]"
    if len(segment) <= SHOWN_CHARACTERS_MAX and _FIELD_NAME.fullmatch(segment):
        return f".{segment}"
    return f"[{shown(segment)}]"


def nearest(word: str, known: Sequence[str]) -> str | None:
    """The known word that was probably meant, or None."""
    folded = {name.lower(): name for name in known}
    # Cut first: the comparison takes the product of both lengths.
    close = difflib.get_close_matches(word[:SHOWN_CHARACTERS_MAX].lower(), folded, n=1, cutoff=0.7)
    return folded[close[0]] if close else None


def listed(words: Iterable[str]) -> str:
    """`a`, `a or b`, `a, b or c`."""
    *front, last = words
    return f"{', '.join(front)} or {last}" if front else last
