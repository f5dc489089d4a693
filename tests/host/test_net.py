"""Unix sockets: who may connect, what stands in the way, and what stays behind."""

from __future__ import annotations

import errno
import os
import socket
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import pytest

from actors.ports import Peer
from supervisor.host.net import HostConnection, HostListener, HostNet
from tests.host.directories import modes, tree

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = pytest.mark.anyio

US = Peer(pid=os.getpid(), uid=os.geteuid(), gid=os.getegid())


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "control.sock"


@contextmanager
def left_behind(path: Path) -> Iterator[None]:
    """A socket file whose process is gone."""
    with socket.socket(socket.AF_UNIX) as sock:
        sock.bind(str(path))
    yield


def replace_by_file(path: Path) -> None:
    path.unlink()
    path.touch()


async def accept_one(listener: HostListener, found: list[HostConnection]) -> None:
    found.append(await listener.accept())


async def test_bytes_go_both_ways_and_each_knows_the_other(path: Path):
    net = HostNet()
    accepted: list[HostConnection] = []
    async with net.listen_unix(path) as listener:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(accept_one, listener, accepted)
            client = await net.connect_unix(path)
        server = accepted[0]
        assert (client.peer, server.peer) == (US, US)
        await client.stream.send(b"question")
        assert await server.stream.receive() == b"question"
        await server.stream.send(b"answer")
        assert await client.stream.receive() == b"answer"
        await client.stream.send_eof()
        with pytest.raises(anyio.EndOfStream):
            await server.stream.receive()
        await client.stream.aclose()
        with pytest.raises(anyio.BrokenResourceError):
            await server.stream.send(b"nobody")
        await server.stream.aclose()
    assert tree(path.parent) == {}


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
    assert seen == [{path.name: 0o600 & ~umask}] * 2


async def test_a_socket_that_nobody_listens_at_is_replaced(path: Path):
    with left_behind(path):
        async with HostNet().listen_unix(path):
            connection = await HostNet().connect_unix(path)
            await connection.stream.aclose()
    assert tree(path.parent) == {}


async def test_a_socket_that_somebody_listens_at_is_not(path: Path):
    async with HostNet().listen_unix(path):
        with pytest.raises(OSError) as caught:
            async with HostNet().listen_unix(path):
                pass
        assert (caught.value.errno, caught.value.filename) == (errno.EADDRINUSE, str(path))
        connection = await HostNet().connect_unix(path)
        await connection.stream.aclose()


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


@pytest.mark.parametrize("make", [Path.touch, Path.mkdir, lambda path: path.symlink_to("elsewhere")])
async def test_what_is_no_socket_is_left_alone(path: Path, make: Callable[[Path], object]):
    make(path)
    before = tree(path.parent)
    with pytest.raises(OSError) as caught:
        async with HostNet().listen_unix(path):
            pass
    assert caught.value.errno == errno.EADDRINUSE
    assert tree(path.parent) == before


async def test_a_socket_of_somebody_else_is_not_removed_on_leaving(path: Path):
    async with HostNet().listen_unix(path):
        replace_by_file(path)
    assert tree(path.parent) == {path.name: b""}


async def test_a_path_that_is_too_long_is_told(tmp_path: Path):
    room = 107 - len(os.fsencode(tmp_path)) - 1
    async with HostNet().listen_unix(tmp_path / ("s" * room)):
        pass
    for call in (HostNet().listen_unix(tmp_path / ("s" * (room + 1))).__aenter__, None):
        with pytest.raises(OSError, match="at most 107 bytes, this one 108") as caught:
            await (call() if call else HostNet().connect_unix(tmp_path / ("s" * (room + 1))))
        assert caught.value.errno == errno.ENAMETOOLONG


async def test_what_cannot_be_connected_to_is_told(path: Path):
    with pytest.raises(FileNotFoundError):
        await HostNet().connect_unix(path)
    with left_behind(path), pytest.raises(ConnectionRefusedError) as caught:
        await HostNet().connect_unix(path)
    assert caught.value.filename == str(path)
    with pytest.raises(FileNotFoundError):
        async with HostNet().listen_unix(path.parent / "no" / "directory"):
            pass


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
        with anyio.fail_after(5):
            server = await listener.accept()
        await server.stream.aclose()
        await client.stream.aclose()
    # Not all at once, and ever slower.
    first, second, third = refusals
    assert 0.01 <= second - first < third - second


async def test_a_client_that_is_gone_before_it_is_accepted_harms_nobody(path: Path):
    async with HostNet().listen_unix(path) as listener:
        gone = await HostNet().connect_unix(path)
        await gone.stream.aclose()
        with anyio.fail_after(5):
            accepted = await listener.accept()
        with pytest.raises(anyio.EndOfStream):
            await accepted.stream.receive()
        await accepted.stream.aclose()


async def test_who_accepts_learns_that_the_listener_is_closed(path: Path):
    ended = []

    async def accept(listener: HostListener) -> None:
        with pytest.raises(anyio.ClosedResourceError):
            await listener.accept()
        ended.append(True)

    async with anyio.create_task_group() as tasks, HostNet().listen_unix(path) as listener:
        tasks.start_soon(accept, listener)
        await anyio.wait_all_tasks_blocked()
    assert ended


async def test_1000_idle_connections_are_held(path: Path):
    accepted: list[HostConnection] = []
    clients: list[HostConnection] = []
    async with HostNet().listen_unix(path) as listener:
        for _ in range(1000):
            # The backlog holds it until it is accepted.
            clients.append(await HostNet().connect_unix(path))
            await accept_one(listener, accepted)
        last = await HostNet().connect_unix(path)
        server = await listener.accept()
        await last.stream.send(b"still there")
        assert await server.stream.receive() == b"still there"
        for connection in (*accepted, *clients, last, server):
            await connection.stream.aclose()
