"""Snapshots on their way to their stores, beside whatever the actors do meanwhile.

Nothing is queued: what is to be uploaded follows from an actor's memory, which outlives the process. It is the last
good snapshot, once its sandbox is ended, when it was made here, is in no store yet, and the document or the worker
names a store for it. So only the newest one of an actor is, and after a restart it is found again. What is being
uploaded is not removed meanwhile.

Source: REQUIREMENTS, suspend: "local manifest, sandbox ended, GPUs free, upload, remote manifest last".
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

import anyio
import attrs
import structlog

from actors import snapshots
from actors.stores import Cut, prune_stored, snapshot_uri, upload, verify_stored
from statemachine.events import SnapshotUploaded, UploadFailed
from statemachine.problem import Problem, ProblemError, Step
from statemachine.reasons import Reason
from statemachine.states import State
from supervisor.observing import NOBODY

if TYPE_CHECKING:
    from pathlib import Path

    from anyio.abc import TaskGroup

    from actors.layout import StateDir
    from actors.ports import Ports
    from statemachine.actor import Snapshot
    from statemachine.events import Event
    from supervisor.life import Life
    from supervisor.observing import Observer

UPLOADS_MAX: Final = 2
"""Snapshots that are uploaded at once; of each, several parts are on their way at once."""
DELAY_MAX_S: Final = 60.0
"""Between two tries for one actor: 1, 2, 4, … at most so long."""
HOPELESS: Final = frozenset({Reason.SNAPSHOT_MISSING, Reason.SNAPSHOT_CORRUPT, Reason.NEWER_FORMAT})
"""Reasons that lie in the snapshot: it is told, and not tried again before the next life of its actor or worker."""

_log = structlog.get_logger("greenroom.upload")


class Roster(Protocol):
    """The worker's lives, as uploads need them."""

    def find(self, uid: str) -> Life | None:
        """The life of this actor, ended or not."""
        ...

    async def note_stored(self, life: Life, event: SnapshotUploaded) -> None:
        """Of a life that is over: where its snapshot is."""
        ...


@attrs.frozen(kw_only=True)
class Due:
    """A snapshot that is to be uploaded.

    Attributes:
        uid: its actor's.
        snapshot: which.
        directory: where it is here.
        store: the URI of the store.
    """

    uid: str
    snapshot: Snapshot
    directory: Path
    store: str


class Uploads:
    """The uploads of a worker.

    Args:
        ports: files and stores.
        state_dir: the worker's.
        store: for actors whose documents name none; None keeps their snapshots here.
        scope: what the uploads run in.
        roster: the lives.
        observer: hears of each try.
    """

    def __init__(
        self,
        *,
        ports: Ports,
        state_dir: StateDir,
        store: str | None,
        scope: TaskGroup,
        roster: Roster,
        observer: Observer = NOBODY,
    ) -> None:
        self._observer = observer
        self._ports, self._state_dir, self._store, self._scope, self._roster = ports, state_dir, store, scope, roster
        self._turns = anyio.Semaphore(UPLOADS_MAX)
        self._open = set[str]()
        self._settled: dict[str, str] = {}
        self._under_way: dict[str, str] = {}
        self._closed_one = anyio.Event()

    def consider(self, life: Life) -> None:
        """Look at a life of which something has changed: its snapshot is uploaded as soon as it may be."""
        if life.uid not in self._open and self._due(life) is not None:
            self._open.add(life.uid)
            self._scope.start_soon(self._upload_for, life, name=f"upload:{life.uid}")

    def use_store(self, store: str | None) -> None:
        """From now on this is the store of those whose documents name none; what is under way goes where it goes."""
        self._store = store

    def under_way(self, uid: str) -> frozenset[str]:
        """The snapshots of an actor that are being uploaded just now."""
        return frozenset({self._under_way[uid]}) if uid in self._under_way else frozenset()

    @property
    def left(self) -> tuple[str, ...]:
        """Whose snapshots have not reached their store."""
        return tuple(sorted(self._open))

    def owes(self, life: Life) -> bool:
        """Whether there is a store that the last snapshot of this life has not reached."""
        return self._due_of(life) is not None

    async def finish(self) -> None:
        """Wait until every snapshot is where it is to be; the bound is the caller's."""
        while self._open:
            await self._closed_one.wait()

    def forget(self, uid: str) -> None:
        """Its life is not remembered any more, or another one begins, which knows less."""
        self._settled.pop(uid, None)

    def _due(self, life: Life) -> Due | None:
        due = self._due_of(life)
        # While the sandbox is being ended its GPUs are waited for, and everything else with them.
        if due is None or life.actor.state is State.RELEASING or self._settled.get(life.uid) == due.snapshot.id:
            return None
        return due

    def _due_of(self, life: Life) -> Due | None:
        snapshot, store = life.actor.last_good, life.assignment.suspend.uri or self._store
        if snapshot is None or snapshot.stored_uri is not None or store is None:
            return None
        directory = self._state_dir.actor(life.uid).snapshot(snapshot.id)
        if snapshot.uri != snapshots.uri_of(directory):
            return None  # it was given to us and is not ours
        return Due(uid=life.uid, snapshot=snapshot, directory=directory, store=store)

    async def _upload_for(self, life: Life) -> None:
        """Upload what is due of one actor, until nothing is."""
        delay_s, cut = 0.0, Cut()
        try:
            while True:
                await anyio.sleep(delay_s)
                async with self._turns:
                    # Looked at now: what waited for its turn may have been followed by a newer one.
                    life = self._roster.find(life.uid) or life
                    due = self._due(life)
                    if due is None:
                        return
                    next_s = min(max(2 * delay_s, 1.0), DELAY_MAX_S)
                    delay_s = 0.0 if await self._upload(due, life, cut, next_s) else next_s
        finally:
            self._open.discard(life.uid)
            self._closed_one.set()
            self._closed_one = anyio.Event()

    async def _upload(self, due: Due, life: Life, cut: Cut, next_s: float) -> bool:
        """Try once, and tell; returns whether this snapshot needs no other try."""
        log = _log.bind(actor=due.uid, snapshot=due.snapshot.id)
        began_s = anyio.current_time()
        self._under_way[due.uid] = due.snapshot.id
        try:
            uri = await self._send(due, cut)
        except ProblemError as error:
            self._observer.upload_ended(is_there=False, elapsed_s=anyio.current_time() - began_s)
            problem = error.problem
            hopeless = problem.reason in HOPELESS
            log.warning(
                "not_uploaded", reason=str(problem.reason), message=problem.message, in_s=None if hopeless else next_s
            )
            if hopeless:
                self._settled[due.uid] = due.snapshot.id
            await self._tell(life, UploadFailed(snapshot=due.snapshot.id, problem=problem))
            return hopeless
        finally:
            del self._under_way[due.uid]
        self._settled[due.uid] = due.snapshot.id
        elapsed_s = anyio.current_time() - began_s
        self._observer.upload_ended(is_there=True, elapsed_s=elapsed_s)
        log.info("uploaded", uri=uri, elapsed_s=round(elapsed_s, 3))
        await self._tell(life, SnapshotUploaded(snapshot=due.snapshot.id, uri=uri))
        await self._prune(due, uri)
        return True

    async def _send(self, due: Due, cut: Cut) -> str:
        """Upload; returns the URI there.

        Raises:
            ProblemError: SnapshotNotUploaded, or why the snapshot here cannot be uploaded at all.
        """
        try:
            uri = snapshot_uri(due.store, due.uid, due.snapshot.id)
            if not await self._is_there(uri):
                await upload(self._ports.files, self._ports.stores, due.directory, uri, cut=cut)
        except ProblemError as error:
            if error.problem.reason in {*HOPELESS, Reason.SNAPSHOT_NOT_UPLOADED}:
                raise
            raise ProblemError(_not_uploaded(due, error.problem.message)) from error
        except Exception as error:
            # A fault of ours is a reason of this one actor, never the end of the worker.
            _log.exception("fault", actor=due.uid, reason=str(Reason.INTERNAL))
            raise ProblemError(_not_uploaded(due, f"{type(error).__name__}: {error}")) from error
        return uri

    async def _is_there(self, uri: str) -> bool:
        """Whether all of it is there already, as after a restart in the middle of the telling.

        Asked first, because to upload means to read the whole snapshot, which a store that is down is not worth.

        Raises:
            ProblemError: StoreUnreachable.
        """
        try:
            await verify_stored(self._ports.stores, uri, step=Step.SUSPEND)
        except ProblemError as error:
            if error.problem.reason is Reason.STORE_UNREACHABLE:
                raise
            return False
        return True

    async def _tell(self, life: Life, event: Event) -> None:
        """Tell the actor, in whichever life it is by now; one that is over is told only what its status still shows."""
        while True:
            life = self._roster.find(life.uid) or life
            try:
                await life.ask(event)
            except ProblemError:
                if (self._roster.find(life.uid) or life) is not life:
                    continue
                if isinstance(event, SnapshotUploaded):
                    await self._roster.note_stored(life, event)
            return

    async def _prune(self, due: Due, uri: str) -> None:
        """Remove what is too old in the store, now that a newer one is proven there."""
        try:
            await prune_stored(self._ports.stores, uri.rsplit("/", 1)[0], proven=due.snapshot.id)
        except ProblemError as error:
            problem = error.problem
            _log.warning("unpruned", actor=due.uid, reason=str(problem.reason), message=problem.message)
        except Exception:  # noqa: BLE001 - a fault of ours costs room in the store, never the worker
            _log.exception("fault", actor=due.uid, reason=str(Reason.INTERNAL))


def _not_uploaded(due: Due, why: str) -> Problem:
    return Problem(
        step=Step.SUSPEND,
        reason=Reason.SNAPSHOT_NOT_UPLOADED,
        subject=due.store,
        message=f"snapshot {due.snapshot.id} cannot be uploaded to {due.store}: {why}",
    )
