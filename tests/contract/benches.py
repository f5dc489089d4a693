"""What a test of the contract works with: a machine with a runsc on it, whichever of the three that is.

A test is written once, against a `Bench`; a `Face` runs it on one of the three.
"""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import anyio
import attrs
import orjson

from actors.ports import AppendTo, DeadlineExceededError, Files, Finished, Output, Processes
from actors.runsc.gofers import state_file
from actors.runsc.log import parse_log
from sim.world.disk import SimDisk
from sim.world.execution import Execution
from sim.world.runsc.fake_runsc import wrapper
from sim.world.runsc.settings import RunscSettings
from sim.world.scenery import put_directory
from tests.actors.stage import make_rootfs
from tests.disks import small_disk
from tests.needs import ROOT, Tool, need
from tests.real.onlookers import our_children

COUNT: Final = "i=0; while :; do echo $i; i=$((i+1)); sleep 0.02; done"
FLAGS: Final = (
    "--platform=systrap",
    "--network=none",
    "--overlay2=root:memory",
    "--net-disconnect-ok=true",
    "--ignore-cgroups=true",
)
DEFAULT_OVERLAY: Final = ("--platform=systrap", "--network=none", "--ignore-cgroups=true")
"""runsc's own default: `root:self`."""
SOON_S: Final = 60.0
_POLL_S: Final = 0.01


@attrs.frozen(kw_only=True)
class Said:
    """What came of one command."""

    code: int | None
    stdout: str
    stderr: str
    log: tuple[str, ...]
    raw_log: str

    @property
    def error(self) -> str:
        """The last message of the log."""
        return self.log[-1] if self.log else ""

    def document(self) -> Any:
        return json.loads(self.stdout)


@attrs.define
class Bench:
    """One machine with a runsc on it.

    Attributes:
        kind: model, fake or real.
        directory: where everything of a test is.
        runsc: the executable.
        rootfs: one that holds what the test's containers run.
        send: sends a signal to any process of the machine.
        settings: of the stand-ins.
        flags: global flags of every command.
        root: runsc's root.
        sandbox_id: the id of its root container.
        execution, disk: of the model.
        calls: how many there were.
    """

    kind: str
    directory: Path
    runsc: str
    rootfs: str
    processes: Processes
    files: Files
    send: Callable[[int, int], None]
    settings: RunscSettings
    flags: tuple[str, ...] = FLAGS
    root: str = ""
    sandbox_id: str = "sb"
    execution: Execution | None = None
    disk: SimDisk | None = None
    calls: int = 0

    def __attrs_post_init__(self) -> None:
        self.root = self.root or str(self.directory / "root")

    # ------------------------------------------------------------------------------------------------------- commands

    def elsewhere(self, sandbox_id: str, **more: Any) -> Bench:
        """The same machine, with another root for another sandbox."""
        root = f"{self.root}-{sandbox_id}"
        return attrs.evolve(self, root=root, sandbox_id=sandbox_id, calls=self.calls + 100, **more)

    async def run(self, *argv: str, output: str | None = None, deadline_s: float = SOON_S) -> Said:
        """Run a command to its end, whatever its code; `output` names a container's log instead of capturing."""
        self.calls += 1
        log = self.directory / f"{Path(self.root).name}-{self.calls}.log"
        where = Output.CAPTURE if output is None else AppendTo(self.out(output))
        command = (self.runsc, f"--root={self.root}", f"--log={log}", *self.flags, *argv)
        finished = await self.processes.run(
            command, deadline_s=deadline_s, env={"PATH": "/usr/bin:/bin"}, stdout=where, stderr=where
        )
        return await self._said(finished, log)

    def another(self, version: str, **more: Any) -> str:
        """A runsc of another version on this machine; not the real one."""
        settings = attrs.evolve(self.settings, version=version, **more)
        if self.execution is None:
            return str(write_fake(self.directory / f"runsc-{version}", settings))
        self.execution.runscs[f"/usr/bin/runsc-{version}"] = settings
        return f"/usr/bin/runsc-{version}"

    async def _said(self, finished: Finished, log: Path) -> Said:
        raw = b""
        if await self.files.stat(log) is not None:
            raw = await self.files.read(log, limit_bytes=1 << 20)
        return Said(
            code=finished.exit.code,
            stdout=finished.stdout.decode(),
            stderr=finished.stderr.decode(),
            log=parse_log(raw),
            raw_log=raw.decode(),
        )

    async def ok(self, *argv: str, output: str | None = None) -> Said:
        """Run a command that must succeed."""
        said = await self.run(*argv, output=output)
        assert said.code == 0, (argv, said)
        return said

    async def fails(self, *argv: str, deadline_s: float = SOON_S) -> str:
        """Run a command that must fail, and return its error."""
        said = await self.run(*argv, deadline_s=deadline_s)
        assert said.code == 128, (argv, said)
        return said.error

    async def blocks(self, *argv: str, for_s: float = 0.5) -> None:
        """Run a command that must not end; it is killed."""
        try:
            said = await self.run(*argv, deadline_s=for_s)
        except DeadlineExceededError:
            return
        raise AssertionError((argv, said))

    async def status(self, container: str) -> str:
        answer: str = (await self.ok("state", container)).document()["status"]
        return answer

    async def statuses(self, *containers: str) -> list[str]:
        return [await self.status(each) for each in containers]

    # ----------------------------------------------------------------------------------------------------- containers

    def bundle_path(self, name: str) -> Path:
        return self.directory / "bundles" / f"{self.sandbox_id}-{name}"

    async def bundle(self, name: str, *argv: str, called: str | None = None, **more: Any) -> str:
        """Write a bundle; the one of the sandbox's id is its root's."""
        annotations = {
            "io.kubernetes.cri.container-type": "container",
            "io.kubernetes.cri.container-name": called or name,
            "io.kubernetes.cri.sandbox-id": self.sandbox_id,
        }
        if name == self.sandbox_id:
            annotations = {
                "io.kubernetes.cri.container-type": "sandbox",
                "io.kubernetes.cri.container-name": called or "pause",
            }
        process = {"user": {"uid": 0, "gid": 0}, "args": list(argv), "env": ["PATH=/bin"], "cwd": "/"}
        namespaces = [{"type": kind} for kind in ("pid", "ipc", "uts", "mount", "network")]
        document = {
            "ociVersion": "1.0.2",
            "process": {**process, **more.pop("process", {})},
            "root": {"path": self.rootfs},
            "mounts": [{"destination": "/proc", "type": "proc", "source": "proc"}],
            "annotations": annotations,
            "linux": {"namespaces": namespaces},
            **more,
        }
        path = self.bundle_path(name)
        await self.files.make_directory(path)
        await self.files.replace(path / "config.json", orjson.dumps(document))
        return str(path)

    async def closed_rootfs(self) -> str:
        """A rootfs that only its owner may enter."""
        closed = self.directory / "closed"
        if self.kind == "real":
            make_rootfs(closed)
        await self.files.make_directory(closed)
        if self.kind == "real":
            closed.chmod(0o700)
        return str(closed)

    async def own_rootfs(self, name: str) -> str:
        """A writable rootfs for one container."""
        rootfs = self.directory / f"{name}-rootfs"
        if self.kind == "real":
            make_rootfs(rootfs)
        await self.files.make_directory(rootfs)
        return str(rootfs)

    def pid_file(self, name: str) -> Path:
        return self.directory / f"{self.sandbox_id}-{name}.pid"

    def out(self, name: str) -> Path:
        return self.directory / f"{self.sandbox_id}-{name}.out"

    async def create(self, name: str, *argv: str, **more: Any) -> None:
        """Create a container from a bundle of its own."""
        bundle = await self.bundle(name, *argv, **more)
        await self.ok("create", f"--bundle={bundle}", f"--pid-file={self.pid_file(name)}", name, output=name)

    async def start(self, name: str, *argv: str, **more: Any) -> None:
        await self.create(name, *argv, **more)
        await self.ok("start", name, output=name)

    async def up(self, **scripts: str) -> None:
        """Start a sandbox whose root sleeps, with containers that run a shell's one-liner each."""
        await self.start(self.sandbox_id, "sleep", "10000")
        for name, script in scripts.items():
            await self.start(name, "sh", "-c", script)

    def image(self, name: str = "image") -> Path:
        return self.directory / name

    async def save(self, name: str = "image", *, leave: bool = True, compression: str = "none") -> Path:
        """Checkpoint the whole sandbox."""
        options = ("--leave-running",) if leave else ()
        image = self.image(name)
        await self.ok("checkpoint", f"--image-path={image}", f"--compression={compression}", *options, self.sandbox_id)
        return image

    async def restore(self, name: str, image: Path, *argv: str, **more: Any) -> Said:
        """Restore one container from a bundle of its own."""
        argv = argv or (("sleep", "10000") if name == self.sandbox_id else ("sh", "-c", COUNT))
        bundle = await self.bundle(name, *argv, **more)
        options = (f"--bundle={bundle}", f"--image-path={image}", f"--pid-file={self.pid_file(name)}", "--detach")
        return await self.run("restore", *options, name, output=name)

    async def pid(self) -> int:
        """The sandbox's pid, from its pid file."""
        return int(await self.files.read(self.pid_file(self.sandbox_id), limit_bytes=32))

    async def gofer(self, name: str) -> int:
        path = state_file(Path(self.root), container_id=name, sandbox_id=self.sandbox_id)
        gofer: int = orjson.loads(await self.files.read(path, limit_bytes=1 << 20))["goferPid"]
        return gofer

    async def names(self, path: str | Path | None = None) -> set[str]:
        return set(await self.files.list_directory(Path(path or self.root)))

    async def lines(self, name: str) -> list[str]:
        """What a container has written, in whole lines."""
        if await self.files.stat(self.out(name)) is None:
            return []
        text = (await self.files.read(self.out(name), limit_bytes=1 << 20)).decode()
        return text.rpartition("\n")[0].splitlines()

    async def counted(self, name: str, least: int) -> list[str]:
        """Wait until a container has written that many lines."""

        async def has_written() -> bool:
            return len(await self.lines(name)) >= least

        await self.until(has_written)
        return await self.lines(name)

    async def kill(self, pid: int) -> None:
        """SIGKILL a process and wait until it is gone."""
        self.send(pid, signal.SIGKILL)

        async def is_gone() -> bool:
            return not await self.is_running(pid)

        await self.until(is_gone)

    async def is_running(self, pid: int) -> bool:
        """Whether a process that carries this root on its command line is running."""
        found = await self.processes.find_arguments(prefix=f"--root={self.root}")
        return pid in {identity.pid for identity, _ in found}

    async def ended(self, name: str) -> None:
        """Wait until runsc says that a container has stopped."""

        async def has_stopped() -> bool:
            return await self.status(name) == "stopped"

        await self.until(has_stopped)

    async def until(self, condition: Callable[[], Awaitable[bool]]) -> None:
        """Look until something is so."""
        with anyio.fail_after(SOON_S):
            while not await condition():
                await anyio.sleep(_POLL_S)

    async def rewrite(self, path: Path, change: Callable[[bytes], bytes]) -> None:
        """Change a file's content."""
        data = await self.files.read(path, limit_bytes=1 << 26)
        await self.files.replace(path, change(data))

    @contextmanager
    def small_disk(self, name: str, size_bytes: int) -> Iterator[Path]:
        """A file system of that size, at a directory of the test's."""
        path = self.directory / name
        if self.disk is not None:
            put_directory(self.disk, path)
            self.disk.mount(path, capacity_bytes=size_bytes)
            yield path
            return
        need(Tool.ROOT)
        with small_disk(path, size_bytes):
            yield path

    async def clear(self) -> None:
        """Kill whatever is left."""
        prefix = f"--root={self.directory}"

        async def nothing_is_left() -> bool:
            found = await self.processes.find_arguments(prefix=prefix)
            for identity, _ in found:
                await self.processes.kill_and_wait(identity, deadline_s=SOON_S)
            # Stubs of a sandbox die after it, by themselves, and are known to the reaper only.
            return not found and not our_children()

        await self.until(nothing_is_left)


def write_fake(path: Path, settings: RunscSettings) -> Path:
    """Put a fake runsc somewhere."""
    folders = [str(ROOT), *{str(Path(str(module.__file__)).parent.parent) for module in (attrs, orjson)}]
    path.write_text(wrapper(sys.executable, folders, settings))
    path.chmod(0o755)
    return path
