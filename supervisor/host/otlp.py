"""Where spans go: to an OpenTelemetry collector, from a thread of their own.

The libraries are those of the extra `greenroom[otel]`. The thread imports them, with the first span: a worker that has
none pays nothing for them, and none starts later because of them. The thread waits for spans without a timer, gathers
them for a second and sends them together; the queue is bounded, and what has no room in it is lost and told. So a
collector that does not answer costs spans, and no actor anything. The library's own batch processor is not used: it
looks every few seconds whether there is anything.

Source: OpenTelemetry's specification of its environment variables, and of OTLP's exporter.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from contextlib import asynccontextmanager, suppress
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final

import anyio
import structlog
from anyio import from_thread, lowlevel

from statemachine.problem import Problem, ProblemError, Step
from statemachine.reasons import Reason
from statemachine.wording import one_line
from supervisor.settings import Collector

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping, Sequence

    from supervisor.tracing import Span

    Send = Callable[[Sequence[Span]], str | None]
    """Sends spans; returns why they are lost, None when they are not."""

QUEUE_MAX: Final = 2048
"""Spans that wait: of some two hundred starts."""
BATCH_MAX: Final = 512
GATHERING_S: Final = 1.0
LEAVING_S: Final = 2.0
"""How long a worker waits for its last spans that has not drained."""
_PATH: Final = "v1/traces"
_PROTOCOL: Final = "http/protobuf"
_SAID_CHARACTERS_MAX: Final = 300
_NEEDED: Final = ("opentelemetry.sdk.trace", "opentelemetry.exporter.otlp.proto.http.trace_exporter")

_log = structlog.get_logger("greenroom.spans")


def collector_of(given: str | None, env: Mapping[str, str] = os.environ) -> Collector | None:
    """Where spans go: to the collector that was given, else where OpenTelemetry's own variables say.

    Args:
        given: the collector's address, to which the path for traces is added.
        env: the environment.
    """
    if given is not None:
        return Collector(url=_with_path(given), is_asked_for=True)
    if env.get("OTEL_SDK_DISABLED", "").strip().lower() == "true" or env.get("OTEL_TRACES_EXPORTER") == "none":
        return None
    if whole := env.get("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"):
        return Collector(url=whole, is_asked_for=False)
    if base := env.get("OTEL_EXPORTER_OTLP_ENDPOINT"):
        return Collector(url=_with_path(base), is_asked_for=False)
    return None


def _with_path(base: str) -> str:
    return f"{base.removesuffix('/')}/{_PATH}"


@asynccontextmanager
async def open_span_export(
    collector: Collector | None, env: Mapping[str, str] = os.environ
) -> AsyncIterator[HostSpanExport | None]:
    """Where spans go while the body runs; None where they go nowhere.

    Raises:
        ProblemError: TracingUnavailable: the worker itself was told to export them, and the extra is not installed.
    """
    if collector is None:
        yield None
        return
    if (why := _in_the_way(collector, env)) is not None:
        problem = Problem(step=Step.SUPERVISE, reason=Reason.TRACING_UNAVAILABLE, subject=collector.url, message=why)
        if collector.is_asked_for:
            raise ProblemError(problem)
        # All pods of a cluster may be told so: no reason not to start.
        _log.warning("untraced", reason=str(problem.reason), message=problem.message, hint=problem.hint)
        yield None
        return
    export = HostSpanExport(lambda: _sender(collector.url))
    try:
        yield export
    finally:
        with anyio.move_on_after(LEAVING_S, shield=True):
            await export.finish()


def _in_the_way(collector: Collector, env: Mapping[str, str]) -> str | None:
    try:
        is_installed = all(find_spec(name) is not None for name in _NEEDED)
    except ImportError:
        is_installed = False
    if not is_installed:
        return "spans are to be exported, and greenroom was installed without its extra `otel`"
    protocol = env.get("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL") or env.get("OTEL_EXPORTER_OTLP_PROTOCOL") or _PROTOCOL
    if protocol != _PROTOCOL and not collector.is_asked_for:
        return f"the environment wants spans by {one_line(protocol, 40)}, and they can be exported by {_PROTOCOL} only"
    return None


def _sender(url: str) -> Send:
    from supervisor.host.otlp_sending import OtlpSender  # noqa: PLC0415 - see above: not before there is something

    return OtlpSender(url)


class HostSpanExport:
    """The real `SpanExport`.

    Args:
        connect: makes what sends; called once, in the thread, when there is something to be sent.
    """

    def __init__(self, connect: Callable[[], Send]) -> None:
        self._connect = connect
        self._waiting: deque[Span] = deque()
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._under_way = self._lost = 0
        self._is_over, self._is_left = False, False
        self._when_over: Callable[[], None] = _nothing

    def put(self, span: Span) -> None:
        """Take one; one too many is lost."""
        with self._changed:
            if self._is_over or len(self._waiting) >= QUEUE_MAX:
                self._lost += 1
                return
            self._waiting.append(span)
            if self._thread is None:
                # A daemon: a collector that does not answer must not keep a worker that has left.
                self._thread = threading.Thread(target=self._run, name="spans", daemon=True)
                self._thread.start()
            self._changed.notify()

    async def finish(self) -> None:
        """Wait until all are sent or lost; from here on none is taken. A second time nothing is waited for."""
        over, token = anyio.Event(), lowlevel.current_token()

        def tell() -> None:
            with suppress(RuntimeError):  # the loop has ended
                from_thread.run_sync(over.set, token=token)

        with self._changed:
            if self._is_over or self._thread is None:
                self._is_over = True
                return
            self._is_over, self._when_over = True, tell
            self._changed.notify()
        try:
            await over.wait()
        except anyio.get_cancelled_exc_class():
            self._leave()
            raise

    def _leave(self) -> None:
        with self._changed:
            self._is_left = True
            count = self._under_way + len(self._waiting) + self._lost
            self._waiting.clear()
        _tell_lost(count, "they were not taken in time")

    def _run(self) -> None:
        send: Send | None = None
        while batch := self._next():
            why: str | None
            try:
                send = send or self._connect()
                why = send(batch)
            except Exception as error:  # noqa: BLE001 - whatever the libraries meet, the worker is not to feel it
                why = f"{type(error).__name__}: {error}"
            with self._changed:
                self._under_way, lost, self._lost = 0, self._lost, 0
                is_told = not self._is_left
            if is_told and why is not None:
                _tell_lost(lost + len(batch), why)
            elif is_told and lost:
                _tell_lost(lost, "too many came at once")
        self._when_over()

    def _next(self) -> list[Span]:
        """The next ones to be sent, once there are some; nothing when it is over."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._is_over)
            self._changed.wait_for(lambda: len(self._waiting) >= BATCH_MAX or self._is_over, timeout=GATHERING_S)
            batch = [self._waiting.popleft() for _ in range(min(BATCH_MAX, len(self._waiting)))]
            self._under_way = len(batch)
            return batch


def _tell_lost(count: int, why: str) -> None:
    message = one_line(why, _SAID_CHARACTERS_MAX)
    _log.warning("spans_lost", count=count, reason=str(Reason.TRACING_UNAVAILABLE), message=message)


def _nothing() -> None:
    """Nobody waits for the end."""
