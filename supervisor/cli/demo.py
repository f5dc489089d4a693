"""`greenroom demo`: the main job, for real: an actor is started, suspended, resumed in a fresh sandbox, and stopped.

The worker is the real one, asked over its control socket as any client asks; only its directories are scratch. What the
closing line says was looked at in the containers' logs, in the worker's status and in what is left on the machine.
"""

from __future__ import annotations

import base64
import itertools
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import anyio
import click

from actors.journal import LIMIT_BYTES
from actors.layout import StateDir
from actors.runsc.teardown import find_leftovers
from statemachine.problem import Problem, ProblemError, Step
from statemachine.reasons import Reason
from statemachine.states import STEP_OF, State
from supervisor.client import call
from supervisor.host.composition import open_host_ports
from supervisor.host.files import HostFiles
from supervisor.host.net import HostNet
from supervisor.host.scratch import make_busybox_rootfs, scratch_directory
from supervisor.host.surroundings import effective_uid, find_busybox, find_runsc, in_chroot, read_small
from supervisor.logs import LogFormat, configure_logs
from supervisor.running import run_worker
from supervisor.settings import Settings

if TYPE_CHECKING:
    from actors.ports import Files

EXIT_NOT_POSSIBLE: Final = 77
UID: Final = "demo"
COUNTERS: Final = ("tick", "tock")
ENOUGH_LINES: Final = 5
"""Counts that each counter must have made before the next thing is done to it."""
PATIENCE_S: Final = 30.0
LOG_TAIL_BYTES: Final = 4000
NOT_PERMITTED: Final = ("not permitted", "permission denied", "don't have cap_", "namespace", "pivot_root", "seccomp")
"""Words of runsc's that mean: this machine does not let gVisor run, rather than: something is wrong."""

COUNT: Final = "n=0; while true; do n=$((n+1)); echo $n; sleep 0.1; done"
DOCUMENT: Final = f"""\
apiVersion: greenroom.dev/v1alpha1
kind: WorkerAssignment
metadata: {{uid: {UID}, name: counters, namespace: demo, generation: 1}}
spec:
  desiredState: Running
  terminationGracePeriodSeconds: 1
  containers:
  - {{name: tick, rootfs: rootfs, command: [/bin/sh, -c], args: ["{COUNT}"]}}
  - {{name: tock, rootfs: rootfs, command: [/bin/sh, -c], args: ["{COUNT}"]}}
  - {{name: once, rootfs: rootfs, command: [/bin/sh, -c], args: ["echo done; exit 0"]}}
"""


@click.command()
def demo() -> int:
    """Run an actor through its whole life in real gVisor, in a scratch directory; 77 where gVisor cannot run."""
    busybox = find_busybox()
    obstacle = _obstacle(busybox)
    if busybox is None or obstacle is not None:
        return _not_possible(obstacle or "")
    with scratch_directory("greenroom-demo-") as scratch, (scratch / "worker.log").open("wb", buffering=0) as log:
        configure_logs(LogFormat.JSON, level="info", stream=log)
        make_busybox_rootfs(scratch / "rootfs", busybox)
        try:
            anyio.run(_Demo(scratch).run)
        except (ProblemError, BaseExceptionGroup) as error:
            problem = _first_problem(error)
            if problem is not None and _says_not_permitted(problem):
                chroot = "; this is a chroot, in which the kernel refuses user namespaces" if in_chroot() else ""
                return _not_possible(f"gVisor cannot run here: {problem.message}{chroot}")
            click.echo(read_small(scratch / "worker.log")[-LOG_TAIL_BYTES:], err=True)
            raise
    return 0


def _obstacle(busybox: Path | None) -> str | None:
    """What on this machine speaks against gVisor before it is tried."""
    try:
        find_runsc(None)
    except ProblemError as error:
        return f"{error.problem.message}; `make setup` installs it where Debian's packages can be had"
    if busybox is None:
        return "there is no busybox for the demo's root filesystem; `make setup` installs it"
    if effective_uid() != 0:
        return f"gVisor needs root to make its namespaces, and this is uid {effective_uid()}; run it as root"
    return None


def _not_possible(why: str) -> int:
    click.echo(f"greenroom demo: not possible on this machine: {why}", err=True)
    return EXIT_NOT_POSSIBLE


def _says_not_permitted(problem: Problem) -> bool:
    words = f"{problem.message}\n{problem.detail}".lower()
    runtime = problem.reason in {Reason.RUNTIME_FAILED, Reason.RUNTIME_UNAVAILABLE, Reason.SANDBOX_DIED}
    return runtime and problem.step in {Step.CREATE, Step.SUPERVISE} and any(word in words for word in NOT_PERMITTED)


def _first_problem(error: BaseException) -> Problem | None:
    """The first cause, out of the groups that task groups made; None when it is something else than a problem."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error.problem if isinstance(error, ProblemError) else None


class _Demo:
    """One run of the demo in its scratch directory."""

    def __init__(self, scratch: Path) -> None:
        self._scratch = scratch
        self._state_dir = StateDir(scratch / "state")
        self._settings = Settings(
            state_dir=scratch / "state", run_dir=scratch / "run", assignments=None, runsc=find_runsc(None)
        )
        self._files: Files = HostFiles(roots=())
        self._told = 0
        self._began_s: float | None = None

    async def run(self) -> None:
        """The demo, from an empty directory to an empty directory."""
        async with open_host_ports(roots=(self._settings.state_dir, self._settings.run_dir)) as ports:
            self._files = ports.files
            async with anyio.create_task_group() as group:
                group.start_soon(run_worker, ports, self._settings)
                await self._play()
                group.cancel_scope.cancel()
            left = await find_leftovers(ports.processes, ports.files, self._state_dir.sandboxes)
            _require(not left, f"sandboxes are left: {[each.activation for each in left]}")

    async def _play(self) -> None:
        runsc = (await self._when_up())["worker"]["runsc"]
        click.echo(f"greenroom demo: real gVisor, runsc {runsc['version']} ({runsc['platform']})\n")
        click.echo(f"  {'at':>9}  {'took':>9}  {'step':<10} state")
        await self._ask("submit", document=DOCUMENT, base=str(self._scratch))
        await self._reach(State.RUNNING)
        before = {name: await self._counted(name, ENOUGH_LINES) for name in COUNTERS}
        first = await self._activation()
        await self._ask("suspend", uid=UID)
        status = await self._reach(State.SUSPENDED)
        saved = {name: await self._counted(name, 1) for name in COUNTERS}
        _require(await self._activation() is None, "a sandbox is left of a suspended actor")
        await self._ask("resume", uid=UID)
        await self._reach(State.RUNNING)
        after = {name: await self._counted(name, len(saved[name]) + ENOUGH_LINES) for name in COUNTERS}
        second = await self._activation()
        _require(first != second, "the actor was resumed in the sandbox that it had before")
        for name in COUNTERS:
            _require(after[name] == list(range(1, len(after[name]) + 1)), f"{name} did not count on: {after[name]}")
        status = await self._ask("status", uid=UID)
        once = next(each for each in status["containers"] if each["name"] == "once")
        _require(once["exitCode"] == 0, f"the container that ends did not end with 0: {once}")
        await self._ask("stop", uid=UID)
        await self._reach(State.TERMINATED)
        click.echo("")
        for name in COUNTERS:
            click.echo(
                f"  {name} counted 1…{len(before[name])}, was suspended after {len(saved[name])}, "
                f"and went on to {len(after[name])} in a fresh sandbox without a gap"
            )
        click.echo(
            "\nproven: three containers in one gVisor sandbox were started, suspended, resumed in a fresh sandbox with "
            f"counters going on, and stopped; nothing is left. runsc {runsc['version']} ({runsc['platform']})"
        )

    async def _when_up(self) -> Any:
        with anyio.fail_after(PATIENCE_S):
            while True:
                try:
                    return await self._ask("status")
                except ProblemError as error:
                    if error.problem.reason is not Reason.WORKER_UNREACHABLE:
                        raise
                await anyio.sleep(0.02)

    async def _ask(self, op: str, **arguments: Any) -> Any:
        return await call(HostNet(), self._settings.control_socket, op, **arguments)

    async def _reach(self, state: State) -> Any:
        try:
            return await self._ask("wait", uid=UID, state=str(state), timeout_s=120.0, bound_s=120.0)
        finally:
            await self._tell()

    async def _tell(self) -> None:
        """Print the transitions that the journal has had since the last time."""
        journal = await self._files.read(self._state_dir.actor(UID).journal, limit_bytes=LIMIT_BYTES)
        lines = [line for line in map(json.loads, journal.splitlines()) if "progress" not in line]
        for before, line in itertools.pairwise(lines):
            if line["seq"] <= self._told or line["from"] == line["to"]:
                continue
            self._told = line["seq"]
            self._began_s = self._began_s if self._began_s is not None else before["mono_s"]
            at_s, took_s = line["mono_s"] - self._began_s, line["mono_s"] - before["mono_s"]
            step = STEP_OF.get(State(line["from"]), "(rest)")
            click.echo(f"  {at_s:7.3f} s  {took_s:7.3f} s  {step:<10} {line['from']} -> {line['to']}")

    async def _counted(self, name: str, least: int) -> list[int]:
        """The numbers that a counter has written, as soon as there are that many."""
        with anyio.fail_after(PATIENCE_S):
            while True:
                answer = await self._ask("logs", uid=UID, container=name)
                whole = base64.b64decode(answer["data"]).rpartition(b"\n")[0]
                numbers = [int(line) for line in whole.split()]
                if len(numbers) >= least:
                    return numbers
                await anyio.sleep(0.05)

    async def _activation(self) -> str | None:
        names = await self._files.list_directory(self._state_dir.sandboxes)
        return names[0] if names else None


def _require(holds: bool, otherwise: str) -> None:
    if not holds:
        raise ProblemError(Problem(step=Step.SUPERVISE, reason=Reason.INTERNAL, subject="demo", message=otherwise))
