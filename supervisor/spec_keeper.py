"""The keeper of the worker's CDI spec: made once for all who want it, kept as long as it is right, watched meanwhile.

One spec at a time is in the making, and all who ask share what comes of it. The making belongs to the keeper: who asked
and gave up takes nothing away from the others. What was made is kept until something that it depends on changes; a
failure is kept by nobody, so that the next one who asks tries anew. The one thing that is remembered of a failure is a
program that cannot be killed: beside it none is started, for it would hang likewise, and there would be one for each
actor.

Source: DESIGN, "The task tree".
"""

from __future__ import annotations

import re
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import anyio
import attrs
import structlog

from actors.codec import rfc3339
from actors.gpu.generating import PRIVATE_PREFIX, output_flag
from actors.gpu.spec_identity import still_hold
from actors.gpu.toolkit import ToolkitHungError
from actors.layout import StateDir
from actors.ports import DeadlineExceededError
from statemachine.problem import Problem, ProblemError, Step
from statemachine.reasons import Reason
from supervisor.spec_source import spec_source_of
from supervisor.step_runner import internal

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable
    from pathlib import Path

    from anyio.abc import TaskGroup

    from actors.gpu.checked_specs import MadeSpec
    from actors.gpu.desk import KeptSpec
    from actors.gpu.inventory import Inventory
    from actors.ports import Ports, ProcessIdentity
    from supervisor.settings import Settings
    from supervisor.spec_source import SpecSource

KEPT_MAX: Final = 2
"""How many specs stay on disk that no actor uses, the newest: a pod that goes back and forth finds them again."""
SETTLE_S: Final = 1.0
"""After a change, how long until it is looked at: a driver comes in hundreds of files."""
WATCH_S: Final = 1.0
"""How late a change may be told: a mount that comes late is no hurry, and an idle worker hardly wakes up for this."""
FIND_S: Final = 5.0
KILL_S: Final = 5.0
_IDENTITY: Final = re.compile(r"[0-9a-f]{16}")

_log = structlog.get_logger("greenroom.gpus")


@attrs.frozen(kw_only=True)
class Stuck:
    """A process that was killed and did not end.

    Attributes:
        identity: the process.
        program: what it was called for.
        since_s: when it was found so, in seconds since 1970 UTC.
    """

    identity: ProcessIdentity
    program: str
    since_s: float


@attrs.define
class SpecCounts:
    """What came of it so far, and what goes on now.

    Attributes:
        made: specs that were made.
        kept: times that the one that was there still held.
        failed: times that there was none to be had.
        waiting: who waits for one now.
        running: how many are in the making: 0 or 1.
        stuck: programs that could not be killed.
    """

    made: int = 0
    kept: int = 0
    failed: int = 0
    waiting: int = 0
    running: int = 0
    stuck: int = 0


@attrs.frozen
class _Question:
    inventory: Inventory
    driver: str


@attrs.define(eq=False)
class _Making:
    """A spec in the making; once `done` there is either a spec or the problems that stand in its way."""

    question: _Question
    done: anyio.Event = attrs.field(factory=anyio.Event)
    kept: KeptSpec | None = None
    problems: tuple[Problem, ...] = ()

    def answer(self) -> KeptSpec:
        if self.kept is None:
            # One error for each who waits: a raised one carries who raised it.
            raise ProblemError(*(self.problems or (_ending(),)))
        return self.kept


class SpecKeeper:
    """Keeps it. `run` is a task of the worker; before anybody wants a spec it does nothing.

    Args:
        ports: the ports.
        directory: of all specs, `StateDir.cdi`.
        source: where specs come from.
        in_use: the identities of the specs that actors use.
        settle_s: see `SETTLE_S`.
    """

    def __init__(
        self,
        *,
        ports: Ports,
        directory: Path,
        source: SpecSource,
        in_use: Callable[[], Collection[str]] = tuple,
        settle_s: float = SETTLE_S,
    ) -> None:
        self._ports, self._directory, self._source = ports, directory, source
        self._in_use, self._settle_s = in_use, settle_s
        self._wanted: _Question | None = None
        self._is_wanted, self._is_open, self._changed = anyio.Event(), anyio.Event(), anyio.Event()
        self._tasks: TaskGroup | None = None
        self._making: _Making | None = None
        self._made: tuple[_Question, MadeSpec] | None = None
        self._stuck: tuple[Stuck, ...] = ()
        self._counts = SpecCounts()

    @property
    def counts(self) -> SpecCounts:
        """What came of it so far, and what goes on now."""
        return attrs.evolve(self._counts, running=int(self._making is not None), stuck=len(self._stuck))

    @property
    def stuck(self) -> tuple[Stuck, ...]:
        """Programs that could not be killed, as far as they were found alive when somebody last asked."""
        return self._stuck

    def start(self, inventory: Inventory, driver: str) -> None:
        """Have the spec made for these GPUs, so that nobody has to wait for it later. Failures are only logged."""
        self._want(_Question(inventory, driver))
        self._changed.set()

    async def spec(self, inventory: Inventory, driver: str) -> KeptSpec:
        """The spec for these GPUs of this driver. Cancelling it leaves the making to the others.

        Raises:
            ProblemError: ToolkitNotFound, GenerateFailed, StepDeadlineExceeded, NvmlUnavailable, MigUnsupported, …
        """
        question = _Question(inventory, driver)
        self._want(question)
        await self._is_open.wait()
        while True:
            making = self._making or self._begin(question)
            self._counts.waiting += 1
            try:
                await making.done.wait()
            finally:
                self._counts.waiting -= 1
            # One for other GPUs, or that was given up, is not what was asked for.
            if making.question == question:
                return making.answer()

    async def run(self) -> None:
        """Make what is wanted, and look again when something changes, until cancelled."""
        try:
            await self._is_wanted.wait()
            await self._clear()
            async with anyio.create_task_group() as tasks:
                self._tasks = tasks
                self._is_open.set()
                for directory in await self._source.watched():
                    tasks.start_soon(self._follow, directory, name=f"spec:{directory}")
                await self._renew()
        finally:
            self._tasks = None
            self._is_open.set()

    # ---- one spec in the making

    def _want(self, question: _Question) -> None:
        self._wanted = question
        self._is_wanted.set()

    def _begin(self, question: _Question) -> _Making:
        making = _Making(question)
        if self._tasks is None:
            raise ProblemError(_ending())
        self._making = making
        self._tasks.start_soon(self._make, making, name="spec")
        return making

    async def _make(self, making: _Making) -> None:
        is_new = False
        try:
            made = await self._look(making.question)
            before, self._made = self._made, (making.question, made)
            is_new = before is None or before[1].kept.identity != made.kept.identity
            making.kept = made.kept
            self._count(is_made=before is None or before[1] is not made)
        except ProblemError as error:
            making.problems = error.problems
            self._counts.failed += 1
        except Exception as error:  # noqa: BLE001 - a fault of ours costs those who wait a spec, and nobody anything else
            _log.exception("fault", reason=str(Reason.INTERNAL))
            making.problems = (internal(Step.GENERATE, "the CDI spec", error),)
            self._counts.failed += 1
        finally:
            self._making = None
            making.done.set()
        if is_new and making.kept is not None:
            _log.info("spec", identity=making.kept.identity, toolkit=making.kept.toolkit, driver=making.kept.driver)
            await self._prune(making.kept.identity)

    def _count(self, *, is_made: bool) -> None:
        if is_made:
            self._counts.made += 1
        else:
            self._counts.kept += 1

    async def _look(self, question: _Question) -> MadeSpec:
        await self._require_none_stuck()
        last = self._made[1] if self._made is not None else None
        if self._made is not None and self._made[0] == question:
            stamps = self._made[1].stamps
            if stamps is not None and await still_hold(self._ports.files, stamps):
                return self._made[1]
        try:
            return await self._source.make(question.inventory, question.driver, last)
        except ToolkitHungError as error:
            await self._remember_stuck(error)
            raise

    # ---- what cannot be killed

    async def _require_none_stuck(self) -> None:
        alive = [each for each in self._stuck if await self._ports.processes.is_alive(each.identity)]
        self._stuck = tuple(alive)
        if alive:
            raise ProblemError(_hangs(alive[0]))

    async def _remember_stuck(self, error: ToolkitHungError) -> None:
        """A call was killed at its deadline; whatever of it is still there did not heed that."""
        with anyio.move_on_after(FIND_S):
            for identity in await self._ports.processes.find(argument=error.argument):
                self._add_stuck(identity, str(error.program))

    def _add_stuck(self, identity: ProcessIdentity, program: str) -> None:
        _log.error("stuck", pid=identity.pid, program=program)
        self._stuck += (Stuck(identity=identity, program=program, since_s=self._ports.wall.now_s()),)

    async def _of_ours(self) -> tuple[tuple[ProcessIdentity, str], ...]:
        """Processes that write a spec for us, by what only we ask for."""
        return await self._ports.processes.find_arguments(prefix=output_flag(self._directory / PRIVATE_PREFIX))

    # ---- changes

    async def _follow(self, directory: Path) -> None:
        try:
            async with self._ports.watch.changes(directory, within_s=WATCH_S) as changes:
                async for _ in changes:
                    self._changed.set()
        except OSError as error:
            # Nobody needs to be told of a change; who asks looks anyway.
            _log.warning("unwatched", directory=str(directory), message=error.strerror or str(error))

    async def _renew(self) -> None:
        """After changes, look whether there is another spec to be had, for whoever will want it."""
        while True:
            await self._changed.wait()
            self._changed = anyio.Event()
            if self._wanted is None:
                raise AssertionError("nobody watches before somebody has asked")
            if self._making is not None:
                await self._making.done.wait()  # it may have looked before the change
            making = self._making or self._begin(self._wanted)
            await making.done.wait()
            for problem in making.problems:
                _log.warning("no_spec", reason=str(problem.reason), subject=problem.subject, message=problem.message)
            await anyio.sleep(self._settle_s)

    # ---- the directory

    async def _clear(self) -> None:
        """Remove what an earlier life left of specs in the making, and end who still makes one."""
        names = [name for name in await self._names() if name.startswith(PRIVATE_PREFIX)]
        if not names:
            return
        try:
            for identity, argument in await self._of_ours():
                await self._end(identity, argument)
        except OSError as error:
            _log.warning("unkilled", message=error.strerror or str(error))
        await self._remove(names)

    async def _end(self, identity: ProcessIdentity, argument: str) -> None:
        try:
            await self._ports.processes.kill_and_wait(identity, deadline_s=KILL_S)
        except DeadlineExceededError:
            self._add_stuck(identity, argument)

    async def _prune(self, current: str) -> None:
        """Remove the specs that are neither in use nor among the newest."""
        used = {current, *self._in_use()}
        aged = []
        for name in filter(_IDENTITY.fullmatch, await self._names()):
            with suppress(OSError):
                stat = await self._ports.files.stat(self._directory / name)
                aged.append((0 if stat is None else stat.mtime_ns, name))
        newest = [name for _, name in sorted(aged, reverse=True)]
        await self._remove([await self._out_of_the_way(name) for name in newest[KEPT_MAX:] if name not in used])

    async def _out_of_the_way(self, name: str) -> str:
        """Give a spec the name of one in the making: what is found under an identity is whole, and so are its links."""
        private = f"{PRIVATE_PREFIX}{self._ports.wall.fresh_id()}"
        try:
            await self._ports.files.rename(self._directory / name, self._directory / private)
        except OSError as error:
            _log.warning("unremoved", path=str(self._directory / name), message=error.strerror or str(error))
        return private

    async def _names(self) -> tuple[str, ...]:
        try:
            return await self._ports.files.list_directory(self._directory)
        except FileNotFoundError:
            return ()
        except OSError as error:
            _log.warning("unread", directory=str(self._directory), message=error.strerror or str(error))
            return ()

    async def _remove(self, names: Iterable[str]) -> None:
        for name in names:
            try:
                await self._ports.files.remove_tree(self._directory / name)
            except OSError as error:
                _log.warning("unremoved", path=str(self._directory / name), message=error.strerror or str(error))


def spec_keeper_of(ports: Ports, settings: Settings, *, in_use: Callable[[], Collection[str]] = tuple) -> SpecKeeper:
    """The keeper of a worker with these settings.

    Args:
        ports: the ports.
        settings: the worker's.
        in_use: the identities of the specs that actors use.
    """
    directory = StateDir(settings.state_dir).cdi
    source = spec_source_of(
        ports,
        source=settings.cdi_source,
        places=settings.places,
        toolkit_dir=settings.toolkit_dir,
        directory=directory,
    )
    return SpecKeeper(ports=ports, directory=directory, source=source, in_use=in_use)


def _hangs(stuck: Stuck) -> Problem:
    pid, since = stuck.identity.pid, rfc3339(stuck.since_s)
    return Problem(
        step=Step.GENERATE,
        reason=Reason.GENERATE_FAILED,
        subject=stuck.program,
        message=f"{stuck.program} (process {pid}) was killed and has not ended since {since}; no second one is started",
        hint="The driver hangs in the kernel; reset the GPU, or start the node anew.",
    )


def _ending() -> Problem:
    message = "the worker ends, and makes no CDI specification any more"
    return Problem(step=Step.GENERATE, reason=Reason.WORKER_DRAINING, subject="worker", message=message)
