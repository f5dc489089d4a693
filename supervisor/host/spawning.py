"""Starting a process: one call of posix_spawn(3), and what its streams are.

posix_spawn and not fork: glibc spawns with CLONE_VM | CLONE_VFORK, so the cost does not grow with our heap, no
at-fork handler of a library runs in the child, and no other thread's lock can be held in it. The call returns when the
child has executed, so its errors are errors of the call.

Source: posix_spawn(3) and tty_ioctl(4) of man-pages 6.9, glibc 2.36 sysdeps/unix/sysv/linux/spawni.c (the session is
made before the file actions), memfd_create(2).
"""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import socket
import stat
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, assert_never

from actors.ports import AppendTo, Output

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

CAPTURE_NAME: Final = "greenroom-output"
"""By this name it is seen who has the captured output of a command open."""
CAPTURE_BYTES_MAX: Final = 4 << 20
"""What one stream may take of the memory, whoever writes into it and for how long."""
_FIRST_FD_AFTER_STDIO: Final = 3
# Python ignores SIGPIPE and SIGXFSZ, whoever started us may have ignored others, and ignored signals stay ignored over
# an exec: a child begins with the default for every signal that can have one.
_ALL_SIGNALS: Final = frozenset(signal.valid_signals()) - {signal.SIGKILL, signal.SIGSTOP}


def check_command(argv: Sequence[str]) -> None:
    """Refuse what cannot be started for certain.

    Raises:
        ValueError: no argument, or argv[0] is not absolute: nothing is looked up in PATH.
    """
    if not argv or not os.path.isabs(argv[0]):
        raise ValueError(f"a command is a list with an absolute path first, not {list(argv)!r}")


def posix_spawn(
    argv: Sequence[str], env: Mapping[str, str], *, stdin_fd: int | None = None, stdout_fd: int, stderr_fd: int
) -> int:
    """Start a command in a session of its own and return its pid.

    Its stdin is /dev/null unless one is given. Every other descriptor of ours is closed by the exec: Python opens all
    with O_CLOEXEC, and `close_on_exec` has seen to those that we were started with.

    Raises:
        FileNotFoundError, PermissionError: argv[0] cannot be executed.
        BlockingIOError: no room for a process now (EAGAIN: a limit on processes).
        OSError: E2BIG, ENOEXEC, ETXTBSY, ENOMEM.
    """
    return os.posix_spawn(
        argv[0],
        list(argv),
        env,
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0)
            if stdin_fd is None
            else (os.POSIX_SPAWN_DUP2, stdin_fd, 0),
            (os.POSIX_SPAWN_DUP2, stdout_fd, 1),
            (os.POSIX_SPAWN_DUP2, stderr_fd, 2),
        ],
        setsid=True,
        setsigmask=(),
        setsigdef=_ALL_SIGNALS,
    )


def posix_spawn_at_terminal(
    argv: Sequence[str], env: Mapping[str, str], *, terminal: str, program: tuple[int, int] | None = None
) -> int:
    """Start a command in a session of its own whose terminal is this one, and return its pid.

    The leader of a session that has no terminal gets the one that it opens first. `program` is a descriptor of ours
    that it gets beside its stdio, and the number there.

    Raises:
        FileNotFoundError, PermissionError: argv[0] cannot be executed, or the terminal not opened.
        OSError: as `posix_spawn`.
    """
    return os.posix_spawn(
        argv[0],
        list(argv),
        env,
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, terminal, os.O_RDWR, 0),
            (os.POSIX_SPAWN_DUP2, 0, 1),
            (os.POSIX_SPAWN_DUP2, 0, 2),
            *(() if program is None else ((os.POSIX_SPAWN_DUP2, *program),)),
        ],
        setsid=True,
        setsigmask=(),
        setsigdef=_ALL_SIGNALS,
    )


@contextmanager
def open_input(path: Path) -> Iterator[int]:
    """A descriptor for a child's stdin, ours only while the context is open.

    Raises:
        OSError: the file cannot be opened; ELOOP when it is a symlink, EINVAL when it is not regular.
    """
    fd = _above_stdio(_open_regular(os.fspath(path), os.O_RDONLY))
    try:
        yield fd
    finally:
        os.close(fd)


@contextmanager
def open_output(output: AppendTo | Output) -> Iterator[int]:
    """A descriptor for a child's stream, ours only while the context is open.

    It is opened here and not by a file action of the spawn, whose errors could not be told from those of argv[0].

    Raises:
        OSError: the file of an AppendTo cannot be opened; ELOOP when it is a symlink, EINVAL when it is not regular.
    """
    fd = _above_stdio(_open_output(output))
    try:
        yield fd
    finally:
        os.close(fd)


@contextmanager
def open_connection() -> Iterator[tuple[int, socket.socket]]:
    """A descriptor for a child's stdout, ours only while the context is open, and the other end, which stays ours.

    It is closed when the body fails. Neither end can be inherited by another child.
    """
    ours, theirs = socket.socketpair()
    try:
        fd = _above_stdio(theirs.detach())
        try:
            yield fd, ours
        finally:
            os.close(fd)
    except BaseException:
        ours.close()
        raise


def captured_bytes(fd: int) -> int:
    """How much was written into captured output.

    A command shares the position of our descriptor, so that tells. A sandbox that was handed it keeps a position of its
    own: what stands beyond ours, up to the first hole, is its output, but for zeros at the very end.
    """
    size_bytes = os.fstat(fd).st_size
    written = os.lseek(fd, 0, os.SEEK_CUR)
    if written >= size_bytes:
        return size_bytes
    beyond = os.lseek(fd, written, os.SEEK_HOLE) - written
    return written + len(os.pread(fd, beyond, written).rstrip(b"\0"))


def close_on_exec() -> None:
    """Let no child inherit what we were started with, beyond stdin, stdout and stderr."""
    for name in os.listdir("/proc/self/fd"):
        fd = int(name)
        if fd >= _FIRST_FD_AFTER_STDIO:
            try:
                fcntl.fcntl(fd, fcntl.F_SETFD, fcntl.FD_CLOEXEC)
            except OSError as error:
                if error.errno != errno.EBADF:  # the descriptor of the listing itself
                    raise


def _open_output(output: AppendTo | Output) -> int:
    match output:
        case AppendTo(path=path):
            return _open_append(os.fspath(path))
        case Output.CAPTURE:
            return _open_capture()
        case Output.DISCARD:
            return os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
        case _:
            assert_never(output)


def _open_capture() -> int:
    """A file in memory that can hold so much and no more: a write beyond fails with EPERM.

    It has its size from the beginning and is sealed against growth, which costs nothing before something is written.
    A limit of the process (RLIMIT_FSIZE) would be one for its snapshots too, and none for a sandbox, which it asks to
    write. Only what opens its stdout anew by its name and cuts it, as `> /dev/stdout` does on the host, can write
    nothing then; no command of ours does (in a sandbox, that does no harm).

    Source: fcntl(2) F_ADD_SEALS of man-pages 6.9; measured on Linux 6.18, and with runsc 20240729 as what writes.
    """
    fd = os.memfd_create(CAPTURE_NAME, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        os.ftruncate(fd, CAPTURE_BYTES_MAX)
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_GROW)
    except BaseException:
        os.close(fd)
        raise
    return fd


def _open_append(path: str) -> int:
    return _open_regular(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)


def _open_regular(path: str, flags: int) -> int:
    # O_NONBLOCK so that a fifo in its place cannot hold us; the child must not find it set.
    fd = os.open(path, flags | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600)
    try:
        _require_regular(fd, path)
        os.set_blocking(fd, True)
    except BaseException:
        os.close(fd)
        raise
    return fd


def _require_regular(fd: int, path: str) -> None:
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        raise OSError(errno.EINVAL, "input comes from, and output goes to, regular files only", path)


def _above_stdio(fd: int) -> int:
    """The same open file at a number that no dup2 of the spawn overwrites: we may have been started without stdio."""
    if fd >= _FIRST_FD_AFTER_STDIO:
        return fd
    try:
        return fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, _FIRST_FD_AFTER_STDIO)
    finally:
        os.close(fd)
