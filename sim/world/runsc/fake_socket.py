"""How the fake runsc and its sandboxes speak: one question and one answer on a connection, with descriptors.

A question is a length, JSON, and the caller's descriptors; the sandbox sends one byte when it has taken it, and the
answer and the end of the connection when it has one. So a question that was never taken (the sandbox hung, and was
killed) is told from one that was and has no answer, as with the real one.
"""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final

import attrs
import orjson

from sim.world.runsc.machine import Answer

if TYPE_CHECKING:
    from collections.abc import Iterator

_LENGTH: Final = struct.Struct("!I")
_DESCRIPTORS_MAX: Final = 8
_CHUNK_BYTES: Final = 1 << 16
_TAKEN: Final = b"+"
# A caller that was killed in the middle of its question holds nobody up for longer.
_QUESTION_S: Final = 2.0


@attrs.frozen(kw_only=True)
class Question:
    """What came on a connection."""

    connection: socket.socket
    method: str
    argument: Mapping[str, Any]
    descriptors: tuple[int, ...]


@contextmanager
def _reachable(path: str) -> Iterator[str]:
    """A name for a socket that fits into 107 bytes, however long its directory's is."""
    directory, name = os.path.split(path)
    fd = os.open(directory, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{fd}/{name}"
    finally:
        os.close(fd)


def listen(path: str) -> socket.socket:
    """Listen at a path."""
    with _reachable(path) as name, suppress(FileNotFoundError):
        os.remove(name)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    with _reachable(path) as name:
        listener.bind(name)
    listener.listen(64)
    return listener


def ask(path: str, method: str, argument: Mapping[str, Any], descriptors: Sequence[int]) -> Answer:
    """Ask the sandbox that listens at a path, and wait for its answer as long as it takes."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        try:
            with _reachable(path) as name:
                connection.connect(name)
            body = orjson.dumps({"method": method, "argument": argument})
            socket.send_fds(connection, [_LENGTH.pack(len(body))], list(descriptors))
            connection.sendall(body)
            taken = connection.recv(1)
        except OSError:
            return Answer(refused=True)
        if taken != _TAKEN:
            return Answer(refused=True)
        data = b""
        try:
            while chunk := connection.recv(_CHUNK_BYTES):
                data += chunk
        except ConnectionResetError:
            data = b""
    return Answer(**orjson.loads(data)) if data else Answer(eof=True)


def take(listener: socket.socket) -> Question | None:
    """Take the next question; None when who asked is gone."""
    connection, _ = listener.accept()
    connection.settimeout(_QUESTION_S)
    try:
        head, descriptors, _, _ = socket.recv_fds(connection, _LENGTH.size, _DESCRIPTORS_MAX)
        (length,) = _LENGTH.unpack(head)
        body = b""
        while len(body) < length:
            chunk = connection.recv(length - len(body))
            if not chunk:
                raise ConnectionResetError
            body += chunk
        connection.sendall(_TAKEN)
    except (OSError, struct.error):
        connection.close()
        return None
    connection.settimeout(None)
    question = orjson.loads(body)
    return Question(
        connection=connection,
        method=question["method"],
        argument=question["argument"],
        descriptors=tuple(descriptors),
    )


def answer(connection: socket.socket, what: Answer) -> None:
    """Answer and hang up; without an answer (EOF) only hang up."""
    if not what.eof:
        body = orjson.dumps({"result": what.result, "error": what.error})
        with suppress(OSError):
            connection.sendall(body)
    connection.close()
