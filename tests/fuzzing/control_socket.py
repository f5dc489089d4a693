"""Fuzz target for the control socket: any bytes, in any pieces, to a real server over a simulated socket."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import anyio
import trio
import trio.testing

from actors.ports import Peer
from sim.world.disk import SimDisk
from sim.world.net import SimNet, SimSockets
from sim.world.scenery import put_directory
from statemachine.actor import OnDifference
from statemachine.reasons import Reason
from statemachine.states import State
from supervisor import control
from supervisor.control import ControlServer
from tests.fakes.ports import FakePorts
from tests.fuzzing.promises import Target, hold

if TYPE_CHECKING:
    from collections.abc import Iterable

    from actors.ports import Connection

_PATH: Final = Path("/run/greenroom/control.sock")
_ROOT: Final = Peer(pid=1, uid=0, gid=0)
_BETWEEN: Final = b"\xfe"
"""Where the client pauses: what is before and after it arrives apart."""
_REASONS: Final = frozenset(map(str, Reason)) - {str(Reason.INTERNAL)}


async def _words(request: dict[str, Any]) -> Any:
    """Every kind of argument that an operation has."""
    return [
        control.text(request, "uid"),
        control.number(request, "timeout_s", default=300.0, largest=86400.0),
        control.word(request, "state", State),
        control.word(request, "onDifference", OnDifference),
        str(control.absolute_path(request, "base")),
    ]


async def _echo(request: dict[str, Any]) -> Any:
    return request


def check_control(data: bytes) -> None:
    """Each whole line gets one answer, in order: a result, or problems with reasons; and another client is served."""
    trio.run(_talk, data, clock=trio.testing.MockClock(autojump_threshold=0))


async def _talk(data: bytes) -> None:
    disk = SimDisk(now_ns=lambda: 0)
    put_directory(disk, _PATH.parent)
    ports = FakePorts()
    ports.net = SimNet(SimSockets(disk), peer=_ROOT)
    server = ControlServer(ports=ports.as_ports, path=_PATH, operations={"words": _words, "echo": _echo})
    async with anyio.create_task_group() as group:
        group.start_soon(server.run)
        await server.listening.wait()
        answers = await _said(await ports.net.connect_unix(_PATH), data.split(_BETWEEN))
        lines = data.replace(_BETWEEN, b"").split(b"\n")
        hold(
            len(answers) == len(lines) - (not lines[-1]),
            "each line has one answer, and so has an end without a line feed",
        )
        for answer in answers:
            _judge(answer)
        (echo,) = await _said(await ports.net.connect_unix(_PATH), [b'{"v":1,"op":"echo"}'])
        hold(json.loads(echo) == {"ok": True, "result": {"v": 1, "op": "echo"}}, "another client is served")
        group.cancel_scope.cancel()


async def _said(connection: Connection, parts: list[bytes]) -> list[bytes]:
    """Send it all, and return the lines that come back until the server closes."""
    answers = bytearray()

    async def send() -> None:
        for part in parts:
            await connection.stream.send(part)
            await anyio.sleep(0.1)
        await connection.stream.send_eof()

    async with anyio.create_task_group() as group:
        group.start_soon(send)
        try:
            while True:
                answers += await connection.stream.receive()
        except anyio.EndOfStream:
            await connection.stream.aclose()
    return bytes(answers).splitlines()


def _judge(line: bytes) -> None:
    answer = json.loads(line)
    if answer["ok"]:
        hold(answer.keys() == {"ok", "result"}, "an answer has a result")
        return
    hold(answer["errors"][0] == answer["error"], "the first problem stands alone too")
    for error in answer["errors"]:
        hold(error["reason"] in _REASONS, "a refusal has a reason, and it is no fault of ours")
        hold(error["message"].isprintable(), "a message is one line that can be printed")


def _seeds() -> Iterable[tuple[str, bytes]]:
    whole = {
        "v": 1,
        "op": "words",
        "uid": "a1",
        "timeout_s": 3,
        "state": "Running",
        "onDifference": "Refuse",
        "base": "/x",
    }
    yield "words", json.dumps(whole).encode() + b"\n"
    yield "pieces", json.dumps(whole).encode().replace(b",", b"," + _BETWEEN) + b"\n" + b'{"v":1,"op":"echo"}'
    yield "odd", b'[]\n\n{"v":true,"op":"echo"}\n{"v":1,"op":"echo","op":"x"}\n{"v":1,"op":["echo"]}\nnull\n'
    yield "texts", b'{"v":1,"op":"echo","a":"\\ud83d\\ude00","b":1e300,"c":[[{}]],"d":-0.0}\n'


CONTROL: Final = Target(
    name="control",
    check=check_control,
    seeds=_seeds,
    words=(
        '"v":1', '"op":"words"', '"op":"echo"', "uid", "timeout_s", "state", "Running", "onDifference", "Refuse",
        "base", "\\ud83d", "\\u0000", "1e999", "NaN", "18446744073709551616", "\n", "\r\n",
    ),
    input_bytes_max=3000,
)  # fmt: skip
