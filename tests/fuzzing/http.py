"""Fuzz target for health and metrics: any bytes, in any pieces, to a real HTTP server over a simulated socket."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

import anyio
import structlog
import trio
import trio.testing

from supervisor.http_server import Answer, HttpServer
from tests.fuzzing.promises import Target, hold
from tests.fuzzing.talking import BETWEEN, net_below, said

if TYPE_CHECKING:
    from collections.abc import Iterable

_PATH: Final = Path("/run/greenroom/http.sock")
_GOOD: Final = b"GET /page HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
_BODY: Final = b"all of the page"


async def _page(_accept: str) -> Answer:
    return Answer(_BODY)


def check_http(data: bytes) -> None:
    """Whatever comes is answered with a status or closed, nothing of it is repeated, and another client is served."""
    with structlog.testing.capture_logs() as logs:
        trio.run(_talk, data, clock=trio.testing.MockClock(autojump_threshold=0))
    hold(not logs, "nothing that a client sends is a fault of ours")


async def _talk(data: bytes) -> None:
    net = net_below(_PATH.parent)
    server = HttpServer({"/page": _page}, now_s=lambda: 0.0)
    async with net.listen_unix(_PATH) as door, anyio.create_task_group() as group:
        group.start_soon(server.serve, door)
        answer = await said(await net.connect_unix(_PATH), data)
        hold(not answer or answer.startswith(b"HTTP/1.1 "), "what comes back is HTTP")
        good = await said(await net.connect_unix(_PATH), _GOOD)
        hold(good.startswith(b"HTTP/1.1 200 ") and good.endswith(_BODY), "another client is served")
        with anyio.move_on_after(60):
            while server.connections:
                await anyio.sleep(0.1)
        hold(not server.connections, "who has gone is forgotten")
        group.cancel_scope.cancel()


def _seeds() -> Iterable[tuple[str, bytes]]:
    yield "good", _GOOD
    yield "pieces", _GOOD.replace(b"\r\n", b"\r\n" + BETWEEN)
    yield "two", _GOOD.replace(b"Connection: close\r\n", b"") * 2
    yield "head", b"HEAD http://x/page?a=b HTTP/1.0\r\nAccept: text/plain\r\n\r\n"
    yield "body", b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"
    yield "odd", b"GET /\x00 HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\nhello"


HTTP: Final = Target(
    name="http",
    check=check_http,
    seeds=_seeds,
    words=(
        "GET ", "HEAD ", "POST ", "CONNECT ", " HTTP/1.1\r\n", " HTTP/1.0\r\n", "Host: x\r\n", "Content-Length: ",
        "Transfer-Encoding: chunked\r\n", "Connection: close\r\n", "Connection: upgrade\r\n", "Upgrade: h2c\r\n",
        "Expect: 100-continue\r\n", "\r\n\r\n", "\n", "http://", "/page", "?", "PRI * HTTP/2.0\r\n",
    ),
    input_bytes_max=10_000,
)  # fmt: skip
