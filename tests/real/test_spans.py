"""Spans of a real worker: what a life brings to a collector, and that one that hangs costs no actor anything."""

import json
import shutil

import pytest

from tests.host.collectors import a_collector
from tests.real.process import WorkerProcess
from tests.real.scenery import assignment, counting

pytestmark = pytest.mark.runsc
TRIES = 4


@pytest.fixture(params=["asyncio", "trio"])
def worker(request, tmp_path):
    worker = WorkerProcess(tmp_path, ("--backend", request.param))
    yield worker
    worker.give_up()


def entries(worker, event):
    lines = [json.loads(line) for line in worker.log.read_bytes().splitlines() if line.startswith(b"{")]
    return [line for line in lines if line["event"] == event]


def test_a_life_arrives_while_it_goes_on_and_its_end_before_the_worker_has_left(worker, rootfs):
    for number in range(TRIES):  # a busy machine may need more than the seconds that a worker gives its last spans
        with a_collector() as collector:
            worker.begin("--otlp-endpoint", collector.url, "--on-drain", "suspend")
            worker.start(assignment("a1", counting("main", rootfs)))
            collector.until(lambda it: {"assign", "create", "verify"} <= set(it.names))
            assert "activation" not in collector.names
            assert worker.end() == 0
            spans = {span.name: span for span in collector.spans}
        if len(entries(worker, "spans_lost")) == number:
            break
        shutil.rmtree(worker.state.root)
    else:
        pytest.fail("its last spans were always lost")
    activation = spans["activation"]
    assert spans.keys() == {"assign", "create", "verify", "suspend", "release", "activation"}
    assert {span.span.trace_id for span in spans.values()} == {activation.span.trace_id}
    assert {"actor": "a1", "generation": 1, "to": "Suspended"}.items() <= activation.attributes.items()
    assert activation.span.status.code == 0
    assert {"step": "create", "outcome": "done"}.items() <= spans["create"].attributes.items()


def test_the_variable_of_opentelemetry_is_enough(tmp_path, rootfs):
    with a_collector() as collector:
        worker = WorkerProcess(tmp_path, before=("env", f"OTEL_EXPORTER_OTLP_ENDPOINT={collector.url}"))
        try:
            worker.begin()
            worker.start(assignment("a1", counting("main", rootfs)))
            spans = collector.until(lambda it: "verify" in it.names)
        finally:
            worker.give_up()
    assert {span.resource["service.name"] for span in spans} == {"greenroom"}


def test_a_collector_that_does_not_answer_costs_spans_and_no_actor_anything(worker, rootfs):
    with a_collector() as collector:
        collector.may_answer.clear()
        worker.begin("--otlp-endpoint", collector.url)
        worker.start(assignment("a1", counting("main", rootfs)))
        worker.become("a1", "suspend", "Suspended")
        worker.become("a1", "resume", "Running")
        assert worker.end() == 0
    (lost,) = entries(worker, "spans_lost")
    assert (lost["reason"], lost["message"]) == ("TracingUnavailable", "they were not taken in time")
    assert (
        worker.log.read_bytes().splitlines()[-1].startswith(b'{"')
    )  # the last words are the worker's, not a library's
    assert entries(worker, "left") != []
