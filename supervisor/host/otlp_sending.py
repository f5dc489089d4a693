"""Spans as OTLP over HTTP, by the libraries of the extra `greenroom[otel]`: nobody else imports them.

Importing this takes half a second and some 20 MB: it is done where there is something to be sent, in the thread that
sends. Headers, certificates, compression and timeouts are the exporter's own to read from the environment
(OTEL_EXPORTER_OTLP_…), as are the service's name and attributes (OTEL_SERVICE_NAME, OTEL_RESOURCE_ATTRIBUTES).

Source: opentelemetry-sdk and opentelemetry-exporter-otlp-proto-http 1.45.2.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import SERVICE_NAME, SERVICE_VERSION, Resource
from opentelemetry.sdk.trace import Event, ReadableSpan
from opentelemetry.sdk.trace.export import SpanExportResult
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext, Status, StatusCode, TraceFlags

from supervisor.runtime import VERSION

if TYPE_CHECKING:
    from collections.abc import Sequence

    from supervisor.tracing import Span

NAME: Final = "greenroom"
_NANO: Final = 1_000_000_000
_UNNAMED: Final = "unknown_service"


class OtlpSender:
    """Sends spans to a collector.

    Args:
        url: the whole address that takes traces.
    """

    def __init__(self, url: str) -> None:
        self._said = _Said()
        library = logging.getLogger("opentelemetry")
        library.handlers, library.propagate = [self._said], False  # else it goes to stderr, as no line of our log
        self._exporter = OTLPSpanExporter(endpoint=url)
        self._resource = _resource()

    def __call__(self, spans: Sequence[Span]) -> str | None:
        """Send some, with as many tries as the exporter makes; returns why they are lost, None when they are not."""
        self._said.words = ""
        if self._exporter.export([_readable(span, self._resource) for span in spans]) is SpanExportResult.SUCCESS:
            return None
        return self._said.words or "the collector did not take them"


class _Said(logging.Handler):
    """Keeps what the library complained of last: its answer only says that it failed."""

    words = ""

    def emit(self, record: logging.LogRecord) -> None:
        """Keep it."""
        self.words = record.getMessage()


def _resource() -> Resource:
    """Who we are; the environment's words win."""
    found = Resource.create({SERVICE_VERSION: VERSION})
    is_named = not str(found.attributes[SERVICE_NAME]).startswith(_UNNAMED)
    return found if is_named else found.merge(Resource({SERVICE_NAME: NAME}))


def _readable(span: Span, resource: Resource) -> ReadableSpan:
    """One of ours as the exporter wants it."""

    def context(span_id: int) -> SpanContext:
        return SpanContext(span.trace, span_id, is_remote=False, trace_flags=TraceFlags(TraceFlags.SAMPLED))

    return ReadableSpan(
        name=span.name,
        context=context(span.id),
        parent=None if span.parent is None else context(span.parent),
        resource=resource,
        attributes=span.attributes,
        events=[Event(each.name, each.attributes, _nanos(each.at_s)) for each in span.events],
        status=Status() if span.error is None else Status(StatusCode.ERROR, span.error),
        start_time=_nanos(span.begin_s),
        end_time=_nanos(span.end_s),
        instrumentation_scope=InstrumentationScope(NAME, VERSION),
    )


def _nanos(seconds: float) -> int:
    return round(seconds * _NANO)
