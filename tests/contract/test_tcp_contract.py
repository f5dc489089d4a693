"""TCP: what holds for the real port and for the simulated one."""

from __future__ import annotations

import errno
import os
import socket
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from actors.ports import Net, Peer, TcpAddress
from sim.world.net import SimNet, SimSockets
from supervisor.host.net import HostNet
from supervisor.host.stream import SocketStream
from tests.contract.places import Place, RealPlace

if TYPE_CHECKING:
    from anyio.abc import ByteStream

pytestmark = pytest.mark.anyio

HERE = TcpAddress("127.0.0.1", 0)


@pytest.fixture
async def net(anyio_backend: str, place: Place) -> Net:
    us = Peer(pid=os.getpid(), uid=os.geteuid(), gid=os.getegid())
    return HostNet() if isinstance(place, RealPlace) else SimNet(SimSockets(place.disk), peer=us)


async def connect(net: Net, address: TcpAddress) -> ByteStream:
    """The other end, which no port of ours makes."""
    if isinstance(net, SimNet):
        return (await net.connect_tcp(address.port)).stream
    sock = socket.socket(socket.AF_INET)
    try:
        sock.connect((address.host, address.port))  # the backlog takes it
        sock.settimeout(0)
    except BaseException:
        sock.close()
        raise
    return SocketStream(sock)


async def test_bytes_go_both_ways_at_a_port_that_was_free(net: Net):
    async with net.listen_tcp(HERE) as listener:
        assert listener.address.host == HERE.host
        assert listener.address.port != 0
        client = await connect(net, listener.address)
        server = await listener.accept()
        await client.send(b"question")
        assert await server.stream.receive() == b"question"
        await server.stream.send(b"answer")
        assert await client.receive() == b"answer"
        assert not server.has_hung_up
        await client.send_eof()
        with pytest.raises(anyio.EndOfStream):
            await server.stream.receive()
        await client.aclose()
        await server.stream.aclose()


async def test_a_port_that_is_listened_at_is_taken_and_free_again_afterwards(net: Net):
    async with net.listen_tcp(HERE) as listener:
        taken = listener.address
        with pytest.raises(OSError) as caught:
            async with net.listen_tcp(taken):
                pass
        assert caught.value.errno == errno.EADDRINUSE
        client = await connect(net, taken)
        server = await listener.accept()
    # Its own connections may still be there.
    async with net.listen_tcp(taken) as again:
        assert again.address == taken
    await server.stream.aclose()
    await client.aclose()
    with pytest.raises(ConnectionRefusedError):
        await connect(net, taken)


async def test_who_accepts_when_the_listener_goes_learns_it(net: Net):
    errors: list[Any] = []

    async def accept(listener: Any) -> None:
        try:
            await listener.accept()
        except anyio.ClosedResourceError as error:
            errors.append(error)

    async with anyio.create_task_group() as group, net.listen_tcp(HERE) as listener:
        group.start_soon(accept, listener)
        await anyio.wait_all_tasks_blocked()
    assert len(errors) == 1


@pytest.mark.parametrize(
    ("address", "text"), [(TcpAddress("0.0.0.0", 8080), "0.0.0.0:8080"), (TcpAddress("::", 8080), "[::]:8080")]
)
def test_an_address_is_written_as_in_a_url(address: TcpAddress, text: str):
    assert str(address) == text
