"""Commands that are executed inside actors on behalf of clients: who may, and that none outlives its client.

The client runs the command, from where it sees what the worker sees (in a pod: by `kubectl exec`); the worker tells it
how, keeps suspends away as long as its connection stands, and kills what is left of the command when it does not.
"""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakValueDictionary

import anyio
import attrs

from actors.runsc.argv import TERM
from actors.steps.executing import Execution, executing
from actors.steps.performer import Steps
from actors.steps.stage import Stage
from statemachine.problem import Problem, ProblemError, Step
from statemachine.reasons import Reason
from statemachine.states import State
from supervisor import control

if TYPE_CHECKING:
    from supervisor.step_runner import Performer
    from supervisor.worker import Worker

ARGUMENTS_MAX: Final = 4096


@attrs.define
class Executions:
    """The commands of clients, on one worker."""

    _stages: WeakValueDictionary[str, Stage] = attrs.field(factory=WeakValueDictionary, init=False)
    _ending: anyio.Event = attrs.field(factory=anyio.Event, init=False)
    _changed: anyio.Event = attrs.field(factory=anyio.Event, init=False)

    def performer(self, stage: Stage) -> Performer:
        """What performs the commands of one actor, whose stage is known here from now on."""
        self._stages[stage.assignment.uid] = stage
        return Steps(stage)

    def end(self) -> None:
        """Let all of them end, and none begin; nobody waits here for one that hangs."""
        self._ending.set()

    async def ended(self, uid: str) -> None:
        """Wait until none of one actor is left: its suspend would be refused beside them."""
        while (stage := self._stages.get(uid)) is not None and stage.executions:
            await self._changed.wait()

    def operations(self, worker: Worker) -> dict[str, control.Operation]:
        """What the control socket can do with them."""

        async def execute(request: dict[str, Any]) -> control.Held:
            life = worker.require(control.text(request, "uid"))
            name, command, term = control.text(request, "container"), _command(request), _term(request)
            worker.require_open()
            if life.actor.state is not State.RUNNING or self._ending.is_set():
                raise ProblemError(_not_running(life.uid, life.actor.state))
            # Nothing waits between this look and the count in `executing`: no suspend can come in between.
            stack = AsyncExitStack()
            execution = await stack.enter_async_context(
                executing(self._stages[life.uid], name, command, worker.shutdown.at_last, term=term)
            )

            async def ended() -> None:
                try:
                    await stack.aclose()
                finally:
                    self._changed.set()
                    self._changed = anyio.Event()

            return control.Held(result=as_json(execution), until=self._ending, ended=ended)

        return {"exec": execute}


def as_json(execution: Execution) -> dict[str, Any]:
    """For the client."""
    return {
        "argv": list(execution.argv),
        "env": dict(execution.env),
        "stdin": None if execution.stdin is None else str(execution.stdin),
        "isConfined": execution.is_confined,
        "streams": str(execution.streams),
        "log": str(execution.log),
        "kill": list(execution.kill),
        "container": execution.container,
        "pidFile": str(execution.pid_file),
    }


def _command(request: dict[str, Any]) -> list[str]:
    given: Any = request.get("command")
    command: list[Any] = given if isinstance(given, list) else []
    are_texts = all(isinstance(word, str) and "\0" not in word for word in command)
    if not 0 < len(command) <= ARGUMENTS_MAX or not are_texts or not command[0]:
        raise _invalid(f"command must be a list of 1 to {ARGUMENTS_MAX} texts without NUL, the first not empty")
    return command


def _term(request: dict[str, Any]) -> str | None:
    """What kind of terminal the command is executed at; None: at none."""
    if request.get("term") is None:
        return None
    term = control.text(request, "term")
    if not TERM.fullmatch(term):
        raise _invalid("term must be the name of a kind of terminal, as xterm-256color")
    return term


def _invalid(message: str) -> ProblemError:
    return ProblemError(
        Problem(step=Step.SUPERVISE, reason=Reason.INVALID_REQUEST, subject="control socket", message=message)
    )


def _not_running(uid: str, state: State) -> Problem:
    return Problem(
        step=Step.SUPERVISE,
        reason=Reason.OPERATION_IN_PROGRESS,
        subject=uid,
        message=f"nothing can be executed inside actor {uid} now: it is {state}",
        hint=f"`greenroom wait {uid} --for Running` waits until it runs.",
    )
