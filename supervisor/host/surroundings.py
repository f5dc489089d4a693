"""What a command reads of the machine before anything runs: where runsc is, who we are, how many files may be open."""

from __future__ import annotations

import contextlib
import os
import resource
import shutil
import stat
import sys
from pathlib import Path
from types import ModuleType
from typing import Final

from statemachine.problem import Problem, ProblemError, Step
from statemachine.reasons import Reason

FILES_MAX: Final = 1 << 20
"""So many open files are enough for any worker; some kernels refuse more."""


def find_runsc(given: Path | None) -> Path:
    """The runsc to use: the one that was given, beside our interpreter, on PATH.

    Raises:
        ProblemError: RuntimeUnavailable.
    """
    if given is not None:
        return given.absolute()
    beside = Path(sys.executable).with_name("runsc")
    if os.access(beside, os.X_OK):
        return beside
    on_path = shutil.which("runsc")
    if on_path is None:
        message = f"there is no runsc beside {sys.executable} nor on PATH"
        raise ProblemError(
            Problem(step=Step.SUPERVISE, reason=Reason.RUNTIME_UNAVAILABLE, subject="runsc", message=message)
        )
    return Path(on_path)


def find_busybox() -> Path | None:
    """A busybox for a scratch rootfs: beside our interpreter, on PATH, or none."""
    beside = Path(sys.executable).with_name("busybox")
    if os.access(beside, os.X_OK):
        return beside
    on_path = shutil.which("busybox")
    return Path(on_path) if on_path else None


def find_compiler() -> Path | None:
    """The machine's C compiler, under the name that POSIX systems give it, or none."""
    on_path = shutil.which("cc")
    return Path(on_path) if on_path else None


def folders_of(*modules: ModuleType) -> tuple[str, ...]:
    """The folders that these modules and packages are imported from, each once."""
    return tuple(dict.fromkeys(str(Path(str(module.__file__)).resolve().parent.parent) for module in modules))


def read_small(path: Path, *, limit_bytes: int = 1 << 24) -> bytes:
    """Read at most the first `limit_bytes` of a file that a command was given; `-` reads stdin.

    Raises:
        OSError: it cannot be read.
    """
    if path == Path("-"):
        return sys.stdin.buffer.read(limit_bytes)
    with path.open("rb") as file:
        return file.read(limit_bytes)


def write_whole(path: Path, data: bytes) -> None:
    """Write a file that a command was told to write, for its owner alone.

    Raises:
        OSError: it cannot be written.
    """
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with open(fd, "wb") as file:
        file.write(data)


def is_regular(path: Path) -> bool:
    """Whether a path leads to a regular file: a fifo would be waited for."""
    return path.is_file()


def working_directory() -> Path:
    """Where a command was called."""
    return Path.cwd()


def effective_uid() -> int:
    """Who we are."""
    return os.geteuid()


def interpreter() -> Path:
    """The program that runs us, through its links: a virtual environment has only links to it."""
    return Path(sys.executable).resolve()


def may_change(path: Path) -> bool:
    """Whether we may read and write a file or a device there, or make entries in a directory."""
    way = os.R_OK | os.W_OK | (os.X_OK if path.is_dir() else 0)
    return os.access(path, way, effective_ids=True)


def take_rights_away(directory: Path, rights: int) -> None:
    """Take rights from a directory that stands already: a volume that a kubelet has made is everybody's to write.

    One with the sticky bit, such as /tmp, is shared on purpose and stays as it is; so does what is not there, and what
    is not ours to change.
    """
    with contextlib.suppress(OSError):
        descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            mode = stat.S_IMODE(os.fstat(descriptor).st_mode)
            if mode & rights and not mode & stat.S_ISVTX:
                os.fchmod(descriptor, mode & ~rights)
        finally:
            os.close(descriptor)


def in_pod() -> bool:
    """Whether we are the first process of a container, or in a pod, where a pause process is the first one."""
    return os.getpid() == 1 or "KUBERNETES_SERVICE_HOST" in os.environ


def in_chroot() -> bool:
    """Whether our root is another one than that of process 1: inside a chroot the kernel refuses user namespaces."""
    try:
        ours, theirs = os.stat("/"), os.stat("/proc/1/root/.")
    except OSError:
        return False
    return (ours.st_dev, ours.st_ino) != (theirs.st_dev, theirs.st_ino)


def raise_file_limit() -> None:
    """Raise the soft limit of open files to the hard one: a thousand actors hold some thousands."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = min(hard, FILES_MAX) if hard != resource.RLIM_INFINITY else FILES_MAX
    if soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def usable_cpus() -> int:
    """How many processors this process may use."""
    return len(os.sched_getaffinity(0))


def cpu_s_of_children() -> float:
    """Seconds of CPU that this process and those that it has waited for have used."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)
