"""How the worker's own log is written: JSON lines in a pod, readable lines on a terminal; on stderr, one event a line.

Words are those of the rest: actor, container, step, generation, reason, and durations in `_s`.

A log that cannot be written (a full disk, a reader that has gone) costs its lines, never the actors that they tell of.
"""

from __future__ import annotations

import enum
import json
import logging
import sys
from contextlib import contextmanager, suppress
from typing import IO, TYPE_CHECKING, Any, BinaryIO

import orjson
import structlog

from statemachine.secrecy import without_tokens

if TYPE_CHECKING:
    from collections.abc import Iterator


class LogFormat(enum.StrEnum):
    """The form of a line."""

    AUTO = "auto"
    JSON = "json"
    CONSOLE = "console"


class Threshold:
    """Drops what is below a level, which can be another one from now on: for loggers that were made before, too."""

    def __init__(self, level: str) -> None:
        self.use(level)

    def use(self, level: str) -> None:
        """Let pass what is at this level or above it."""
        self._level = logging.getLevelNamesMapping()[level.upper()]

    def __call__(self, _logger: Any, method: str, event: structlog.typing.EventDict) -> structlog.typing.EventDict:
        """As structlog asks its processors."""
        if logging.getLevelNamesMapping().get(method.upper(), logging.ERROR) < self._level:
            raise structlog.DropEvent
        return event


def configure_logs(log_format: LogFormat, *, level: str, stream: BinaryIO | None = None) -> Threshold:
    """Set structlog up for this process, once, at the edge. `stream` takes the place of stderr for JSON lines."""
    is_terminal = sys.stderr is not None and sys.stderr.isatty()  # None when we were started without it
    if log_format is LogFormat.AUTO:
        log_format = LogFormat.CONSOLE if is_terminal else LogFormat.JSON
    if log_format is LogFormat.CONSOLE:
        renderers: list[Any] = [
            without_what_is_secret,
            structlog.dev.ConsoleRenderer(colors=is_terminal, exception_formatter=_last_line),
        ]
        factory: Any = structlog.PrintLoggerFactory(_spared(sys.stderr))
    else:
        renderers = [
            structlog.processors.format_exc_info,
            without_what_is_secret,
            structlog.processors.JSONRenderer(serializer=_as_json),
        ]
        factory = structlog.BytesLoggerFactory(_spared(stream or getattr(sys.stderr, "buffer", None)))
    # What the event loop itself complains of is one line of our log, never a traceback on stderr.
    asyncio_log = logging.getLogger("asyncio")
    asyncio_log.handlers, asyncio_log.propagate = [_Relay()], False
    threshold = Threshold(level)
    structlog.configure(
        processors=[
            threshold,
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            *renderers,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.DEBUG),
        logger_factory=factory,
        cache_logger_on_first_use=False,
    )
    return threshold


def without_what_is_secret(_logger: Any, _method: str, event: structlog.typing.EventDict) -> structlog.typing.EventDict:
    """As structlog asks its processors: no line of the log has what looks like a secret."""
    return {key: _tellable(value) for key, value in event.items()}


def _tellable(value: Any) -> Any:
    match value:
        case str():
            return without_tokens(value)
        case dict():
            return {key: _tellable(each) for key, each in value.items()}
        case list() | tuple():
            return [_tellable(each) for each in value]
        case _:
            return value


@contextmanager
def said_of(log: Any, **more: str) -> Iterator[None]:
    """Whatever is logged while the body runs, by whomever, says what this log says of all its lines, and more."""
    try:
        fields = dict(structlog.get_context(log))
    except (AttributeError, ValueError):  # nothing was bound to it
        fields = {}
    with structlog.contextvars.bound_contextvars(**fields, **more):
        yield


class _Spared:
    """A stream, or none, whose failures are nobody's trouble."""

    def __init__(self, stream: IO[Any] | None) -> None:
        self._stream = stream

    def write(self, data: Any) -> None:
        """Write it, if it can be written."""
        with suppress(OSError):
            if self._stream is not None:
                self._stream.write(data)

    def flush(self) -> None:
        """Let go of what was written, if that is possible."""
        with suppress(OSError):
            if self._stream is not None:
                self._stream.flush()


def _spared(stream: IO[Any] | None) -> Any:
    """What a logger takes for a file: it calls `write` and `flush`."""
    return _Spared(stream)


def _as_json(event: Any, **_: Any) -> bytes:
    try:
        return orjson.dumps(event, default=str)
    except TypeError:  # a path that is not UTF-8, a very large number: the slower way knows how to write it
        return json.dumps(event, default=str).encode()


def _last_line(out: Any, exc_info: Any) -> None:
    """A traceback is for the developers: on a terminal only its last line."""
    out.write(f"\n  {exc_info[0].__name__}: {without_tokens(str(exc_info[1]))}")


class _Relay(logging.Handler):
    """Turns a library's log record into one of ours."""

    def emit(self, record: logging.LogRecord) -> None:
        """Log it."""
        structlog.get_logger(f"greenroom.{record.name}").warning("fault", message=record.getMessage().splitlines()[0])
