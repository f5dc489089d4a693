"""The real `Cgroups`: directories below the cgroup that this worker was given, where that is ours alone.

    <own>/greenroom/                    ourselves, and whoever is here because of us
    <own>/actors/<uid>.<activation>/    limits and usage; in it `sandbox/` and `c-<container>/` with the processes

A cgroup whose controllers are handed on may hold no process itself (cgroup v2, "no internal processes"): so we leave it
for a leaf. Where something that is not ours is in it too, it is somebody else's, and is left as it is.

Measured on Linux 6.18: a cgroup is empty, and can be removed, as soon as its processes are zombies; cgroup.kill takes
what forks meanwhile, too.
"""

from __future__ import annotations

import errno
import math
import os
import select
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

import anyio
from anyio import to_thread

from actors.ports import (
    CGROUP_ROOT,
    CPU_PERIOD_USEC,
    PROCESSES_FILE,
    CgroupLimits,
    CgroupsUnavailableError,
    CgroupUsage,
    Delegation,
)
from supervisor.host import cgroup_files
from supervisor.host.looks import Looks
from supervisor.host.procfs import read_stat

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

_Result = TypeVar("_Result")

OWN_LEAF: Final = "greenroom"
ACTORS: Final = "actors"
CONTROLLERS: Final = ("cpu", "memory")
"""Those that measure or limit what an assignment can speak of."""
PASSES_MAX: Final = 100
"""How often is looked whether somebody was born in the old place while the others were moved."""
_THREADS_MAX: Final = 8
_LOOKS_MAX: Final = 8
_LOOK_S: Final = 0.1
"""How long one thread waits for a change; then the deadline is looked at."""
_EVENTS_BYTES_MAX: Final = 4096
_MAKES_NOTHING: Final = frozenset({errno.EROFS, errno.EACCES, errno.EPERM})


class Directories(Protocol):
    """How directories come and go; the kernel makes and removes their files."""

    def make(self, path: Path) -> None:
        """Make one.

        Raises:
            OSError: it cannot be made.
        """
        ...

    def remove(self, path: Path) -> None:
        """Remove one.

        Raises:
            OSError: it cannot be removed.
        """
        ...


class KernelDirectories:
    """Those of a real cgroup file system."""

    def make(self, path: Path) -> None:
        """Make one."""
        os.mkdir(path, 0o755)

    def remove(self, path: Path) -> None:
        """Remove one."""
        os.rmdir(path)


class HostCgroups:
    """The real `Cgroups`.

    Everything runs in threads of its own: a write may have to wait for the kernel, and who asks for usage must not wait
    for files. Who asks for names or usage and is cancelled leaves the look behind (`supervisor.host.looks`); writes are
    never left.

    Args:
        mount: where cgroup v2 is mounted.
        membership: the file that says in which cgroup we are.
        directories: how they come and go.
    """

    def __init__(
        self,
        *,
        mount: Path = CGROUP_ROOT,
        membership: Path = Path("/proc/self/cgroup"),
        directories: Directories | None = None,
    ) -> None:
        self._mount, self._membership = mount, membership
        self._directories = directories or KernelDirectories()
        self._own: Path | None = None
        self._threads = anyio.CapacityLimiter(_THREADS_MAX)
        self._looks = Looks(_LOOKS_MAX)

    async def delegate(self) -> Delegation:
        """Take the worker's own cgroup in hand."""
        return await self._in_thread(self._delegate)

    async def make(self, name: str, *, leaves: Sequence[str], limits: CgroupLimits) -> None:
        """Make an activation's cgroup with its limits and its leaves, or nothing of it."""
        await self._in_thread(self._make, self._of(name), tuple(leaves), limits)

    async def remove(self, name: str, *, deadline_s: float) -> None:
        """Remove an activation's cgroup, if there is one, and end whatever is still in it."""
        cgroup = self._of(name)
        with anyio.fail_after(deadline_s):
            while not await self._in_thread(self._remove_if_empty, cgroup):
                pass

    async def names(self) -> tuple[str, ...]:
        """The activations' cgroups that are there, in order."""
        return await self._looks.run(partial(_names, self._actors()))

    async def usage(self, name: str) -> CgroupUsage:
        """What an activation has used."""
        return await self._looks.run(partial(_usage, self._of(name)))

    # ------------------------------------------------------------------------------------------------------ delegation

    def _delegate(self) -> Delegation:
        own = self._find_own()
        leaf, actors = own / OWN_LEAF, own / ACTORS
        try:
            for directory in (leaf, actors):
                with suppress(FileExistsError):
                    self._directories.make(directory)
            _move_in(own, leaf)
        except OSError as error:
            raise CgroupsUnavailableError(_cannot_divide(own, error)) from error
        self._own = own
        missing: dict[str, str] = {}
        for controller in CONTROLLERS:
            problem = _turn_on(controller, (own, actors))
            if problem is not None:
                missing[controller] = problem
        on = tuple(each for each in CONTROLLERS if each not in missing)
        return Delegation(actors=actors, controllers=on, missing=tuple(missing.items()))

    def _find_own(self) -> Path:
        """The cgroup that was given to us, which has nobody else in it."""
        if not (self._mount / "cgroup.controllers").is_file():
            raise CgroupsUnavailableError(f"{self._mount} is no cgroup v2")
        own = self._mount / self._path()
        if own.name == OWN_LEAF and (own.parent / ACTORS).is_dir():
            own = own.parent  # an earlier life has divided it already, and its parent was moved with it
        if not (own / "cgroup.events").is_file():
            raise CgroupsUnavailableError("the worker is in the root of the machine's cgroups, in none of its own")
        try:
            # Looked at once: one of ours that ends between two looks would be nobody's that we know.
            found = {pid for place in _places(own) for pid in cgroup_files.processes(place)}
            strangers = sorted(found - _ours(found))
        except OSError as error:
            raise CgroupsUnavailableError(_cannot_divide(own, error)) from error
        if strangers:
            who = f"process {strangers[-1]}" if strangers[-1] else "a process of another PID namespace"
            raise CgroupsUnavailableError(f"{own} is not the worker's alone: {who} is in it, too")
        return own

    def _path(self) -> str:
        try:
            lines = cgroup_files.read(self._membership).splitlines()
        except OSError as error:
            raise CgroupsUnavailableError(f"{self._membership} cannot be read: {error.strerror or error}") from error
        path = next((line.removeprefix("0::/") for line in lines if line.startswith("0::/")), None)
        if path is None or ".." in path.split("/"):
            raise CgroupsUnavailableError(f"{self._membership} names no cgroup v2 below {self._mount}")
        return path

    # ----------------------------------------------------------------------------------------------------- activations

    def _make(self, cgroup: Path, leaves: tuple[str, ...], limits: CgroupLimits) -> None:
        self._directories.make(cgroup)
        try:
            _lay(cgroup, limits)
            for leaf in leaves:
                self._directories.make(cgroup / leaf)
        except BaseException:
            with suppress(OSError):
                self._remove(cgroup)
            raise

    def _remove_if_empty(self, cgroup: Path) -> bool:
        """Whether it is gone; it is not while something in it is still ending."""
        _kill(cgroup)
        if _is_populated_for(cgroup, _LOOK_S):
            return False
        self._remove(cgroup)
        return True

    def _remove(self, cgroup: Path) -> None:
        with suppress(FileNotFoundError):
            for leaf in _leaves(cgroup):
                with suppress(FileNotFoundError):
                    self._directories.remove(leaf)
            self._directories.remove(cgroup)

    # ----------------------------------------------------------------------------------------------------------- parts

    def _actors(self) -> Path:
        if self._own is None:
            raise RuntimeError("no cgroup was delegated")
        return self._own / ACTORS

    def _of(self, name: str) -> Path:
        if "/" in name or name.startswith("."):
            message = f"{name!r} is no name of a cgroup"
            raise ValueError(message)
        return self._actors() / name

    async def _in_thread(self, act: Callable[..., _Result], *args: object) -> _Result:
        return await to_thread.run_sync(act, *args, limiter=self._threads)


def _places(own: Path) -> Iterator[Path]:
    yield own
    if (own / OWN_LEAF).is_dir():
        yield own / OWN_LEAF


def _ours(found: set[int]) -> set[int]:
    """Of who is there: ourselves and what we have started; everybody, where this container began with us.

    It began with us when we are PID 1, or when an init that is there with us has started us. A process that cannot be
    seen from here (its pid reads 0) is never ours.
    """
    if os.getpid() == 1 or (os.getppid() == 1 and 1 in found):
        return found - {0}
    return {pid for pid in found if _descends_from_us(pid)}


def _descends_from_us(pid: int) -> bool:
    above = pid
    while above > 1 and above != os.getpid():
        found = read_stat(above)
        if found is None:
            return read_stat(pid) is None  # who has ended meanwhile is nobody's; else, whose it is cannot be told
        above = found.parent
    return above == os.getpid()


def _move_in(own: Path, leaf: Path) -> None:
    """Move whoever is in our cgroup into our leaf; who is born there meanwhile is met by the next pass.

    Raises:
        OSError: the kernel does not let them; EBUSY when they keep coming.
    """
    for _ in range(PASSES_MAX):
        here = cgroup_files.processes(own)
        if not here:
            return
        for pid in here:
            with suppress(ProcessLookupError):
                cgroup_files.write(leaf / PROCESSES_FILE, str(pid))
    raise OSError(errno.EBUSY, "processes keep coming into it", str(own))


def _turn_on(controller: str, cgroups: Sequence[Path]) -> str | None:
    """Hand a controller on to what is below; says why it cannot be."""
    for cgroup in cgroups:
        try:
            if controller not in cgroup_files.words(cgroup / "cgroup.controllers"):
                return f"{cgroup} has none"
            cgroup_files.write(cgroup / "cgroup.subtree_control", f"+{controller}")
        except OSError as error:
            return error.strerror or str(error)
    return None


def _lay(cgroup: Path, limits: CgroupLimits) -> None:
    """Write the limits whose files are there, which are those of the controllers that are on."""
    wanted = {
        "cpu.max": None if limits.cpu_quota_usec is None else f"{limits.cpu_quota_usec} {CPU_PERIOD_USEC}",
        "cpu.weight": limits.cpu_weight,
        "memory.oom.group": None if limits.memory_bytes is None else 1,
        "memory.max": limits.memory_bytes,
    }
    for name, value in wanted.items():
        if value is not None:
            with suppress(FileNotFoundError):
                cgroup_files.write(cgroup / name, str(value))


def _kill(cgroup: Path) -> None:
    """End all that is in it, where the kernel can (5.14)."""
    if cgroup_files.is_populated(cgroup):
        with suppress(FileNotFoundError):
            cgroup_files.write(cgroup / "cgroup.kill", "1")


def _is_populated_for(cgroup: Path, limit_s: float) -> bool:
    """Whether something lives in it and goes on to for so long; the kernel says when that changes."""
    try:
        fd = os.open(cgroup / "cgroup.events", os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        # Read by this very descriptor: what changes from here on is news to it.
        if not cgroup_files.says_populated(os.read(fd, _EVENTS_BYTES_MAX)):
            return False
        poll = select.poll()
        poll.register(fd, select.POLLPRI)
        poll.poll(math.ceil(limit_s * 1000))
    finally:
        os.close(fd)
    return cgroup_files.is_populated(cgroup)


def _leaves(cgroup: Path) -> tuple[Path, ...]:
    with os.scandir(cgroup) as entries:
        return tuple(sorted(cgroup / entry.name for entry in entries if entry.is_dir(follow_symlinks=False)))


def _names(actors: Path) -> tuple[str, ...]:
    return tuple(path.name for path in _leaves(actors))


def _usage(cgroup: Path) -> CgroupUsage:
    try:
        return _read_usage(cgroup)
    except OSError as error:
        if error.errno == errno.ENODEV:  # it was removed between opening a file and reading it
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(cgroup)) from error
        raise


def _read_usage(cgroup: Path) -> CgroupUsage:
    populated = (cgroup, *_leaves(cgroup))
    processes = sum(len(cgroup_files.processes(place)) for place in populated)
    cpu = cgroup_files.keyed_where_there(cgroup / "cpu.stat")
    memory = cgroup_files.number_where_there(cgroup / "memory.current")
    inactive = cgroup_files.keyed_where_there(cgroup / "memory.stat").get("inactive_file")
    return CgroupUsage(
        cpu_usec=cpu.get("usage_usec"),
        throttled_periods=cpu.get("nr_throttled"),
        throttled_usec=cpu.get("throttled_usec"),
        memory_bytes=memory,
        memory_peak_bytes=cgroup_files.number_where_there(cgroup / "memory.peak"),
        working_set_bytes=None if memory is None or inactive is None else max(memory - inactive, 0),
        oom_kills=cgroup_files.keyed_where_there(cgroup / "memory.events").get("oom_kill"),
        processes=processes,
    )


def _cannot_divide(own: Path, error: OSError) -> str:
    what = error.strerror or str(error)
    if error.errno in _MAKES_NOTHING:
        return f"{own} is not ours to write to: {what}"
    return f"{own} cannot be divided: {what}"
