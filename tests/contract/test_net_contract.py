"""Unix sockets: what holds for the real port and for the simulated one."""

from __future__ import annotations

import errno
import os
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import anyio
import pytest

from actors.ports import Connection, Net, Peer
from sim.world.net import SimNet, SimSockets
from supervisor.host.net import HostNet
from tests.contract.places import Place, RealPlace, SimPlace

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = pytest.mark.anyio

US: Final = Peer(pid=os.getpid(), uid=os.geteuid(), gid=os.getegid())
MUCH: Final = bytes(range(256)) * 4096


@pytest.fixture
async def net(anyio_backend: str, place: Place) -> Net:
    return HostNet() if isinstance(place, RealPlace) else SimNet(SimSockets(place.disk), peer=US)


@pytest.fixture
def path(place: Place) -> Path:
    return place.base / "control.sock"


async def pair(net: Net, path: Path) -> tuple[Connection, Connection]:
    """The ends of a connection; its listener is closed already."""
    async with net.listen_unix(path) as listener:
        client = await net.connect_unix(path)
        return client, await listener.accept()


async def close(*connections: Connection) -> None:
    for connection in connections:
        await connection.stream.aclose()


async def error_of(awaitable: Any) -> int | None:
    with pytest.raises(OSError) as caught:
        await awaitable
    return caught.value.errno


async def test_bytes_go_both_ways_and_each_knows_the_other(place: Place, net: Net, path: Path):
    async with net.listen_unix(path) as listener:
        assert place.mode(path) == 0o600
        client = await net.connect_unix(path)
        server = await listener.accept()
        assert (client.peer, server.peer) == (US, US)
        await client.stream.send(b"question")
        assert await server.stream.receive() == b"question"
        await server.stream.send(b"answer")
        assert await client.stream.receive(3) == b"ans"
        assert await client.stream.receive(9) == b"wer"
        await close(client, server)
    assert place.tree() == {"root": None}


@pytest.mark.parametrize("mode", [0o600, 0o660, 0o666])
async def test_the_file_of_a_socket_has_the_mode_that_was_asked_for(place: Place, net: Net, path: Path, mode: int):
    before = os.umask(0o077)
    try:
        async with net.listen_unix(path, mode=mode):
            assert place.mode(path) == mode
    finally:
        os.umask(before)


async def test_half_of_it_can_be_closed(net: Net, path: Path):
    client, server = await pair(net, path)
    await client.stream.send(b"last words")
    await client.stream.send_eof()
    with pytest.raises(anyio.BrokenResourceError):
        await client.stream.send(b"more")
    assert await server.stream.receive() == b"last words"
    for _ in range(2):
        with pytest.raises(anyio.EndOfStream):
            await server.stream.receive()
    await server.stream.send(b"answer")
    assert await client.stream.receive() == b"answer"
    await close(client, server)


async def test_who_sends_to_nobody_learns_it_and_who_closed_it_himself_too(net: Net, path: Path):
    client, server = await pair(net, path)
    await server.stream.aclose()
    await server.stream.aclose()
    with pytest.raises(anyio.BrokenResourceError):
        await client.stream.send(b"nobody")
    with pytest.raises(anyio.EndOfStream):
        await client.stream.receive()
    for call in (server.stream.send(b"1"), server.stream.receive()):
        with pytest.raises(anyio.ClosedResourceError):
            await call
    await close(client)


async def test_what_was_sent_before_the_end_is_still_received(net: Net, path: Path):
    client, server = await pair(net, path)
    await client.stream.send(b"last words")
    await client.stream.aclose()
    assert await server.stream.receive() == b"last words"
    with pytest.raises(anyio.EndOfStream):
        await server.stream.receive()
    await close(server)


async def test_an_end_that_is_closed_over_unread_bytes_breaks_the_other_once(net: Net, path: Path):
    client, server = await pair(net, path)
    await server.stream.send(b"answer")
    await client.stream.send(b"never read")
    await server.stream.aclose()
    assert await client.stream.receive() == b"answer"
    with pytest.raises(anyio.BrokenResourceError):
        await client.stream.receive()
    with pytest.raises(anyio.EndOfStream):
        await client.stream.receive()
    await close(client)


async def test_who_sends_more_than_is_received_waits(net: Net, path: Path):
    client, server = await pair(net, path)
    is_sent = anyio.Event()

    async def send() -> None:
        await client.stream.send(MUCH)
        is_sent.set()
        await client.stream.aclose()

    received = bytearray()
    with anyio.fail_after(60):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(send)
            with anyio.move_on_after(0.1):
                await is_sent.wait()
            assert not is_sent.is_set()
            async for part in server.stream:
                received += part
    assert received == MUCH
    await close(server)


async def test_who_waits_learns_that_the_end_is_closed(net: Net, path: Path):
    client, server = await pair(net, path)
    learnt: list[type[Exception]] = []

    async def wait(call: Callable[[], Any]) -> None:
        try:
            await call()
        except (anyio.ClosedResourceError, anyio.BrokenResourceError, anyio.EndOfStream) as error:
            learnt.append(type(error))

    with anyio.fail_after(60):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(wait, client.stream.receive)
            tasks.start_soon(wait, server.stream.receive)
            await anyio.wait_all_tasks_blocked()
            await client.stream.aclose()
    assert sorted(error.__name__ for error in learnt) == ["ClosedResourceError", "EndOfStream"]
    await close(server)


async def test_only_one_task_at_a_time_receives(net: Net, path: Path):
    client, server = await pair(net, path)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(client.stream.receive)
        await anyio.wait_all_tasks_blocked()
        with pytest.raises(anyio.BusyResourceError):
            await client.stream.receive()
        await server.stream.send(b"1")
    await close(client, server)


async def test_a_socket_that_nobody_listens_at_is_replaced(place: Place, net: Net, path: Path):
    place.put_socket(path)
    with pytest.raises(ConnectionRefusedError) as caught:
        await net.connect_unix(path)
    assert caught.value.filename == str(path)
    async with net.listen_unix(path) as listener:
        client = await net.connect_unix(path)
        await close(client, await listener.accept())
    assert place.tree() == {"root": None}


async def test_a_socket_that_somebody_listens_at_is_not(net: Net, path: Path):
    async with net.listen_unix(path):
        with pytest.raises(OSError) as caught:
            await net.listen_unix(path).__aenter__()
        assert (caught.value.errno, caught.value.filename) == (errno.EADDRINUSE, str(path))
        await close(await net.connect_unix(path))


@pytest.mark.parametrize("kind", ["file", "directory", "link"])
async def test_what_is_no_socket_is_left_alone(place: Place, net: Net, path: Path, kind: str):
    if kind == "link":
        place.put_symlink(path, "elsewhere")
    else:
        getattr(place, f"put_{kind}")(path)
    before = place.tree()
    assert await error_of(net.listen_unix(path).__aenter__()) == errno.EADDRINUSE
    assert await error_of(net.connect_unix(path)) == (errno.ENOENT if kind == "link" else errno.ECONNREFUSED)
    assert place.tree() == before


async def test_a_socket_is_found_through_a_symlink(place: Place, net: Net, path: Path):
    place.put_symlink(place.base / "link", path.name)
    async with net.listen_unix(path) as listener:
        client = await net.connect_unix(place.base / "link")
        server = await listener.accept()
        await client.stream.send(b"question")
        assert await server.stream.receive() == b"question"
        await close(client, server)


async def test_a_file_of_somebody_else_is_not_removed_on_leaving(place: Place, net: Net, path: Path):
    async with net.listen_unix(path):
        place.rename(path, path.with_name("moved"))
        place.put_file(path, b"1")
    assert place.tree()[path.name] == b"1"


async def test_a_path_that_is_too_long_is_told(place: Place, net: Net):
    room = 107 - len(os.fsencode(place.base)) - 1
    async with net.listen_unix(place.base / ("s" * room)):
        pass
    path = place.base / ("s" * (room + 1))
    for call in (net.listen_unix(path).__aenter__(), net.connect_unix(path)):
        with pytest.raises(OSError, match="at most 107 bytes, this one 108") as caught:
            await call
        assert (caught.value.errno, caught.value.filename) == (errno.ENAMETOOLONG, str(path))


async def test_what_cannot_be_connected_to_is_told(place: Place, net: Net, path: Path):
    for wrong, number in {
        path: errno.ENOENT,
        place.base / "no" / "directory": errno.ENOENT,
    }.items():
        with pytest.raises(OSError) as caught:
            await net.connect_unix(wrong)
        assert (caught.value.errno, caught.value.filename) == (number, str(wrong))
    assert await error_of(net.listen_unix(place.base / "no" / "directory").__aenter__()) == errno.ENOENT


async def test_a_client_that_is_gone_before_it_is_accepted_harms_nobody(net: Net, path: Path):
    async with net.listen_unix(path) as listener:
        gone = await net.connect_unix(path)
        await gone.stream.send(b"bye")
        await close(gone)
        accepted = await listener.accept()
        assert await accepted.stream.receive() == b"bye"
        with pytest.raises(anyio.EndOfStream):
            await accepted.stream.receive()
        await close(accepted)


async def test_who_was_never_accepted_is_hung_up_on(net: Net, path: Path):
    async with net.listen_unix(path):
        client = await net.connect_unix(path)
    with pytest.raises((anyio.EndOfStream, anyio.BrokenResourceError)):
        await client.stream.receive()
    await close(client)


async def test_who_accepts_learns_that_the_listener_is_closed(net: Net, path: Path):
    ended = []

    async def accept(listener: Any) -> None:
        with pytest.raises(anyio.ClosedResourceError):
            await listener.accept()
        ended.append(True)

    async with anyio.create_task_group() as tasks, net.listen_unix(path) as listener:
        tasks.start_soon(accept, listener)
        await anyio.wait_all_tasks_blocked()
    assert ended


async def test_a_full_backlog_refuses_after_a_while(anyio_backend: str):
    place = SimPlace.new()
    net = SimNet(SimSockets(place.disk), peer=US, backlog=0)
    path = place.base / "it"
    async with net.listen_unix(path):
        await close(await net.connect_unix(path))
        with pytest.raises(BlockingIOError):
            await net.connect_unix(path)


async def test_the_sockets_of_the_dead_stay_and_nobody_listens_there(anyio_backend: str):
    place = SimPlace.new()
    path = place.base / "it"
    sockets = SimSockets(place.disk)
    dead, alive = SimNet(sockets, peer=US), SimNet(sockets, peer=US)
    returned = []

    async def never(call: Callable[[], Any]) -> None:
        try:
            returned.append(await call())
        except Exception as error:  # noqa: BLE001  whatever it is
            returned.append(error)

    async with anyio.create_task_group() as tasks:
        listening, unheard = dead.listen_unix(path), dead.listen_unix(path.with_name("unheard"))
        listener = await listening.__aenter__()
        await unheard.__aenter__()
        client = await alive.connect_unix(path)
        server = await listener.accept()
        waiting = await alive.connect_unix(path.with_name("unheard"))
        tasks.start_soon(never, server.stream.receive)
        tasks.start_soon(never, listener.accept)
        await anyio.wait_all_tasks_blocked()
        dead.fence()
        tasks.start_soon(never, partial(dead.connect_unix, path))
        tasks.start_soon(never, partial(server.stream.send, b"1"))
        tasks.start_soon(never, listener.accept)
        for stream in (client.stream, waiting.stream):
            with pytest.raises(anyio.EndOfStream):
                await stream.receive()
        with pytest.raises(ConnectionRefusedError):
            await alive.connect_unix(path)
        async with alive.listen_unix(path):
            await anyio.wait_all_tasks_blocked()
            # What the dead would still do has no effect.
            for context in (listening, unheard):
                await context.__aexit__(None, None, None)
            await close(await alive.connect_unix(path))
        assert not returned
        tasks.cancel_scope.cancel()
    assert place.tree() == {"unheard": None}


async def test_an_end_that_is_closed_has_hung_up_and_one_that_only_sends_no_more_has_not(net: Net, path: Path):
    client, server = await pair(net, path)
    seen = []
    for step in (
        partial(client.stream.send, b"unread"),
        client.stream.send_eof,
        client.stream.aclose,
        server.stream.aclose,
    ):
        await step()
        seen.append(server.has_hung_up)
    assert seen == [False, False, True, True]
