"""A real stage for real sandboxes: the host's ports, a state directory of the test's, a small rootfs, runsc."""

import os
import platform
import shutil
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import anyio
import attrs

from actors.assignment import Bundle, Container, Resources, Rootfs
from actors.bundle.activation_tree import (
    ContainerFiles,
    activation_tree,
    bundle_directory,
    confine_path,
    pause_bundle,
    programs_for_claims,
)
from actors.bundle.capabilities import Claims, claims_of
from actors.bundle.composing import compose_each
from actors.bundle.seccomp import flags_for
from actors.layout import StateDir
from actors.ports import Ports
from actors.runsc.activation import ContainerPlan, SandboxPlan, start_cold, start_restored
from actors.runsc.driver import Deadlines, Runsc
from actors.runsc.flags import GlobalFlags
from actors.runsc.ids import fresh_activation, fresh_container_ids
from actors.runsc.record import ROOT_CONTAINER, SandboxRecord
from actors.runsc.sandbox import Sandbox
from actors.runsc.teardown import RUNSC_ROOT, end_activation
from actors.runsc.version import runtime_version
from statemachine.problem import Step
from supervisor.host.composition import open_host_ports
from tests.needs import Tool, find
from tests.real.onlookers import our_children

ACTOR: Final = "a1"
COUNT: Final = ("sh", "-c", "i=0; while :; do echo $i; i=$((i+1)); sleep 0.02; done")
"""Writes 0, 1, 2, … until it is ended."""
_APPLETS: Final = (
    "cat",
    "dd",
    "echo",
    "false",
    "grep",
    "id",
    "kill",
    "ls",
    "mknod",
    "sh",
    "sleep",
    "true",
    "unshare",
    "wc",
)


def make_rootfs(directory: Path) -> Path:
    """A rootfs with a static busybox in it."""
    busybox = find(Tool.BUSYBOX)
    assert busybox is not None
    for name in ("bin", "dev", "proc", "sys", "tmp"):
        (directory / name).mkdir(parents=True)
    shutil.copy(busybox, directory / "bin/busybox")
    for applet in _APPLETS:
        (directory / "bin" / applet).symlink_to("busybox")
    return directory


def fingerprint(directory: Path) -> dict[str, tuple[int, int, int]]:
    """Mode, size and time of everything in a tree, to see whether it was touched."""
    paths = [Path(parent, name) for parent, folders, files in os.walk(directory) for name in (*folders, *files)]
    return {str(path): (path.lstat().st_mode, path.lstat().st_size, path.lstat().st_mtime_ns) for path in paths}


@attrs.frozen
class Stage:
    """What a test needs to start, save and restore one actor."""

    ports: Ports
    state: StateDir
    rootfs: Path
    runsc: Path

    def container(self, name: str, argv: Sequence[str] = COUNT, **more) -> Container:
        """An application container on the shared rootfs."""
        more = {"path": self.rootfs, "env": (("PATH", "/bin"),), **more}
        limits = more.pop("limits", Resources())
        return Container(name=name, source=Rootfs(argv=tuple(argv), **more), limits=limits)

    def bundle(self, name: str, path: Path) -> Container:
        """An application container from a given bundle."""
        return Container(name=name, source=Bundle(path))

    async def plan(
        self, *containers: Container, flags: GlobalFlags = GlobalFlags(), deadlines: Deadlines = Deadlines()
    ) -> tuple[Runsc, SandboxPlan]:
        """Write the bundles of a new activation."""
        ports, claims = self.ports, claims_of(containers)
        flags = flags.more(extra=flags_for(claims))
        activation = self.state.activation(fresh_activation(ports.wall))
        ids = fresh_container_ids(ports.wall, [ROOT_CONTAINER, *(container.name for container in containers)])
        version = await runtime_version(ports.processes, self.runsc, step=Step.CREATE)
        record = SandboxRecord(
            activation=activation.name,
            actor=ACTOR,
            boot_id=ports.wall.boot_id(),
            runtime_path=self.runsc,
            runtime_version=version.text,
            flags=flags,
            container_ids=ids,
        )
        await ports.files.make_directory(self.state.actor(ACTOR).logs)
        composed = await compose_each(
            ports.files, containers, sandbox_id=ids[ROOT_CONTAINER], hostname=ACTOR, claims=claims
        )
        machine = platform.machine()
        pause = pause_bundle(activation, hostname=ACTOR, machine=machine)
        made = {name: ContainerFiles(config=config) for name, config in composed.items()}
        await ports.files.make_tree(activation, activation_tree(pause, made, programs_for_claims(machine)))
        plans = [
            ContainerPlan(
                name=name,
                bundle=bundle_directory(activation, name),
                log=self.state.actor(ACTOR).log(name),
                env=tuple(config["process"].get("env") or ()),
            )
            for name, config in composed.items()
        ]
        runsc = Runsc(
            path=self.runsc,
            flags=flags,
            processes=ports.processes,
            files=ports.files,
            root=activation / RUNSC_ROOT,
            deadlines=deadlines,
            confine=None if claims is Claims.NONE else confine_path(activation),
        )
        return runsc, SandboxPlan(
            record=record, pause_bundle=bundle_directory(activation, ROOT_CONTAINER), containers=tuple(plans)
        )

    async def start(self, *containers: Container) -> Sandbox:
        """Start an actor cold."""
        return await start_cold(*await self.plan(*containers))

    async def restore(self, image: Path, *containers: Container) -> Sandbox:
        """Restore an actor into a new activation."""
        return await start_restored(*await self.plan(*containers), image)

    async def end(self, sandbox: Sandbox) -> None:
        """End an activation and let go of its processes."""
        await end_activation(self.ports.processes, self.ports.files, sandbox.runsc.activation, owned=sandbox.owned)
        sandbox.close()

    async def suspend(self, sandbox: Sandbox, name: str = "s1") -> Path:
        """Freeze, save and end an actor; return the directory of its image."""
        image = self.state.actor(ACTOR).snapshot(name)
        await sandbox.freeze()
        await sandbox.checkpoint_into(image)
        await self.end(sandbox)
        return image

    def lines(self, name: str) -> list[str]:
        """What a container has written, in whole lines."""
        path = self.state.actor(ACTOR).log(name)
        return path.read_text().rpartition("\n")[0].splitlines() if path.exists() else []

    async def wait_for_lines(self, name: str, count: int) -> list[str]:
        """Wait until a container has written that many lines."""
        await wait_until(lambda: len(self.lines(name)) >= count)
        return self.lines(name)

    def processes_below(self) -> list[str]:
        """Command lines of all processes that have a runsc root below the state directory."""
        found = []
        for process in Path("/proc").glob("[0-9]*"):
            try:
                command = (process / "cmdline").read_text().replace("\0", " ")
            except (OSError, UnicodeDecodeError):
                continue
            if f"--root={self.state.root}" in command:
                found.append(command)
        return found

    def left(self) -> list[str]:
        """What is left of any activation: processes and directories."""
        return [*self.processes_below(), *map(str, self.state.sandboxes.iterdir())]


async def wait_until(holds: Callable[[], bool], *, within_s: float = 60.0) -> None:
    """Look every 10 ms until something holds."""
    with anyio.fail_after(within_s):
        while not holds():
            await anyio.sleep(0.01)


@asynccontextmanager
async def open_stage(directory: Path, rootfs: Path) -> AsyncIterator[Stage]:
    """Open the host's ports on a state directory below `directory`; whatever sandbox is left is ended on leaving."""
    runsc = find(Tool.RUNSC)
    assert runsc is not None
    state = StateDir(directory / "state")
    before = our_children()  # a server that serves many tests is one
    async with open_host_ports(roots=[state.root]) as ports:
        await ports.files.make_directory(state.sandboxes)
        try:
            yield Stage(ports, state, rootfs, Path(runsc))
        finally:
            with anyio.CancelScope(shield=True):
                for activation in list(state.sandboxes.iterdir()):
                    await end_activation(ports.processes, ports.files, activation)
                # The stubs of a sandbox die after it, by themselves, and only the reaper knows them.
                await wait_until(lambda: our_children() <= before)
