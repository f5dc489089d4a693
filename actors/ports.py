"""The ports: everything that an actor's steps and the supervisor may do to the world, as Protocols.

`supervisor/host/` holds the real ones, the simulated world holds others. Nothing outside them calls `subprocess`, `os`,
`time`, `random`, `socket` or `open`. Durations are seconds of anyio's clock. A port raises `OSError` with an errno where
the kernel would, and the errors named below; steps turn them into problems of the catalogue.
"""

from __future__ import annotations

import enum
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import attrs

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping, Sequence
    from contextlib import AbstractAsyncContextManager

    from anyio.abc import ByteStream


# ---------------------------------------------------------------------------------------------------------------- processes


@attrs.frozen(kw_only=True)
class ProcessIdentity:
    """One process for ever: a pid together with its start time cannot be mistaken for a later process with the same pid.

    Attributes:
        pid: process id in our PID namespace.
        start_ticks: field 22 of /proc/PID/stat, clock ticks since boot.
    """

    pid: int
    start_ticks: int


@attrs.frozen(kw_only=True)
class Exit:
    """How a process ended.

    Attributes:
        code: 0-255, or minus the number of the signal that ended it; None when it was reaped by somebody else,
            so that the status cannot be known.
    """

    code: int | None


@attrs.frozen(kw_only=True)
class Finished:
    """A command that ran to its end.

    Attributes:
        exit: how it ended.
        stdout: what it wrote to stdout, at most `stdout_limit_bytes` of `Processes.run`, when stdout was captured; else empty.
        stderr: the last 16 KiB of what it wrote to stderr, when stderr was captured; else empty.
        elapsed_s: seconds from spawn to exit.
    """

    exit: Exit
    stdout: bytes = b""
    stderr: bytes = b""
    elapsed_s: float = 0.0


@attrs.frozen
class AppendTo:
    """Output goes to this file, opened O_APPEND | O_CREAT, mode 0600: a file, since what daemonizes keeps a pipe open for ever."""

    path: Path


class Output(enum.Enum):
    """Where a command's stream goes when it is not a file of ours."""

    CAPTURE = "capture"
    """An anonymous file (memfd), read back once after the exit. Never a pipe."""
    DISCARD = "discard"
    """/dev/null."""


class DeadlineExceededError(TimeoutError):
    """Raised when a command did not end before its deadline; its process group has been killed and waited for."""


class Child(Protocol):
    """A process we own, spawned or adopted: nobody else waits for it. Held by a pidfd, so a reused pid is never hit."""

    @property
    def identity(self) -> ProcessIdentity:
        """Pid and start time."""
        ...

    async def wait(self) -> Exit:
        """Wait until it has ended and return how; may be called any number of times, by several tasks, and cancelled."""
        ...

    def signal(self, signum: int) -> None:
        """Send a signal by pidfd; does nothing when it has already ended."""
        ...

    def close(self) -> None:
        """Give up ownership: the pidfd is closed, the process lives on, the reaper takes its zombie later."""
        ...


class Processes(Protocol):
    """Every subprocess of Greenroom starts here: own session, closed fds, stdin from /dev/null, output to files.

    Commands are absolute argv lists; `env` is the whole environment of the child (never inherited).
    """

    async def run(
        self,
        argv: Sequence[str],
        *,
        deadline_s: float,
        env: Mapping[str, str],
        stdout: AppendTo | Output = Output.CAPTURE,
        stderr: AppendTo | Output = Output.CAPTURE,
        stdout_limit_bytes: int = 1 << 20,
    ) -> Finished:
        """Run a command to its end.

        When the deadline passes or the caller is cancelled, the command's process group gets SIGKILL and is waited for
        before this returns. What it daemonized into another session lives on.

        Raises:
            FileNotFoundError, PermissionError: argv[0] cannot be executed.
            DeadlineExceededError: the deadline passed.
        """
        ...

    async def spawn(
        self, argv: Sequence[str], *, env: Mapping[str, str], stdout: AppendTo | Output, stderr: AppendTo | Output
    ) -> Child:
        """Start a long-lived command and own it. `Output.CAPTURE` is refused (ValueError): nobody would read it."""
        ...

    async def adopt(self, pid: int) -> Child:
        """Own a process that the kernel gave us as a child (we are PID 1 or subreaper): a sandbox, a gofer.

        Raises:
            ProcessLookupError: there is no such process, or it is no child of ours.
        """
        ...

    async def find(self, *, argument: str) -> tuple[ProcessIdentity, ...]:
        """The processes of our PID namespace that have this exact string as one argument of their command line, by pid."""
        ...

    async def find_arguments(self, *, prefix: str) -> tuple[tuple[ProcessIdentity, str], ...]:
        """The processes of our PID namespace with an argument that begins with this string, and that argument, by pid."""
        ...

    async def is_alive(self, identity: ProcessIdentity) -> bool:
        """Whether exactly this process exists and is not a zombie."""
        ...

    async def kill_and_wait(self, identity: ProcessIdentity, *, deadline_s: float) -> None:
        """SIGKILL exactly this process, ours or not, and wait until it is gone (and reaped where it is our child).

        Does nothing when it is gone already.

        Raises:
            DeadlineExceededError: it is still there.
        """
        ...


# -------------------------------------------------------------------------------------------------------------------- files


class FileKind(enum.StrEnum):
    """What stands at a path, not following a last symlink."""

    REGULAR = "regular"
    DIRECTORY = "directory"
    SYMLINK = "symlink"
    CHARACTER_DEVICE = "characterDevice"
    OTHER = "other"


@attrs.frozen(kw_only=True)
class FileStat:
    """What stat(2) says, as far as anything here needs it. `device` is (major, minor) of a device node, else None."""

    kind: FileKind
    size_bytes: int
    mode: int
    inode: int
    mtime_ns: int
    device: tuple[int, int] | None = None


class TooLargeError(OSError):
    """Raised when a file is larger than the limit it was to be read with."""


class FileLock(Protocol):
    """A held flock(2); released by `close` or with the process."""

    def close(self) -> None:
        """Release it."""
        ...


class Files(Protocol):
    """Files of ours (below the state and run directories) and files we were given (only read).

    Writing paths are resolved component by component by dirfd: a symlink anywhere below the directory that `rooted`
    names is refused with ELOOP, so that nothing is ever written outside it. Directories are made 0700, files 0600.
    """

    async def read(self, path: Path, *, limit_bytes: int) -> bytes:
        """Read a whole regular file (never blocks on a fifo or device).

        Raises:
            OSError: cannot be read; EISDIR or EINVAL when it is not a regular file.
            TooLargeError: larger than the limit.
        """
        ...

    async def read_from(self, path: Path, *, offset_bytes: int, limit_bytes: int) -> bytes:
        """Read at most `limit_bytes` of a regular file from an offset; empty at or after its end."""
        ...

    async def replace(self, path: Path, data: bytes) -> None:
        """Replace atomically and durably: temporary file beside it, fsync, rename, fsync of the directory."""
        ...

    async def replace_executable(self, path: Path, data: bytes) -> None:
        """Replace atomically and durably a program: it and the directory that holds it (made when absent) get mode 0755.

        The one exception to 0600 and 0700: a sandbox's root runs its program as a user that owns neither. Directories
        above keep 0700, so that nobody else on the host reaches it.
        """
        ...

    async def append(self, path: Path, data: bytes) -> None:
        """Append in one write; the file is made when absent. Not yet durable."""
        ...

    async def append_durably(self, path: Path, data: bytes) -> None:
        """Append in one write, then fdatasync (and fsync of the directory when the file was made)."""
        ...

    async def truncate(self, path: Path, *, size_bytes: int) -> None:
        """Cut a file to a size; how a log that its writer holds open O_APPEND is rotated."""
        ...

    async def make_directory(self, path: Path) -> None:
        """Make a directory 0700, with its parents; one that exists is left as it is."""
        ...

    async def list_directory(self, path: Path) -> tuple[str, ...]:
        """Names in a directory, sorted; FileNotFoundError when absent, NotADirectoryError when it is none."""
        ...

    async def stat(self, path: Path) -> FileStat | None:
        """What stands there, following symlinks; None when nothing does."""
        ...

    async def lstat(self, path: Path) -> FileStat | None:
        """What stands there, not following a last symlink; None when nothing does."""
        ...

    async def rename(self, source: Path, target: Path) -> None:
        """Rename within one file system and fsync the target's directory."""
        ...

    async def remove_file(self, path: Path) -> None:
        """Remove a file; absent is fine."""
        ...

    async def remove_tree(self, path: Path) -> None:
        """Remove a tree by dirfd, following no symlink and crossing into no other file system; absent is fine.

        Raises:
            OSError: something could not be removed; EBUSY for a mount point.
        """
        ...

    async def sync_tree(self, path: Path) -> None:
        """fsync every regular file and directory of a tree, the top last."""
        ...

    async def digest(self, path: Path) -> str:
        """BLAKE3 of a regular file's content, 64 hex digits."""
        ...

    async def free_bytes(self, path: Path) -> int:
        """Bytes that we may still write on the file system that holds this path."""
        ...

    async def lock(self, path: Path) -> FileLock:
        """Take an exclusive flock on a file (made when absent), at once.

        Raises:
            BlockingIOError: somebody else holds it.
        """
        ...


# ------------------------------------------------------------------------------------------------------- watch, net, signals


class Watch(Protocol):
    """Changes of directories."""

    def changes(self, directory: Path) -> AbstractAsyncContextManager[AsyncIterator[frozenset[str]]]:
        """Names of direct entries that changed, in batches; not recursive. Leaving the context ends it within 50 ms.

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


class Connection(Protocol):
    """One accepted or made connection."""

    @property
    def peer(self) -> Peer:
        """Who is at the other end."""
        ...

    @property
    def stream(self) -> ByteStream:
        """Bytes both ways; anyio's errors (EndOfStream, BrokenResourceError, ClosedResourceError)."""
        ...


class Listener(Protocol):
    """A listening unix socket."""

    async def accept(self) -> Connection:
        """The next connection."""
        ...


class Net(Protocol):
    """Sockets."""

    def listen_unix(self, path: Path) -> AbstractAsyncContextManager[Listener]:
        """Listen at a path with mode 0600, replacing a socket that nobody listens at; removed on leaving.

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


class Signals(Protocol):
    """Signals to our process."""

    def receive(self, *signums: int) -> AbstractAsyncContextManager[AsyncIterator[int]]:
        """The signals that come while the context is open, each handled from the moment it is entered."""
        ...


# --------------------------------------------------------------------------------------------------------------------- wall


class Wall(Protocol):
    """What is read from outside and is not a duration: the calendar, the boot, fresh names."""

    def now_s(self) -> float:
        """Seconds since 1970 UTC."""
        ...

    def boot_id(self) -> str:
        """The kernel's boot id, /proc/sys/kernel/random/boot_id."""
        ...

    def fresh_id(self) -> str:
        """16 random hex digits, never twice."""
        ...


@attrs.frozen(kw_only=True)
class Ports:
    """Every port, handed down from the composition root."""

    processes: Processes
    files: Files
    watch: Watch
    net: Net
    signals: Signals
    wall: Wall
