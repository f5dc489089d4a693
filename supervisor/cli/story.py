"""The story of the demo: an actor is started, refuses a suspend, is suspended, resumed in a fresh sandbox, and stopped.

It asks a worker over its control socket as any client asks, and looks at what it says: in the containers' logs, in the
worker's status, in the journal and in what is left of activations. Where it happens is for others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import attrs

from actors.layout import StateDir
from statemachine.reasons import Reason
from statemachine.states import State
from supervisor.cli.telling import Telling, require

if TYPE_CHECKING:
    from pathlib import Path

UID: Final = "demo"
COUNTERS: Final = ("tick", "tock")
ENOUGH_LINES: Final = 5
"""Counts that each counter must have made before the next thing is done to it."""
RUNSC: Final = "<runsc>"
"""Stands for runsc's name and version in `Story.where`."""

COUNT: Final = "n=0; while true; do n=$((n+1)); echo $n; sleep 0.1; done"
_DOCUMENT: Final = f"""\
apiVersion: greenroom.dev/v1alpha1
kind: WorkerAssignment
metadata: {{uid: {UID}, name: counters, namespace: demo, generation: GENERATION}}
spec:
  desiredState: Running
  lifecycle: {{preSuspend: {{exec: [/bin/sh, -c, HOOK]}}}}
  terminationGracePeriodSeconds: 1
  containers:
  - {{name: tick, rootfs: rootfs, command: [/bin/sh, -c], args: ["{COUNT}"]}}
  - {{name: tock, rootfs: rootfs, command: [/bin/sh, -c], args: ["{COUNT}"]}}
  - {{name: once, rootfs: rootfs, command: [/bin/sh, -c], args: ["echo done; exit 0"]}}
"""
BUSY: Final = _DOCUMENT.replace("GENERATION", "1").replace("HOOK", "exit 1")
"""Its containers say that they must not be suspended now."""
READY: Final = _DOCUMENT.replace("GENERATION", "2").replace("HOOK", "exit 0")
"""They agree: what the hook does may change while the actor lives."""


@attrs.frozen(kw_only=True)
class Story:
    """One telling of it.

    Attributes:
        telling: how it is told.
        base: the directory in which there is a root file system `rootfs`.
        where: what the first line says of the world that it happens in, with `RUNSC` in it.
        verdict: how the last line begins, which says what was seen.
    """

    telling: Telling
    base: Path
    where: str
    verdict: str

    async def play(self) -> None:
        """All of it.

        Raises:
            ProblemError: something failed, or is not as it must be.
            TimeoutError: something did not come.
        """
        telling, say = self.telling, self.telling.say
        runsc = (await telling.when_up())["worker"]["runsc"]
        version = f"runsc {runsc['version']} ({runsc['platform']})"
        telling.head(f"greenroom demo: {self.where.replace(RUNSC, version)}")
        await telling.ask("submit", document=BUSY, base=str(self.base))
        await telling.reach(UID, State.RUNNING)
        before = {name: await self._counted(name, ENOUGH_LINES) for name in COUNTERS}
        first = await self._activation()
        await telling.ask("suspend", uid=UID)
        refusal = await telling.refused(UID)
        require(refusal["reason"] == Reason.HOOK_FAILED, f"the suspend was refused for another reason: {refusal}")
        for name in COUNTERS:
            before[name] = await self._counted(name, len(before[name]) + ENOUGH_LINES)
        require(await self._activation() == first, "the refused suspend has cost the actor its sandbox")
        await telling.ask("submit", document=READY, base=str(self.base))
        await telling.ask("suspend", uid=UID)
        await telling.reach(UID, State.SUSPENDED)
        saved = {name: await self._counted(name, 1) for name in COUNTERS}
        require(await self._activation() is None, "a sandbox is left of a suspended actor")
        await telling.ask("resume", uid=UID)
        await telling.reach(UID, State.RUNNING)
        after = {name: await self._counted(name, len(saved[name]) + ENOUGH_LINES) for name in COUNTERS}
        second = await self._activation()
        require(first != second, "the actor was resumed in the sandbox that it had before")
        for name in COUNTERS:
            require(after[name] == list(range(1, len(after[name]) + 1)), f"{name} did not count on: {after[name]}")
        status = await telling.ask("status", uid=UID)
        once = next(each for each in status["containers"] if each["name"] == "once")
        require(once["exitCode"] == 0, f"the container that ends did not end with 0: {once}")
        await telling.ask("stop", uid=UID)
        await telling.reach(UID, State.TERMINATED)
        require(await self._activation() is None, "something is left of the sandbox")
        say(f"\n  the first suspend was refused, and the actor ran on: {refusal['reason']}: {refusal['message']}")
        for name in COUNTERS:
            say(
                f"  {name} counted 1…{len(before[name])}, was suspended after {len(saved[name])}, "
                f"and went on to {len(after[name])} in a fresh sandbox without a gap"
            )
        say(
            f"\n{self.verdict}: three containers in one gVisor sandbox were started, ran on over a refused suspend, "
            "were suspended, resumed in a fresh sandbox with counters going on, and stopped; nothing is left. "
            f"{version}"
        )

    async def _counted(self, name: str, least: int) -> list[int]:
        """The numbers that a counter has written, as soon as there are that many."""
        return [int(line) for line in await self.telling.written(UID, name, least=least)]

    async def _activation(self) -> str | None:
        names = await self.telling.files.list_directory(StateDir(self.telling.settings.state_dir).sandboxes)
        return names[0] if names else None
