"""A real OCI container with a worker in it: the smallest root filesystem in which our interpreter runs.

Of this machine it has the checkout with its virtual environment, the interpreter with its standard library, and copies
of the libraries that these need; all read-only. What the worker itself writes is on this machine too, so that a test
can look at it and ask at its socket.
"""

import errno
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import sysconfig
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import attrs

from supervisor.host import procfs
from supervisor.self_check import NEEDED_CAPABILITIES, WANTED_CAPABILITIES
from tests.needs import ROOT, Tool, find
from tests.real.process import WorkerProcess

CAPABILITIES: Final = [f"CAP_{name}" for name in (*NEEDED_CAPABILITIES, *WANTED_CAPABILITIES)]
"""No more than our own check asks for."""
INTERPRETER: Final = Path(sys.executable).resolve()
STDLIB: Final = Path(sysconfig.get_path("stdlib")).resolve()
_MASKED: Final = ("acpi", "kcore", "keys", "latency_stats", "timer_list", "timer_stats", "sched_debug", "scsi")
_READ_ONLY: Final = ("asound", "bus", "fs", "irq", "sys", "sysrq-trigger")
"""As container engines have it for whoever is not privileged."""
_LIBRARY: Final = re.compile(r"(?:=> )?(/\S+) \(0x")
_EARLY: Final[tuple[tuple[str, list[str]], ...]] = (("/dev", ["nosuid", "mode=755"]), ("/tmp", []), ("/run", []))


def libraries() -> set[Path]:
    """The shared libraries that the interpreter and its extension modules need, by the names they are looked for."""
    extensions = [*STDLIB.rglob("*.so"), *Path(sys.prefix).rglob("*.so")]
    told = subprocess.run(
        ["ldd", INTERPRETER, *extensions], capture_output=True, text=True, timeout=300, check=False
    ).stdout
    found = {Path(match[1]) for match in map(_LIBRARY.search, told.splitlines()) if match}
    return {path for path in found if not path.is_relative_to(sys.prefix)}


def make_root(directory: Path) -> None:
    """A busybox, the libraries, and nothing else."""
    busybox = find(Tool.BUSYBOX)
    assert busybox is not None
    (directory / "bin").mkdir(parents=True)
    shutil.copy(busybox, directory / "bin" / "busybox")
    for library in libraries():
        target = directory / library.relative_to("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(library, target)
    for link in _links():
        target = directory / link.relative_to("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.symlink_to(link.readlink())


def _links() -> Iterator[Path]:
    """The links by which the virtual environment finds its interpreter, outside of itself."""
    path = Path(sys.executable)
    while path.is_symlink():
        if not path.is_relative_to(sys.prefix):
            yield path
        path = path.parent / path.readlink()


def _bound(path: Path, *options: str) -> dict[str, Any]:
    return {"destination": str(path), "type": "bind", "source": str(path), "options": ["rbind", *options]}


def _refusing(calls: Sequence[str]) -> dict[str, Any]:
    """A seccomp profile that lets all others pass."""
    return {
        "defaultAction": "SCMP_ACT_ALLOW",
        "syscalls": [{"names": list(calls), "action": "SCMP_ACT_ERRNO", "errnoRet": errno.EPERM}],
    }


def config(
    argv: Sequence[str],
    rootfs: Path,
    *,
    capabilities: Sequence[str],
    refused_calls: Sequence[str] = (),
    writable: Sequence[Path],
    readable: Sequence[Path],
) -> dict[str, Any]:
    """A container that runs a program as PID 1, unprivileged but for these capabilities."""
    return {
        "ociVersion": "1.0.2",
        "process": {
            "user": {"uid": 0, "gid": 0},
            "args": list(argv),
            "env": ["PATH=/bin:/usr/bin", "PYTHONDONTWRITEBYTECODE=1", "HOME=/tmp"],
            "cwd": "/",
            "capabilities": {kind: list(capabilities) for kind in ("bounding", "effective", "permitted")},
            "noNewPrivileges": True,
        },
        "root": {"path": str(rootfs), "readonly": True},
        "hostname": "worker",
        "mounts": [
            {"destination": "/proc", "type": "proc", "source": "proc"},
            *({"destination": at, "type": "tmpfs", "source": "tmpfs", "options": how} for at, how in _EARLY),
            *(_bound(path, "ro") for path in readable),
            *(_bound(path, "rw") for path in writable),
        ],
        "linux": {
            "namespaces": [{"type": kind} for kind in ("pid", "mount", "ipc", "uts", "network")],
            "maskedPaths": [f"/proc/{name}" for name in _MASKED],
            "readonlyPaths": [f"/proc/{name}" for name in _READ_ONLY],
            **({"seccomp": _refusing(refused_calls)} if refused_calls else {}),
        },
    }


@attrs.define
class WorkerContainer(WorkerProcess):
    """A `greenroom run` that is PID 1 of a container, or what `entry` makes it; its log is what the container says.

    Attributes:
        image: the root filesystem of the container, see `make_root`.
        images: a directory with what the actors' containers are made of.
        entry: stands before the worker's own command.
        capabilities: those of the container.
        refused_calls: system calls that its seccomp profile refuses.
    """

    image: Path = attrs.field(kw_only=True)
    images: Path = attrs.field(kw_only=True)
    entry: tuple[str, ...] = attrs.field(default=(), kw_only=True)
    capabilities: Sequence[str] = attrs.field(default=CAPABILITIES, kw_only=True)
    refused_calls: Sequence[str] = attrs.field(default=(), kw_only=True)

    @property
    def name(self) -> str:
        return f"greenroom-{os.getpid()}-{self.directory.name}"

    def oci(self, *arguments: object) -> list[str]:
        """A command of the OCI runtime; it keeps nothing outside of the test's directory."""
        runtime = find(Tool.OCI_RUNTIME)
        assert runtime is not None
        return [runtime, "--root", str(self.directory / "oci"), *map(str, arguments)]

    def begin_without_waiting(self, *flags: object) -> "subprocess.Popen[bytes]":
        """Start the container."""
        bundle = self.directory / "bundle"
        bundle.mkdir(exist_ok=True)
        (bundle / "config.json").write_text(json.dumps(self.document(*flags)))
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                self.oci("run", "--bundle", bundle, self.name), stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        return self.process

    def document(self, *flags: object) -> dict[str, Any]:
        """The OCI configuration."""
        writable = (self.state.root, self.run_dir)
        for path in writable:
            path.mkdir(exist_ok=True)
        worker = [sys.executable, ROOT / "greenroom.py", "run", "--state-dir", self.state.root]
        worker += ["--run-dir", self.run_dir, "--log-format", "json", *self.flags, *flags]
        return config(
            [*self.entry, *map(str, worker)],
            self.image,
            capabilities=self.capabilities,
            refused_calls=self.refused_calls,
            writable=writable,
            readable=(ROOT, INTERPRETER, STDLIB, self.images),
        )

    @property
    def first(self) -> int:
        """The container's PID 1, as this machine sees it."""
        told = subprocess.run(self.oci("state", self.name), capture_output=True, timeout=60, check=True).stdout
        return int(json.loads(told)["pid"])

    def execute(self, script: str) -> None:
        """Run a script of busybox's shell in the container."""
        argv = self.oci("exec", self.name, "/bin/busybox", "sh", "-c", script)
        subprocess.run(argv, capture_output=True, timeout=60, check=True)

    def inside(self) -> dict[int, "procfs.ProcessStat"]:
        """Every process of the container, of its sandboxes' own PID namespaces as well."""
        return {stat.pid: stat for stat in _below(self.first)}

    def zombies(self) -> list[int]:
        return [pid for pid, stat in self.inside().items() if not stat.is_running]

    def running_of(self, program: str) -> list[int]:
        """Those that execute a program, by its file's name; what runs inside of gVisor is none of them."""
        found = []
        for pid in self.inside():
            with suppress(OSError):  # ended, or a zombie: it executes nothing
                if Path(f"/proc/{pid}/exe").readlink().name == program:
                    found.append(pid)
        return found

    def send(self, signum: int) -> None:
        """Signal PID 1."""
        name = signal.Signals(signum).name
        subprocess.run(self.oci("kill", self.name, name), capture_output=True, timeout=60, check=True)

    def end(self, signum: int = signal.SIGTERM) -> int:
        """Signal PID 1 and wait for the container's end; returns its exit code."""
        self.send(signum)
        return wait_for(self)

    def give_up(self) -> None:
        """After the test: whatever became of it, nothing of it is left."""
        subprocess.run(self.oci("delete", "--force", self.name), capture_output=True, timeout=60, check=False)
        super().give_up()


def wait_for(container: WorkerContainer) -> int:
    """Wait until it has ended by itself."""
    code: int = container.running.wait(timeout=90)
    container.process = None
    return code


def _below(pid: int) -> Iterator[procfs.ProcessStat]:
    """A process and all its descendants that this machine sees."""
    parents: dict[int, list[procfs.ProcessStat]] = {}
    for each in procfs.process_ids():
        if (stat := procfs.read_stat(each)) is not None:
            parents.setdefault(stat.parent, []).append(stat)
            if each == pid:
                yield stat
    waiting = [pid]
    while waiting:
        for child in parents.get(waiting.pop(), ()):
            yield child
            waiting.append(child.pid)
