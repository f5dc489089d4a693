"""`/healthz`, `/readyz` and `/metrics` of the real command, asked as curl does, at every stage of its life."""

import json
import signal
import socket

import pytest
from prometheus_client.parser import text_string_to_metric_families

from supervisor.metrics.catalogue import METRICS, SEEN, Kind
from tests.real.process import WorkerProcess, wait_until
from tests.real.scenery import assignment, counting

pytestmark = pytest.mark.runsc

BOUND_S = 120.0


@pytest.fixture(params=["asyncio", "trio"])
def worker(request, tmp_path, rootfs, slow):
    worker = WorkerProcess(tmp_path, ("--runsc", str(slow.path), "--backend", request.param))
    yield worker
    worker.give_up()


def get(worker, path, *, port=None, headers=""):
    """The status, the head and the body of an answer."""
    with socket.socket(socket.AF_UNIX if port is None else socket.AF_INET) as sock:
        sock.settimeout(BOUND_S)
        sock.connect(str(worker.run_dir / "http.sock") if port is None else ("127.0.0.1", port))
        sock.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n{headers}Connection: close\r\n\r\n".encode())
        data = b""
        while chunk := sock.recv(65536):
            data += chunk
    head, _, body = data.partition(b"\r\n\r\n")
    return int(head.split()[1]), head.decode(), body


def answered(worker, path):
    """Whether it is so, and the reasons why not."""
    status, _, body = get(worker, path)
    told = json.loads(body)
    (word,) = set(told) - {"reasons"}
    assert told[word] is (status == 200)
    return told[word], [each["reason"] for each in told["reasons"]]


def port_of(worker):
    """The free port that it was given, as its log tells."""
    lines = map(json.loads, worker.log.read_bytes().rpartition(b"\n")[0].splitlines())
    return int(next(line["address"] for line in lines if line["event"] == "listening").rpartition(":")[2])


def samples(worker, **more):
    """Every sample of a scrape, by its name and the values of its labels."""
    status, _, body = get(worker, "/metrics", **more)
    assert status == 200
    families = list(text_string_to_metric_families(body.decode()))
    assert {f"{each.name}_total" if each.type == "counter" else each.name: each.type for each in families}.items() <= {
        each.name: str(each.kind) for each in METRICS
    }.items()
    return {(each.name, *each.labels.values()): each.value for family in families for each in family.samples}


def test_a_worker_is_seen_over_both_ways_and_counts_what_it_does(worker, rootfs):
    worker.begin("--http-listen", "127.0.0.1:0")
    port = port_of(worker)
    assert answered(worker, "/healthz") == (True, [])
    assert answered(worker, "/readyz") == (True, [])
    before = samples(worker)
    worker.start(assignment("a1", counting("c1", rootfs)))
    worker.become("a1", "suspend", "Suspended")
    named = {each.name for each in SEEN if each.kind is Kind.GAUGE}

    def seen():
        found = samples(worker, port=port)
        is_whole = named <= {name for name, *_ in found}  # what a busy disk tells too late is left out of a scrape
        return is_whole and found["greenroom_actor_states", "Suspended"] == 1 and found

    after = wait_until(seen)
    assert before["greenroom_actor_states", "Suspended"] == 0
    assert after["greenroom_transitions_total", "Running", "Suspending"] == 1
    assert after["greenroom_step_duration_seconds_count", "done", "suspend"] == 1
    assert after["greenroom_ready",] == 1
    assert after["process_resident_memory_bytes",] >= after["greenroom_proportional_memory_bytes",] > 1 << 20
    assert 0 < after["process_open_fds",] < after["process_max_fds",]
    assert after["greenroom_state_free_bytes",] > 0
    _, head, _ = get(worker, "/metrics", headers="Accept: application/openmetrics-text; version=1.0.0\r\n")
    assert "Content-Type: application/openmetrics-text; version=1.0.0" in head
    assert get(worker, "/", port=port)[0] == 404
    assert worker.end() == 0
    assert not (worker.run_dir / "http.sock").exists()


def test_while_it_drains_it_is_alive_and_not_ready_until_it_is_gone(worker, slow, rootfs):
    worker.begin()
    worker.start(assignment("a1", counting("c1", rootfs)))
    slow.hold("checkpoint")
    worker.ask("suspend", uid="a1")
    slow.await_arrival("checkpoint")
    # In the middle of a save it answers, and takes work.
    assert answered(worker, "/healthz") == (True, [])
    assert answered(worker, "/readyz") == (True, [])
    worker.running.send_signal(signal.SIGTERM)
    wait_until(lambda: answered(worker, "/readyz") == (False, ["WorkerDraining"]))
    assert answered(worker, "/healthz") == (True, [])
    wait_until(lambda: samples(worker)["greenroom_ready",] == 0)
    slow.let_go("checkpoint")
    assert worker.running.wait(timeout=BOUND_S) == 0
    worker.process = None
    assert worker.left() == []


def test_while_it_takes_over_what_an_earlier_life_left_it_is_alive_and_not_ready(worker, slow, rootfs):
    worker.begin()
    worker.start(assignment("a1", counting("c1", rootfs)))
    assert worker.end(signal.SIGKILL) == -signal.SIGKILL
    slow.hold("list")
    worker.begin_without_waiting()
    slow.await_arrival("list")
    assert answered(worker, "/healthz") == (True, [])
    assert answered(worker, "/readyz") == (False, ["WorkerStarting"])
    wait_until(lambda: samples(worker)["greenroom_ready",] == 0)
    slow.let_go("list")
    wait_until(lambda: answered(worker, "/readyz") == (True, []))
    assert worker.reach("a1", "Running")["state"] == "Running"
    assert worker.end() == 0
    assert worker.left() == []


def test_an_address_that_cannot_be_listened_at_ends_the_start_with_a_reason(worker):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        process = worker.begin_without_waiting("--http-listen", address)
        assert process.wait(timeout=BOUND_S) == 1
    worker.process = None
    last = worker.log.read_text().splitlines()[-1]
    assert last.startswith(f"error: AddressUnavailable: health and metrics cannot be served at {address}: ")
    assert list(worker.run_dir.iterdir()) == []
