"""The other end of the control socket: one request, one answer."""

from __future__ import annotations

from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any, Final

import anyio
import orjson

from actors.codec import CodecError, loads, structure
from statemachine.problem import Problem, ProblemError, Step
from statemachine.reasons import Reason
from supervisor.control import VERSION

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from actors.ports import Net

ANSWER_LIMIT_BYTES: Final = 64 << 20
ANSWER_MARGIN_S: Final = 35.0
"""Seconds beyond the operation's own bound until a worker that says nothing counts as gone."""


async def call(net: Net, socket: Path, op: str, *, bound_s: float = 60.0, **arguments: Any) -> Any:
    """Ask the worker behind a socket.

    Args:
        net: the port.
        socket: the worker's control socket.
        op: the operation.
        bound_s: how long the operation itself may take.
        arguments: its arguments, JSON-like.

    Raises:
        ProblemError: what the worker refused or failed with; WorkerUnreachable.
    """
    async with holding(net, socket, op, bound_s=bound_s, **arguments) as result:
        return result


@asynccontextmanager
async def holding(net: Net, socket: Path, op: str, *, bound_s: float = 60.0, **arguments: Any) -> AsyncIterator[Any]:
    """Ask the worker behind a socket as `call` does, and keep the connection while the body runs.

    Raises:
        ProblemError: what the worker refused or failed with; WorkerUnreachable.
    """
    try:
        connection = await net.connect_unix(socket)
    except OSError as error:
        raise ProblemError(_unreachable(socket, error.strerror or str(error))) from error
    async with connection.stream as stream:
        try:
            with anyio.fail_after(bound_s + ANSWER_MARGIN_S):
                with suppress(anyio.BrokenResourceError):  # a worker that refuses who asks has answered and closed
                    await stream.send(orjson.dumps({"v": VERSION, "op": op, **arguments}) + b"\n")
                answer = await _receive_line(stream)
        except (anyio.EndOfStream, anyio.BrokenResourceError, TimeoutError, OSError) as error:
            what = "it closed the connection" if not isinstance(error, TimeoutError) else "it does not answer"
            raise ProblemError(_unreachable(socket, what)) from error
        yield _result(socket, answer)


async def _receive_line(stream: Any) -> bytes:
    buffer = bytearray()
    while not buffer.endswith(b"\n"):
        buffer += await stream.receive()
        if len(buffer) > ANSWER_LIMIT_BYTES:
            raise OSError("the answer is too long")
    return bytes(buffer)


def _result(socket: Path, line: bytes) -> Any:
    try:
        answer = orjson.loads(line) if len(line) > 1 << 20 else loads(line)
        if answer["ok"]:
            return answer["result"]
        problems = [structure(each, Problem) for each in answer["errors"]]
        first = problems[0]
    except (CodecError, orjson.JSONDecodeError, LookupError, TypeError) as error:
        raise ProblemError(_unreachable(socket, "its answer cannot be read")) from error
    raise ProblemError(first, *problems[1:])


def _unreachable(socket: Path, what: str) -> Problem:
    return Problem(
        step=Step.SUPERVISE,
        reason=Reason.WORKER_UNREACHABLE,
        subject=str(socket),
        message=f"no worker answers at {socket}: {what}",
    )
