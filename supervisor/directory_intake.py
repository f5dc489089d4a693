"""The watched directory of assignments: every file is a wish, a vanished file means Terminated, but never by mistake.

A file is read whole and admitted when it appears or changes, each on its own: an actor that takes its time holds up no
other file. What is refused stands in `refused/<file>.json` and in the worker's status until the file is right or gone.
It is judged anew when the file changes; and without a change, every RETRY_S, when it was refused for something else
than what it says.

A vanished file ends an actor only when the generation that is followed was admitted from this directory, by this life
of the worker or an earlier one, and a full successful rescan RESCAN_AFTER_S later finds its uid in no file. A file that
cannot be read, or no longer tells its uid, stands for the actor that it stood for before. A directory that cannot be
read ends nothing (IntakeUnreadable), and when it is back, or has been exchanged, the time begins anew. Source: DESIGN,
"Watched directory".
"""

from __future__ import annotations

import errno
import hashlib
from functools import partial
from typing import TYPE_CHECKING, Final

import anyio
import attrs
import orjson
import structlog

from actors.document import unreadable
from actors.peek import peek_uid
from statemachine.actor import By
from statemachine.events import StopRequested
from statemachine.problem import Problem, ProblemError, Step
from statemachine.reasons import OF_THE_DOCUMENT, Reason
from statemachine.states import State
from statemachine.wording import file_label
from supervisor.admitting import Effect
from supervisor.followed import followed_before, note_followed
from supervisor.shared_scans import SharedScans
from supervisor.status import problem_json
from supervisor.step_runner import internal

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable
    from pathlib import Path

    from anyio.abc import TaskGroup

    from actors.layout import StateDir
    from actors.ports import FileStat, Ports
    from supervisor.admitting import Admission, Admitted
    from supervisor.worker import Worker

SUFFIXES: Final = (".yaml", ".yml", ".json")
RESCAN_AFTER_S: Final = 2.0
LIMIT_BYTES: Final = 1 << 20
DIRECTORY: Final = "."
"""The name under which a problem with the directory itself stands in the status."""
RETRY_S: Final = 5.0
"""How often an unreadable directory is tried again, and a file that may be right by now, besides when they change."""
FILES_MAX: Final = 10_000
"""Documents in the directory: ten times as many as a worker has actors. More are none of them looked at, as if the
directory could not be read, and nobody is ended."""
SCANS_MAX: Final = 4
"""Scans of exchanges side by side: with one alone, a file that takes its time would hold up the next exchange."""
NAME_LIMIT_BYTES: Final = 255
"""What a file system takes."""
BEGINNING_BYTES: Final = 200
DIGEST_DIGITS: Final = 32
EXCHANGED: Final = ".."
"""Names that begin so belong to a mounted ConfigMap, whose files change all at once behind one symlink."""

_log = structlog.get_logger("greenroom.intake")


@attrs.frozen(kw_only=True)
class _Seen:
    """A file as it was when it was last looked at.

    Attributes:
        stamp: inode, size and mtime; None when it may be right by now without having changed.
        uid: the actor that it stands for, as far as that could ever be told.
    """

    stamp: tuple[int, int, int] | None
    uid: str | None


@attrs.define(kw_only=True)
class DirectoryIntake:
    """Follows one directory until it is cancelled."""

    directory: Path
    ports: Ports
    state_dir: StateDir
    worker: Worker
    admission: Admission
    _seen: dict[str, _Seen] = attrs.field(factory=dict, init=False)
    _changed: set[str] = attrs.field(factory=set, init=False)
    """Files that were told to have changed since they were last looked at."""
    _turns: dict[str, anyio.Lock] = attrs.field(factory=dict, init=False)
    _admitted: dict[str, int] = attrs.field(factory=dict, init=False)
    """Uids that were admitted from this directory, with the generation."""
    _missing: dict[str, object] = attrs.field(factory=dict, init=False)
    """Uids that no file names any more, each with its countdown."""
    _has_hope: anyio.Event = attrs.field(factory=anyio.Event, init=False)
    """Set while there may be a refused file that is right by now."""
    _asked: anyio.Event = attrs.field(factory=anyio.Event, init=False)
    _retries: bool = attrs.field(default=False, init=False)
    _rescans: SharedScans = attrs.field(factory=SharedScans, init=False)
    _scans: anyio.CapacityLimiter = attrs.field(factory=lambda: anyio.CapacityLimiter(SCANS_MAX), init=False)

    async def run(self) -> None:
        """Scan once, then follow the changes."""
        async with anyio.create_task_group() as group, self.ports.watch.changes(self.directory) as changes:
            await self._forget_refusals()
            self._admitted.update(await followed_before(self.ports.files, self.state_dir, self.directory))
            group.start_soon(self._judge_again)
            group.start_soon(self._look_when_asked, group)
            group.start_soon(self._follow, frozenset[str](), group)
            async for names in changes:
                group.start_soon(self._follow, names, group)

    def look_again(self) -> None:
        """Look at every file soon, as if the directory had been exchanged."""
        self._asked.set()

    async def _look_when_asked(self, group: TaskGroup) -> None:
        while True:
            await self._asked.wait()
            self._asked = anyio.Event()
            await self._follow(frozenset(), group)

    async def _follow(self, names: frozenset[str], group: TaskGroup) -> None:
        """A batch of changes; an empty one, and one of an exchange, is about everything."""
        if not names or self._would_be_too_many(names) or any(name.startswith(EXCHANGED) for name in names):
            self._missing.clear()
            if self._scans.statistics().tasks_waiting:
                return  # the scan that waits for its place will see this too
            async with self._scans:
                await self._scan(group)
        else:
            changed = set(filter(_is_document, names))
            self._changed |= changed
            # Where somebody waits for his turn already, he will look after this change too.
            await self._look_at(name for name in changed if not self._is_awaited(name))
        self._count_down(group)

    def _would_be_too_many(self, names: frozenset[str]) -> bool:
        known: tuple[Collection[str], ...] = (self._seen, self._changed, self._turns, names)
        return sum(map(len, known)) > FILES_MAX and len(set[str]().union(*known)) > FILES_MAX

    async def _retry(self, group: TaskGroup) -> None:
        """An unreadable directory may become readable without an event."""
        while True:
            await anyio.sleep(RETRY_S)
            if await self._scan(group):
                break
        self._retries = False
        self._count_down(group)

    async def _judge_again(self) -> None:
        """What was refused because of the world around it (no rootfs yet, no room, no disk) may be right by now.

        Without such a file there is no timer.
        """
        while True:
            await self._has_hope.wait()
            await anyio.sleep(RETRY_S)
            await self._look_at([name for name, seen in self._seen.items() if seen.stamp is None])
            if all(seen.stamp for seen in self._seen.values()):
                self._has_hope = anyio.Event()

    async def _scan(self, group: TaskGroup) -> bool:
        """Look at every file; False when the directory cannot be read, which ends nothing."""
        names = await self._list()
        if names is None:
            if not self._retries:
                self._retries = True
                group.start_soon(self._retry, group)
            return False
        await self._look_at({*names, *self._seen})
        return True

    async def _list(self) -> tuple[str, ...] | None:
        try:
            names = _documents(await self.ports.files.list_directory(self.directory))
        except OSError as error:
            problem = Problem(
                step=Step.ADMISSION,
                reason=Reason.INTAKE_UNREADABLE,
                subject=str(self.directory),
                message=f"the assignments directory {self.directory} cannot be read: {error.strerror or error}",
            )
            if DIRECTORY not in self.worker.refused:
                _log.error("unreadable", reason=str(problem.reason), message=problem.message)
            self.worker.refused[DIRECTORY] = (problem,)
            return None
        if self.worker.refused.pop(DIRECTORY, None):
            self._missing.clear()
            _log.info("readable", file=str(self.directory))
        return names

    # ---- one file

    async def _look_at(self, names: Iterable[str]) -> None:
        async with anyio.create_task_group() as group:
            for name in sorted(names):
                group.start_soon(self._look_in_turn, name)

    def _is_awaited(self, name: str) -> bool:
        turn = self._turns.get(name)
        return turn is not None and turn.statistics().tasks_waiting > 0

    async def _look_in_turn(self, name: str) -> None:
        turn = self._turns.setdefault(name, anyio.Lock())
        try:
            async with turn:
                await self._look(name)
        finally:
            if not turn.locked() and not turn.statistics().tasks_waiting:
                self._turns.pop(name, None)

    async def _look(self, name: str) -> None:
        """Read one file and admit it, unless it is as it was."""
        has_changed = name in self._changed
        self._changed.discard(name)
        before = self._seen.get(name)
        uid = before.uid if before else None
        path = self.directory / name
        try:
            stat = await self.ports.files.stat(path)
            is_gone = stat is None and await self.ports.files.lstat(path) is None
        except OSError as error:
            await self._refuse(name, (unreadable(error),))
            self._note(name, None, uid)
            return
        if is_gone:
            self._seen.pop(name, None)
            await self._accept(name)
            return
        stamp = _stamp_of(stat) if stat else None
        if before is not None and before.stamp == stamp is not None and not has_changed:
            return
        try:
            data = await self.ports.files.read(path, limit_bytes=LIMIT_BYTES)
        except OSError as error:
            await self._refuse(name, (unreadable(error),))
            self._note(name, stamp, uid)
            return
        admitted = await self._admit(name, data)
        told = admitted.uid if admitted else peek_uid(data)
        self._note(name, stamp, told or uid)

    def _note(self, name: str, stamp: tuple[int, int, int] | None, uid: str | None) -> None:
        """Remember a file that was looked at."""
        problems = self.worker.refused.get(file_label(name), ())
        if stamp is None or any(problem.reason not in OF_THE_DOCUMENT for problem in problems):
            stamp = None
            self._has_hope.set()
        self._seen[name] = _Seen(stamp=stamp, uid=uid)

    async def _admit(self, name: str, data: bytes) -> Admitted | None:
        """Admit a document; None when it is refused."""
        try:
            admitted = await self.admission.submit(data, base=self.directory)
        except ProblemError as error:
            await self._refuse(name, error.problems)
            return None
        except Exception as error:  # noqa: BLE001 - a fault of ours costs one file, not the worker
            _log.exception("fault", file=file_label(name), reason=str(Reason.INTERNAL))
            await self._refuse(name, (internal(Step.ADMISSION, "admission", error),))
            return None
        if admitted.effect is not Effect.STALE and self._admitted.get(admitted.uid) != admitted.generation:
            self._admitted[admitted.uid] = admitted.generation
            actor = self.state_dir.actor(admitted.uid)
            await note_followed(self.ports.files, actor, self.directory, generation=admitted.generation)
        await self._accept(name)
        _tell(name, admitted)
        return admitted

    async def _refuse(self, name: str, problems: tuple[Problem, ...]) -> None:
        label = file_label(name)
        if self.worker.refused.get(label) == problems:
            return  # told already
        self.worker.refused[label] = problems
        self.worker.observer.refused(problems)
        for problem in problems:
            _log.warning(
                "refused", file=label, reason=str(problem.reason), subject=problem.subject, message=problem.message
            )
        document = {"v": 1, "file": label, "problems": [problem_json(problem) for problem in problems]}
        try:
            await self.ports.files.replace(self._refusal(name), orjson.dumps(document) + b"\n")
        except OSError as error:
            _tell_unwritten(label, error)

    async def _accept(self, name: str) -> None:
        if self.worker.refused.pop(file_label(name), None) is not None:
            await self._forget_refusal(self._refusal(name))

    def _refusal(self, name: str) -> Path:
        return self.state_dir.refused / _refusal_name(name)

    async def _forget_refusals(self) -> None:
        """What an earlier life of the worker refused is judged anew."""
        try:
            names = await self.ports.files.list_directory(self.state_dir.refused)
        except OSError:
            return
        for name in filter(_is_document, names):
            await self._forget_refusal(self.state_dir.refused / name)

    async def _forget_refusal(self, path: Path) -> None:
        try:
            await self.ports.files.remove_file(path)
        except OSError as error:
            _tell_unwritten(file_label(path.name), error)

    # ---- actors whose file is gone

    def _count_down(self, group: TaskGroup) -> None:
        """Begin the countdown for uids that no file names any more."""
        here = {seen.uid for seen in self._seen.values()}
        for uid in self._admitted:
            if uid in here:
                self._missing.pop(uid, None)
            elif uid not in self._missing:
                countdown = self._missing[uid] = object()
                group.start_soon(partial(self._judge_missing, uid, countdown, group))

    async def _judge_missing(self, uid: str, countdown: object, group: TaskGroup) -> None:
        """End the actor when a full rescan finds its uid in no file; an unreadable directory postpones it."""
        is_read = False
        while not is_read:
            await anyio.sleep(RESCAN_AFTER_S)
            if self._missing.get(uid) is not countdown:
                return  # it came back, or the time began anew
            is_read = await self._rescans.one(partial(self._scan, group))
        self._count_down(group)
        if self._missing.get(uid) is not countdown:
            return
        del self._missing[uid]
        generation = self._admitted.pop(uid)
        life = self.worker.find(uid)
        if life is None or life.actor.state is State.TERMINATED or life.assignment.generation != generation:
            return
        _log.info("vanished", actor=uid, generation=generation)
        try:
            await life.ask(StopRequested(by=By.DOCUMENT))
        except ProblemError:
            return  # it ended meanwhile


def _refusal_name(name: str) -> str:
    """`<file>.json`; of a name that is too long for that, its beginning and a digest of all of it."""
    raw = name.encode("utf-8", "surrogateescape")
    if len(raw) > NAME_LIMIT_BYTES - len(".json"):
        begins = raw[:BEGINNING_BYTES].decode("utf-8", "ignore")
        name = f"{begins}-{hashlib.sha256(raw).hexdigest()[:DIGEST_DIGITS]}"
    return f"{name}.json"


def _documents(names: Iterable[str]) -> tuple[str, ...]:
    """Those that are documents.

    Raises:
        OSError: EOVERFLOW when they are too many.
    """
    found = tuple(filter(_is_document, names))
    if len(found) > FILES_MAX:
        raise OSError(errno.EOVERFLOW, f"it has {len(found)} documents, more than {FILES_MAX}")
    return found


def _is_document(name: str) -> bool:
    return name.endswith(SUFFIXES) and not name.startswith(".")


def _stamp_of(stat: FileStat) -> tuple[int, int, int]:
    return stat.inode, stat.size_bytes, stat.mtime_ns


def _tell(name: str, admitted: Admitted) -> None:
    log = _log.bind(
        file=file_label(name), actor=admitted.uid, generation=admitted.generation, effect=str(admitted.effect)
    )
    if admitted.effect in {Effect.SAME, Effect.STALE}:
        log.debug("admitted")
    else:
        log.info("admitted")


def _tell_unwritten(label: str, error: OSError) -> None:
    _log.error("unwritten", file=label, reason=str(Reason.STATE_UNWRITABLE), message=error.strerror or str(error))
