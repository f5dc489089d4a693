"""Admission on this worker: from a document to a life, by the generation rules. Every intake comes through here.

A document that is refused changes nothing and does not move the generation.
"""

from __future__ import annotations

import enum
from contextlib import nullcontext
from typing import TYPE_CHECKING, Final, Protocol

import anyio
import attrs

from actors import snapshots
from actors.assignment import ColdStart, DesiredState, SnapshotAt, WorkerAssignment
from actors.document.wording import shown
from actors.generations import Known, Verdict, judge
from actors.named_snapshots import find_named
from statemachine.actor import Actor, By, Snapshot
from statemachine.events import Activate, Event, StopRequested, SuspendRequested
from statemachine.machine import Refused
from statemachine.problem import Problem, ProblemError, Step
from statemachine.reasons import Reason
from statemachine.states import State
from supervisor.mailbox import Adoption
from supervisor.memory import adapt, first_memory, require_something_to_suspend
from supervisor.observing import NOBODY

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager
    from pathlib import Path

    from actors.ports import Files, Stores
    from supervisor.life import Life
    from supervisor.observing import Observer


SETTLE_S: Final = 30.0
"""How long a document waits for the very end of a life that is Terminated already."""


class Effect(enum.StrEnum):
    """What an admitted document did."""

    BEGUN = "Begun"
    UPDATED = "Updated"
    SAME = "Same"
    STALE = "Stale"
    ENDED_ALREADY = "EndedAlready"


@attrs.frozen(kw_only=True)
class Admitted:
    """The answer to a document that was not refused."""

    uid: str
    generation: int
    effect: Effect


class Roster(Protocol):
    """The worker's lives, as admission needs them."""

    def find(self, uid: str) -> Life | None:
        """The life of this actor, ended or not."""
        ...

    def require(self, uid: str) -> Life:
        """The life of this actor.

        Raises:
            ProblemError: ActorNotFound.
        """
        ...

    def require_open(self) -> None:
        """Refuse whatever would make an actor run while the worker shuts down.

        Raises:
            ProblemError: WorkerDraining.
        """
        ...

    def require_room(self, uid: str) -> None:
        """Refuse when this actor does not fit beside the others.

        Raises:
            ProblemError: WorkerFull, WorkerDraining.
        """
        ...

    def booked(self, assignment: WorkerAssignment) -> AbstractAsyncContextManager[None]:
        """Book the GPUs that it claims, if any; a booking is given back when the body raises.

        Raises:
            ProblemError: GpuNotDetected, CdiModeRequired, MigUnsupported, InsufficientGpus.
        """
        ...

    async def begin(self, assignment: WorkerAssignment, actor: Actor) -> None:
        """Begin a life.

        Raises:
            ProblemError: WorkerFull, WorkerDraining, StateUnwritable.
        """
        ...

    async def bury(self, assignment: WorkerAssignment, actor: Actor) -> None:
        """Remember a document that wants an end where there is none to bring about: its generation counts.

        Raises:
            ProblemError: StateUnwritable.
        """
        ...


class SnapshotsOf(Protocol):
    """Where an actor's snapshots are, by its uid."""

    def __call__(self, uid: str) -> Path:
        """The directory."""
        ...


@attrs.frozen(kw_only=True)
class Admission:
    """Admits documents to a roster, one at a time per actor."""

    files: Files
    stores: Stores
    roster: Roster
    snapshots_of: SnapshotsOf
    observer: Observer = NOBODY
    _turns: dict[str, anyio.Lock] = attrs.field(factory=dict, init=False)

    async def submit(self, data: bytes, *, base: Path) -> Admitted:
        """Admit a document.

        Args:
            data: the document.
            base: the directory that its relative paths are below.

        Raises:
            ProblemError: every problem of it, in document order.
        """
        began_s, is_admitted = anyio.current_time(), False
        try:
            admitted = await self._submit(data, base=base)
            is_admitted = True
        finally:
            self.observer.judged(is_admitted=is_admitted, elapsed_s=anyio.current_time() - began_s)
        return admitted

    async def _submit(self, data: bytes, *, base: Path) -> Admitted:
        if not base.is_absolute() or "\0" in str(base):
            raise ProblemError(_no_base(base))
        from actors.admission import admit  # noqa: PLC0415 - comes with the first document: a start would wait for it

        assignment = await admit(data, base=base, files=self.files)
        turn = self._turns.setdefault(assignment.uid, anyio.Lock(fast_acquire=True))
        try:
            async with turn:
                effect = await self._decide(assignment)
        finally:
            if not turn.statistics().tasks_waiting and not turn.locked():
                self._turns.pop(assignment.uid, None)
        return Admitted(uid=assignment.uid, generation=assignment.generation, effect=effect)

    async def _decide(self, assignment: WorkerAssignment) -> Effect:
        while True:
            life = await self._settled(assignment.uid)
            known = Known(assignment=life.assignment, state=life.actor.state) if life else None
            verdict = judge(known, assignment)
            if verdict is Verdict.SAME:
                return Effect.SAME
            if verdict is Verdict.STALE:
                return Effect.STALE
            if verdict is Verdict.BEGIN or life is None:
                return await self._begin(assignment, life)
            try:
                return await self._update(life, assignment)
            except ProblemError as error:
                # It has come to its end while the document waited for its turn: what that means is judged anew.
                if error.problem.reason is not Reason.ACTOR_TERMINATED or life.actor.state is not State.TERMINATED:
                    raise

    async def _settled(self, uid: str) -> Life | None:
        """The life of this actor; of one that has just ended, the successor that it may have asked for.

        Raises:
            ProblemError: OperationInProgress when a step of the ended one is still being cleaned up.
        """
        life = self.roster.find(uid)
        if life is not None and life.actor.state is State.TERMINATED:
            with anyio.move_on_after(SETTLE_S):
                await life.ended.wait()
            if not life.ended.is_set():
                raise ProblemError(_still_ending(uid))
            life = self.roster.find(uid)
        return life

    async def _begin(self, assignment: WorkerAssignment, ended: Life | None) -> Effect:
        if assignment.desired_state is DesiredState.TERMINATED:
            await self.roster.bury(assignment, ended.actor if ended else first_memory(assignment, None))
            return Effect.ENDED_ALREADY
        self.roster.require_room(assignment.uid)
        source = await self._source(assignment, None)
        known = ended.actor.last_good if ended else None
        if source is not None and known is not None and (source.id, source.uri) == (known.id, known.uri):
            source = known  # where it is stored is not written beside it
        require_something_to_suspend(assignment, source)
        async with self._booked(assignment):
            await self.roster.begin(assignment, first_memory(assignment, source))
        return Effect.BEGUN

    async def _update(self, life: Life, assignment: WorkerAssignment) -> Effect:
        if assignment.desired_state is DesiredState.RUNNING:
            self.roster.require_open()
        named = isinstance(assignment.snapshot, SnapshotAt)
        source = await self._source(assignment, life.actor.last_good) if named or _runs(assignment) else None
        adoption = Adoption(
            assignment=assignment, actor=lambda actor: adapt(actor, assignment), source=source if named else None
        )
        async with self._booked(assignment):
            outcome = await life.ask(wish_of(assignment, source), adoption)
            if isinstance(outcome, Refused):
                raise ProblemError(outcome.problem)
        return Effect.UPDATED

    def _booked(self, assignment: WorkerAssignment) -> AbstractAsyncContextManager[None]:
        """Only who is to run needs GPUs."""
        return self.roster.booked(assignment) if _runs(assignment) else nullcontext()

    async def _source(self, assignment: WorkerAssignment, last_good: Snapshot | None) -> Snapshot | None:
        """The snapshot to run from: the one that is named, else the good one here, unless a cold start is wanted."""
        match assignment.snapshot:
            case ColdStart.WANTED:
                return None
            case SnapshotAt(uri=uri):
                return await find_named(self.files, self.stores, uri, step=Step.ADMISSION)
            case None:
                return last_good or await snapshots.newest(self.files, self.snapshots_of(assignment.uid))


def _runs(assignment: WorkerAssignment) -> bool:
    return assignment.desired_state is DesiredState.RUNNING


def wish_of(assignment: WorkerAssignment, source: Snapshot | None) -> Event:
    """What a document asks of its actor."""
    match assignment.desired_state:
        case DesiredState.RUNNING:
            return Activate(source=source, by=By.DOCUMENT)
        case DesiredState.SUSPENDED:
            return SuspendRequested(by=By.DOCUMENT)
        case DesiredState.TERMINATED:
            return StopRequested(by=By.DOCUMENT)


def _still_ending(uid: str) -> Problem:
    return Problem(
        step=Step.ADMISSION,
        reason=Reason.OPERATION_IN_PROGRESS,
        subject=uid,
        message=f"a step of the ended actor {uid} is still being cleaned up after {SETTLE_S:g} s",
    )


def _no_base(base: Path) -> Problem:
    return Problem(
        step=Step.ADMISSION,
        reason=Reason.INVALID_REQUEST,
        subject="base",
        message=f"the directory that relative paths are below must be an absolute path, not {shown(str(base))}",
    )
