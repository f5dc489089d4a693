"""Fuzz target for the control socket: any bytes, in any pieces, to a real server over a simulated socket."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import anyio
import trio
import trio.testing

from statemachine.actor import OnDifference
from statemachine.reasons import Reason
from statemachine.states import State
from supervisor import control
from supervisor.control import ControlServer, open_control_socket
from supervisor.peers import Peers
from tests.fuzzing.promises import Target, hold
from tests.fuzzing.talking import BETWEEN, net_below, said

if TYPE_CHECKING:
    from collections.abc import Iterable

_PATH: Final = Path("/run/greenroom/control.sock")
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
    net = net_below(_PATH.parent)
    async with open_control_socket(net, _PATH, Peers()) as listener, anyio.create_task_group() as group:
        server = ControlServer(listener=listener, operations={"words": _words, "echo": _echo})
        group.start_soon(server.run)
        answers = (await said(await net.connect_unix(_PATH), data)).splitlines()
        lines = data.replace(BETWEEN, b"").split(b"\n")
        hold(
            len(answers) == len(lines) - (not lines[-1]),
            "each line has one answer, and so has an end without a line feed",
        )
        for answer in answers:
            _judge(answer)
        echo = await said(await net.connect_unix(_PATH), b'{"v":1,"op":"echo"}')
        hold(json.loads(echo) == {"ok": True, "result": {"v": 1, "op": "echo"}}, "another client is served")
        group.cancel_scope.cancel()


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
    yield "pieces", json.dumps(whole).encode().replace(b",", b"," + BETWEEN) + b"\n" + b'{"v":1,"op":"echo"}'
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
