"""The story of the demo: an actor is started, suspended, resumed in a fresh sandbox, and stopped. Where is for others.

It asks a worker over its control socket as any client asks, and looks at what it says: in the containers' logs, in the
worker's status, in the journal and in what is left of activations.
"""

from __future__ import annotations

import base64
import itertools
import json
from typing import TYPE_CHECKING, Any, Final

import anyio
import attrs

from actors.journal import LIMIT_BYTES
from actors.layout import StateDir
from statemachine.problem import Problem, ProblemError, Step
from statemachine.reasons import Reason
from statemachine.states import STEP_OF, State
from supervisor.client import call

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from actors.ports import Files, Net
    from supervisor.settings import Settings

UID: Final = "demo"
COUNTERS: Final = ("tick", "tock")
ENOUGH_LINES: Final = 5
"""Counts that each counter must have made before the next thing is done to it."""
PATIENCE_S: Final = 30.0
RUNSC: Final = "<runsc>"
"""Stands for runsc's name and version in `Story.where`."""

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


@attrs.define(kw_only=True)
class Story:
    """One telling of it.

    Attributes:
        net: reaches the worker.
        files: reads the worker's state directory.
        settings: how the worker was started.
        base: the directory in which there is a root file system `rootfs`.
        say: takes each line.
        where: what the first line says of the world that it happens in, with `RUNSC` in it.
        verdict: how the last line begins, which says what was seen.
    """

    net: Net
    files: Files
    settings: Settings
    base: Path
    say: Callable[[str], None]
    where: str
    verdict: str
    _heading: tuple[str, ...] = attrs.field(default=(), init=False)
    _told: int = attrs.field(default=0, init=False)

    async def play(self) -> None:
        """All of it.

        Raises:
            ProblemError: something failed, or is not as it must be.
            TimeoutError: something did not come.
        """
        runsc = (await self._when_up())["worker"]["runsc"]
        version = f"runsc {runsc['version']} ({runsc['platform']})"
        self._heading = (
            f"greenroom demo: {self.where.replace(RUNSC, version)}\n",
            f"  {'at':>9}  {'took':>9}  {'step':<10} state",
        )
        await self._ask("submit", document=DOCUMENT, base=str(self.base))
        await self._reach(State.RUNNING)
        before = {name: await self._counted(name, ENOUGH_LINES) for name in COUNTERS}
        first = await self._activation()
        await self._ask("suspend", uid=UID)
        await self._reach(State.SUSPENDED)
        saved = {name: await self._counted(name, 1) for name in COUNTERS}
        require(await self._activation() is None, "a sandbox is left of a suspended actor")
        await self._ask("resume", uid=UID)
        await self._reach(State.RUNNING)
        after = {name: await self._counted(name, len(saved[name]) + ENOUGH_LINES) for name in COUNTERS}
        second = await self._activation()
        require(first != second, "the actor was resumed in the sandbox that it had before")
        for name in COUNTERS:
            require(after[name] == list(range(1, len(after[name]) + 1)), f"{name} did not count on: {after[name]}")
        status = await self._ask("status", uid=UID)
        once = next(each for each in status["containers"] if each["name"] == "once")
        require(once["exitCode"] == 0, f"the container that ends did not end with 0: {once}")
        await self._ask("stop", uid=UID)
        await self._reach(State.TERMINATED)
        require(await self._activation() is None, "something is left of the sandbox")
        self.say("")
        for name in COUNTERS:
            self.say(
                f"  {name} counted 1…{len(before[name])}, was suspended after {len(saved[name])}, "
                f"and went on to {len(after[name])} in a fresh sandbox without a gap"
            )
        self.say(
            f"\n{self.verdict}: three containers in one gVisor sandbox were started, suspended, resumed in a fresh "
            f"sandbox with counters going on, and stopped; nothing is left. {version}"
        )

    @property
    def _state_dir(self) -> StateDir:
        return StateDir(self.settings.state_dir)

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
        return await call(self.net, self.settings.control_socket, op, **arguments)

    async def _reach(self, state: State) -> Any:
        status = await self._ask("wait", uid=UID, state=str(state), timeout_s=120.0, bound_s=120.0)
        # Before anything runs, it may still turn out that this machine cannot: nothing has been claimed until then.
        for line in self._heading:
            self.say(line)
        self._heading = ()
        await self._tell()
        return status

    async def _tell(self) -> None:
        """Print the transitions that the journal has had since the last time."""
        journal = await self.files.read(self._state_dir.actor(UID).journal, limit_bytes=LIMIT_BYTES)
        lines = [line for line in map(json.loads, journal.splitlines()) if "progress" not in line]
        # What is only remembered while a state lasts (a container's exit) does not end it.
        lines = [line for line in lines if line.get("from") is None or line["from"] != line["to"]]
        began_s = lines[0]["mono_s"]
        for before, line in itertools.pairwise(lines):
            if line["seq"] <= self._told:
                continue
            self._told = line["seq"]
            at_s, took_s = line["mono_s"] - began_s, line["mono_s"] - before["mono_s"]
            step = STEP_OF.get(State(line["from"]), "(rest)")
            self.say(f"  {at_s:7.3f} s  {took_s:7.3f} s  {step:<10} {line['from']} -> {line['to']}")

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
        names = await self.files.list_directory(self._state_dir.sandboxes)
        return names[0] if names else None


def require(holds: bool, otherwise: str) -> None:
    """Go on only when something is so.

    Raises:
        ProblemError: it is not.
    """
    if not holds:
        raise ProblemError(Problem(step=Step.SUPERVISE, reason=Reason.INTERNAL, subject="demo", message=otherwise))
