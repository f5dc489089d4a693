"""The control socket, a real one: whatever a client sends or leaves, it costs that client's answer at most."""

import json
import socket
from contextlib import asynccontextmanager
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from statemachine.problem import Problem, ProblemError, Step
from statemachine.reasons import Reason
from statemachine.states import State
from supervisor import control
from supervisor.client import call
from supervisor.control import ControlServer
from supervisor.host.net import HostNet
from supervisor.peers import Peers

pytestmark = pytest.mark.anyio

BOUND_S = 60.0


class Served:
    """A server with some operations, and clients of all kinds."""

    def __init__(self, server, path, waiting, change):
        self.server, self.path, self.net, self.waiting, self.change = server, path, HostNet(), waiting, change

    async def connect(self):
        return (await self.net.connect_unix(self.path)).stream

    async def call(self, op, **arguments):
        return await call(self.net, self.path, op, **arguments)

    async def send(self, data):
        """Send bytes and return the first answer; None when the server closes instead."""
        async with await self.connect() as stream:
            await stream.send(data)
            return await answer(stream)


async def answer(stream):
    data = b""
    with anyio.fail_after(BOUND_S):
        while not data.endswith(b"\n"):
            try:
                data += await stream.receive()
            except (anyio.EndOfStream, anyio.BrokenResourceError):
                return None
    return json.loads(data)


def line(op="echo", **arguments):
    return json.dumps({"v": 1, "op": op, **arguments}).encode() + b"\n"


@asynccontextmanager
async def serving(tmp_path, *, abruptly=False):
    waiting, change = anyio.Event(), anyio.Event()

    async def wait_for_change(_request):
        await change.wait()

    async def echo(request):
        return request

    async def wait(_request):
        waiting.set()
        await anyio.sleep_forever()

    async def refuse(_request):
        one, two = (
            Problem(step=Step.ADMISSION, reason=reason, subject="x", message=str(reason))
            for reason in (Reason.WRONG_TYPE, Reason.INVALID_UID)
        )
        raise ProblemError(one, two)

    async def fail(_request):
        raise ZeroDivisionError("division by zero")

    async def unspeakable(_request):
        return {"name": "\udcff"}

    async def large(_request):
        return "x" * (8 << 20)

    async def words(request):
        number = control.number(request, "number", default=3.0, largest=10)
        return [control.text(request, "text"), number, control.word(request, "state", State)]

    async def path(request):
        return str(control.absolute_path(request, "base"))

    handlers: list[Any] = [echo, wait, wait_for_change, refuse, fail, unspeakable, large, words, path]
    operations = {each.__name__: each for each in handlers}
    at = tmp_path / "control.sock"
    async with control.open_control_socket(HostNet(), at, Peers()) as listener, anyio.create_task_group() as group:
        server = ControlServer(listener=listener, operations=operations)
        group.start_soon(server.run)
        with anyio.fail_after(3 * BOUND_S):
            served = Served(server, at, waiting, change)
            yield served
            if not abruptly:
                await nobody_is_left(served)
        group.cancel_scope.cancel()


async def nobody_is_left(served):
    with anyio.fail_after(BOUND_S):
        while served.server._clients:
            await anyio.sleep(0.002)


def reason_of(answered):
    assert answered["ok"] is False
    assert answered["error"] == answered["errors"][0]
    return answered["error"]["reason"]


async def test_a_request_gets_its_answer(tmp_path):
    async with serving(tmp_path) as served:
        assert await served.call("echo", text="ä") == {"v": 1, "op": "echo", "text": "ä"}


async def test_the_socket_is_ours_alone(tmp_path):
    async with serving(tmp_path) as served:
        assert served.path.stat().st_mode & 0o777 == 0o600


async def test_every_problem_of_a_refusal_arrives(tmp_path):
    async with serving(tmp_path) as served:
        with pytest.raises(ProblemError) as caught:
            await served.call("refuse")
        assert [problem.reason for problem in caught.value.problems] == [Reason.WRONG_TYPE, Reason.INVALID_UID]


INVALID = [
    b"\n", b"garbage\n", b"\x00\xff\xfe\n", b"[]\n", b"null\n", b"1\n", b'"echo"\n', b"{}\n", b'{"v":1}\n',
    b'{"op":"echo"}\n', b'{"v":2,"op":"echo"}\n', b'{"v":"1","op":"echo"}\n', b'{"v":1,"op":5}\n',
    b'{"v":1,"op":"nope"}\n', b'{"v":1,"op":""}\n', b'{"v":1,"op":"echo"\n', b'{"v":1,"op":"echo"}}\n',
    b'{"v":1,"op":"\\ud800"}\n', b"[" * 5000 + b"\n", b'{"v":1,"op":["echo"]}\n', b'{"v":true,"op":"echo"}\n',
]  # fmt: skip


@pytest.mark.parametrize("data", INVALID)
async def test_what_is_no_request_is_answered_with_its_reason_and_the_next_one_is_served(tmp_path, data, logs):
    async with serving(tmp_path) as served, await served.connect() as stream:
        await stream.send(data)
        assert reason_of(await answer(stream)) == "InvalidRequest"
        await stream.send(line())
        assert (await answer(stream))["ok"] is True
    assert logs == []  # a client's mistake is no event of the worker


@pytest.mark.parametrize(
    "arguments",
    [
        {}, {"text": 5}, {"text": None}, {"text": "x", "state": "Walking"}, {"text": "x", "state": 3},
        {"text": "x", "state": "Running", "number": "3"}, {"text": "x", "state": "Running", "number": True},
        {"text": "x", "state": "Running", "number": -1}, {"text": "x", "state": "Running", "number": 11},
        {"text": "x", "state": "Running", "number": None}, {"text": "x", "state": "Running", "number": [1]},
    ],
)  # fmt: skip
async def test_an_argument_that_is_missing_or_wrong_is_named(tmp_path, arguments):
    async with serving(tmp_path) as served:
        with pytest.raises(ProblemError) as caught:
            await served.call("words", **arguments)
        assert caught.value.problem.reason is Reason.INVALID_REQUEST
        assert await served.call("words", text="x", state="Running") == ["x", 3.0, "Running"]


async def test_a_line_that_is_too_long_is_refused_with_a_reason(tmp_path, monkeypatch):
    monkeypatch.setattr(control, "LINE_LIMIT_BYTES", 100_000)
    async with serving(tmp_path) as served:
        assert reason_of(await served.send(b"x" * 200_000)) == "InvalidRequest"
        await nobody_is_left(served)


async def test_a_whole_document_of_the_most_awkward_bytes_fits_in_a_line(tmp_path):
    async with serving(tmp_path) as served:
        document = "\x00" * (1 << 20)
        assert (await served.call("echo", document=document))["document"] == document


async def test_a_client_that_sends_no_more_has_said_its_last_line_even_without_its_end(tmp_path):
    async with serving(tmp_path) as served:
        for data, reason in ((line()[:-1], None), (line() + line()[:-1], None), (b'{"v":1,', "InvalidRequest")):
            async with await served.connect() as stream:
                await stream.send(data)
                await stream.send_eof()
                got = b""
                while got.count(b"\n") <= data.count(b"\n"):
                    got += await stream.receive()
                *_, last = got.splitlines()
                assert json.loads(last).get("error", {}).get("reason") == reason


@pytest.mark.parametrize(
    ("data", "subject"),
    [
        (b'{"v":1,"op":"echo","uid":"a","uid":"b"}\n', "$.uid"),
        (b'{"v":1,"op":"echo","\\u006fp":"wait"}\n', "$.op"),
        (b'{"v":1,"op":"echo","deep":[{"a":1,"a":1}]}\n', "$.deep[0].a"),
    ],
)
async def test_a_key_that_stands_twice_in_a_request_is_refused_as_in_a_document(tmp_path, data, subject):
    async with serving(tmp_path) as served:
        answered = await served.send(data)
        assert (reason_of(answered), answered["error"]["subject"]) == ("DuplicateKey", subject)


@pytest.mark.parametrize("character", ["x", "\x00", "\x1b", "\U000e0001"])
async def test_an_answer_repeats_little_of_what_was_sent_however_much_that_is(tmp_path, character):
    async with serving(tmp_path) as served:
        much = character * (500_000)
        for request in (line(much), line("words", text="x", state=much), line("path", base=much)):
            answered = await served.send(request)
            assert reason_of(answered) == "InvalidRequest"
            assert len(json.dumps(answered)) < 10_000
            assert answered["error"]["message"].isprintable()


async def test_half_a_line_and_gone_is_forgotten(tmp_path):
    async with serving(tmp_path) as served:
        for data in (b"", b'{"v":1,', b"\xff"):
            async with await served.connect() as stream:
                await stream.send(data)
        await nobody_is_left(served)
        assert (await served.call("echo"))["v"] == 1


async def test_a_client_that_sends_and_then_closes_its_side_still_gets_its_answer(tmp_path):
    async with serving(tmp_path) as served, await served.connect() as stream:
        await stream.send(line())
        await stream.send_eof()
        assert (await answer(stream))["ok"] is True


async def test_a_line_that_does_not_end_costs_its_client_only(tmp_path, monkeypatch):
    monkeypatch.setattr(control, "LINE_TIMEOUT_S", 0.05)
    async with serving(tmp_path) as served:
        assert await served.send(b'{"v":1') is None
        await nobody_is_left(served)


async def test_requests_may_come_piece_by_piece_many_on_one_connection_and_all_at_once(tmp_path):
    async with serving(tmp_path) as served, await served.connect() as stream:
        for number in range(200):
            await stream.send(line(number=number))
            assert (await answer(stream))["result"]["number"] == number
        for byte in line(number=1):
            await stream.send(bytes([byte]))
        assert (await answer(stream))["ok"] is True
        await stream.send(b"".join(line(number=number) for number in range(100)))
        got = b""
        while got.count(b"\n") < 100:
            got += await stream.receive()
        assert [json.loads(each)["result"]["number"] for each in got.splitlines()] == list(range(100))


@pytest.mark.parametrize("op", ["fail", "unspeakable"])
async def test_a_fault_of_ours_is_one_answer_and_one_entry_in_the_log(tmp_path, op, logs):
    async with serving(tmp_path) as served:
        with pytest.raises(ProblemError) as caught:
            await served.call(op)
        assert caught.value.problem.reason is Reason.INTERNAL
        assert (await served.call("echo"))["v"] == 1
    assert [(entry["event"], entry["log_level"]) for entry in logs] == [("fault", "error")]


async def test_a_client_that_never_reads_its_answer_is_closed(tmp_path, monkeypatch):
    monkeypatch.setattr(control, "ANSWER_TIMEOUT_S", 0.1)
    async with serving(tmp_path) as served, await served.connect() as stream:
        await stream.send(line("large"))
        with anyio.fail_after(BOUND_S):
            while not served.server._number:  # it may have gone already
                await anyio.sleep(0.002)
        await nobody_is_left(served)
        assert await answer(stream) is None


async def test_a_client_that_goes_away_in_the_middle_of_its_answer_is_forgotten(tmp_path):
    async with serving(tmp_path) as served:
        for _ in range(5):
            stream = await served.connect()
            await stream.send(line("large") * 3)
            await stream.receive(1)
            await stream.aclose()
        await nobody_is_left(served)
        assert (await served.call("echo"))["v"] == 1


def idle_clients(path, count):
    """Plain sockets, which cost this process little."""
    clients = []
    for _ in range(count):
        client = socket.socket(socket.AF_UNIX)
        client.settimeout(BOUND_S)
        client.connect(str(path))
        clients.append(client)
    return clients


async def test_a_thousand_idle_connections_lock_nobody_out_and_leak_nothing(tmp_path):
    async with serving(tmp_path) as served:
        clients = []
        try:
            for _ in range(20):
                clients += idle_clients(served.path, 50)
                await anyio.lowlevel.checkpoint()
            began_s = anyio.current_time()
            for number in range(5):
                assert (await served.call("echo", number=number))["number"] == number
            assert anyio.current_time() - began_s < BOUND_S
            assert len(served.server._clients) <= control.CONNECTIONS_MAX
        finally:
            for client in clients:
                client.close()
        await nobody_is_left(served)


async def test_who_has_been_silent_longest_goes_first_and_not_who_came_first(tmp_path, monkeypatch):
    monkeypatch.setattr(control, "CONNECTIONS_MAX", 3)
    async with serving(tmp_path) as served:
        first, second, third = [await served.connect() for _ in range(3)]
        async with first, second, third:
            for stream in (second, third, first):  # the first to come is the last to speak
                await stream.send(line())
                await answer(stream)
            await served.call("echo")
            assert await answer(second) is None
            for stream in (third, first):
                await stream.send(line())
                assert (await answer(stream))["ok"] is True


async def test_when_all_wait_for_their_answers_a_new_client_is_turned_away(tmp_path, monkeypatch):
    monkeypatch.setattr(control, "CONNECTIONS_MAX", 2)
    async with serving(tmp_path, abruptly=True) as served, await served.connect() as one, await served.connect() as two:
        for stream in (one, two):
            await stream.send(line("wait"))
        await served.waiting.wait()
        with anyio.fail_after(BOUND_S):
            while sum(client.working for client in served.server._clients.values()) < 2:
                await anyio.sleep(0.002)
        with pytest.raises(ProblemError) as caught:
            await served.call("echo")
        assert caught.value.problem.reason is Reason.WORKER_UNREACHABLE


async def test_clients_that_went_away_before_their_answers_lock_nobody_out(tmp_path, monkeypatch):
    monkeypatch.setattr(control, "CONNECTIONS_MAX", 3)
    async with serving(tmp_path, abruptly=True) as served, await served.connect() as patient:
        await patient.send(line("wait"))
        await patient.send_eof()  # it sends no more, and waits
        for _ in range(8):
            async with await served.connect() as stream:
                await stream.send(line("wait"))
                with anyio.fail_after(BOUND_S):
                    while not all(client.working for client in served.server._clients.values()):
                        await anyio.sleep(0.002)
        assert (await served.call("echo"))["v"] == 1
        assert 1 in served.server._clients


async def test_a_thousand_clients_that_died_waiting_cost_no_more_than_the_bound_and_nothing_once_it_changes(tmp_path):
    async with serving(tmp_path) as served:
        clients = served.server._clients
        for _ in range(1000):
            (client,) = idle_clients(served.path, 1)
            client.sendall(line("wait_for_change"))
            newest = served.server._number
            with anyio.fail_after(BOUND_S):
                while served.server._number == newest or not clients[served.server._number].working:
                    await anyio.lowlevel.checkpoint()
            client.close()
        assert 0 < len(clients) <= control.CONNECTIONS_MAX
        assert (await served.call("echo"))["v"] == 1
        served.change.set()
        await nobody_is_left(served)


async def test_a_shutdown_closes_every_connection(tmp_path):
    async with anyio.create_task_group() as group:
        async with serving(tmp_path, abruptly=True) as served:
            idle, waiting = await served.connect(), await served.connect()
            await waiting.send(line("wait"))
            await served.waiting.wait()
            half = await served.connect()
            await half.send(b'{"v"')
        assert not served.path.exists()
        for stream in (idle, waiting, half):
            assert await answer(stream) is None
            await stream.aclose()
        group.cancel_scope.cancel()
