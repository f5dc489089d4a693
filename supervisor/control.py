"""The control socket: one JSON object a line, `{v, op, …}` -> `{ok, result | error, errors}`.

Every connection has bounds: the length of a line, the time until a line is whole, and how many connections there are;
beyond that the one that has been silent longest is closed, so that idle clients never lock out one that asks, nor do
those who have gone before their answer; only when all wait for an answer is a new one turned away. Who may not ask
(`supervisor.peers`) is told so and closed, before anything is read, and takes nobody's place.
Source: DESIGN, "CLI".
"""

from __future__ import annotations

import enum
import math
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import anyio
import attrs
import orjson
import structlog

from actors import strict_json
from actors.codec import CodecError, loads
from statemachine.problem import Problem, ProblemError, Step
from statemachine.reasons import Reason
from supervisor.peers import Pace, Peers, refusal_of
from supervisor.refusals import no_socket
from supervisor.status import problem_json
from supervisor.step_runner import internal

if TYPE_CHECKING:
    from anyio.abc import ByteStream

    from actors.ports import Connection, Listener, Net

VERSION: Final = 1
LINE_LIMIT_BYTES: Final = 7 << 20
"""A document of 1 MiB may need six times as much when every byte of it is escaped."""
LINE_TIMEOUT_S: Final = 30.0
"""A client that does not finish its line by then is closed."""
ANSWER_TIMEOUT_S: Final = 30.0
"""A client that does not take its answer by then is closed."""
CLOSE_TIMEOUT_S: Final = 1.0
CONNECTIONS_MAX: Final = 512
REFUSALS_MAX: Final = 16
"""How many who may not ask are being told so at a time; the others are closed without a word."""
REFUSED_UIDS_TOLD_MAX: Final = 64
"""How many of them the log names."""
CHUNK_BYTES: Final = 1 << 16

Operation = Callable[[dict[str, Any]], Awaitable[Any]]
_E = TypeVar("_E", bound=enum.StrEnum)


@attrs.frozen(kw_only=True)
class Held:
    """An operation's result that holds for as long as its client keeps the connection and says no more.

    Attributes:
        result: the answer.
        until: ends it sooner.
        ended: is awaited then, whatever ended it, and never cancelled; it has a bound of its own.
    """

    result: Any
    until: anyio.Event
    ended: Callable[[], Awaitable[None]]


_log = structlog.get_logger("greenroom.control")


@attrs.define(eq=False)
class _Client:
    """One connection. It is idle while no request of it is worked on."""

    connection: Connection
    scope: anyio.CancelScope = attrs.field(factory=anyio.CancelScope)
    working: bool = False


@asynccontextmanager
async def open_control_socket(net: Net, path: Path, peers: Peers) -> AsyncIterator[Listener]:
    """Listen at a path; who connects is heard once a server accepts.

    Raises:
        ProblemError: StateDirInUse, StateUnwritable.
    """
    async with AsyncExitStack() as stack:
        try:
            listener = await stack.enter_async_context(net.listen_unix(path, mode=peers.socket_mode))
        except OSError as error:
            raise ProblemError(no_socket(path, error)) from error
        yield listener


@attrs.define(kw_only=True)
class ControlServer:
    """Serves operations to who connects until it is cancelled."""

    listener: Listener
    operations: dict[str, Operation]
    peers: Peers = attrs.field(factory=Peers)
    _clients: dict[int, _Client] = attrs.field(factory=dict, init=False)
    _number: int = attrs.field(default=0, init=False)
    _pace: Pace = attrs.field(factory=Pace, init=False)
    _refusing: int = attrs.field(default=0, init=False)
    _refused_uids: set[int] = attrs.field(factory=set, init=False)

    async def run(self) -> None:
        """Accept and serve."""
        async with anyio.create_task_group() as group:
            while True:
                connection = await self.listener.accept()
                if not self.peers.may_ask(connection.peer):
                    group.start_soon(self._turn_away, connection)
                elif self._make_room():
                    self._number += 1
                    client = self._clients[self._number] = _Client(connection)
                    group.start_soon(self._serve, self._number, client)
                else:
                    await _close(connection)

    async def _turn_away(self, connection: Connection) -> None:
        """Tell somebody who may not ask, and close."""
        uid = connection.peer.uid
        if uid not in self._refused_uids and len(self._refused_uids) < REFUSED_UIDS_TOLD_MAX:
            self._refused_uids.add(uid)
            _log.warning("refused", reason=str(Reason.PEER_REFUSED), uid=uid, pid=connection.peer.pid)
        self._refusing += 1
        try:
            if self._refusing <= REFUSALS_MAX:
                with anyio.move_on_after(CLOSE_TIMEOUT_S):
                    await connection.stream.send(orjson.dumps(_refusal(refusal_of(connection.peer))) + b"\n")
        except (anyio.BrokenResourceError, OSError):
            return  # it did not wait for it
        finally:
            self._refusing -= 1
            await _close(connection)

    def _make_room(self) -> bool:
        """Close one when there are too many: who has been silent longest, or has gone without waiting for its answer.

        Returns: False when all of them wait for an answer.
        """
        if len(self._clients) < CONNECTIONS_MAX:
            return True
        here = [client for client in self._clients.values() if not client.scope.cancel_called]
        if len(here) < CONNECTIONS_MAX:
            return True
        silent = next((client for client in here if not client.working), None)
        # An answer that takes a day is nobody's any more when its client was interrupted.
        leaving = silent or next((client for client in here if client.connection.has_hung_up), None)
        if leaving is None:
            return False
        leaving.scope.cancel()
        return True

    async def _serve(self, number: int, client: _Client) -> None:
        is_closed = False
        try:
            with client.scope:
                await self._talk(number, client, client.connection.stream)
                client.scope.deadline = anyio.current_time() + CLOSE_TIMEOUT_S
                await client.connection.stream.aclose()
                is_closed = True
        except (anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError, OSError):
            return  # the client went away; that is its right
        finally:
            del self._clients[number]
            if not is_closed:
                await _close(client.connection)

    async def _talk(self, number: int, client: _Client, stream: ByteStream) -> None:
        buffer = bytearray()
        line: bytes | None = b""
        while line is not None:
            # One scope for all of it, whose deadline moves: what is worked on has none.
            client.scope.deadline = anyio.current_time() + LINE_TIMEOUT_S
            line = await _read_line(stream, buffer)
            client.scope.deadline = math.inf
            if line is not None:
                await self._pace.turn(client.connection.peer.uid)
                client.working = True
                await self._answer_to(client, line)
                client.working = False
                # The order is that of the last answer.
                self._clients[number] = self._clients.pop(number)
            elif len(buffer) > LINE_LIMIT_BYTES:
                await _send(client, _refusal(_invalid(f"a line has at most {LINE_LIMIT_BYTES} bytes")))

    async def _answer_to(self, client: _Client, line: bytes) -> None:
        answer = await self._answer(line)
        held = answer.get("result")
        if not isinstance(held, Held):
            await _send(client, answer)
            return
        try:
            await _send(client, {**answer, "result": held.result})
            client.scope.deadline = math.inf
            async with anyio.create_task_group() as waiting:
                waiting.start_soon(_cancel_when_set, held.until, waiting.cancel_scope)
                with suppress(anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError, OSError):
                    await client.connection.stream.receive(1)
                waiting.cancel_scope.cancel()
        finally:
            with anyio.CancelScope(shield=True):
                await held.ended()

    async def _answer(self, line: bytes) -> dict[str, Any]:
        try:
            request = _parse(line)
            return {"ok": True, "result": await self._operation(request["op"])(request)}
        except ProblemError as error:
            return _refusal(*error.problems)
        except Exception as error:  # noqa: BLE001 - a fault of ours costs one answer, not the worker
            _log.exception("fault", reason=str(Reason.INTERNAL))
            return _refusal(internal(Step.SUPERVISE, "the operation", error))

    def _operation(self, name: str) -> Operation:
        operation = self.operations.get(name)
        if operation is None:
            known = ", ".join(sorted(self.operations))
            raise ProblemError(_invalid(f"there is no operation {name!r}; there are {known}"))
        return operation


async def _cancel_when_set(event: anyio.Event, scope: anyio.CancelScope) -> None:
    await event.wait()
    scope.cancel()


def _refusal(*problems: Problem) -> dict[str, Any]:
    errors = [problem_json(problem) for problem in problems]
    return {"ok": False, "error": errors[0], "errors": errors}


async def _send(client: _Client, answer: dict[str, Any]) -> None:
    try:
        line = orjson.dumps(answer)
    except TypeError as error:  # a number or a text that JSON cannot hold
        _log.exception("fault", reason=str(Reason.INTERNAL))
        line = orjson.dumps(_refusal(internal(Step.SUPERVISE, "the answer", error)))
    client.scope.deadline = anyio.current_time() + ANSWER_TIMEOUT_S
    await client.connection.stream.send(line + b"\n")


async def _close(connection: Connection) -> None:
    with anyio.move_on_after(CLOSE_TIMEOUT_S, shield=True):
        await connection.stream.aclose()


async def _read_line(stream: ByteStream, buffer: bytearray) -> bytes | None:
    """The next line; None when the client sends no more, or more than a line may have.

    The last line needs no end: who sends no more has said all of it.
    """
    searched = 0
    while (end := buffer.find(b"\n", searched)) < 0:
        searched = len(buffer)
        if len(buffer) > LINE_LIMIT_BYTES:
            return None
        try:
            buffer += await stream.receive(CHUNK_BYTES)
        except anyio.EndOfStream:
            rest = bytes(buffer)
            buffer.clear()
            return rest or None
    line = bytes(buffer[:end])
    del buffer[: end + 1]
    return line


def _parse(line: bytes) -> dict[str, Any]:
    try:
        # Each refuses what the other lets pass: half of a surrogate pair, and a key that stands twice.
        request = loads(line)
        strict_json.parse(line)
    except strict_json.DuplicateKeyError as error:
        raise ProblemError(_twice(error)) from error
    except (CodecError, strict_json.StrictJsonError) as error:
        raise ProblemError(_invalid(f"the line is not JSON: {error}")) from error
    if not isinstance(request, dict) or not isinstance(request.get("op"), str):
        raise ProblemError(_invalid("the line is not an object with an op"))
    version = request.get("v")
    if isinstance(version, bool) or version != VERSION:
        raise ProblemError(_invalid(f"version {version!r} is not spoken here, but {VERSION}"))
    return request


def _twice(error: strict_json.DuplicateKeyError) -> Problem:
    return Problem(
        step=Step.ADMISSION, reason=Reason.DUPLICATE_KEY, subject=error.path, message=f"{error.message} in the request"
    )


def _invalid(message: str) -> Problem:
    return Problem(step=Step.ADMISSION, reason=Reason.INVALID_REQUEST, subject="control socket", message=message)


def text(request: dict[str, Any], name: str) -> str:
    """A text argument of a request.

    Raises:
        ProblemError: InvalidRequest.
    """
    value = request.get(name)
    if not isinstance(value, str):
        raise ProblemError(_invalid(f"{name} must be a text"))
    return value


def number(request: dict[str, Any], name: str, *, default: float, largest: float) -> float:
    """A number argument of a request, not negative.

    Raises:
        ProblemError: InvalidRequest.
    """
    value = request.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= largest:
        raise ProblemError(_invalid(f"{name} must be a number from 0 to {largest:g}"))
    return float(value)


def word(request: dict[str, Any], name: str, words: type[_E]) -> _E:
    """An argument that is one of a set of words.

    Raises:
        ProblemError: InvalidRequest.
    """
    value = text(request, name)
    try:
        return words(value)
    except ValueError:
        raise ProblemError(_invalid(f"{name} is one of {', '.join(map(str, words))}, not {value!r}")) from None


def absolute_path(request: dict[str, Any], name: str) -> Path:
    """An argument that is an absolute path.

    Raises:
        ProblemError: InvalidRequest.
    """
    path = Path(text(request, name))
    if not path.is_absolute() or "\0" in str(path):
        raise ProblemError(_invalid(f"{name} must be an absolute path, not {str(path)!r}"))
    return path
