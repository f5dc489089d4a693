"""How a text of others is repeated: bounded, and without characters that a terminal acts upon."""

from __future__ import annotations

from typing import Final

_ELLIPSIS: Final = "…"


def one_line(text: str, most: int) -> str:
    """The text on one line, at most so many characters; what is too long loses its middle, what is unprintable shows.

    The middle, because what was done stands at the beginning of a sentence and the cause at its end. Doing it again
    changes nothing.
    """
    return _plain(text, most, "")


def some_lines(text: str, most: int) -> str:
    """The same for a text of several lines."""
    return _plain(text, most, "\n\t")


def file_label(name: str) -> str:
    """A file's name as text, another one for each name: on disk it is bytes, which need not be UTF-8 nor printable."""
    return "".join("\\\\" if each == "\\" else as_escape(each) for each in name)


def as_escape(character: str) -> str:
    """The character, or what repr writes for one that `str.isprintable` refuses."""
    return character if character.isprintable() else repr(character)[1:-1]


def _plain(text: str, most: int, kept: str) -> str:
    # Cut first: a text may be megabytes, and its escapes several times as long.
    short = _shortened(text, most)
    if short.isprintable():
        return short
    return _shortened("".join(each if each in kept else as_escape(each) for each in short), most)


def _shortened(text: str, most: int) -> str:
    if len(text) <= most:
        return text
    front = most // 2
    return f"{text[:front]}{_ELLIPSIS}{text[len(text) - (most - front - 1) :]}"
