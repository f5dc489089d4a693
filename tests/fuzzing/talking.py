"""A client that says any bytes, in any pieces, to a real server over a simulated socket."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import anyio

from actors.ports import Peer
from sim.world.disk import SimDisk
from sim.world.net import SimNet, SimSockets
from sim.world.scenery import put_directory

if TYPE_CHECKING:
    from pathlib import Path

    from actors.ports import Connection

BETWEEN: Final = b"\xfe"
"""Where the client pauses: what is before and after it arrives apart."""


def net_below(directory: Path) -> SimNet:
    """The network of root, on a machine on which there is this directory and nothing else."""
    disk = SimDisk(now_ns=lambda: 0)
    put_directory(disk, directory)
    return SimNet(SimSockets(disk), peer=Peer(pid=1, uid=0, gid=0))


async def said(connection: Connection, data: bytes) -> bytes:
    """Send it all, and return what comes back until the server closes; it may close before everything was sent."""
    answer = bytearray()

    async def send() -> None:
        try:
            for part in data.split(BETWEEN):
                await connection.stream.send(part)
                await anyio.sleep(0.1)
            await connection.stream.send_eof()
        except anyio.BrokenResourceError:
            return

    async with anyio.create_task_group() as group:
        group.start_soon(send)
        try:
            while True:
                answer += await connection.stream.receive()
        except (anyio.EndOfStream, anyio.BrokenResourceError):
            group.cancel_scope.cancel()
    await connection.stream.aclose()
    return bytes(answer)
