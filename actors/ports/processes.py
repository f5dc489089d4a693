"""The port for subprocesses: every one of them starts, is owned and ends here."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Final, Protocol

import attrs

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path


@attrs.frozen(kw_only=True)
class ProcessIdentity:
    """One process for ever: pid and start time together are never those of a later process.

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
        stdout: what it wrote to stdout, at most `stdout_limit_bytes` of `Processes.run`, when stdout was captured;
        else empty.
        stderr: the last 16 KiB of what it wrote to stderr, when stderr was captured; else empty.
        elapsed_s: seconds from spawn to exit.
    """

    exit: Exit
    stdout: bytes = b""
    stderr: bytes = b""
    elapsed_s: float = 0.0


@attrs.frozen(kw_only=True)
class OpenFile:
    """A file that a process has open; one that it can only name (O_PATH) is not.

    Attributes:
        path: as the kernel names it. Of a process with a root or mounts of its own only the end is to be relied on.
        device: (major, minor) of a device node, else None.
        stored_bytes: what is stored of it; of a memfd, the memory that it takes.
    """

    path: str
    device: tuple[int, int] | None = None
    stored_bytes: int = 0


@attrs.frozen(kw_only=True)
class OwnUsage:
    """What the supervisor's own process uses; what it started is not in it.

    Attributes:
        cpu_s: cpu time since it began.
        resident_bytes: memory that is mapped, shared with others or not (RSS).
        proportional_bytes: the same, with each page divided among those who share it (PSS); None is not known.
        open_files: descriptors.
        open_files_max: how many there may be.
        threads: of it.
        reaped: zombies of strangers that it has taken away.
    """

    cpu_s: float
    resident_bytes: int
    proportional_bytes: int | None
    open_files: int
    open_files_max: int
    threads: int
    reaped: int


@attrs.frozen
class AppendTo:
    """Output goes to this file, opened O_APPEND | O_CREAT, mode 0600: what daemonizes keeps a pipe open for ever."""

    path: Path


CLIENT_STREAM: Final = "greenroom-exec-"
"""How the name of a fifo begins that is the stream of a client's command inside a container."""


class Output(enum.Enum):
    """Where a command's stream goes when it is not a file of ours."""

    CAPTURE = "capture"
    """An anonymous file (memfd), read back once after the exit. Never a pipe.

    It holds 4 MiB: what is written beyond fails with EPERM, also when a process that the command left behind writes it.
    """
    DISCARD = "discard"
    """/dev/null."""


class DeadlineExceededError(TimeoutError):
    """Raised when a command did not end before its deadline; its process group has been killed and waited for.

    Attributes:
        stderr: the last 16 KiB of what it wrote to stderr until then, when stderr was captured; else empty.
    """

    def __init__(self, message: str = "", *, stderr: bytes = b"") -> None:
        super().__init__(message)
        self.stderr = stderr


class Child(Protocol):
    """A process we own, spawned or adopted: nobody else waits for it. Held by a pidfd, so a reused pid is never hit."""

    @property
    def identity(self) -> ProcessIdentity:
        """Pid and start time."""
        ...

    async def wait(self) -> Exit:
        """Wait until it has ended and return how; any number of times, by several tasks, and cancelled."""
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
        stdin: Path | None = None,
        stdout: AppendTo | Output = Output.CAPTURE,
        stderr: AppendTo | Output = Output.CAPTURE,
        stdout_limit_bytes: int = 1 << 20,
    ) -> Finished:
        """Run a command to its end; its stdin is this regular file where one is named.

        When the deadline passes or the caller is cancelled, the command's process group gets SIGKILL and is waited for
        before this returns. What it daemonized into another session lives on.

        Raises:
            FileNotFoundError, PermissionError: argv[0] cannot be executed, or the stdin cannot be read.
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
            OSError: EBUSY, it is owned already; it cannot be held.
        """
        ...

    async def reclaim(self, identity: ProcessIdentity) -> Child:
        """Own exactly this process again, which an earlier life of ours has owned and which has got another parent.

        Its end is seen like any other, how it ended is not: that is its parent's to know (`Exit.code` is None).

        Raises:
            ProcessLookupError: it has ended.
            OSError: EBUSY, it is owned already; it cannot be held.
        """
        ...

    async def find(self, *, argument: str) -> tuple[ProcessIdentity, ...]:
        """The processes of our PID namespace with this exact string as one argument of their command line, by pid."""
        ...

    async def find_arguments(self, *, prefix: str) -> tuple[tuple[ProcessIdentity, str], ...]:
        """The processes of our PID namespace with an argument that begins so, and that argument, by pid."""
        ...

    async def is_alive(self, identity: ProcessIdentity) -> bool:
        """Whether exactly this process exists and is not a zombie."""
        ...

    async def holds_output(self, identity: ProcessIdentity) -> bool:
        """Whether exactly this process has the captured output (`Output.CAPTURE`) of a command open, ended or not.

        Or a stream of a client's command: by the name of it (`CLIENT_STREAM`), or because it is a terminal.
        """
        ...

    async def open_files(self, identity: ProcessIdentity) -> tuple[OpenFile, ...]:
        """What exactly this process has open, each file once; nothing when it has ended.

        Raises:
            OSError: it cannot be looked at.
        """
        ...

    async def kill_and_wait(self, identity: ProcessIdentity, *, deadline_s: float) -> None:
        """SIGKILL exactly this process, ours or not, and wait until it is gone (and reaped where it is our child).

        Does nothing when it is gone already.

        Raises:
            DeadlineExceededError: it is still there.
        """
        ...

    async def own_usage(self) -> OwnUsage:
        """What we ourselves use, read now.

        Raises:
            OSError: it cannot be read: no descriptor left.
        """
        ...
