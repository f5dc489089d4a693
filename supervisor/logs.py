"""How the worker's own log is written: JSON lines in a pod, readable lines on a terminal; on stderr, one event a line.

Words are those of the rest: actor, container, step, generation, reason, and durations in `_s`.

A log that cannot be written (a full disk, a reader that has gone) costs its lines, never the actors that they tell of.
"""

from __future__ import annotations

import enum
import json
import logging
import sys
from contextlib import suppress
from typing import IO, Any, BinaryIO

import orjson
import structlog


class LogFormat(enum.StrEnum):
    """The form of a line."""

    AUTO = "auto"
    JSON = "json"
    CONSOLE = "console"


def configure_logs(log_format: LogFormat, *, level: str, stream: BinaryIO | None = None) -> None:
    """Set structlog up for this process, once, at the edge. `stream` takes the place of stderr for JSON lines."""
    is_terminal = sys.stderr is not None and sys.stderr.isatty()  # None when we were started without it
    if log_format is LogFormat.AUTO:
        log_format = LogFormat.CONSOLE if is_terminal else LogFormat.JSON
    if log_format is LogFormat.CONSOLE:
        renderers: list[Any] = [structlog.dev.ConsoleRenderer(colors=is_terminal, exception_formatter=_last_line)]
        factory: Any = structlog.PrintLoggerFactory(_spared(sys.stderr))
    else:
        renderers = [structlog.processors.format_exc_info, structlog.processors.JSONRenderer(serializer=_as_json)]
        factory = structlog.BytesLoggerFactory(_spared(stream or getattr(sys.stderr, "buffer", None)))
    # What the event loop itself complains of is one line of our log, never a traceback on stderr.
    asyncio_log = logging.getLogger("asyncio")
    asyncio_log.handlers, asyncio_log.propagate = [_Relay()], False
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            *renderers,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(getattr(logging, level.upper())),
        logger_factory=factory,
        cache_logger_on_first_use=False,
    )


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
    out.write(f"\n  {exc_info[0].__name__}: {exc_info[1]}")


class _Relay(logging.Handler):
    """Turns a library's log record into one of ours."""

    def emit(self, record: logging.LogRecord) -> None:
        """Log it."""
        structlog.get_logger(f"greenroom.{record.name}").warning("fault", message=record.getMessage().splitlines()[0])
