"""What is there for those who look on: containers' logs, kept and told, word of every change, spans, and a way inside.

One object of a worker holds it, from before its first actor until after its last one's end.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import anyio
import structlog

from actors.concurrency import together
from statemachine.reasons import Reason
from supervisor import control
from supervisor.container_logs import ContainerLogs
from supervisor.executions import Executions
from supervisor.log_hearing import LogsHear
from supervisor.log_keeping import LogKeeper
from supervisor.log_reading import WAIT_MAX_S as LOG_WAIT_MAX_S
from supervisor.log_reading import read_log
from supervisor.observing import Several
from supervisor.shutdown import Phase
from supervisor.tracing import Tracing
from supervisor.usage import measured_status, measured_worker_status
from supervisor.watching_changes import WAIT_MAX_S, Changes

if TYPE_CHECKING:
    from anyio.abc import TaskGroup

    from actors.layout import StateDir
    from actors.ports import Ports
    from supervisor.log_hearing import LogWorld
    from supervisor.observing import Observer
    from supervisor.tracing import SpanExport
    from supervisor.worker import Worker

FINISH_S: Final = 5.0
"""How long a worker that leaves waits for its last lines to be taken."""

_log = structlog.get_logger("greenroom.logs")


class LookingOn:
    """The logs of a worker, the word of its changes, and the commands that are executed inside its actors.

    Args:
        ports: all of them.
        state_dir: where the logs are.
        scope: where the logs are kept.
        log_world: what that needs; None keeps none within bounds, and tells none.
        spans: where spans go; None makes none.
    """

    def __init__(
        self,
        ports: Ports,
        state_dir: StateDir,
        scope: TaskGroup,
        log_world: LogWorld | None,
        spans: SpanExport | None = None,
    ) -> None:
        self._boot_id = ports.wall.boot_id
        self._worker: Worker | None = None
        self._logs = ContainerLogs(ports.files if log_world is None else log_world.files, state_dir)
        self._changes = Changes()
        self.executions = Executions()
        self._keeper: LogKeeper | None = None
        self._hears: LogsHear | None = None
        self._tracing = None if spans is None else Tracing(spans, ports.wall)
        if log_world is not None:
            self._keeper = LogKeeper(
                logs=self._logs,
                log_files=log_world.files,
                scope=scope,
                directory_of=lambda uid: state_dir.actor(uid).logs,
                output=log_world.output,
                now_s=ports.wall.now_s,
            )
            self._hears = LogsHear(self._keeper)

    def beside(self, observer: Observer) -> Observer:
        """Who hears what happens on the worker: another one, and who looks on."""
        others: tuple[Observer | None, ...] = (self._hears, self._tracing)
        return Several(observer, self._changes, *(each for each in others if each is not None))

    def look_on(self, worker: Worker) -> None:
        """From here on it is this worker that is looked at; before anything happens on it."""
        self._worker = worker
        if self._hears is not None:
            self._hears.worker = worker
        if self._tracing is not None:
            self._tracing.worker = worker

    async def finish(self) -> None:
        """Let the last lines and spans of ended actors be taken, if somebody takes them; what is not is told."""
        with anyio.move_on_after(FINISH_S), self._its_worker.shutdown.until(Phase.ENDING):
            await together(
                *(() if self._keeper is None else (self._keeper.finish,)),
                *(() if self._tracing is None else (self._tracing.export.finish,)),
            )
        if self._keeper is not None and (left := self._keeper.untold):
            message = "stdout did not take the last lines of these actors in time; their logs have them"
            _log.warning("untold", left=list(left), reason=str(Reason.OUTPUT_UNWRITABLE), message=message)

    @property
    def operations(self) -> dict[str, control.Operation]:
        """What the control socket can do for them, by name."""
        return {"logs": self._read_log, "watch": self._watch, **self.executions.operations(self._its_worker)}

    async def _read_log(self, request: dict[str, Any]) -> Any:
        life = self._its_worker.require(control.text(request, "uid"))
        return await read_log(
            self._logs,
            self._keeper,
            life,
            control.text(request, "container"),
            offset_bytes=int(control.number(request, "offset_bytes", default=0, largest=1 << 62)),
            wait_s=control.number(request, "wait_s", default=0, largest=LOG_WAIT_MAX_S),
        )

    async def _watch(self, request: dict[str, Any]) -> Any:
        """The status as soon as it is another one than the client has, or when the time is over."""
        worker = self._its_worker
        after = int(control.number(request, "after", default=0, largest=1 << 62))
        wait_s = control.number(request, "wait_s", default=0, largest=WAIT_MAX_S)
        if "after" in request:
            await self._changes.later_than(after, wait_s=wait_s)
        change = self._changes.number  # before it is looked at: what happens meanwhile is told by the next answer
        if request.get("uid") is None:
            status = await measured_worker_status(worker, boot_id=self._boot_id())
        else:
            status = await measured_status(worker, worker.require(control.text(request, "uid")))
        return {"change": change, "status": status}

    @property
    def _its_worker(self) -> Worker:
        if self._worker is None:
            raise RuntimeError("nothing is asked before there is a worker")
        return self._worker
