"""One container inside a sandbox: its processes, what hangs on it, and what a checkpoint must know of it."""

from __future__ import annotations

import math
import posixpath
import re
from collections.abc import Mapping
from typing import Any, Final

import attrs

from .machine import Handle
from .programs import Program, Run

_COMPARED_ANNOTATIONS: Final = re.compile(r"dev\.gvisor\.(?!internal\.)(?!.*mount.*\.source$)")
_REGULAR_GPU: Final = re.compile(r"/dev/nvidia\d+")

CREATED, RUNNING, STOPPED, LIMBO = "created", "running", "stopped", "limbo"
"""What the sandbox itself knows of a container; limbo is one that waits to be restored, or never had a process."""
KILLED: Final = 137
_PAGE_BYTES: Final = 4096


@attrs.define(kw_only=True)
class Process:
    """A process inside a container.

    Attributes:
        pid: inside the sandbox.
        parent: likewise; 0 for what runsc started.
        is_foreign: an exec or something below it, whose stdio no restore can give back.
        refused: kinds of nodes that it cannot make (`seccomp.MODES`); its children inherit that.
    """

    pid: int
    parent: int
    run: Run
    stdout: Handle
    stderr: Handle
    is_foreign: bool = False
    refused: frozenset[str] = frozenset()


@attrs.define(kw_only=True)
class Contained:
    """A container as its sandbox knows it, and what its programs reach (`programs.Surroundings`).

    Attributes:
        id: runsc's id.
        name: the annotation's, or one by order.
        spec: its config.json, of which the shape counts.
        state: CREATED, RUNNING, STOPPED or LIMBO.
        status: the exit status once it has stopped.
        stdio: its stdout and stderr, once they are taken.
        gofer: pid of its file server.
        leaks_gofer: a command could not be started in it, so its gofer outlives it.
        is_restored: it came, or is to come, from an image.
        processes: by pid; the first is the container's own.
        statuses: of commands executed in it that have ended, by pid.
        files: paths that only it sees.
        devices: nodes in its /dev, if they come from an image; else they are those of the spec.
        signals: pid and number of what came while the sandbox was frozen.
        written, forked: what the step being executed wrote and started, for the sandbox to perform.
    """

    id: str
    name: str
    spec: Mapping[str, Any]
    is_root: bool
    state: str = CREATED
    status: int | None = None
    stdio: tuple[Handle, Handle] = (None, None)
    gofer: int = 0
    leaks_gofer: bool = False
    is_restored: bool = False
    processes: dict[int, Process] = attrs.field(factory=dict)
    statuses: dict[int, int] = attrs.field(factory=dict)
    files: set[str] = attrs.field(factory=set)
    devices: set[str] | None = None
    signals: list[tuple[int, int]] = attrs.field(factory=list)
    written: list[tuple[Handle, bytes]] = attrs.field(factory=list)
    forked: list[tuple[Process, Program, float]] = attrs.field(factory=list)
    _current: Process | None = None

    @property
    def init(self) -> Process | None:
        """Its first process."""
        return next((each for each in self.processes.values() if not each.is_foreign and each.parent == 0), None)

    @property
    def init_pid(self) -> int:
        """Its first process's pid; 0 when it has none."""
        first = self.init
        return 0 if first is None else first.pid

    def next_s(self) -> float:
        """When something will happen in it."""
        return min((each.run.next_s() for each in self.processes.values()), default=math.inf)

    def advance(self, process: Process, now_s: float) -> None:
        """Execute what is due of one process."""
        self._current = process
        process.run.advance(now_s, self)
        self._current = None

    def signal(self, pid: int, number: int, now_s: float) -> None:
        """Give a signal to one of its processes; one that is gone takes none."""
        process = self.processes.get(pid)
        if process is not None:
            process.run.signal(number, now_s)

    def stop(self, status: int, *, others: int = KILLED) -> None:
        """Its first process has ended, and with it all the others, as a PID namespace does."""
        self.state, self.status = STOPPED, status
        for process in self.processes.values():
            if process.is_foreign:
                self.statuses[process.pid] = process.run.status if process.run.status is not None else others
        self.processes.clear()
        self.signals.clear()

    def bury(self) -> None:
        """Take away the processes that have ended; children of one that did are adopted by the first."""
        first = self.init
        for process in tuple(self.processes.values()):
            if process.run.status is None:
                continue
            if process is first:
                self.stop(process.run.status)
                return
            self.statuses[process.pid] = process.run.status
            del self.processes[process.pid]
            for each in self.processes.values():
                if each.parent == process.pid and first is not None:
                    each.parent = first.pid

    # ------------------------------------------------------------------------------------------- for its programs

    def write(self, stream: int, text: str) -> None:
        """Write to the stdout or stderr of the process that is executed."""
        process = self._executed()
        self.written.append((process.stdout if stream == 1 else process.stderr, text.encode()))

    def make_file(self, path: str) -> None:
        """Make a file."""
        self.files.add(path)

    def make_node(self, path: str, kind: str) -> bool:
        """Make a node, unless a filter refuses; measured: no capability is asked for."""
        if kind in self._executed().refused:
            return False
        self.files.add(path)
        return True

    def remove_file(self, path: str) -> None:
        """Remove a file."""
        self.files.discard(path)

    def has_file(self, path: str) -> bool:
        """Whether a file is there; devices of the spec are, and others of the machine are not."""
        return path in self.files or path in self._devices()

    def cannot_open(self, path: str) -> str:
        """Why a device cannot be opened: behind no node is anything here."""
        return "No such device or address" if self.has_file(path) else "No such file or directory"

    @property
    def held(self) -> set[str]:
        """The devices that its processes have open."""
        return {path for each in self.processes.values() for path in each.run.held}

    @property
    def memory_bytes(self) -> int:
        """What its processes hold: each a page, and what it asked for."""
        return sum(_PAGE_BYTES + each.run.memory_bytes for each in self.processes.values())

    def _devices(self) -> set[str]:
        # Measured: /dev is part of the image, and a restore makes no node, whatever its spec has.
        if self.devices is not None:
            return self.devices
        return {each["path"] for each in (self.spec.get("linux") or {}).get("devices") or ()}

    def fork(self, program: Program, now_s: float) -> None:
        """Start a child of the process that is executed."""
        self.forked.append((self._executed(), program, now_s))

    def _executed(self) -> Process:
        if self._current is None:
            message = "no process of this container is executed"
            raise RuntimeError(message)
        return self._current

    # --------------------------------------------------------------------------------------------- for checkpoints

    def saved(self) -> dict[str, Any]:
        """What the kernel's part of an image says of it."""
        return {"name": self.name, "state": self.state, "status": self.status, "shape": shape_of(self.spec)}

    def memory(self, now_s: float) -> dict[str, Any]:
        """What its pages hold."""
        return {
            "processes": [
                {
                    "pid": each.pid,
                    "parent": each.parent,
                    "run": each.run.as_json(now_s),
                    "refused": sorted(each.refused),
                }
                for each in self.processes.values()
                if not each.is_foreign
            ],
            "files": sorted(self.files),
            "devices": sorted(self._devices()),
            "ballast_bytes": sum(each.run.memory_bytes for each in self.processes.values()),
        }


def shape_of(spec: Mapping[str, Any]) -> dict[str, Any]:
    """Return what HEAD compares of a spec between checkpoint and restore, in its own order.

    Source: gVisor 3eee17d, runsc/boot/restore.go; free are environment, hostname, hooks, cgroupsPath, resources, the
    sources of mounts and the paths of namespaces. Regular /dev/nvidiaN may differ, since GPUs are remapped.
    """
    process, linux = spec.get("process") or {}, spec.get("linux") or {}
    args = list(process.get("args") or [])
    return {
        "Args": [posixpath.basename(args[0]), *args[1:]] if args else [],
        "Cwd": process.get("cwd", ""),
        "User": process.get("user") or {},
        "Rlimits": process.get("rlimits") or [],
        "Capabilities": process.get("capabilities") or {},
        "Mounts": sorted(
            [each.get("destination", ""), each.get("type", ""), sorted(each.get("options") or [])]
            for each in spec.get("mounts") or []
        ),
        "Root.Readonly": bool((spec.get("root") or {}).get("readonly")),
        "Namespaces": sorted(each["type"] for each in linux.get("namespaces") or []),
        "Seccomp": linux.get("seccomp"),
        "Sysctl": linux.get("sysctl") or {},
        "Devices": sorted(
            [each["path"], each.get("type", "")]
            for each in linux.get("devices") or []
            if not _REGULAR_GPU.fullmatch(each["path"])
        ),
        "Annotations": {
            key: value
            for key, value in sorted((spec.get("annotations") or {}).items())
            if _COMPARED_ANNOTATIONS.match(key)
        },
    }


def first_difference(saved: Mapping[str, Any], now: Mapping[str, Any]) -> str | None:
    """Return the first field in which two shapes differ."""
    return next((field for field, value in now.items() if saved.get(field) != value), None)
