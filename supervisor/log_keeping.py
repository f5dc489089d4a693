"""The logs of the actors that live: kept within bounds, and told on our stdout.

For each such actor one task waits until one of its containers has written something, without looking from time to time,
cuts logs that have become too large, and tells whoever follows. Beside it another one tells the lines, as fast as they
are taken and no faster: what waits to be told waits in the files, so that a stdout that nobody reads costs no memory
and stops no actor. What was cut off meanwhile is counted in a line of its own.

All of them look at the same beats, and what they then look at and read costs the worker one visit to a thread each: it
is woken as often by a hundred actors that write as by one.
"""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import anyio
import structlog

from statemachine.reasons import Reason
from statemachine.states import INACTIVE
from supervisor.container_logs import log_name
from supervisor.log_files import rest_s
from supervisor.log_relay import LogRelay, Turns

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from anyio.abc import TaskGroup

    from actors.assignment import WorkerAssignment
    from statemachine.states import State
    from supervisor.container_logs import ContainerLogs
    from supervisor.log_files import LineOutput, LogFiles

REST_S: Final = 1.0
"""How long what cannot be cut or looked at is left alone at first; doubled each time, until it can."""
REST_S_MAX: Final = 60.0

_log = structlog.get_logger("greenroom.logs")


class LogKeeper:
    """Sees to the containers' logs of one worker.

    Args:
        logs: the logs.
        log_files: tells of writes.
        scope: where its tasks run.
        directory_of: where an actor's logs are.
        output: where lines are told; None tells none.
        now_s: the calendar.
    """

    def __init__(
        self,
        *,
        logs: ContainerLogs,
        log_files: LogFiles,
        scope: TaskGroup,
        directory_of: Callable[[str], Path],
        output: LineOutput | None,
        now_s: Callable[[], float],
    ) -> None:
        self._logs, self._log_files, self._scope = logs, log_files, scope
        self._directory_of, self._output, self._now_s = directory_of, output, now_s
        self._turns = Turns()
        self._kept: dict[str, _Kept] = {}
        self._ended = anyio.Event()

    def settle(self, assignment: WorkerAssignment, state: State) -> None:
        """Look at where an actor is now: what is written from the first such look on is told. Waits for nothing."""
        kept = self._kept.get(assignment.uid)
        if kept is None:
            kept = self._kept[assignment.uid] = _Kept(self, assignment)
        kept.settle(assignment, state)

    def grown(self, uid: str) -> anyio.Event:
        """Is set when more was written, or the actor is somewhere else."""
        kept = self._kept.get(uid)
        return anyio.Event() if kept is None else kept.grown

    @property
    def known(self) -> tuple[str, ...]:
        """The actors that were looked at and not forgotten."""
        return tuple(self._kept)

    async def finish(self) -> None:
        """Wait until all that was written is told; the bound is the caller's."""
        while self.untold:
            await self._ended.wait()

    @property
    def untold(self) -> tuple[str, ...]:
        """The actors of whose output some may not be told yet."""
        return tuple(sorted(uid for uid, kept in self._kept.items() if kept.runs))

    def forget(self, uid: str) -> None:
        """The actor is not remembered any more."""
        self._kept.pop(uid, None)
        self._logs.forget(uid)

    # ---- what the tasks of an actor share

    def start(self, kept: _Kept) -> None:
        """Let the tasks of an actor begin."""
        self._scope.start_soon(kept.run, name=f"logs:{kept.uid}")

    def note_end(self) -> None:
        """The tasks of an actor have ended."""
        self._ended.set()
        self._ended = anyio.Event()

    def size_of(self, uid: str, container: str) -> int:
        """How large a log's younger file is now."""
        return self._log_files.size_bytes(self._directory_of(uid) / log_name(container))

    def relay(self, assignment: WorkerAssignment) -> LogRelay | None:
        """What tells an actor's lines, if anything does."""
        if self._output is None:
            return None
        return LogRelay(assignment=assignment, logs=self._logs, write=self._write, turns=self._turns, now_s=self._now_s)

    async def _write(self, lines: bytes) -> None:
        if self._output is None:  # it was given up
            return
        try:
            await self._output.write(lines)
        except OSError as error:
            self._output = None
            message = f"containers' lines are told no more: {error.strerror or error}"
            _log.error("unwritten", reason=str(Reason.OUTPUT_UNWRITABLE), subject="stdout", message=message)

    async def look(self, kept: _Kept) -> None:
        """Wait until an actor's containers have written something, and keep their logs within bounds."""
        containers = kept.containers  # another assignment may come meanwhile
        sizes = {log_name(name): kept.sizes.get(log_name(name), 0) for name in containers}
        # Before they are bounded: what is written in between is another size at the next look.
        kept.sizes = await self._log_files.changed(self._directory_of(kept.uid), sizes)
        for name in containers:
            await self._bound(kept, name)

    async def bound_at_last(self, kept: _Kept) -> None:
        """Keep the logs of an actor within bounds that has ended, whatever was when that was tried before.

        Raises:
            OSError: they cannot be looked at.
        """
        kept.rests.clear()
        containers = kept.containers
        kept.sizes = {log_name(name): await self._logs.size(kept.uid, name) for name in containers}
        for name in containers:
            await self._bound(kept, name)

    async def _bound(self, kept: _Kept, name: str) -> None:
        """Keep a log within bounds; one that cannot be cut is left alone for a while."""
        rest = kept.rests.setdefault(name, Rest())
        if not rest.is_over(anyio.current_time()):
            return
        if kept.sizes[log_name(name)] <= self._logs.file_bytes_max or await self._cut(kept, name):
            rest.end()
        else:
            rest.begin(anyio.current_time())

    async def _cut(self, kept: _Kept, name: str) -> bool:
        """Cut a log that has become too large; returns whether that could be done."""
        container_log = _log.bind(actor=kept.uid, container=name, generation=kept.generation)
        try:
            cut = await self._logs.bound(kept.uid, name, self._log_files)
        except OSError as error:
            message = f"the log of {name} cannot be cut: {error.strerror or error}"
            container_log.error("unwritten", reason=str(Reason.STATE_UNWRITABLE), message=message)
            return False
        if cut is None:
            return True
        # The size that a cut leaves, and not the one before: else a log that grows back to just that seems unchanged.
        kept.sizes[log_name(name)] -= cut.cut_bytes
        if cut.may_have_lost:
            warning = "this file system cannot cut a file at its beginning: what was written at that moment may be lost"
            container_log.warning("log_cut", warning=warning)
        return True


class Rest:
    """How long something that has failed is left alone: `length_s` until `end_s` of the loop's clock."""

    def __init__(self) -> None:
        self.length_s, self.end_s = 0.0, -math.inf

    def is_over(self, now_s: float) -> bool:
        """Whether it may be tried."""
        return now_s >= self.end_s

    def begin(self, now_s: float) -> None:
        """It has failed, once more."""
        self.length_s = min(max(REST_S, 2 * self.length_s), REST_S_MAX)
        self.end_s = now_s + self.length_s

    def end(self) -> None:
        """It has not failed, or it is the last time that it can be tried."""
        self.length_s, self.end_s = 0.0, -math.inf


class _Kept:
    """The logs of one actor. `sizes` are those of its files when they were last looked at or cut.

    `rests` are those of containers' logs that cannot be cut.
    """

    def __init__(self, keeper: LogKeeper, assignment: WorkerAssignment) -> None:
        self.uid, self.generation = assignment.uid, assignment.generation
        self.containers = tuple(each.name for each in assignment.containers)
        self.sizes = {log_name(name): 0 for name in self.containers}
        self.rests = dict[str, Rest]()
        self.grown = anyio.Event()
        self.runs = False
        self._is_live = False
        self._keeper, self._relay = keeper, keeper.relay(assignment)
        self._looking = anyio.CancelScope()

    def settle(self, assignment: WorkerAssignment, state: State) -> None:
        self.generation = assignment.generation
        self.containers = tuple(each.name for each in assignment.containers)
        if self._relay is not None:
            self._relay.follow(assignment, partial(self._keeper.size_of, self.uid))
        self._is_live = state not in INACTIVE
        if self._is_live and not self.runs:
            self.runs = True
            self._keeper.start(self)
        elif not self._is_live:
            self._looking.cancel()
        self._announce()

    async def run(self) -> None:
        """Until it does not live any more, and all that it wrote is told."""
        rest = Rest()
        try:
            while not await self._run_well() and self._is_live:
                rest.begin(anyio.current_time())
                with anyio.move_on_after(rest.length_s):
                    while self._is_live:
                        await self.grown.wait()
        finally:
            self.runs = False
            self._announce()
            self._keeper.note_end()

    async def _run_well(self) -> bool:
        """Until it is over; false when a fault of ours has ended that, which costs an actor's lines and not its life.

        Who lives on is kept again after a rest: else nobody would keep its logs within bounds any more.
        """
        try:
            while True:
                await self._begin()
                async with anyio.create_task_group() as group:
                    group.start_soon(self._keep)
                    await self._tell()
                    group.cancel_scope.cancel()
                # What it wrote last came after the last look, and nobody looks when it is over.
                await self._safely(self._keeper.bound_at_last)
                if not self._is_live:  # else it came to live again while its last lines were taken
                    return True
        except Exception:  # noqa: BLE001 - see above
            self._log.exception("fault", reason=str(Reason.INTERNAL))
            self.sizes = {}  # whatever the next look finds is new
            return False

    async def _begin(self) -> None:
        if self._relay is not None:
            await self._relay.begin()

    async def _keep(self) -> None:
        rest = Rest()
        while True:
            if not self._is_live:
                await self.grown.wait()
                continue
            with anyio.CancelScope() as self._looking:
                if await self._safely(self._keeper.look):
                    rest.end()
                else:
                    rest.begin(anyio.current_time())
            self._announce()
            await anyio.sleep(max(rest_s(anyio.current_time()), rest.length_s))

    async def _safely(self, look: Callable[[_Kept], Awaitable[None]]) -> bool:
        """Look; returns whether that could be done."""
        try:
            await look(self)
        except OSError as error:
            message = f"its logs cannot be looked at: {error.strerror or error}"
            self._log.error("unreadable", reason=str(Reason.UNREADABLE_FILE), message=message)
            return False
        return True

    async def _tell(self) -> None:
        while True:
            grown, is_live = self.grown, self._is_live
            if self._relay is not None:
                await self._relay.tell(to_the_end=not is_live)
            if is_live:
                await grown.wait()
            elif not self._is_live:
                return

    @property
    def _log(self) -> Any:
        return _log.bind(actor=self.uid, generation=self.generation)

    def _announce(self) -> None:
        self.grown.set()
        self.grown = anyio.Event()
