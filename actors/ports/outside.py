"""The ports for what reaches us from outside: changes of directories, sockets, signals, the calendar and the boot."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

import attrs

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from contextlib import AbstractAsyncContextManager
    from pathlib import Path

    from anyio.abc import ByteStream


OWNER_ALONE: Final = 0o600
"""The mode of a socket that only its owner and root reach."""
PROMPT_S: Final = 0.02
"""As soon as can be: a change of names; what is written into a file in place is told ten times as late."""


class Watch(Protocol):
    """Changes of directories."""

    def changes(
        self, directory: Path, *, within_s: float = PROMPT_S
    ) -> AbstractAsyncContextManager[AsyncIterator[frozenset[str]]]:
        """Names of direct entries that changed, in batches; not recursive. Leaving the context ends it within 50 ms.

        Who can wait longer for a change than `within_s` of its default costs an idle worker less.

        An empty set means: something changed that has no name, look at everything (the directory itself vanished,
        came back, or events were lost). A directory that is absent at first is waited for.
        """
        ...


@attrs.frozen(kw_only=True)
class Peer:
    """Who is at the other end of a unix socket (SO_PEERCRED)."""

    pid: int
    uid: int
    gid: int


class Channel(Protocol):
    """Bytes to and from one other end, of which nothing else is known."""

    @property
    def stream(self) -> ByteStream:
        """Bytes both ways; anyio's errors (EndOfStream, BrokenResourceError, ClosedResourceError)."""
        ...

    @property
    def has_hung_up(self) -> bool:
        """Whether the other end is closed for good; one that only sends no more is not. Costs a system call."""
        ...


class Connection(Channel, Protocol):
    """One accepted or made connection of a unix socket."""

    @property
    def peer(self) -> Peer:
        """Who is at the other end."""
        ...


class Listener(Protocol):
    """A listening unix socket."""

    async def accept(self) -> Connection:
        """The next connection."""
        ...


@attrs.frozen
class TcpAddress:
    """Where TCP is listened at.

    Attributes:
        host: a numeric address; `0.0.0.0` is every one of IPv4, `::` every one of both.
        port: 0 is one that is free.
    """

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class TcpListener(Protocol):
    """A listening TCP socket."""

    @property
    def address(self) -> TcpAddress:
        """Where it really listens."""
        ...

    async def accept(self) -> Channel:
        """The next connection."""
        ...


class Net(Protocol):
    """Sockets."""

    def listen_unix(self, path: Path, *, mode: int = OWNER_ALONE) -> AbstractAsyncContextManager[Listener]:
        """Listen at a path, replacing a socket that nobody listens at; removed on leaving.

        Its file has this mode, whatever the umask.

        Raises:
            OSError: EADDRINUSE when somebody listens there, ENAMETOOLONG over 107 bytes.
        """
        ...

    async def connect_unix(self, path: Path) -> Connection:
        """Connect.

        Raises:
            OSError: ENOENT, ECONNREFUSED, EACCES.
        """
        ...

    def listen_tcp(self, address: TcpAddress) -> AbstractAsyncContextManager[TcpListener]:
        """Listen at an address.

        Raises:
            OSError: EADDRINUSE when somebody listens there, EADDRNOTAVAIL when the address is not this machine's,
                EACCES.
        """
        ...


class Signals(Protocol):
    """Signals to our process."""

    def receive(self, *signums: int) -> AbstractAsyncContextManager[AsyncIterator[int]]:
        """The signals that come while the context is open, each handled from the moment it is entered."""
        ...


class Wall(Protocol):
    """What is read from outside and is not a duration: the calendar, the boot, fresh names."""

    def now_s(self) -> float:
        """Seconds since 1970 UTC."""
        ...

    def boot_id(self) -> str:
        """The kernel's boot id, /proc/sys/kernel/random/boot_id."""
        ...

    def machine(self) -> str:
        """The architecture in the kernel's word, as `uname -m` names it: x86_64, aarch64."""
        ...

    def cpu_features(self) -> tuple[str, ...] | None:
        """What the first processor can do, in the kernel's words, sorted; None where the kernel does not say."""
        ...

    def fresh_id(self) -> str:
        """16 random hex digits, never twice."""
        ...
