"""How the worker's own log is written: JSON lines in a pod, readable lines on a terminal; on stderr, one event a line.

Words are those of the rest: actor, container, step, generation, reason, and durations in `_s`.
"""

from __future__ import annotations

import enum
import logging
import sys
from typing import Any, BinaryIO

import orjson
import structlog


class LogFormat(enum.StrEnum):
    """The form of a line."""

    AUTO = "auto"
    JSON = "json"
    CONSOLE = "console"


def configure_logs(log_format: LogFormat, *, level: str, stream: BinaryIO | None = None) -> None:
    """Set structlog up for this process, once, at the edge. `stream` takes the place of stderr for JSON lines."""
    if log_format is LogFormat.AUTO:
        log_format = LogFormat.CONSOLE if sys.stderr.isatty() else LogFormat.JSON
    if log_format is LogFormat.CONSOLE:
        renderers: list[Any] = [
            structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty(), exception_formatter=_last_line)
        ]
        factory: Any = structlog.PrintLoggerFactory(sys.stderr)
    else:
        as_json = structlog.processors.JSONRenderer(serializer=lambda event, **_: orjson.dumps(event, default=str))
        renderers = [structlog.processors.format_exc_info, as_json]
        factory = structlog.BytesLoggerFactory(stream or sys.stderr.buffer)
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


def _last_line(out: Any, exc_info: Any) -> None:
    """A traceback is for the developers: on a terminal only its last line."""
    out.write(f"\n  {exc_info[0].__name__}: {exc_info[1]}")


class _Relay(logging.Handler):
    """Turns a library's log record into one of ours."""

    def emit(self, record: logging.LogRecord) -> None:
        """Log it."""
        structlog.get_logger(f"greenroom.{record.name}").warning("fault", message=record.getMessage().splitlines()[0])
