"""Watch, sockets, signals and calendar of one life of the supervisor, each call through its gate."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Generic, TypeVar

from anyio.abc import ByteStream

from actors.ports import OWNER_ALONE, PROMPT_S

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from actors.ports import (
        Channel,
        Connection,
        Listener,
        Net,
        Peer,
        Signals,
        TcpAddress,
        TcpListener,
        Wall,
        Watch,
    )
    from sim.world.calls import Gate

_Item = TypeVar("_Item")


class GatedIterator(Generic[_Item]):
    """What comes one after the other, through a gate."""

    def __init__(self, gate: Gate, port: str, argument: str, inner: AsyncIterator[_Item]) -> None:
        self._gate = gate
        self._port = port
        self._argument = argument
        self._inner = inner

    def __aiter__(self) -> GatedIterator[_Item]:
        return self

    async def __anext__(self) -> _Item:
        return await self._gate.cross(self._port, "next", self._argument, self._inner.__anext__)


class GatedWatch:
    """`Watch` through a gate."""

    def __init__(self, gate: Gate, inner: Watch) -> None:
        self._gate = gate
        self._inner = inner

    @asynccontextmanager
    async def changes(
        self, directory: Path, *, within_s: float = PROMPT_S
    ) -> AsyncIterator[AsyncIterator[frozenset[str]]]:
        """Names of direct entries that changed, in batches."""
        watching = self._inner.changes(directory, within_s=within_s)
        async with self._gate.opened("watch", "changes", str(directory), watching) as changes:
            yield GatedIterator(self._gate, "watch", str(directory), changes)


class GatedSignals:
    """`Signals` through a gate."""

    def __init__(self, gate: Gate, inner: Signals) -> None:
        self._gate = gate
        self._inner = inner

    @asynccontextmanager
    async def receive(self, *signums: int) -> AsyncIterator[AsyncIterator[int]]:
        """The signals that come while the context is open."""
        argument = " ".join(str(int(signum)) for signum in signums)
        async with self._gate.opened("signals", "receive", argument, self._inner.receive(*signums)) as signals:
            yield GatedIterator(self._gate, "signals", argument, signals)


class GatedNet:
    """`Net` through a gate."""

    def __init__(self, gate: Gate, inner: Net) -> None:
        self._gate = gate
        self._inner = inner

    @asynccontextmanager
    async def listen_unix(self, path: Path, *, mode: int = OWNER_ALONE) -> AsyncIterator[Listener]:
        """Listen at a path."""
        opening = self._inner.listen_unix(path, mode=mode)
        async with self._gate.opened("net", "listen_unix", str(path), opening) as listener:
            yield GatedListener(self._gate, listener, str(path))

    async def connect_unix(self, path: Path) -> Connection:
        """Connect."""
        connection = await self._gate.cross("net", "connect_unix", str(path), self._inner.connect_unix, path)
        return GatedConnection(self._gate, connection)

    @asynccontextmanager
    async def listen_tcp(self, address: TcpAddress) -> AsyncIterator[TcpListener]:
        """Listen at an address."""
        async with self._gate.opened("net", "listen_tcp", str(address), self._inner.listen_tcp(address)) as listener:
            yield GatedTcpListener(self._gate, listener)


class GatedTcpListener:
    """`TcpListener` through a gate."""

    def __init__(self, gate: Gate, inner: TcpListener) -> None:
        self._gate = gate
        self._inner = inner
        self.address: TcpAddress = inner.address

    async def accept(self) -> Channel:
        """The next connection."""
        channel = await self._gate.cross("net", "accept", str(self.address), self._inner.accept)
        return GatedChannel(self._gate, channel, str(self.address))


class GatedListener:
    """`Listener` through a gate."""

    def __init__(self, gate: Gate, inner: Listener, path: str) -> None:
        self._gate = gate
        self._inner = inner
        self._path = path

    async def accept(self) -> Connection:
        """The next connection."""
        connection = await self._gate.cross("net", "accept", self._path, self._inner.accept)
        return GatedConnection(self._gate, connection)


class GatedChannel:
    """`Channel` through a gate."""

    def __init__(self, gate: Gate, inner: Channel, name: str) -> None:
        self._inner = inner
        self.stream: ByteStream = GatedStream(gate, inner.stream, name)

    @property
    def has_hung_up(self) -> bool:
        """Whether the other end is closed for good."""
        return self._inner.has_hung_up


class GatedConnection(GatedChannel):
    """`Connection` through a gate."""

    def __init__(self, gate: Gate, inner: Connection) -> None:
        super().__init__(gate, inner, str(inner.peer.pid))
        self.peer: Peer = inner.peer


class GatedStream(ByteStream):
    """The bytes of a connection, through a gate."""

    def __init__(self, gate: Gate, inner: ByteStream, peer: str) -> None:
        self._gate = gate
        self._inner = inner
        self._peer = peer

    async def receive(self, max_bytes: int = 65536) -> bytes:
        """What has come."""
        return await self._gate.cross("net", "receive", self._peer, self._inner.receive, max_bytes)

    async def send(self, item: bytes) -> None:
        """Send everything."""
        await self._gate.cross("net", "send", self._peer, self._inner.send, item)

    async def send_eof(self) -> None:
        """Say that nothing more will be sent."""
        await self._gate.cross("net", "send_eof", self._peer, self._inner.send_eof)

    async def aclose(self) -> None:
        """Close both directions."""
        await self._gate.cross("net", "close", self._peer, self._inner.aclose)


class GatedWall:
    """`Wall` through a gate."""

    def __init__(self, gate: Gate, inner: Wall) -> None:
        self._gate = gate
        self._inner = inner

    def now_s(self) -> float:
        """Seconds since 1970 UTC."""
        return self._gate.cross_now("wall", "now_s", "", self._inner.now_s)

    def boot_id(self) -> str:
        """The kernel's boot id."""
        return self._gate.cross_now("wall", "boot_id", "", self._inner.boot_id)

    def machine(self) -> str:
        """The architecture."""
        return self._gate.cross_now("wall", "machine", "", self._inner.machine)

    def cpu_features(self) -> tuple[str, ...] | None:
        """What the processor can do."""
        return self._gate.cross_now("wall", "cpu_features", "", self._inner.cpu_features)

    def fresh_id(self) -> str:
        """16 random hex digits, never twice."""
        return self._gate.cross_now("wall", "fresh_id", "", self._inner.fresh_id)
