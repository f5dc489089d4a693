"""Simulated sockets between simulated processes: at paths of the simulated disk, and at TCP ports."""

from __future__ import annotations

import errno
from collections import deque
from contextlib import asynccontextmanager, suppress
from itertools import count
from typing import TYPE_CHECKING, Final

import anyio
import attrs
from anyio import lowlevel

from actors.ports import OWNER_ALONE, Peer, TcpAddress
from sim.world.errors import kernel_error
from sim.world.nodes import Special, SpecialNode
from sim.world.streams import connected_pair

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from pathlib import Path

    from sim.world.disk import SimDisk
    from sim.world.nodes import Node
    from sim.world.streams import OneTurn, SimStream

# As in the real port: sun_path of unix(7), its mode, its backlog, and how long a full backlog is tried.
_PATH_LIMIT_BYTES: Final = 107
_BACKLOG: Final = 1024
_CONNECT_TRIES: Final = 8
_RETRY_MIN_S: Final = 0.01
_RETRY_MAX_S: Final = 1.0
# net.ipv4.ip_local_port_range of Linux begins here.
_FIRST_FREE_PORT: Final = 32768


@attrs.frozen
class SimConnection:
    """The simulated `Connection`."""

    peer: Peer
    stream: SimStream

    @property
    def has_hung_up(self) -> bool:
        """Whether the other end is closed for good."""
        return self.stream.has_hung_up


class SimListener:
    """The simulated `Listener`."""

    def __init__(self, net: SimNet) -> None:
        self.net = net
        self._is_closed = False
        self._waiting: deque[tuple[Peer, SimStream]] = deque()
        self._came = anyio.Event()

    async def accept(self) -> SimConnection:
        """The next connection.

        Raises:
            ClosedResourceError: the listener's context was left.
        """
        await self.net.let_others_run()
        while not self._waiting:
            if self._is_closed:
                raise anyio.ClosedResourceError
            if self._came.is_set():
                self._came = anyio.Event()
            await self._came.wait()
            await self.net.stay_dead()
        peer, stream = self._waiting.popleft()
        return SimConnection(peer, self.net.owned(stream))

    def take(self, peer: Peer) -> SimStream:
        """Let somebody in, to be accepted; returns their end.

        Raises:
            BlockingIOError: the backlog is full.
        """
        # Linux lets one more in than listen(2) was told.
        if len(self._waiting) > self.net.backlog:
            raise kernel_error(errno.EAGAIN)
        theirs, ours = connected_pair(self.net.one_turn)
        self._waiting.append((peer, ours))
        self._came.set()
        return theirs

    def close(self) -> None:
        """Stop listening; who accepts gets ClosedResourceError, who waits in the backlog is hung up on."""
        self._is_closed = True
        self.hang_up()
        self._came.set()

    def fence(self) -> None:
        """Nobody listens here any more; who accepts is dead."""
        self.hang_up()
        self._came.set()

    def hang_up(self) -> None:
        """Close what waits in the backlog; who accepts goes on waiting."""
        while self._waiting:
            self._waiting.popleft()[1].close()


class SimTcpListener(SimListener):
    """The simulated `TcpListener`."""

    def __init__(self, net: SimNet, address: TcpAddress) -> None:
        super().__init__(net)
        self.address = address


class SimSockets:
    """Who listens where, on one simulated machine. A power failure ends it: make another one then.

    Args:
        disk: where the paths of sockets lead.
        let_others_run: one turn of the event loop, at every call.
    """

    def __init__(self, disk: SimDisk, *, let_others_run: OneTurn = lowlevel.checkpoint) -> None:
        self.disk = disk
        self.let_others_run = let_others_run
        self.listening: dict[SpecialNode, SimListener] = {}
        self.ports: dict[int, SimTcpListener] = {}


class SimNet:
    """The simulated `Net` of one life of a process.

    Args:
        sockets: what it shares with the other processes of its machine.
        peer: who this process is to others.
        backlog: how many connections wait to be accepted.
    """

    def __init__(self, sockets: SimSockets, *, peer: Peer, backlog: int = _BACKLOG) -> None:
        self._sockets = sockets
        self._disk = sockets.disk
        self.one_turn = sockets.let_others_run
        self.peer = peer
        self._is_fenced = False
        # In the order in which they came, which is that in which others learn that they are closed.
        self._streams: dict[SimStream, None] = {}
        self.backlog = backlog
        # What a call of the dead does instead of returning.
        self.once_dead: Callable[[], Awaitable[object]] = anyio.sleep_forever

    @asynccontextmanager
    async def listen_unix(self, path: Path, *, mode: int = OWNER_ALONE) -> AsyncIterator[SimListener]:
        """Listen at a path, with this mode, in place of a socket that nobody listens at; removed on leaving.

        Raises:
            OSError: EADDRINUSE when somebody listens there or it is no socket, ENAMETOOLONG over 107 bytes, ENOENT.
        """
        await self.let_others_run()
        _require_short(path)
        self._remove_stale(path)
        directory = self._disk.find_directory(path.parent)
        node = self._disk.make_special(directory, path.name, Special.SOCKET, mode=mode)
        self._sockets.listening[node] = listener = SimListener(self)
        try:
            yield listener
        finally:
            if not self._is_fenced:
                self._sockets.listening.pop(node, None)
                listener.close()
                self._remove_if_same(path, node)

    async def connect_unix(self, path: Path) -> SimConnection:
        """Connect.

        Raises:
            OSError: ENOENT, ECONNREFUSED, ENAMETOOLONG; EAGAIN when the backlog stays full for some seconds.
        """
        _require_short(path)
        await self.let_others_run()
        delay_s = _RETRY_MIN_S
        try:
            for _ in range(_CONNECT_TRIES - 1):
                with suppress(BlockingIOError):
                    return self._connect(path)
                await anyio.sleep(delay_s)
                delay_s = min(2 * delay_s, _RETRY_MAX_S)
            return self._connect(path)
        except OSError as error:
            error.filename = str(path)
            raise

    @asynccontextmanager
    async def listen_tcp(self, address: TcpAddress) -> AsyncIterator[SimTcpListener]:
        """Listen at an address. Here a port has one listener, whatever the host.

        Raises:
            OSError: EADDRINUSE when somebody listens there.
        """
        await self.let_others_run()
        ports = self._sockets.ports
        port = address.port or next(each for each in count(_FIRST_FREE_PORT) if each not in ports)
        if port in ports:
            raise kernel_error(errno.EADDRINUSE)
        ports[port] = listener = SimTcpListener(self, TcpAddress(address.host, port))
        try:
            yield listener
        finally:
            if not self._is_fenced:
                del ports[port]
                listener.close()

    async def connect_tcp(self, port: int) -> SimConnection:
        """Connect; not of the port, but for whoever plays the other end.

        Raises:
            OSError: ECONNREFUSED.
        """
        await self.let_others_run()
        listener = self._sockets.ports.get(port)
        if listener is None:
            raise kernel_error(errno.ECONNREFUSED)
        return SimConnection(listener.net.peer, self.owned(listener.take(self.peer)))

    def fence(self) -> None:
        """The process is dead: others find its connections closed and nobody listening; its own calls never return.

        The files of its sockets stay, as they do.
        """
        self._is_fenced = True
        for node, listener in list(self._sockets.listening.items()):
            if listener.net is self:
                del self._sockets.listening[node]
                listener.fence()
        for port, bound in list(self._sockets.ports.items()):
            if bound.net is self:
                del self._sockets.ports[port]
                bound.fence()
        for stream in list(self._streams):
            stream.fence()

    def owned(self, stream: SimStream) -> SimStream:
        """This end of a connection is this process's, until it is closed."""
        self._streams[stream] = None
        stream.on_close = self._streams.pop
        stream.once_dead = self.once_dead
        return stream

    async def let_others_run(self) -> None:
        """A checkpoint, from which the dead do not return."""
        if not self._is_fenced:
            await self.one_turn()
        await self.stay_dead()

    async def stay_dead(self) -> None:
        """The dead do not go on."""
        if self._is_fenced:
            await self.once_dead()

    def _connect(self, path: Path) -> SimConnection:
        node = self._disk.find(path)
        listener = self._sockets.listening.get(node) if isinstance(node, SpecialNode) else None
        if listener is None:
            raise kernel_error(errno.ECONNREFUSED)
        return SimConnection(listener.net.peer, self.owned(listener.take(self.peer)))

    def _remove_stale(self, path: Path) -> None:
        """Remove the socket of a process that is gone; bind(2) refuses what is left there."""
        try:
            node = self._disk.find(path, follow=False)
        except FileNotFoundError:
            return
        if not isinstance(node, SpecialNode) or node.special is not Special.SOCKET or node in self._sockets.listening:
            raise kernel_error(errno.EADDRINUSE, str(path))
        self._remove_if_same(path, node)

    def _remove_if_same(self, path: Path, known: Node) -> None:
        with suppress(FileNotFoundError):
            if self._disk.find(path, follow=False) is known and known.parent is not None:
                self._disk.remove(known.parent, known.name)


def _require_short(path: Path) -> None:
    length = len(str(path).encode("utf-8", "surrogateescape"))
    if length > _PATH_LIMIT_BYTES:
        message = f"the path of a unix socket has at most {_PATH_LIMIT_BYTES} bytes, this one {length}"
        raise OSError(errno.ENAMETOOLONG, message, str(path))
