"""`/healthz`, `/readyz` and `/metrics` over real sockets, and what stands in their way."""

import json
import math
import stat

import anyio
import pytest

from actors.ports import TcpAddress
from statemachine.problem import ProblemError
from statemachine.reasons import Reason
from supervisor import http_pages
from supervisor.health import INTAKE, Health
from supervisor.host.net import HostNet
from supervisor.http_pages import serving_pages
from supervisor.metrics.exposing import Metrics
from supervisor.settings import Settings
from supervisor.shutdown import Shutdown
from tests.fakes.ports import FakePorts
from tests.supervisor.lives import BOUND_S
from tests.supervisor.stands import DRAIN_S, STATE, a_stand

pytestmark = pytest.mark.anyio

HERE = TcpAddress("127.0.0.1", 0)


@pytest.fixture(autouse=True)
def fresh(monkeypatch):
    """Every text of the metrics is made anew, unless a test says otherwise."""
    monkeypatch.setattr(http_pages, "FRESH_S", 0.0)


class Bench:
    """What pages are served of, and where."""

    def __init__(self, run_dir, address=None):
        self.ports = FakePorts()
        self.ports.net = HostNet()
        self.settings = Settings(
            state_dir=STATE.root, run_dir=run_dir, assignments=None, runsc=run_dir / "runsc", http_listen=address
        )
        self.shutdown = Shutdown(DRAIN_S)
        self.health = Health(self.shutdown)
        self.metrics = Metrics(self.ports.as_ports, STATE, self.health)

    def serving(self):
        return serving_pages(self.ports.as_ports, self.settings, self.health, self.metrics)

    async def get(self, path, *, port=None):
        """The status and the body of an answer."""
        with anyio.fail_after(BOUND_S):
            if port is None:
                stream = (await self.ports.net.connect_unix(self.settings.http_socket)).stream
            else:
                stream = await anyio.connect_tcp("127.0.0.1", port)
            async with stream:
                await stream.send(f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
                data = b""
                while True:
                    try:
                        data += await stream.receive()
                    except anyio.EndOfStream:
                        break
        head, _, body = data.partition(b"\r\n\r\n")
        return int(head.split()[1]), body


async def test_before_anything_is_taken_over_it_is_alive_and_not_ready_and_measured(tmp_path):
    bench = Bench(tmp_path)
    async with bench.serving():
        status, body = await bench.get("/healthz")
        assert (status, json.loads(body)) == (200, {"alive": True, "reasons": []})
        status, body = await bench.get("/readyz")
        assert status == 503
        answered = json.loads(body)
        assert answered["ready"] is False
        assert [each["reason"] for each in answered["reasons"]] == ["WorkerStarting"]
        assert set(answered["reasons"][0]) == {"reason", "subject", "message", "hint"}
        status, body = await bench.get("/metrics")
        assert status == 200
        assert b"\ngreenroom_ready 0.0\n" in body
        assert b"\ngreenroom_http_connections 1.0\n" in body
        assert (await bench.get("/"))[0] == 404


async def test_a_worker_that_takes_work_is_ready_until_it_is_asked_to_end(tmp_path):
    bench = Bench(tmp_path)
    async with bench.serving(), a_stand(bench.ports) as stand:
        bench.health.worker = stand.worker
        with bench.health.taking_work():
            status, body = await bench.get("/readyz")
            assert (status, json.loads(body)) == (200, {"ready": True, "reasons": []})
            assert b"\ngreenroom_ready 1.0\n" in (await bench.get("/metrics"))[1]
            bench.shutdown.ask()
            status, body = await bench.get("/readyz")
            assert status == 503
            assert [each["reason"] for each in json.loads(body)["reasons"]] == ["WorkerDraining"]
            assert (await bench.get("/healthz"))[0] == 200


async def test_a_part_that_is_gone_is_told_with_its_reason(tmp_path):
    bench = Bench(tmp_path)
    async with bench.serving():
        await bench.health.run(INTAKE, anyio.lowlevel.checkpoint)
        status, body = await bench.get("/healthz")
    assert status == 503
    answered = json.loads(body)
    assert answered["alive"] is False
    assert [(each["reason"], each["subject"]) for each in answered["reasons"]] == [("Internal", "intake")]


async def test_the_socket_is_ours_alone_and_gone_afterwards(tmp_path):
    bench = Bench(tmp_path)
    async with bench.serving():
        assert stat.S_IMODE((tmp_path / "http.sock").stat().st_mode) == 0o600
    assert list(tmp_path.iterdir()) == []


async def test_an_address_is_served_as_well_and_the_log_says_which_port_it_was(tmp_path, logs):
    bench = Bench(tmp_path, HERE)
    async with bench.serving():
        entry = next(entry for entry in logs if entry["event"] == "listening")
        host, _, port = entry["address"].rpartition(":")
        assert host == "127.0.0.1"
        assert (await bench.get("/healthz", port=int(port)))[0] == 200
        assert (await bench.get("/healthz"))[0] == 200


async def test_an_address_that_is_taken_is_a_reason_and_leaves_no_socket(tmp_path):
    async with HostNet().listen_tcp(HERE) as taken:
        bench = Bench(tmp_path, taken.address)
        with pytest.raises(ProblemError) as caught:
            async with bench.serving():
                pass
    problem = caught.value.problem
    assert problem.reason is Reason.ADDRESS_UNAVAILABLE
    assert problem.subject == str(taken.address)
    assert list(tmp_path.iterdir()) == []


async def test_a_socket_that_somebody_listens_at_is_a_reason(tmp_path):
    async with HostNet().listen_unix(tmp_path / "http.sock"):
        with pytest.raises(ProblemError) as caught:
            async with Bench(tmp_path).serving():
                pass
    assert caught.value.problem.reason is Reason.STATE_DIR_IN_USE


async def test_a_door_that_fails_ends_nothing_else(tmp_path, logs, monkeypatch):
    bench = Bench(tmp_path, HERE)

    async def fails(_listener):
        raise OSError(5, "Input/output error")

    monkeypatch.setattr("supervisor.host.net.HostTcpListener.accept", fails)
    async with bench.serving():
        await anyio.wait_all_tasks_blocked()
        assert (await bench.get("/healthz"))[0] == 200
    assert [entry["event"] for entry in logs if entry["log_level"] == "error"] == ["not_listening"]


async def test_who_asks_for_the_metrics_again_and_again_gets_the_same_text_for_a_while(tmp_path, monkeypatch):
    bench, made = Bench(tmp_path), []
    text = bench.metrics.text

    async def counted(accept):
        made.append(accept)
        return await text(accept)

    monkeypatch.setattr(bench.metrics, "text", counted)
    monkeypatch.setattr(http_pages, "FRESH_S", math.inf)
    async with bench.serving():
        async with anyio.create_task_group() as group:
            for _ in range(5):
                group.start_soon(bench.get, "/metrics")
        assert len(made) == 1
        monkeypatch.setattr(http_pages, "FRESH_S", 0.0)
        await bench.get("/metrics")
        assert len(made) == 2


async def test_a_fault_of_a_page_is_told_as_one_and_costs_nothing_else(tmp_path, monkeypatch, logs):
    bench = Bench(tmp_path)
    monkeypatch.setattr(bench.health, "obstacles", lambda: 1 / 0)
    async with bench.serving():
        assert (await bench.get("/readyz"))[0] == 500
        assert (await bench.get("/healthz"))[0] == 200
    assert [entry["event"] for entry in logs] == ["fault"]
