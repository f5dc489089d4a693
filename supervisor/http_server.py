"""HTTP/1.1 for probes and scrapers: GET and HEAD of a few pages, and nothing else.

Whatever comes is answered from fixed texts: nothing of a request stands in an answer. Every connection has bounds, as
those of the control socket: the length of a head, the time until it is whole, the requests, the time between them, the
time to take an answer, and how many connections there are; beyond that the one that has been silent longest is closed.
Without a connection there is no timer.

h11 says what the bytes mean. It is imported with the first client: a start would wait for it.

Source: RFC 9110, RFC 9112.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from http import HTTPStatus
from typing import TYPE_CHECKING, Final, Protocol

import anyio
import attrs
import structlog

from statemachine.reasons import Reason

if TYPE_CHECKING:
    import h11
    from anyio.abc import ByteStream

    from actors.ports import Channel

HEAD_LIMIT_BYTES: Final = 8 << 10
HEAD_TIMEOUT_S: Final = 10.0
"""From the first byte of a head to its end."""
ANSWER_TIMEOUT_S: Final = 10.0
"""So long an answer may take to be made, and then a client to take it, or it is closed."""
IDLE_TIMEOUT_S: Final = 75.0
"""Between two requests: who scrapes every minute keeps its connection."""
REQUESTS_MAX: Final = 1000
"""On one connection, which is closed after so many: a load balancer's pool does not stay with an old pod for ever."""
CONNECTIONS_MAX: Final = 64
CLOSE_TIMEOUT_S: Final = 1.0
CHUNK_BYTES: Final = HEAD_LIMIT_BYTES
LINGER_CHUNKS_MAX: Final = 16
TEXT: Final = "text/plain; charset=utf-8"
_METHODS: Final = (b"GET", b"HEAD")

_log = structlog.get_logger("greenroom.http")


@attrs.frozen
class Answer:
    """What a page says.

    Attributes:
        body: all of it.
        content_type: what it is.
        status: of HTTP.
    """

    body: bytes
    content_type: str = TEXT
    status: HTTPStatus = HTTPStatus.OK


Page = Callable[[str], Awaitable[Answer]]
"""Makes an answer; its argument is what the client accepts (RFC 9110, 12.5.1), empty when it does not say."""


class Door(Protocol):
    """Where clients come in: a listener of either kind."""

    async def accept(self) -> Channel:
        """The next connection."""
        ...


def _parser() -> h11.Connection:
    import h11  # noqa: PLC0415 - see above

    return h11.Connection(h11.SERVER, max_incomplete_event_size=HEAD_LIMIT_BYTES)


@attrs.define(eq=False)
class _Client:
    """One connection; it works from the end of a head to the end of its answer."""

    channel: Channel
    scope: anyio.CancelScope = attrs.field(factory=anyio.CancelScope)
    parser: h11.Connection = attrs.field(factory=_parser)

    def within(self, limit_s: float) -> None:
        """From now on it has so long."""
        self.scope.deadline = anyio.current_time() + limit_s


class HttpServer:
    """Serves pages at doors until it is cancelled.

    Args:
        pages: by their paths.
        now_s: the calendar, for the date of an answer.
    """

    def __init__(self, pages: Mapping[str, Page], *, now_s: Callable[[], float]) -> None:
        self._pages, self._now_s = pages, now_s
        self._clients: dict[int, _Client] = {}
        self._number = 0

    @property
    def connections(self) -> int:
        """How many there are."""
        return len(self._clients)

    async def serve(self, door: Door) -> None:
        """Let in who comes through a door; several tasks may, each at another one."""
        async with anyio.create_task_group() as group:
            while True:
                channel = await door.accept()
                self._make_room()
                self._number += 1
                client = self._clients[self._number] = _Client(channel)
                group.start_soon(self._serve, self._number, client)

    def _make_room(self) -> None:
        """Close the one that has been silent longest when there are too many; an answer takes a moment only."""
        here = [client for client in self._clients.values() if not client.scope.cancel_called]
        if len(here) >= CONNECTIONS_MAX:
            here[0].scope.cancel()

    async def _serve(self, number: int, client: _Client) -> None:
        try:
            with client.scope:
                await self._talk(number, client)
        except (anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError, OSError):
            return  # the client went away; that is its right
        except Exception:  # noqa: BLE001 - a fault of ours costs one connection, not the worker
            _log.exception("fault", reason=str(Reason.INTERNAL))
        finally:
            del self._clients[number]
            with anyio.move_on_after(CLOSE_TIMEOUT_S, shield=True):
                await client.channel.stream.aclose()

    async def _talk(self, number: int, client: _Client) -> None:
        for left in range(REQUESTS_MAX, 0, -1):
            if not await self._serve_one(client, is_last=left == 1):
                break
            # The order is that of the last answer.
            self._clients[number] = self._clients.pop(number)
        await _linger(client)

    async def _serve_one(self, client: _Client, *, is_last: bool) -> bool:
        """Answer one request; returns whether another one may follow."""
        import h11  # noqa: PLC0415 - see above

        try:
            request = await _read_head(client)
            if request is None:
                return False
            # A body is nobody's here: who announces one is answered and closed before it is read.
            has_body = not isinstance(client.parser.next_event(), h11.EndOfMessage)
        except h11.RemoteProtocolError as error:
            await self._send(client, _refusal(_status_of(error)), body=True, keep=False)
            return False
        client.within(ANSWER_TIMEOUT_S)  # what is left of the head's time is not the page's
        answer = await self._answer(request)
        await self._send(client, answer, body=request.method != b"HEAD", keep=not (has_body or is_last))
        if client.parser.our_state is not h11.DONE or client.parser.their_state is not h11.DONE:
            return False
        client.parser.start_next_cycle()
        return True

    async def _answer(self, request: h11.Request) -> Answer:
        if request.method not in _METHODS:
            return _refusal(HTTPStatus.METHOD_NOT_ALLOWED)
        page = self._pages.get(_path(request.target))
        if page is None:
            return _refusal(HTTPStatus.NOT_FOUND)
        accept = b",".join(value for name, value in request.headers if name == b"accept")
        try:
            return await page(accept.decode("latin-1"))
        except Exception:  # noqa: BLE001 - a fault of ours costs one answer
            _log.exception("fault", reason=str(Reason.INTERNAL))
            return _refusal(HTTPStatus.INTERNAL_SERVER_ERROR)

    async def _send(self, client: _Client, answer: Answer, *, body: bool, keep: bool) -> None:
        """Send all of an answer at once."""
        from email.utils import formatdate  # noqa: PLC0415 - as h11

        import h11  # noqa: PLC0415 - see above

        headers = [
            ("Date", formatdate(self._now_s(), usegmt=True)),
            ("Content-Type", answer.content_type),
            ("Content-Length", str(len(answer.body))),
            ("Cache-Control", "no-store"),
            ("X-Content-Type-Options", "nosniff"),
        ]
        if answer.status is HTTPStatus.METHOD_NOT_ALLOWED:
            headers.append(("Allow", ", ".join(each.decode() for each in _METHODS)))
        if not keep:
            headers.append(("Connection", "close"))
        parser = client.parser
        head = h11.Response(status_code=answer.status, headers=headers, reason=answer.status.phrase)
        parts = [
            parser.send(head),
            parser.send(h11.Data(answer.body)) if body else b"",
            parser.send(h11.EndOfMessage()),
        ]
        client.within(ANSWER_TIMEOUT_S)
        await client.channel.stream.send(b"".join(part for part in parts if part))


async def _read_head(client: _Client) -> h11.Request | None:
    """The next request, as far as its head; None when no more will come.

    Raises:
        RemoteProtocolError: it is no HTTP/1.1, or too long.
    """
    import h11  # noqa: PLC0415 - see above

    client.within(IDLE_TIMEOUT_S)
    has_begun = False
    while True:
        event = client.parser.next_event()
        if isinstance(event, h11.Request):
            return event
        if event is not h11.NEED_DATA:
            return None  # the connection is closed
        data = await _receive(client.channel.stream)
        if data and not has_begun:
            has_begun = True
            client.within(HEAD_TIMEOUT_S)
        client.parser.receive_data(data)


async def _linger(client: _Client) -> None:
    """Let the client read to the end: the kernel resets a connection that is closed over bytes nobody has read."""
    stream = client.channel.stream
    client.within(CLOSE_TIMEOUT_S)
    await stream.send_eof()
    for _ in range(LINGER_CHUNKS_MAX):
        if not await _receive(stream):
            break


async def _receive(stream: ByteStream) -> bytes:
    """The next bytes; none when no more will come."""
    try:
        return await stream.receive(CHUNK_BYTES)
    except anyio.EndOfStream:
        return b""


def _path(target: bytes) -> str:
    """The path of a request's target, in either of the two forms that a server must take (RFC 9112, 3.2)."""
    text = target.decode("latin-1").partition("?")[0]
    if text.startswith("http://"):
        text = f"/{text.removeprefix('http://').partition('/')[2]}"
    return text


def _status_of(error: h11.RemoteProtocolError) -> HTTPStatus:
    """What h11 thinks of it: 400, or 431 for a head that is too long."""
    try:
        return HTTPStatus(error.error_status_hint)
    except ValueError:
        return HTTPStatus.BAD_REQUEST


def _refusal(status: HTTPStatus) -> Answer:
    return Answer(f"{status.phrase}\n".encode(), status=status)
