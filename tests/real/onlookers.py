"""What can be seen of sandboxes from outside, by /proc: which processes belong to a state directory."""

import contextlib
import os
import re
import signal
from collections.abc import Iterable, Iterator
from pathlib import Path

import attrs


@attrs.frozen
class Seen:
    """One process with a runsc root below a directory."""

    pid: int
    argv: tuple[str, ...]

    @property
    def is_command(self) -> bool:
        """Whether it is a command of runsc's, not a sandbox or a gofer."""
        return Path(self.argv[0]).name not in {"runsc-sandbox", "runsc-gofer"}

    @property
    def verb(self) -> str:
        """Its subcommand."""
        return next((word for word in self.argv[1:] if not word.startswith("-")), "")

    @property
    def container(self) -> str:
        """The last word, which for most commands is the container's id."""
        return self.argv[-1]

    @property
    def root(self) -> Path:
        """runsc's root."""
        return Path(next(word for word in self.argv if word.startswith("--root=")).partition("=")[2])

    def parent(self) -> int | None:
        """Its parent's pid; None when it has ended."""
        try:
            status = Path(f"/proc/{self.pid}/stat").read_text()
        except (FileNotFoundError, ProcessLookupError):
            return None
        return int(status.rpartition(")")[2].split()[1])

    def descriptors(self) -> list[str]:
        """What its open descriptors lead to."""
        found: list[str] = []
        # The process may end before the list, and a descriptor be closed between the list and the look.
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            for path in Path(f"/proc/{self.pid}/fd").iterdir():
                with contextlib.suppress(FileNotFoundError):
                    found.append(str(path.readlink()))
        return found


def seen_below(directory: Path) -> Iterator[Seen]:
    """Every process with a runsc root below a directory."""
    wanted = re.compile(rf"--?root={re.escape(str(directory))}(?:/.*)?")
    for name in filter(str.isdecimal, os.listdir("/proc")):  # noqa: PTH208 - a hundred Paths a poll for nothing
        argv = _argv(name)
        if any(wanted.fullmatch(word) for word in argv):
            yield Seen(int(name), argv)


def pids_below(directory: Path) -> list[int]:
    return [seen.pid for seen in seen_below(directory)]


def our_children() -> set[int]:
    """The children of this process, zombies too."""
    children: set[int] = set()
    for task in Path("/proc/self/task").iterdir():
        # A thread may end between the list and the look; its children are another thread's then.
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            children.update(map(int, (task / "children").read_text().split()))
    return children


def commands_below(directory: Path, verb: str) -> list[Seen]:
    """The commands of runsc that run now with this subcommand.

    What a command has forked for a sandbox or a gofer looks like the command itself until it executes that.
    """
    return _without_forks(seen for seen in seen_below(directory) if seen.is_command and seen.verb == verb)


def sandboxes_below(directory: Path) -> list[Seen]:
    """The sandboxes; what one has forked for its applications looks like itself for a moment."""
    return _without_forks(seen for seen in seen_below(directory) if seen.verb == "boot")


def _without_forks(seen: Iterable[Seen]) -> list[Seen]:
    """Those that none of the others has forked, and that have not ended since they were seen."""
    found = list(seen)
    pids = {each.pid for each in found}
    return [each for each in found if (parent := each.parent()) is not None and parent not in pids]


def kill_below(directory: Path) -> None:
    """End what a failed test left: nothing outside its directory is touched."""
    for pid in pids_below(directory):
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue


def _argv(pid: str) -> tuple[str, ...]:
    try:
        raw = Path(f"/proc/{pid}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return ()
    return tuple(os.fsdecode(word) for word in raw.split(b"\0")[:-1])
