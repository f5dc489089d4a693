"""The HTTP server on real sockets: whatever a client sends or leaves, it costs that client's connection at most."""

from contextlib import asynccontextmanager, suppress

import anyio
import pytest

from actors.ports import TcpAddress
from supervisor import http_server
from supervisor.host.net import HostNet
from supervisor.http_server import Answer, HttpServer
from tests.host.waiting import eventually

pytestmark = pytest.mark.anyio

BOUND_S = 60.0


class Served:
    """A server with some pages, at a unix socket and at a port."""

    def __init__(self, server, net, path, accepts):
        self.server, self.net, self.path, self.accepts, self.connected = server, net, path, accepts, 0

    async def connect(self):
        stream = (await self.net.connect_unix(self.path)).stream
        self.connected += 1
        return stream

    async def exchange(self, data):
        """Send bytes, and return all that comes until the server closes."""
        async with await self.connect() as stream:
            await stream.send(data)
            return await rest(stream)

    async def nobody_is_left(self):
        """Wait until everybody who has connected was taken on, and has gone."""
        await eventually(
            lambda: self.server._number >= self.connected and not self.server.connections, within_s=BOUND_S
        )


async def rest(stream):
    data = b""
    with anyio.fail_after(BOUND_S):
        while True:
            try:
                data += await stream.receive()
            except (anyio.EndOfStream, anyio.BrokenResourceError):
                return data


async def one_answer(stream):
    """One whole answer: its head, and as much body as it says."""
    data = b""
    with anyio.fail_after(BOUND_S):
        while b"\r\n\r\n" not in data:
            data += await stream.receive()
        head, _, body = data.partition(b"\r\n\r\n")
        length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
        while len(body) < length:
            body += await stream.receive()
    return head, body


def get(path="/text", *, method="GET", headers=""):
    return f"{method} {path} HTTP/1.1\r\nHost: x\r\n{headers}\r\n".encode()


LAST = "Connection: close\r\n"


@asynccontextmanager
async def serving(tmp_path, now_s=lambda: 1_000_000_000.0):
    accepts = []

    async def text(accept):
        accepts.append(accept)
        return Answer(b"hello\n")

    async def fails(_accept):
        raise ZeroDivisionError

    async def large(_accept):
        return Answer(b"x" * (4 << 20))

    net, path = HostNet(), tmp_path / "http.sock"
    server = HttpServer({"/text": text, "/fails": fails, "/large": large}, now_s=now_s)
    async with net.listen_unix(path) as listener, anyio.create_task_group() as group:
        group.start_soon(server.serve, listener)
        with anyio.fail_after(2 * BOUND_S):
            served = Served(server, net, path, accepts)
            yield served
            await served.nobody_is_left()
        group.cancel_scope.cancel()


async def test_a_page_is_got(tmp_path):
    async with serving(tmp_path) as served:
        head, _, body = (await served.exchange(get(headers=LAST))).partition(b"\r\n\r\n")
    assert body == b"hello\n"
    assert head.split(b"\r\n") == [
        b"HTTP/1.1 200 OK",
        b"Date: Sun, 09 Sep 2001 01:46:40 GMT",
        b"Content-Type: text/plain; charset=utf-8",
        b"Content-Length: 6",
        b"Cache-Control: no-store",
        b"X-Content-Type-Options: nosniff",
        b"Connection: close",
    ]


async def test_head_tells_what_get_would_and_has_no_body(tmp_path):
    async with serving(tmp_path) as served:
        got = await served.exchange(get(headers=LAST))
        head = await served.exchange(get(method="HEAD", headers=LAST))
    assert head == got.removesuffix(b"hello\n")


@pytest.mark.parametrize("target", ["/text?a=b&c", "http://other.example/text", "http://x/text?y"])
async def test_a_path_is_what_stands_before_the_question_mark_and_behind_the_host(tmp_path, target):
    async with serving(tmp_path) as served:
        assert (await served.exchange(get(target, headers=LAST))).startswith(b"HTTP/1.1 200 ")


REFUSED = {
    "another path": (get("/other", headers=LAST), 404),
    "a host without a path": (get("http://x", headers=LAST), 404),
    "a path that only begins so": (get("/text/", headers=LAST), 404),
    "dots": (get("/../text", headers=LAST), 404),
    "not a path": (get("*", headers=LAST), 404),
    "another method": (get(method="DELETE", headers=LAST), 405),
    "a method in small letters": (get(method="get", headers=LAST), 405),
    "a body": (get(method="POST", headers="Content-Length: 5\r\n") + b"12345", 405),
    "garbage": (b"\x00\xff\xfe\r\n\r\n", 400),
    "another protocol": (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(500), 400),
    "no host": (b"GET /text HTTP/1.1\r\n\r\n", 400),
    "two lengths": (get(headers="Content-Length: 1\r\nContent-Length: 2\r\n"), 400),
    "a chunk that is none": (get(headers="Transfer-Encoding: chunked\r\n") + b"zzz\r\n", 400),
    "a field that is none": (get(headers="a field\r\n"), 400),
    "a head that does not end": (b"GET /text HTTP/1.1\r\n" + b"a: b\r\n" * 5000, 431),
    "a very long path": (b"GET /" + b"a" * 70_000, 431),
    "a fault of ours": (get("/fails", headers=LAST), 500),
}


@pytest.mark.parametrize("what", REFUSED)
async def test_what_is_not_served_is_answered_with_its_status_and_closed(tmp_path, what, logs):
    data, status = REFUSED[what]
    async with serving(tmp_path) as served:
        got = await served.exchange(data)
        assert got.startswith(b"HTTP/1.1 %d " % status)
        assert b"\r\nConnection: close\r\n" in got
        assert (await served.exchange(get(headers=LAST))).startswith(b"HTTP/1.1 200 ")
    assert (b"\r\nAllow: GET, HEAD\r\n" in got) == (status == 405)
    assert [entry["event"] for entry in logs] == (["fault"] if status == 500 else [])


async def test_nothing_of_a_request_stands_in_an_answer(tmp_path):
    mark = "MARK<script>"
    marked = [
        get(f"/{mark}", headers=LAST),
        get(f"http://{mark}/{mark}", headers=LAST),
        get(method="MARK", headers=LAST),
        get(headers=f"{LAST}Accept: {mark}\r\nUser-Agent: {mark}\r\nX-{mark}: 1\r\n"),
        get(headers=f"{LAST}Accept: application/openmetrics-text; version={mark}\r\n"),
        f"{mark}\r\n\r\n".encode(),
    ]
    async with serving(tmp_path) as served:
        for data in marked:
            assert b"MARK" not in await served.exchange(data)


async def test_a_body_is_answered_before_it_is_read_and_who_still_sends_it_gets_the_answer(tmp_path):
    async with serving(tmp_path) as served:
        got = await served.exchange(get(headers="Content-Length: 60000\r\n") + b"x" * 60_000)
    assert got.startswith(b"HTTP/1.1 200 ")
    assert b"\r\nConnection: close\r\n" in got


async def test_a_connection_is_kept_and_requests_may_come_all_at_once_or_byte_by_byte(tmp_path):
    async with serving(tmp_path) as served, await served.connect() as stream:
        for _ in range(20):
            await stream.send(get())
            head, body = await one_answer(stream)
            assert body == b"hello\n"
            assert b"connection: close" not in head.lower()
        for byte in get():
            await stream.send(bytes([byte]))
        assert (await one_answer(stream))[1] == b"hello\n"
        await stream.send(get() * 10 + get(headers=LAST))
        assert (await rest(stream)).count(b"HTTP/1.1 200 OK") == 11


async def test_http_1_0_is_answered_and_closed(tmp_path):
    async with serving(tmp_path) as served:
        got = await served.exchange(b"GET /text HTTP/1.0\r\n\r\n")
    assert got.endswith(b"\r\n\r\nhello\n")


async def test_after_so_many_requests_a_connection_is_closed(tmp_path, monkeypatch):
    monkeypatch.setattr(http_server, "REQUESTS_MAX", 3)
    async with serving(tmp_path) as served:
        got = await served.exchange(get() * 5)
    assert got.count(b"HTTP/1.1 200 OK") == 3
    assert got.count(b"Connection: close") == 1


@pytest.mark.parametrize("data", [b"", b"GET ", b"GET /text HTTP/1.1\r\nHost: x\r\n"])
async def test_who_goes_in_the_middle_is_forgotten(tmp_path, data):
    async with serving(tmp_path) as served:
        async with await served.connect() as stream:
            await stream.send(data)
        await served.nobody_is_left()
        assert served.server.connections == 0


@pytest.mark.parametrize(("limit", "data"), [("HEAD_TIMEOUT_S", b"GET /text"), ("IDLE_TIMEOUT_S", b"")])
async def test_who_takes_too_long_is_closed(tmp_path, monkeypatch, limit, data):
    monkeypatch.setattr(http_server, limit, 0.05)
    async with serving(tmp_path) as served, await served.connect() as stream:
        if data:
            await stream.send(data)
        assert await rest(stream) == b""
        await served.nobody_is_left()


async def test_who_asks_nothing_more_is_closed(tmp_path, monkeypatch):
    async with serving(tmp_path) as served, await served.connect() as stream:
        await stream.send(get())
        await one_answer(stream)
        monkeypatch.setattr(http_server, "IDLE_TIMEOUT_S", 0.05)  # from its next request on, at the latest
        with suppress(anyio.BrokenResourceError):
            await stream.send(get())
        with suppress(anyio.BrokenResourceError):
            await rest(stream)
        await served.nobody_is_left()
        assert served.server.connections == 0


async def test_who_does_not_take_his_answer_is_closed(tmp_path, monkeypatch):
    monkeypatch.setattr(http_server, "ANSWER_TIMEOUT_S", 0.05)
    async with serving(tmp_path) as served, await served.connect() as stream:
        await stream.send(get("/large"))
        await served.nobody_is_left()
        assert len(await rest(stream)) < 4 << 20


async def test_of_too_many_connections_the_one_that_was_silent_longest_is_closed(tmp_path, monkeypatch):
    monkeypatch.setattr(http_server, "CONNECTIONS_MAX", 3)
    async with serving(tmp_path) as served:
        streams = [await served.connect() for _ in range(3)]
        for stream in streams:
            await stream.send(get())
            await one_answer(stream)
        await streams[0].send(get())  # so that the second is the one
        await one_answer(streams[0])
        fourth = await served.connect()
        await fourth.send(get())
        assert (await one_answer(fourth))[1] == b"hello\n"
        assert await rest(streams[1]) == b""
        for stream in (streams[0], streams[2], fourth):
            await stream.send(get(headers=LAST))
            assert (await rest(stream)).endswith(b"hello\n")
        for stream in (*streams, fourth):
            await stream.aclose()


async def test_a_page_hears_what_the_client_accepts(tmp_path):
    async with serving(tmp_path) as served:
        await served.exchange(get(headers=f"{LAST}Accept: text/plain\r\nAccept: b;q=0.5\r\n"))
        await served.exchange(get(headers=LAST))
    assert served.accepts == ["text/plain,b;q=0.5", ""]


async def test_the_same_pages_stand_at_a_port(tmp_path):
    async with (
        serving(tmp_path) as served,
        served.net.listen_tcp(TcpAddress("127.0.0.1", 0)) as listener,
        anyio.create_task_group() as group,
    ):
        group.start_soon(served.server.serve, listener)
        async with await anyio.connect_tcp("127.0.0.1", listener.address.port) as stream:
            await stream.send(get(headers=LAST))
            assert (await rest(stream)).endswith(b"\r\n\r\nhello\n")
        await served.nobody_is_left()
        group.cancel_scope.cancel()


async def test_a_page_has_a_time_of_its_own_whatever_the_head_has_left_of_its_time(tmp_path, monkeypatch):
    """Otherwise a page that takes longer than that is cut off without a word."""
    monkeypatch.setattr(http_server, "ANSWER_TIMEOUT_S", 1000 * BOUND_S)
    left_s = []

    async def page(_accept):
        left_s.append(anyio.current_effective_deadline() - anyio.current_time())
        return Answer(b"at last\n")

    net, path = HostNet(), tmp_path / "http.sock"
    server = HttpServer({"/slow": page}, now_s=lambda: 0.0)
    async with net.listen_unix(path) as listener, anyio.create_task_group() as group:
        group.start_soon(server.serve, listener)
        async with (await net.connect_unix(path)).stream as stream:
            await stream.send(get("/slow", headers=LAST))
            assert (await rest(stream)).endswith(b"at last\n")
        group.cancel_scope.cancel()
    assert left_s[0] > 100 * BOUND_S
