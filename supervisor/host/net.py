"""Sockets: of this machine, and TCP."""

from __future__ import annotations

import errno
import os
import socket
import stat
import struct
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Final, TypeVar

import anyio
import attrs
from anyio import lowlevel

from actors.ports import OWNER_ALONE, Peer, TcpAddress
from supervisor.host.stream import SocketStream

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

_Wrapped = TypeVar("_Wrapped")

# sun_path has 108 bytes, and what Linux binds there ends with a zero; unix(7).
_PATH_LIMIT_BYTES: Final = 107
_BACKLOG: Final = 1024
_UCRED: Final = struct.Struct("iII")
# Nothing to accept with: descriptors or memory, of ours or of the machine. accept(2) of man-pages 6.9.
_EXHAUSTED: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
# What is wrong with the connection that is to be accepted, or with the network for a while: nothing with the socket
# that listens. accept(2) of man-pages 6.9, "Error handling" and EPERM (a firewall's).
_OF_THE_CONNECTION: Final = frozenset(
    {
        errno.ENETDOWN, errno.EPROTO, errno.ENOPROTOOPT, errno.EHOSTDOWN, errno.ENONET, errno.EHOSTUNREACH,
        errno.EOPNOTSUPP, errno.ENETUNREACH, errno.EPERM,
    }
)  # fmt: skip
_RETRY_MIN_S: Final = 0.01
_RETRY_MAX_S: Final = 1.0
# connect(2): EAGAIN is the answer of a unix socket whose backlog is full.
_CONNECT_TRIES: Final = 8


@attrs.frozen
class HostConnection:
    """The real `Connection`."""

    peer: Peer
    stream: SocketStream

    @property
    def has_hung_up(self) -> bool:
        """Whether the other end is closed for good."""
        return self.stream.has_hung_up


class HostListener:
    """The real `Listener`; one task accepts."""

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock

    async def accept(self) -> HostConnection:
        """The next connection; when there is no descriptor left for it, it waits in the backlog.

        Raises:
            ClosedResourceError: the listener's context was left.
        """
        return await _accepted(self._socket, _connection)

    def close(self) -> None:
        """Stop listening; who is accepting gets ClosedResourceError."""
        _stop_listening(self._socket)


@attrs.frozen
class HostChannel:
    """The real `Channel`, of TCP."""

    stream: SocketStream

    @property
    def has_hung_up(self) -> bool:
        """Whether the other end is closed for good."""
        return self.stream.has_hung_up


class HostTcpListener:
    """The real `TcpListener`; one task accepts."""

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock
        host, port, *_ = sock.getsockname()
        self.address = TcpAddress(host, port)

    async def accept(self) -> HostChannel:
        """The next connection; when there is no descriptor left for it, it waits in the backlog.

        Raises:
            ClosedResourceError: the listener's context was left.
        """
        return await _accepted(self._socket, _channel)

    def close(self) -> None:
        """Stop listening; who is accepting gets ClosedResourceError."""
        _stop_listening(self._socket)


class HostNet:
    """The real `Net`."""

    @asynccontextmanager
    async def listen_unix(self, path: Path, *, mode: int = OWNER_ALONE) -> AsyncIterator[HostListener]:
        """Listen at a path, with this mode, in place of a socket that nobody listens at; removed on leaving.

        Raises:
            OSError: EADDRINUSE when somebody listens there or it is no socket, ENAMETOOLONG over 107 bytes, ENOENT.
        """
        await lowlevel.checkpoint()
        address = _address(path)
        _remove_stale(address)
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
            sock.settimeout(0)
            # The file gets the mode of the socket bound to it (unix_bind_bsd in net/unix/af_unix.c, Linux 6.18): it is
            # never wider, whatever the umask.
            os.fchmod(sock.fileno(), mode)
            sock.bind(address)
            bound = os.lstat(address)
            try:
                if stat.S_IMODE(bound.st_mode) != mode:  # the umask took of it
                    os.chmod(address, mode)
                # Until now nobody could connect: there is no listening socket.
                sock.listen(_BACKLOG)
                listener = HostListener(sock)
                try:
                    yield listener
                finally:
                    listener.close()
            finally:
                _remove_if_same(address, bound)

    async def connect_unix(self, path: Path) -> HostConnection:
        """Connect.

        Raises:
            OSError: ENOENT, ECONNREFUSED, EACCES, ENAMETOOLONG; EAGAIN when the backlog stays full for some seconds.
        """
        address = _address(path)
        await lowlevel.checkpoint()
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            sock.settimeout(0)
            delay_s = _RETRY_MIN_S
            for _ in range(_CONNECT_TRIES - 1):
                with suppress(BlockingIOError):
                    sock.connect(address)
                    break
                await anyio.sleep(delay_s)
                delay_s = min(2 * delay_s, _RETRY_MAX_S)
            else:
                sock.connect(address)
        except BaseException as error:
            sock.close()
            if isinstance(error, OSError):
                error.filename = address
            raise
        return _connection(sock)

    @asynccontextmanager
    async def listen_tcp(self, address: TcpAddress) -> AsyncIterator[HostTcpListener]:
        """Listen at an address; at `::` for IPv4 as well, where the machine has both.

        Raises:
            OSError: EADDRINUSE when somebody listens there, EADDRNOTAVAIL when the address is not this machine's,
                EACCES.
        """
        await lowlevel.checkpoint()
        family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
        with socket.socket(family, socket.SOCK_STREAM) as sock:
            sock.settimeout(0)
            # What an earlier life of ours has closed may linger on the port for minutes (TIME_WAIT); tcp(7).
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
            sock.bind((address.host, address.port))
            sock.listen(_BACKLOG)
            listener = HostTcpListener(sock)
            try:
                yield listener
            finally:
                listener.close()


async def _accepted(listening: socket.socket, wrap: Callable[[socket.socket], _Wrapped]) -> _Wrapped:
    """The next connection of a listening socket, wrapped."""
    delay_s = _RETRY_MIN_S
    while True:
        await anyio.wait_readable(listening)
        try:
            accepted, _ = listening.accept()
            return wrap(accepted)
        except (BlockingIOError, ConnectionError):
            continue  # it was gone before we came
        except OSError as error:
            if error.errno not in _EXHAUSTED | _OF_THE_CONNECTION:
                raise
            # The connection may stay readable in the backlog: without a pause this would be a busy loop.
            await anyio.sleep(delay_s)
            delay_s = min(2 * delay_s, _RETRY_MAX_S)


def _stop_listening(listening: socket.socket) -> None:
    anyio.notify_closing(listening)
    listening.close()


def _channel(sock: socket.socket) -> HostChannel:
    """Wrap a connected socket."""
    sock.settimeout(0)
    return HostChannel(SocketStream(sock))


def _connection(sock: socket.socket) -> HostConnection:
    """Wrap a connected socket, which is closed on failure."""
    try:
        pid, uid, gid = _UCRED.unpack(sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size))
        sock.settimeout(0)
    except BaseException:
        sock.close()
        raise
    return HostConnection(Peer(pid=pid, uid=uid, gid=gid), SocketStream(sock))


def _address(path: Path) -> str:
    length = len(os.fsencode(path))
    if length > _PATH_LIMIT_BYTES:
        message = f"the path of a unix socket has at most {_PATH_LIMIT_BYTES} bytes, this one {length}"
        raise OSError(errno.ENAMETOOLONG, message, str(path))
    return os.fspath(path)


def _remove_stale(address: str) -> None:
    """Remove the socket of a process that is gone; bind(2) refuses what is left there."""
    try:
        found = os.lstat(address)
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(found.st_mode) or _is_answered(address):
        raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE), address)
    _remove_if_same(address, found)


def _is_answered(address: str) -> bool:
    """Whether somebody listens at a socket, or at least that cannot be denied."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(0)
        try:
            probe.connect(address)
        except (ConnectionRefusedError, FileNotFoundError):
            return False
        except OSError:
            return True
        return True


def _remove_if_same(address: str, known: os.stat_result) -> None:
    with suppress(FileNotFoundError):
        if os.path.samestat(os.lstat(address), known):
            os.unlink(address)
