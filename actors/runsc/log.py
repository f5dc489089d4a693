"""Reading what runsc wrote into the `--log FILE` of one command: its errors and nothing else.

Measured on runsc 20240729: JSON objects `{"msg", "level", "time"}` with nothing between them, whatever `--log-format`
says; empty on success. A panic inside the sandbox comes as part of a message, with goroutines many KiB long.
"""

from __future__ import annotations

import json
from typing import Final

import attrs

LOG_BYTES_MAX: Final = 256 << 10
"""How much of a log is read; the reason stands at the beginning of the first message."""

_GOROUTINES: Final = "\ngoroutine"
_LINE_CHARACTERS_MAX: Final = 1000
_TAIL_LINES: Final = 20
_TAIL_CHARACTERS_MAX: Final = 4000


@attrs.frozen(kw_only=True)
class Words:
    """What runsc said about a failure.

    Attributes:
        message: its first line, at most 1,000 characters; empty when it said nothing.
        detail: the last lines, at most 20 and 4,000 characters.
        text: everything that was read, for classifying.
    """

    message: str
    detail: str
    text: str


def parse_log(data: bytes) -> tuple[str, ...]:
    """Return the messages of a command's log, in order, goroutines cut away.

    What is not JSON (a log that was cut at the limit, a crash of runsc itself) becomes one message as it is.
    """
    text = data.decode("utf-8", "replace")
    decoder = json.JSONDecoder()
    messages: list[str] = []
    position = 0
    while position < len(text):
        if text[position].isspace():
            position += 1
            continue
        try:
            entry, position = decoder.raw_decode(text, position)
        except (ValueError, RecursionError):
            messages.append(_without_goroutines(_unfinished(text[position:])))
            break
        message = entry.get("msg") if isinstance(entry, dict) else None
        if isinstance(message, str):
            messages.append(_without_goroutines(message))
    return tuple(message for message in messages if message)


def words(log: bytes, stderr: bytes) -> Words:
    """Return what runsc said: the log's errors, or what stands on stderr when the log is empty."""
    messages = parse_log(log) or parse_stderr(stderr)
    return condensed("\n".join(messages))


def condensed(text: str) -> Words:
    """Return a text with what of it a problem may carry."""
    lines = [line for line in text.splitlines() if line.strip()]
    first = lines[0] if lines else ""
    return Words(
        message=_bounded(first, _LINE_CHARACTERS_MAX),
        detail="\n".join(lines[-_TAIL_LINES:])[-_TAIL_CHARACTERS_MAX:],
        text=text,
    )


def parse_stderr(data: bytes) -> tuple[str, ...]:
    """Return stderr as one message, goroutines cut away; none when it is empty."""
    text = _without_goroutines(data.decode("utf-8", "replace")).strip()
    return (text,) if text else ()


def _without_goroutines(message: str) -> str:
    return message.partition(_GOROUTINES)[0].strip()


def _unfinished(text: str) -> str:
    """Return the message of an object that has no end, as well as it can be read."""
    _, begins, rest = text.partition('"msg":"')
    return rest.replace("\\n", "\n").replace('\\"', '"') if begins else text


def _bounded(line: str, characters_max: int) -> str:
    """Shorten in the middle: runsc puts what it did first and the cause last."""
    if len(line) <= characters_max:
        return line
    half = characters_max // 2 - 3
    return f"{line[:half]} … {line[-half:]}"
