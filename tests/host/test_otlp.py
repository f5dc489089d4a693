"""Spans on their way to a collector: all that was put arrives, nothing waits for it, and what is lost is told."""

import logging
import threading

import anyio
import pytest
from structlog.testing import capture_logs

from statemachine.problem import ProblemError
from statemachine.reasons import Reason
from supervisor.host import otlp
from supervisor.host.otlp import BATCH_MAX, QUEUE_MAX, HostSpanExport, collector_of, open_span_export
from supervisor.host.otlp_sending import OtlpSender
from supervisor.settings import Collector
from supervisor.tracing import Span, SpanEvent
from tests.host.collectors import a_collector

pytestmark = pytest.mark.anyio

BOUND_S = 60.0


def a_span(number=1, **more):
    about = {"name": f"span-{number}", "trace": 0xABC, "id": number, "parent": None, "begin_s": 1000.0, "end_s": 1001.5}
    return Span(**{**about, "attributes": {"actor": "a1", "generation": 3}, **more})


class Sending:
    """What sends, instead of the library: it waits where it is told to."""

    def __init__(self, answer=None):
        self.batches, self.answer = [], answer
        self.may_go, self.has_begun = threading.Event(), threading.Event()
        self.may_go.set()
        self.connected = 0

    def connect(self):
        self.connected += 1
        return self

    def __call__(self, spans):
        self.has_begun.set()
        self.may_go.wait()
        self.batches.append([span.id for span in spans])
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    @property
    def sent(self):
        return [number for batch in self.batches for number in batch]


@pytest.fixture
def logs():
    with capture_logs() as entries:
        yield entries


@pytest.fixture(autouse=True)
def much_time(monkeypatch):
    """On a busy machine, too, a batch is sent when it is full, and the end waits for what the libraries take."""
    monkeypatch.setattr(otlp, "GATHERING_S", 3600.0)
    monkeypatch.setattr(otlp, "LEAVING_S", BOUND_S)


@pytest.fixture
def sending():
    sending = Sending()
    yield sending
    sending.may_go.set()


async def finished(export):
    with anyio.fail_after(BOUND_S):
        await export.finish()


def lost(logs):
    return [(entry["count"], entry["message"]) for entry in logs if entry["event"] == "spans_lost"]


async def test_what_was_put_is_sent_in_order_and_the_end_waits_for_it(sending, logs):
    export = HostSpanExport(sending.connect)
    for number in range(BATCH_MAX + 10):
        export.put(a_span(number))
    await finished(export)
    assert sending.sent == list(range(BATCH_MAX + 10))
    assert max(map(len, sending.batches)) == BATCH_MAX
    assert lost(logs) == []


async def test_before_there_is_a_span_there_is_no_thread_and_no_connection(sending):
    before = threading.active_count()
    export = HostSpanExport(sending.connect)
    await finished(export)
    assert threading.active_count() <= before  # one of before may have ended
    assert sending.connected == 0


async def test_nothing_is_taken_after_the_end_and_a_second_end_is_at_once(sending):
    export = HostSpanExport(sending.connect)
    export.put(a_span(1))
    await finished(export)
    export.put(a_span(2))
    await finished(export)
    assert sending.sent == [1]


async def test_who_puts_never_waits_and_what_has_no_room_is_lost_and_told(sending, logs):
    sending.may_go.clear()
    export = HostSpanExport(sending.connect)
    for number in range(BATCH_MAX):
        export.put(a_span(number))
    assert sending.has_begun.wait(BOUND_S)
    for number in range(QUEUE_MAX + 5):
        export.put(a_span(number))
    sending.may_go.set()
    await finished(export)
    assert len(sending.sent) == BATCH_MAX + QUEUE_MAX
    assert lost(logs) == [(5, "too many came at once")]


async def test_an_end_that_is_given_up_is_left_at_once_and_tells_what_is_lost(sending, logs):
    sending.may_go.clear()
    export = HostSpanExport(sending.connect)
    for number in range(BATCH_MAX + 7):
        export.put(a_span(number))
    assert sending.has_begun.wait(BOUND_S)
    with anyio.move_on_after(0.001) as patience:
        await export.finish()
    assert patience.cancelled_caught
    assert lost(logs) == [(BATCH_MAX + 7, "they were not taken in time")]
    await finished(export)  # a second time nothing is waited for


@pytest.mark.parametrize("answer", ["refused", ValueError("refused")])
async def test_what_cannot_be_sent_is_lost_and_told_and_the_next_ones_are_tried(logs, answer):
    sending = Sending(answer)
    export = HostSpanExport(sending.connect)
    for number in range(BATCH_MAX + 1):
        export.put(a_span(number))
    await finished(export)
    message = "refused" if answer == "refused" else "ValueError: refused"
    assert lost(logs) == [(BATCH_MAX, message), (1, message)]
    assert {entry["reason"] for entry in logs} == {"TracingUnavailable"}


async def test_what_cannot_be_connected_is_told_and_tried_again(logs):
    tries = []

    def connect():
        tries.append(1)
        raise RuntimeError("no certificate")

    export = HostSpanExport(connect)
    for number in range(BATCH_MAX + 1):
        export.put(a_span(number))
    await finished(export)
    assert (len(tries), lost(logs)[0]) == (2, (BATCH_MAX, "RuntimeError: no certificate"))


# ---- the real one


@pytest.fixture
def no_variables(monkeypatch):
    """The exporter reads the environment itself."""
    for name in (
        "OTEL_EXPORTER_OTLP_HEADERS",
        "OTEL_SERVICE_NAME",
        "OTEL_RESOURCE_ATTRIBUTES",
        "http_proxy",
        "HTTP_PROXY",
    ):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")


async def test_a_collector_gets_spans_with_all_that_they_say(no_variables):
    event = SpanEvent(name="ContainerExited", at_s=1001.25, attributes={"container": "main", "exit_code": 7})
    with a_collector() as collector:
        async with open_span_export(Collector(url=f"{collector.url}/v1/traces", is_asked_for=True)) as export:
            assert export is not None
            export.put(a_span(5, name="create", parent=9, error="it broke"))
            export.put(a_span(9, name="activation", events=(event,)))
    create, activation = collector.spans
    (path, headers), *_ = collector.requests
    assert (path, headers["content-type"]) == ("/v1/traces", "application/x-protobuf")
    assert create.resource["service.name"] == "greenroom"
    assert create.resource["service.version"] == "0.1.0"
    assert create.attributes == {"actor": "a1", "generation": 3}
    assert create.span.trace_id == activation.span.trace_id == (0xABC).to_bytes(16)
    assert (create.span.span_id, create.span.parent_span_id) == ((5).to_bytes(8), (9).to_bytes(8))
    assert (activation.span.span_id, activation.span.parent_span_id) == ((9).to_bytes(8), b"")
    assert (create.span.start_time_unix_nano, create.span.end_time_unix_nano) == (1_000_000_000_000, 1_001_500_000_000)
    assert (create.span.status.code, create.span.status.message) == (2, "it broke")
    assert activation.span.status.code == 0
    assert activation.events == {"ContainerExited": {"container": "main", "exit_code": 7}}
    assert activation.span.events[0].time_unix_nano == 1_001_250_000_000


async def test_the_environment_names_the_service_and_has_the_headers(no_variables, monkeypatch):
    monkeypatch.setenv("OTEL_SERVICE_NAME", "my-pool")
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "k8s.pod.name=worker-0")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-key=open")
    with a_collector() as collector:
        assert OtlpSender(f"{collector.url}/v1/traces")([a_span()]) is None
    (span,), ((_, headers),) = collector.spans, collector.requests
    assert (span.resource["service.name"], span.resource["k8s.pod.name"]) == ("my-pool", "worker-0")
    assert headers["x-key"] == "open"


async def test_a_collector_that_refuses_is_told_in_its_words_and_nothing_reaches_stderr(no_variables, capfd):
    with a_collector() as collector:
        collector.status = 401
        why = OtlpSender(f"{collector.url}/v1/traces")([a_span()])
    assert why is not None
    assert "401" in why
    assert capfd.readouterr() == ("", "")
    assert not logging.getLogger("opentelemetry").propagate


async def test_nobody_at_the_address_is_told(no_variables, monkeypatch):
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "0.01")
    with a_collector() as collector:
        url = collector.url
    assert OtlpSender(f"{url}/v1/traces")([a_span()])


# ---- where they go


def test_a_collector_that_was_given_wins_over_the_environment_and_gets_the_path_of_traces():
    env = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://other:4318", "OTEL_SDK_DISABLED": "true"}
    for given in ("http://mine:4318", "http://mine:4318/"):
        assert collector_of(given, env) == Collector(url="http://mine:4318/v1/traces", is_asked_for=True)


@pytest.mark.parametrize(
    ("env", "url"),
    [
        ({}, None),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": ""}, None),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318/p"}, "http://c:4318/p/v1/traces"),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://t/x", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://c"}, "http://t/x"),
        ({"OTEL_SDK_DISABLED": "True", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://c"}, None),
        ({"OTEL_TRACES_EXPORTER": "none", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://c"}, None),
    ],
)
def test_the_variables_of_opentelemetry_say_where_to_and_whether(env, url):
    assert collector_of(None, env) == (None if url is None else Collector(url=url, is_asked_for=False))


async def test_without_a_collector_there_is_nothing():
    async with open_span_export(None) as export:
        assert export is None


@pytest.fixture
def no_extra(monkeypatch):
    def find_spec(name):
        raise ModuleNotFoundError(name)

    monkeypatch.setattr(otlp, "find_spec", find_spec)


async def test_without_the_extra_a_worker_that_was_told_to_export_does_not_start(no_extra):
    with pytest.raises(ProblemError) as caught:
        async with open_span_export(Collector(url="http://c/v1/traces", is_asked_for=True)):
            raise AssertionError
    problem = caught.value.problem
    assert problem.reason is Reason.TRACING_UNAVAILABLE
    assert "greenroom[otel]" in problem.hint


async def test_without_the_extra_a_worker_whose_environment_only_says_so_starts_and_tells(no_extra, logs):
    async with open_span_export(Collector(url="http://c/v1/traces", is_asked_for=False)) as export:
        assert export is None
    assert [(entry["event"], entry["reason"]) for entry in logs] == [("untraced", "TracingUnavailable")]


async def test_a_protocol_of_the_environment_that_is_not_spoken_is_told(logs):
    collector = Collector(url="http://c/v1/traces", is_asked_for=False)
    async with open_span_export(collector, {"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}) as export:
        assert export is None
    assert "grpc" in logs[0]["message"]
    async with open_span_export(collector, {"OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf"}) as export:
        assert export is not None
