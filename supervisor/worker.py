"""The worker: every life on it, their beginnings and ends, and what is told of them.

One task group owns everything. A life's end never ends the worker; only its own scope's cancellation does.
"""

from __future__ import annotations

import contextlib
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import anyio
import attrs
import structlog

from actors.journal import Journal
from actors.steps.assign import write_assignment
from actors.steps.performer import Steps
from actors.steps.stage import Stage
from statemachine.problem import Problem, ProblemError, Step
from statemachine.reasons import Reason
from statemachine.states import FINAL, State
from supervisor.cgroups import NO_CGROUPS, WorkerCgroups
from supervisor.gpus_at_rest import GpusAtRest
from supervisor.life import Entrance, Life
from supervisor.mailbox import ClosedMailboxError
from supervisor.memory import successor_memory
from supervisor.observing import NOBODY
from supervisor.origins import needed_by_others
from supervisor.refusals import draining, not_found, unwritable
from supervisor.room import Room
from supervisor.status import actor_status, status_stands, write_status
from supervisor.step_runner import internal
from supervisor.tombstones import Tombstones
from supervisor.uploading import Uploads
from supervisor.usage import Usages

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from anyio.abc import TaskGroup

    from actors.assignment import WorkerAssignment
    from actors.journal import Mark
    from actors.layout import ActorDir, StateDir
    from actors.ports import Ports
    from actors.steps.stage import Runtime
    from statemachine.actor import Actor, Snapshot
    from statemachine.events import Event, GpuLost, SnapshotUploaded
    from supervisor.gpu_desk import WorkerGpus
    from supervisor.observing import Observer
    from supervisor.settings import Settings
    from supervisor.shutdown import Shutdown
    from supervisor.step_runner import Performer

_log = structlog.get_logger("greenroom.worker")


class Worker:
    """Holds the lives of this worker's actors.

    Attributes:
        runtime: the runsc that is used.
        gpus: the desk for its GPUs.
        cgroups: what it has made of its cgroup.
        usages: what its actors use.
        uploads: the snapshots that are on their way to a store.
        refused: refused documents of the assignments directory, by file name.
        shutdown: whether its end was asked for, and how long that may take.
        has_recovered: whether it has looked at every actor that an earlier life left.
        observer: hears what happens on it.
    """

    def __init__(
        self,
        *,
        ports: Ports,
        settings: Settings,
        state_dir: StateDir,
        runtime: Runtime,
        gpus: WorkerGpus,
        shutdown: Shutdown,
        scope: TaskGroup,
        performer_for: Callable[[Stage], Performer] = Steps,
        observer: Observer = NOBODY,
        cgroups: WorkerCgroups = NO_CGROUPS,
    ) -> None:
        """`performer_for` makes what performs the commands of one actor; `observer` hears of all."""
        self.settings, self.state_dir, self.runtime, self.gpus = settings, state_dir, runtime, gpus
        self.refused: dict[str, tuple[Problem, ...]] = {}
        self.cgroups, self.usages = cgroups, Usages(ports.wall.now_s, gpus.used_bytes)
        self.shutdown, self.has_recovered = shutdown, False
        self._ports, self._scope, self._performer_for, self.observer = ports, scope, performer_for, observer
        self._lives: dict[str, Life] = {}
        self._gpus_at_rest = GpusAtRest(gpus)
        self.uploads = Uploads(
            ports=ports, state_dir=state_dir, store=settings.snapshot_store, scope=scope, roster=self, observer=observer
        )
        self._tombstones, self._room = Tombstones(ports.wall.now_s), Room()
        self._arrived = anyio.Event()

    @property
    def draining(self) -> bool:
        """Whether it is shutting down and begins nothing any more."""
        return self.shutdown.is_asked

    # ---- what admission and control ask

    def find(self, uid: str) -> Life | None:
        """The life of this actor, ended or not; None when it was never here or is forgotten."""
        self._forget_old()
        return self._lives.get(uid)

    def require(self, uid: str) -> Life:
        """The life of this actor.

        Raises:
            ProblemError: ActorNotFound.
        """
        life = self.find(uid)
        if life is None:
            raise ProblemError(not_found(uid))
        return life

    @property
    def lives(self) -> tuple[Life, ...]:
        """Every life, ended ones that are still remembered included, by uid."""
        self._forget_old()
        return tuple(self._lives[uid] for uid in sorted(self._lives))

    async def arrival(self) -> None:
        """Wait until a life begins, or one that has ended is remembered."""
        await self._arrived.wait()

    def require_open(self) -> None:
        """Refuse whatever would make an actor run while the worker shuts down.

        Raises:
            ProblemError: WorkerDraining.
        """
        if self.draining:
            raise ProblemError(attrs.evolve(draining(), step=Step.ADMISSION))

    def require_room(self, uid: str) -> None:
        """Refuse when this actor does not fit beside the others. One that will begin anew keeps its place.

        Raises:
            ProblemError: WorkerFull, WorkerDraining.
        """
        self.require_open()
        self._room.require(self._lives, uid, self.settings.max_actors)

    @asynccontextmanager
    async def booked(self, assignment: WorkerAssignment) -> AsyncIterator[None]:
        """Book the GPUs that an actor claims for what the body asks of it; of a body that raises nothing stays booked.

        Raises:
            ProblemError: why they cannot be had; WorkerDraining.
        """
        is_new = await self.gpus.book(assignment)
        try:
            self.require_open()  # NVML may have been waited for, and a drain asks each life once
            yield
        except BaseException:
            if is_new:
                self.gpus.give_back(assignment.uid)
            raise

    def status_of(self, life: Life) -> dict[str, Any]:
        """The status object of one actor."""
        return actor_status(life, self.gpus.held_by(life.uid))

    async def lose_gpu(self, uid: str, event: GpuLost) -> None:
        """Tell an actor that a GPU which it holds is lost."""
        life = self._lives.get(uid)
        if life is not None:
            with contextlib.suppress(ClosedMailboxError):
                await life.feed(event)

    async def tell_trouble(self, uid: str, problem: Problem, count: int) -> None:
        """Tell of a trouble that came so often, and with which an actor runs on."""
        life = self._lives.get(uid)
        if life is not None:
            await life.tell_trouble(problem, count)

    async def note_stored(self, life: Life, event: SnapshotUploaded) -> None:
        """Of a life that is over: where its snapshot is. Its journal may be another life's by now."""
        life.note_stored(event)
        if self._lives.get(life.uid) is life:
            await self._tell(life)
            after = self._lives.get(life.uid)
            if after is not None and after is not life:  # begun meanwhile: what is told of it comes last
                await self._tell(after)

    async def begin(self, assignment: WorkerAssignment, actor: Actor) -> None:
        """Begin a life: on disk first, then in memory.

        Raises:
            ProblemError: WorkerFull, WorkerDraining, StateUnwritable.
        """
        self.require_room(assignment.uid)
        life = self._life(assignment, actor, source=actor.origin)
        # It counts from here on, so that what is admitted meanwhile sees it.
        before = self._lives.get(assignment.uid)
        self._lives[assignment.uid] = life
        try:
            await write_assignment(self._ports.files, self.state_dir.actor(assignment.uid), assignment)
            await life.found()
        except BaseException as error:
            life.end_unstarted()
            await self._put_back(assignment.uid, before)
            if isinstance(error, OSError):
                raise ProblemError(unwritable(assignment.uid, error)) from error
            raise
        self.uploads.forget(life.uid)  # it may have a snapshot of which it does not know that it is stored
        self._start(life, Entrance.NEW)

    async def bury(self, assignment: WorkerAssignment, actor: Actor) -> None:
        """Remember a document that wants an end where there is none to bring about: its generation counts.

        Raises:
            ProblemError: StateUnwritable.
        """
        life = self._life(assignment, attrs.evolve(actor, state=State.TERMINATED))
        life.end_unstarted()
        before = self._lives.get(assignment.uid)
        self._bury(life)
        try:
            await write_assignment(self._ports.files, self.state_dir.actor(assignment.uid), assignment)
            await life.found()
        except BaseException as error:
            await self._put_back(assignment.uid, before)
            if isinstance(error, OSError):
                raise ProblemError(unwritable(assignment.uid, error)) from error
            raise
        self._announce_arrival()
        await self._tell(life)

    def life_on_disk(
        self,
        assignment: WorkerAssignment,
        actor: Actor,
        *,
        followed: int | None = None,
        seq: int,
        lines: int,
        since_s: float,
        source: Snapshot | None = None,
    ) -> Life:
        """A life that was found on disk; `followed` and what comes after it are its journal's.

        `source` is the snapshot that its assignment names, which may not be what was followed.
        """
        life = self._life(assignment, actor, followed=followed, seq=seq, lines=lines, source=source)
        life.since_s = since_s
        return life

    async def resume_life(self, life: Life, entrance: Entrance | Event) -> None:
        """Go on with a life that was found on disk."""
        if life.actor.state in FINAL:
            life.end_unstarted()
            self._bury(life)
            # The end may have been journaled by a worker that did not live to tell it; nobody else ever would.
            if not await status_stands(self._ports.files, self.state_dir.actor(life.uid), self.status_of(life)):
                await self._tell(life)
            self.uploads.consider(life)
            return
        self._gpus_at_rest.find(life.uid, life.actor.state)
        self._lives[life.uid] = life
        self._room.count_anew()
        self._start(life, entrance)

    # ---- lives

    def _life(
        self,
        assignment: WorkerAssignment,
        actor: Actor,
        *,
        followed: int | None = None,
        seq: int = 0,
        lines: int = 0,
        source: Snapshot | None = None,
    ) -> Life:
        directory = self.state_dir.actor(assignment.uid)

        async def note(mark: Mark) -> None:
            await life.mark(mark)

        async def tell(problem: Problem) -> None:
            await life.tell_trouble(problem)

        journal = Journal(
            files=self._ports.files,
            wall=self._ports.wall,
            path=directory.journal,
            generation=assignment.generation if followed is None else followed,
            seq=seq,
            lines=lines,
        )
        stage = Stage(
            ports=self._ports,
            state_dir=self.state_dir,
            runtime=self.runtime,
            gpus=self.gpus,
            assignment=assignment,
            note=note,
            cgroups=self.cgroups.delegation,
            tell=tell,
            needed_by_others=partial(needed_by_others, self, assignment.uid),
            uploading=partial(self.uploads.under_way, assignment.uid),
        )
        self.usages.follow(assignment.uid, stage)
        life = Life(
            assignment=assignment,
            actor=actor,
            journal=journal,
            performer=self._performer_for(stage),
            on_change=partial(self._tell_in, directory),
            now_s=self._ports.wall.now_s,
            source=source,
            observer=self.observer,
        )
        return life

    def _bury(self, life: Life) -> None:
        self._lives[life.uid] = life
        self._tombstones.put(life.uid, life.since_s)

    def _start(self, life: Life, entrance: Entrance | Event) -> None:
        self._tombstones.take(life.uid)
        self._scope.start_soon(self._live, life, entrance, name=f"actor:{life.uid}")
        self._announce_arrival()

    def _announce_arrival(self) -> None:
        self._arrived.set()
        self._arrived = anyio.Event()

    async def _live(self, life: Life, entrance: Entrance | Event) -> None:
        try:
            await life.run(entrance)
        except Exception as error:  # noqa: BLE001 - a fault of ours costs one actor its loop, and no other one anything
            _log.exception("fault", actor=life.uid, reason=str(Reason.INTERNAL))
            life.end_unstarted()
            await life.give_up_successor(internal(Step.SUPERVISE, "the actor's loop", error))
            await self._tell(life)
            return
        self._tombstones.put(life.uid, life.since_s)
        # From its end to here nothing waits: who waits for that end finds the successor in its place.
        if life.begins_anew:
            await self._begin_anew(life)

    async def _begin_anew(self, ended: Life) -> None:
        try:
            await self.begin(ended.assignment, successor_memory(ended))
        except ProblemError as error:
            problem = error.problem
            _log.error("refused", actor=ended.uid, reason=str(problem.reason), message=problem.message)
            await ended.give_up_successor(problem)
            await self._tell(ended)

    async def _tell(self, life: Life) -> None:
        await self._tell_in(self.state_dir.actor(life.uid), life)

    async def _tell_in(self, directory: ActorDir, life: Life) -> None:
        """Settle what follows from the actor's state, and replace its status.json."""
        self._gpus_at_rest.settle(life)
        self.uploads.consider(life)
        try:
            await write_status(self._ports.files, directory, self.status_of(life))
        except OSError as error:
            message = error.strerror or str(error)
            _log.error("unwritten", actor=life.uid, reason=str(Reason.STATE_UNWRITABLE), message=message)

    async def _put_back(self, uid: str, before: Life | None) -> None:
        """What was not begun has not moved the generation: neither here nor, as far as it can be written, on disk."""
        if before is None:
            self._lives.pop(uid, None)
            self.usages.forget(uid)
        else:
            self._lives[uid] = before
        directory = self.state_dir.actor(uid)
        with anyio.CancelScope(shield=True), contextlib.suppress(OSError, ProblemError):
            if before is None:
                await self._ports.files.remove_file(directory.assignment)
            else:
                await write_assignment(self._ports.files, directory, before.assignment)

    def _forget_old(self) -> None:
        for uid in self._tombstones.take_old():
            life = self._lives.get(uid)
            if life is not None and life.actor.state in FINAL:  # no other life is about to begin
                del self._lives[uid]
                self._gpus_at_rest.forget(uid)
                self.uploads.forget(uid)
                self.usages.forget(uid)
