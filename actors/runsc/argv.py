"""What stands after the global flags, one function for each subcommand.

Source: measured on runsc 20240729 ("argv, annotations, exit codes"); a later runsc takes the same words.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

Argv = tuple[str, ...]

EXEC_FD: Final = 0
"""The descriptor that has the program by way of which a command is executed: its stdin, which it gives another one."""
EXEC_FD_AT_TERMINAL: Final = 3
"""The same where stdin is a terminal."""
TERM: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9+._-]{0,63}")
"""What a kind of terminal may be called: by such names terminfo(5) finds its file."""


def create(container: str, *, bundle: Path, pid_file: Path) -> Argv:
    """Make a container from its bundle. The root's stdio is taken here."""
    return ("create", f"--bundle={bundle}", f"--pid-file={pid_file}", container)


def start(container: str) -> Argv:
    """Start a created container. A sub-container's stdio is taken here."""
    return ("start", container)


def restore(container: str, *, bundle: Path, image: Path, pid_file: Path) -> Argv:
    """Restore a container, made by the same command. The image of sub-containers is read at the root's restore."""
    return (
        "restore",
        f"--bundle={bundle}",
        f"--image-path={image}",
        f"--pid-file={pid_file}",
        "--detach",
        container,
    )


def checkpoint(container: str, *, image: Path, cuda_checkpoint: str | None = None) -> Argv:
    """Save the whole sandbox and let it live on. Without --leave-running a failed save destroys it.

    `cuda_checkpoint` is the program that takes CUDA processes off their GPUs, by its path inside the containers; one
    process after the other, as those that share memory need it.
    """
    cuda = (
        () if cuda_checkpoint is None else (f"--cuda-checkpoint-path={cuda_checkpoint}", "--cuda-checkpoint-sequential")
    )
    return ("checkpoint", f"--image-path={image}", "--compression=none", "--leave-running", *cuda, container)


def pause(container: str) -> Argv:
    """Freeze the whole sandbox, whichever of its containers is named."""
    return ("pause", container)


def resume(container: str) -> Argv:
    """Undo one `pause`."""
    return ("resume", container)


def state(container: str) -> Argv:
    """Ask for a container's state, as JSON on stdout."""
    return ("state", container)


def list_containers() -> Argv:
    """Ask for all containers of the root, as JSON on stdout (`null` when there is none)."""
    return ("list", "--format=json")


def wait(container: str) -> Argv:
    """Wait for a container's end; its status comes as JSON on stdout. Blocks while the sandbox is paused."""
    return ("wait", container)


def kill(container: str, signal: str) -> Argv:
    """Send a signal, named without SIG, to a container's first process."""
    return ("kill", container, signal)


def kill_process(container: str, pid: int) -> Argv:
    """SIGKILL one process inside a container, by its pid inside the sandbox."""
    return ("kill", f"--pid={pid}", container, "KILL")


def delete(container: str) -> Argv:
    """Remove a stopped container of a living sandbox. Never by force, never the root: that kills by a stored pid."""
    return ("delete", container)


def execute(
    container: str, command: Sequence[str], *, pid_file: Path, user: str | None = None, term: str | None = None
) -> Argv:
    """Run a command inside a container and end with its exit code. `user` is `uid:gid`; None is root.

    `pid_file` gets the command's pid inside the sandbox, as `ps` and `kill --pid` know it. `term` is what kind of
    terminal its stdio is; that it is one, runsc sees by itself.
    """
    return ("exec", f"--internal-pid-file={pid_file}", *_who(user), *_term(term), container, *command)


def execute_confined(
    container: str,
    command: Sequence[str],
    *,
    path: Sequence[str],
    pid_file: Path,
    user: str | None = None,
    term: str | None = None,
) -> Argv:
    """As `execute`, by way of the program that is a descriptor, see `actors.confine_elf`.

    It looks nothing up: a command that is named without a slash is tried in each of the directories of `path`.
    """
    name = command[0]
    files = (name,) if "/" in name else tuple(f"{directory}/{name}" for directory in path)
    fd = EXEC_FD if term is None else EXEC_FD_AT_TERMINAL
    about = (f"--exec-fd={fd}", f"--internal-pid-file={pid_file}", *_who(user), *_term(term))
    return ("exec", *about, container, "confine", *files, "", *command)


def _who(user: str | None) -> Argv:
    return () if user is None else (f"--user={user}",)


def _term(term: str | None) -> Argv:
    return () if term is None else (f"--env=TERM={term}",)


def ps(container: str) -> Argv:
    """Ask for the processes inside a container, as a table on stdout; only the table has their parents."""
    return ("ps", "--format=table", container)


def version() -> Argv:
    """Ask for the version, as text on stdout; needs no root."""
    return ("--version",)


def help_of(subcommand: str) -> Argv:
    """Ask for a subcommand's usage and flags, as text on stdout; needs no root."""
    return ("help", subcommand)


def list_supported_drivers() -> Argv:
    """Ask which NVIDIA drivers it can pass calls on to, one a line on stdout; needs no root."""
    return ("nvproxy", "list-supported-drivers")
