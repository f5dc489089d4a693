"""Sockets: who may connect, what stands in the way, and what stays behind."""

from __future__ import annotations

import errno
import os
import socket
from pathlib import Path

import anyio
import pytest

from actors.ports import TcpAddress
from supervisor.host.net import HostConnection, HostNet
from tests.host.directories import modes, tree
from tests.needs import Tool, want

pytestmark = pytest.mark.anyio


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "control.sock"


def replace_by_file(path: Path) -> None:
    path.unlink()
    path.touch()


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o777])
async def test_nobody_else_may_ever_connect(path: Path, monkeypatch, umask: int):
    seen = []
    listen = socket.socket.listen

    def listen_and_look(sock: socket.socket, backlog: int) -> None:
        seen.append(modes(path.parent))
        listen(sock, backlog)

    monkeypatch.setattr(socket.socket, "listen", listen_and_look)
    before = os.umask(umask)
    try:
        async with HostNet().listen_unix(path):
            seen.append(modes(path.parent))
    finally:
        os.umask(before)
    assert seen == [{path.name: 0o600}] * 2


async def test_a_listener_with_a_full_backlog_is_somebody(path: Path):
    with socket.socket(socket.AF_UNIX) as busy, socket.socket(socket.AF_UNIX) as waiting:
        busy.bind(str(path))
        busy.listen(0)
        waiting.connect(str(path))
        with pytest.raises(OSError) as caught:
            async with HostNet().listen_unix(path):
                pass
        assert caught.value.errno == errno.EADDRINUSE
        with pytest.raises(BlockingIOError):
            await HostNet().connect_unix(path)


async def test_a_socket_of_somebody_else_is_not_removed_on_leaving(path: Path):
    async with HostNet().listen_unix(path):
        replace_by_file(path)
    assert tree(path.parent) == {path.name: b""}


async def test_a_listener_without_descriptors_waits_and_goes_on(path: Path, monkeypatch):
    refusals: list[float] = []
    accept = socket.socket.accept

    def accept_with_luck(sock: socket.socket):
        if len(refusals) < 3:
            refusals.append(anyio.current_time())
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return accept(sock)

    async with HostNet().listen_unix(path) as listener:
        client = await HostNet().connect_unix(path)
        monkeypatch.setattr(socket.socket, "accept", accept_with_luck)
        with anyio.fail_after(60):
            server = await listener.accept()
        await server.stream.aclose()
        await client.stream.aclose()
    # Not all at once, and ever slower: at least so long, on a busy machine longer.
    first, second, third = refusals
    assert second - first >= 0.0099
    assert third - second >= 0.0199


async def test_everywhere_means_both_families():
    want(Tool.IPV6)
    async with HostNet().listen_tcp(TcpAddress("::", 0)) as listener:
        for host in ("127.0.0.1", "::1"):
            async with await anyio.connect_tcp(host, listener.address.port) as client:
                server = await listener.accept()
                await server.stream.send(host.encode())
                assert await client.receive() == host.encode()
                await server.stream.aclose()


async def test_an_address_that_is_not_this_machines_is_refused():
    with pytest.raises(OSError) as caught:
        async with HostNet().listen_tcp(TcpAddress("192.0.2.1", 0)):  # TEST-NET-1, RFC 5737
            pass
    assert caught.value.errno == errno.EADDRNOTAVAIL


OF_THE_CONNECTION = (
    errno.ENETDOWN, errno.EPROTO, errno.ENOPROTOOPT, errno.EHOSTDOWN, errno.ENONET, errno.EHOSTUNREACH,
    errno.EOPNOTSUPP, errno.ENETUNREACH, errno.EPERM,
)  # fmt: skip
"""What accept(2) hands over of a connection, or of the network for a while."""


@pytest.mark.parametrize("number", OF_THE_CONNECTION, ids=errno.errorcode.get)
async def test_a_listener_outlives_what_is_wrong_with_a_connection_or_the_network(monkeypatch, number: int):
    accept, failures = socket.socket.accept, [number] * 3

    def accept_with_luck(sock: socket.socket):
        if failures:
            failure = failures.pop()
            raise OSError(failure, os.strerror(failure))
        return accept(sock)

    async with HostNet().listen_tcp(TcpAddress("127.0.0.1", 0)) as listener:
        monkeypatch.setattr(socket.socket, "accept", accept_with_luck)
        with socket.create_connection(("127.0.0.1", listener.address.port)):
            with anyio.fail_after(60):
                server = await listener.accept()
            await server.stream.aclose()
    assert failures == []


async def test_a_socket_that_cannot_listen_any_more_says_so(path: Path, monkeypatch):
    def accept(_sock: socket.socket):
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))

    async with HostNet().listen_unix(path) as listener:
        client = await HostNet().connect_unix(path)
        monkeypatch.setattr(socket.socket, "accept", accept)
        with anyio.fail_after(60), pytest.raises(OSError) as caught:
            await listener.accept()
        await client.stream.aclose()
    assert caught.value.errno == errno.EINVAL


async def test_1000_idle_connections_are_held(path: Path):
    accepted: list[HostConnection] = []
    clients: list[HostConnection] = []
    async with HostNet().listen_unix(path) as listener:
        for _ in range(1000):
            # The backlog holds it until it is accepted.
            clients.append(await HostNet().connect_unix(path))
            accepted.append(await listener.accept())
        last = await HostNet().connect_unix(path)
        server = await listener.accept()
        await last.stream.send(b"still there")
        assert await server.stream.receive() == b"still there"
        for connection in (*accepted, *clients, last, server):
            await connection.stream.aclose()
