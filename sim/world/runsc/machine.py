"""What a runsc command is given, what it may do at once, and what it has to wait for."""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import attrs

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

Handle = Any
"""Where output goes: whatever the face takes for one. The model only hands it on."""


class CommandFiles(Protocol):
    """Files as programs reach them: by whole paths, symlinks followed. Everything happens at once.

    What goes wrong is an OSError, as the kernel has it.
    """

    def read(self, path: str) -> bytes:
        """Read a whole file."""
        ...

    def replace(self, path: str, data: bytes) -> None:
        """Write a whole file, made or overwritten."""
        ...

    def create(self, path: str, mode: int) -> None:
        """Make an empty file; FileExistsError when there is something (O_EXCL)."""
        ...

    def append(self, path: str, data: bytes) -> None:
        """Append to a file, made when absent. On ENOSPC what fitted has been written."""
        ...

    def remove(self, path: str) -> None:
        """Remove a file; absent is fine."""
        ...

    def names(self, path: str) -> Sequence[str]:
        """Names in a directory; none when it is absent."""
        ...

    def make_directories(self, path: str) -> None:
        """Make a directory and its parents; one that exists is fine, a file is not (NotADirectoryError)."""
        ...

    def directory_mode(self, path: str) -> int | None:
        """The permission bits of a directory; None when there is none."""
        ...

    def holds_file(self, path: str) -> bool:
        """Whether there is a regular file."""
        ...


class Machine(CommandFiles, Protocol):
    """The machine that runsc runs on."""

    def now_s(self) -> float:
        """The clock."""
        ...

    def write(self, handle: Handle, data: bytes) -> None:
        """Write to where output goes; errors are nobody's."""
        ...

    def create_socket(self, path: str) -> None:
        """Listen for the sandbox that is about to be spawned."""
        ...

    def spawn_gofer(self, root: str) -> int:
        """Start a file server, in a session of its own with `--root=` on its command line; returns its pid."""
        ...

    def spawn_sandbox(self, root: str, facts: Mapping[str, Any], stdio: Sequence[Handle]) -> int:
        """Start a sandbox likewise, with `questions.boot` of these facts in it; it holds the stdio.

        It and its gofer die with the command until `let_go`.
        """
        ...

    def let_go(self, pid: int) -> None:
        """From now on that sandbox outlives the command."""
        ...

    def kill(self, pid: int) -> None:
        """SIGKILL a process; one that is gone is fine."""
        ...

    def is_there(self, pid: int) -> bool:
        """What kill(pid, 0) says: a zombie is there until somebody waits for it."""
        ...

    def is_running(self, pid: int) -> bool:
        """Whether it is there and no zombie, as a pidfd tells."""
        ...


# ------------------------------------------------------------------------------------------- what a command waits for


@attrs.frozen
class Sleep:
    """Nothing happens for that long."""

    seconds: float


@attrs.frozen
class Ask:
    """Ask the sandbox with that pid through its control socket; gives an `Answer`.

    Attributes:
        pid: the sandbox.
        address: its control socket.
        method: what is asked, see `sentry`.
        argument: plain JSON.
        stdio: handed over with the question.
    """

    pid: int
    address: str
    method: str
    argument: Mapping[str, Any]
    stdio: tuple[Handle, ...] = ()


@attrs.frozen
class Lock:
    """Take the lock of a container's state, waiting for whoever holds it. It ends with `Unlock` or with the command."""

    path: str


@attrs.frozen
class Unlock:
    """Give the lock back."""

    path: str


Wish = Sleep | Ask | Lock | Unlock
_T = TypeVar("_T")
Steps = Generator[Wish, Any, _T]
"""A piece of a command: yields wishes, gets their results, returns a value."""


@attrs.frozen(kw_only=True)
class Answer:
    """What came of a question.

    Attributes:
        result: when it went well.
        error: what the sandbox said was wrong; None when it went well.
        refused: the sandbox did not take the question: it is dead.
        eof: the sandbox died with the question unanswered.
    """

    result: Any = None
    error: str | None = None
    refused: bool = False
    eof: bool = False


@attrs.frozen(kw_only=True)
class Invocation:
    """One call of runsc.

    Attributes:
        argv: without the executable.
        stdin: what can be read there.
        stdout, stderr: where its output goes, and that of containers whose stdio is taken from it.
    """

    argv: Sequence[str]
    stdin: bytes = b""
    stdout: Handle = None
    stderr: Handle = None


@attrs.frozen(kw_only=True)
class Completion:
    """How a call ended. What it says has not been written yet."""

    code: int
    stdout: bytes = b""
    stderr: bytes = b""


class RunscError(Exception):
    """Raised when a command fails: exit code 128, the text on stderr and in `--log`.

    Args:
        text: what it says.
        earlier: what its subprocesses have put into the log before.
    """

    def __init__(self, text: str, *, earlier: tuple[str, ...] = ()) -> None:
        super().__init__(text)
        self.text = text
        self.earlier = earlier
