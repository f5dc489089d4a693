"""What the demo's stories have in common: they ask a worker as any client asks, and tell what its journal says."""

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

    from actors.ports import Files, Net
    from supervisor.settings import Settings

PATIENCE_S: Final = 30.0
_WAIT_S: Final = 120.0
_GLANCE_S: Final = 0.05


@attrs.define(kw_only=True)
class Telling:
    """One telling, in which one story may follow on another.

    Attributes:
        net: reaches the worker.
        files: reads the worker's state directory.
        settings: how the worker was started.
        say: takes each line.
    """

    net: Net
    files: Files
    settings: Settings
    say: Callable[[str], None]
    _heading: tuple[str, ...] = attrs.field(default=(), init=False)
    _told: dict[str, int] = attrs.field(factory=dict, init=False)

    def head(self, title: str) -> None:
        """Begin a story, with a table of transitions under a title.

        Before anything runs, it may still turn out that this machine cannot: nothing is claimed until then.
        """
        self._heading = (f"{title}\n", f"  {'at':>9}  {'took':>9}  {'step':<10} state")

    async def ask(self, op: str, **arguments: Any) -> Any:
        """One request to the worker."""
        return await call(self.net, self.settings.control_socket, op, **arguments)

    async def when_up(self) -> Any:
        """The worker's status, as soon as it answers."""
        with anyio.fail_after(PATIENCE_S):
            while True:
                try:
                    return await self.ask("status")
                except ProblemError as error:
                    if error.problem.reason is not Reason.WORKER_UNREACHABLE:
                        raise
                await anyio.sleep(0.02)

    async def wait(self, uid: str, state: State) -> Any:
        """The status of an actor, once it is in a state."""
        return await self.ask("wait", uid=uid, state=str(state), timeout_s=_WAIT_S, bound_s=_WAIT_S)

    async def reach(self, uid: str, state: State) -> Any:
        """The same, and how it came there is told."""
        status = await self.wait(uid, state)
        for line in self._heading:
            self.say(line)
        self._heading = ()
        await self._tell(uid)
        return status

    async def refused(self, uid: str) -> Any:
        """Why a suspend was refused, as soon as the actor runs again; how it came there is told."""
        with anyio.fail_after(PATIENCE_S):
            while True:
                status = await self.ask("status", uid=uid)
                if status["state"] == State.RUNNING and status["error"] is not None:
                    await self._tell(uid)
                    return status["error"]
                await anyio.sleep(_GLANCE_S)

    async def _tell(self, uid: str) -> None:
        """Print the transitions that the journal has had since the last time."""
        path = StateDir(self.settings.state_dir).actor(uid).journal
        journal = await self.files.read(path, limit_bytes=LIMIT_BYTES)
        lines = [line for line in map(json.loads, journal.splitlines()) if "progress" not in line]
        # What is only remembered while a state lasts (a container's exit) does not end it.
        # Nor does it end when what the machine remembers is written anew, as for a document of a higher generation.
        lines = lines[:1] + [line for line in lines[1:] if "from" in line and line["from"] != line["to"]]
        began_s = lines[0]["mono_s"]
        for before, line in itertools.pairwise(lines):
            if line["seq"] <= self._told.get(uid, 0):
                continue
            self._told[uid] = line["seq"]
            at_s, took_s = line["mono_s"] - began_s, line["mono_s"] - before["mono_s"]
            step = STEP_OF.get(State(line["from"]), "(rest)")
            self.say(f"  {at_s:7.3f} s  {took_s:7.3f} s  {step:<10} {line['from']} -> {line['to']}")

    async def written(self, uid: str, container: str, *, least: int, offset_bytes: int = 0) -> list[bytes]:
        """The whole lines that a container has written from an offset on, as soon as there are that many."""
        with anyio.fail_after(PATIENCE_S):
            while True:
                answer = await self.ask("logs", uid=uid, container=container, offset_bytes=offset_bytes)
                lines = base64.b64decode(answer["data"]).rpartition(b"\n")[0].splitlines()
                if len(lines) >= least:
                    return lines
                await anyio.sleep(_GLANCE_S)

    async def log_bytes(self, uid: str, container: str) -> int:
        """How much a container has written."""
        answer = await self.ask("logs", uid=uid, container=container)
        return int(answer["size_bytes"])


def require(holds: bool, otherwise: str) -> None:
    """Go on only when something is so.

    Raises:
        ProblemError: it is not.
    """
    if not holds:
        raise ProblemError(Problem(step=Step.SUPERVISE, reason=Reason.INTERNAL, subject="demo", message=otherwise))
