"""`greenroom logs`: what containers wrote, and with `-f` what they go on to write."""

from __future__ import annotations

import base64
import sys
from typing import TYPE_CHECKING, Any, Final

import anyio
import attrs
import click

from actors.layout import CONTROL_SOCKET
from statemachine.states import State
from supervisor.cli.asking import ask, run_dir_option
from supervisor.client import call
from supervisor.host.net import HostNet

if TYPE_CHECKING:
    from pathlib import Path


WAIT_S: Final = 30.0
"""How long the worker waits for more before it says that there is none, and is asked again."""
OVER: Final = frozenset({str(State.TERMINATED), str(State.FAILED)})
"""States in which nothing more is followed: the actor ran to its end."""
LINE_BYTES_MAX: Final = 1 << 20
"""A line without an end is shown when so much of it is there."""


@click.command()
@click.argument("uid")
@click.option("-c", "--container", help="The container; all of them when left out.")
@click.option("-f", "--follow", is_flag=True, help="Go on with what is written, until the actor has ended.")
@run_dir_option
def logs(uid: str, container: str | None, follow: bool, run_dir: Path) -> None:
    """Print what an actor's containers have written."""
    names = [container] if container else [each["name"] for each in ask(run_dir, "status", uid=uid)["containers"]]
    shown = [_Shown(uid, name, label=f"{name}: ".encode() if len(names) > 1 else b"") for name in names]
    if follow:
        anyio.run(_follow, run_dir, shown)
    else:
        for each in shown:
            _print_all(run_dir, each)


@attrs.define
class _Shown:
    """One container's log, as far as it was shown."""

    uid: str
    name: str
    label: bytes
    next_bytes: int = 0
    _rest: bytes = b""

    def take(self, answer: dict[str, Any], *, until_bytes: int | None = None) -> bool:
        """Show a piece, as far as whole lines go; returns whether there was any."""
        offset_bytes, data = answer["offset_bytes"], base64.b64decode(answer["data"])
        if until_bytes is not None:
            data = data[: max(until_bytes - offset_bytes, 0)]
        if offset_bytes > self.next_bytes:
            self.end()
            gone = offset_bytes - self.next_bytes
            click.echo(f"{self.name}: {gone} bytes are gone: the log is bounded, and they were the oldest", err=True)
        self.next_bytes = offset_bytes + len(data)
        whole, newline, self._rest = (self._rest + data).rpartition(b"\n")
        self._show(whole + newline)
        if len(self._rest) > LINE_BYTES_MAX:
            self.end()
        return bool(data)

    def end(self) -> None:
        """Show a last line that has no end."""
        self._show(self._rest)
        self._rest = b""

    def _show(self, piece: bytes) -> None:
        if not piece:
            return
        if self.label:
            # A last line that is not whole gets its end, or the next label would stand in it.
            piece = b"".join(self.label + line + b"\n" for line in piece.removesuffix(b"\n").split(b"\n"))
        sys.stdout.buffer.write(piece)
        sys.stdout.buffer.flush()


def _print_all(run_dir: Path, shown: _Shown) -> None:
    until_bytes: int | None = None
    while True:
        answer = ask(run_dir, "logs", uid=shown.uid, container=shown.name, offset_bytes=shown.next_bytes)
        # What is written from now on is not waited for: a container may write faster than we read.
        until_bytes = answer["size_bytes"] if until_bytes is None else until_bytes
        if not shown.take(answer, until_bytes=until_bytes):
            break
    shown.end()


async def _follow(run_dir: Path, every: list[_Shown]) -> None:
    async with anyio.create_task_group() as group:
        for each in every:
            group.start_soon(_follow_one, run_dir, each)


async def _follow_one(run_dir: Path, shown: _Shown) -> None:
    net, is_over = HostNet(), False
    while True:
        answer = await call(
            net,
            run_dir / CONTROL_SOCKET,
            "logs",
            bound_s=WAIT_S,
            uid=shown.uid,
            container=shown.name,
            offset_bytes=shown.next_bytes,
            wait_s=0.0 if is_over else WAIT_S,
        )
        if not shown.take(answer) and is_over:
            break
        # Once more then: what it wrote last may have come after this answer's piece was read.
        is_over = answer["state"] in OVER
    shown.end()
