"""Greenroom's own journals: a day in production becomes a trace, and the trace a replay.

A journal tells what was asked of one actor on one worker, and when. What the worker did by itself is left out, since a
replay does it again: steps, drains' suspends, restarts after failures. What an actor did by itself is how long it ran
until it was done, or failed for good: `for_s`. What hit it, a dead sandbox or a lost GPU, is a fault.

A worker is known by the name of its state directory, and an actor by its uid:
`WORKER/actors/UID/journal.jsonl`. Any other file is a journal of the actor that its name says, on the worker `worker`.
How many GPUs an actor claims is in `assignment.json` beside its journal; else one that claims any counts as one.
"""

from __future__ import annotations

import re
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any, Final

import attrs

from actors.assignment import WorkerAssignment
from actors.codec import CodecError, loads, structure
from actors.journal import LIMIT_BYTES
from sim.traces.ordering import from_zero, in_order
from sim.traces.records import (
    AT_S_MAX,
    Assignment,
    Container,
    FaultRecord,
    Header,
    Record,
    Resume,
    Suspend,
    Terminate,
    WorkerAdd,
    WorkerDrain,
)
from sim.traces.streams import at_line, opened
from statemachine.problem import ProblemError
from statemachine.reasons import Reason
from statemachine.states import State
from supervisor.timeline import Timeline, timeline

from .rows import BadRows, label

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from sim.traces.records import Scalar
    from supervisor.timeline import Stay

DEFAULT_WORKER: Final = "worker"
_BY_ITSELF: Final = frozenset({"ContainerExited", "Recovered"})
"""Events after which an actor ends that nobody asked to end, and nothing has hit."""
_FAULTS: Final = {"SandboxDied": "kill-sandbox", "GpuLost": "lose-gpu"}
"""What hits an actor -> the fault that does the same in a replay."""
_ENDED: Final = frozenset({State.TERMINATED, State.FAILED})
_HOLDS_NOTHING: Final = _ENDED | {State.SUSPENDED}
_FAILURES: Final = frozenset(
    {"StepFailed", "DeadlineExceeded", "RestoreRefused", "SuspendRefused", "SandboxDied", "GpuLost"}
)
_UNFIT: Final = re.compile(r"[^A-Za-z0-9._-]|^[^A-Za-z0-9]+")


@attrs.frozen(kw_only=True)
class Journals:
    """How journals are imported.

    Attributes:
        is_pinned: whether actors stay on the workers where they were; else the fleet places them anew.
        gpus: of each worker; None is as many as were held on it at once.
        model: of its GPUs.
    """

    is_pinned: bool = True
    gpus: int | None = None
    model: str | None = None


@attrs.define
class _Told:
    """What journals tell beside the records: when GPUs were taken and given back, by worker, and counts."""

    held: dict[str, list[tuple[float, int]]] = attrs.Factory(dict)
    notes: dict[str, Scalar] = attrs.Factory(dict)

    def count(self, name: str) -> None:
        before = self.notes.get(name)
        self.notes[name] = (before if isinstance(before, int) else 0) + 1


def journals_below(path: Path) -> list[Path]:
    """The journals of a state directory, or of several in one directory; a file is itself.

    Raises:
        OSError: it cannot be read.
    """
    if not path.is_dir():  # tidy: a person's own files, below a directory that was named
        return [path]
    found = (path.glob(pattern) for pattern in ("actors/*/journal.jsonl", "*/actors/*/journal.jsonl"))  # tidy: as above
    return sorted(each for paths in found for each in paths)


def import_journals(files: Sequence[Path], how: Journals, bad: BadRows) -> tuple[Header, Iterator[Record]]:
    """The trace of these journals. The header's notes are whole when the first record is taken.

    Raises, while records are taken:
        ProblemError: UnreadableFile; InvalidRow: a journal cannot be used from one of its lines on.
    """
    told = _Told()
    told.notes |= {"journals": len(files), "workers": 0, "updates": 0, "failures": 0, "gpusAssumed": 0}
    records = from_zero(in_order(_records(files, how, bad, told)), told.notes)
    header = Header(source=f"journals: {len(files)} files", notes=told.notes)
    return header, _fleet(bad.judged(records, told.notes), how, told)


def _records(files: Sequence[Path], how: Journals, bad: BadRows, told: _Told) -> Iterator[Record]:
    workers: dict[Path | None, str] = {}
    for path in files:
        state_dir = path.parent.parent.parent if path.match("actors/*/journal.jsonl") else None
        worker = workers.setdefault(state_dir, _worker_name(state_dir, set(workers.values())))
        told.notes["workers"] = len(workers)
        actor = _fit(path.parent.name if path.name == "journal.jsonl" and path.parent.name else path.name.split(".")[0])
        try:
            data = _whole(path)
            life = timeline(data, subject=label(path))
            wanted = _wanted(path, data, told)
        except ProblemError as error:
            if error.problem.reason is Reason.UNREADABLE_FILE:
                raise
            number = re.search(r"line (\d+)", error.problem.message)
            bad.add(path, int(number[1]) if number else 1, error.problem.message)
            continue
        except _MALFORMED as error:
            bad.add(path, 1, f"neither it nor the assignment beside it says what the actor needs: {error!r:.200}")
            continue
        if life.began_s + life.last_s > AT_S_MAX:
            bad.add(path, 1, "its times go to and fro for longer than a trace can be")
            continue
        yield from _life(life, wanted, actor=actor, worker=worker, how=how, told=told)


_MALFORMED: Final = (CodecError, LookupError, TypeError, ValueError, AttributeError)


def _whole(path: Path) -> bytes:
    with opened(path) as file:
        data = file.read(LIMIT_BYTES + 1)
    if len(data) > LIMIT_BYTES:
        raise ProblemError(at_line(path, 1, f"it is over {LIMIT_BYTES} bytes long", reason=Reason.INVALID_ROW))
    return data


def _worker_name(state_dir: Path | None, taken: set[str]) -> str:
    name = (_fit(state_dir.name) if state_dir else "") or DEFAULT_WORKER
    return next(each for each in (name, *(f"{name[:55]}-{n}" for n in range(2, len(taken) + 3))) if each not in taken)


def _fit(name: str) -> str:
    """The name with what may be in the name of an actor or a worker."""
    return _UNFIT.sub("-", name).strip("-")[:63] or "unnamed"


@attrs.frozen
class _Wanted:
    """What an actor needs."""

    containers: tuple[Container, ...]
    cpu_milli: int | None = None
    memory_bytes: int | None = None

    def __attrs_post_init__(self) -> None:
        if len({each.name for each in self.containers}) < len(self.containers):
            raise ValueError("two containers have one name")

    @property
    def gpus(self) -> int:
        return sum(each.gpus for each in self.containers)


def _wanted(path: Path, data: bytes, told: _Told) -> _Wanted:
    """By the assignment beside the journal, else by the journal's base.

    Raises:
        ProblemError: UnreadableFile.
        CodecError, LookupError, TypeError, ValueError, AttributeError: neither is what it should be.
    """
    beside = path.with_name("assignment.json")
    if path.name == "journal.jsonl" and beside.is_file():  # tidy: a person's own files, beside one that was named
        with opened(beside) as file:
            document = loads(file.read(LIMIT_BYTES))
        assignment = structure(document["assignment"], WorkerAssignment)
        limits = [each.limits for each in assignment.containers]
        return _Wanted(
            tuple(Container(name=_fit(each.name), gpus=each.gpus) for each in assignment.containers),
            sum(each.cpu_milli or 0 for each in limits) or None,
            sum(each.memory_bytes or 0 for each in limits) or None,
        )
    base: dict[str, Any] = loads(data.partition(b"\n")[0])["base"]
    gpus = 1 if base["claims"] == "Gpus" else 0
    if gpus:
        told.count("gpusAssumed")
    names = [_fit(str(each["name"])) for each in base["containers"]] or ["main"]
    return _Wanted(tuple(Container(name=name, gpus=0 if index else gpus) for index, name in enumerate(names)))


def _life(life: Timeline, wanted: _Wanted, *, actor: str, worker: str, how: Journals, told: _Told) -> Iterator[Record]:
    """What was asked of one actor, from its first stay that is not its end."""
    is_known = holds = False
    held = told.held.setdefault(worker, [])
    for stay in life.stays:
        at_s = life.began_s + stay.begin_s
        if holds != (stay.state not in _HOLDS_NOTHING):
            holds = not holds
            held.append((at_s, wanted.gpus if holds else -wanted.gpus))
        if stay.event in _FAILURES:
            told.count("failures")
        if is_known:
            yield from _asked(stay.event, at_s, actor=actor, worker=worker)
        elif stay.state not in _ENDED:
            is_known = True
            yield WorkerAdd(at_s=at_s, worker=worker)
            yield Assignment(
                at_s=at_s,
                actor=actor,
                containers=wanted.containers,
                cpu_milli=wanted.cpu_milli,
                memory_bytes=wanted.memory_bytes,
                generation=max(stay.generation, 1),
                worker=worker if how.is_pinned else None,
                for_s=_for_s(life.stays),
            )
            if stay.state == State.SUSPENDED:
                yield Suspend(at_s=at_s, actor=actor)
        for each in stay.happenings if is_known else ():
            if each.name == "updated":
                told.count("updates")
            yield from _asked(each.name, life.began_s + each.at_s, actor=actor, worker=worker)


def _asked(event: str, at_s: float, *, actor: str, worker: str) -> Iterator[Record]:
    match event:
        case "Activate":
            yield WorkerAdd(at_s=at_s, worker=worker)  # it is there again, if it was drained
            yield Resume(at_s=at_s, actor=actor)
        case "SuspendRequested":
            yield Suspend(at_s=at_s, actor=actor)
        case "StopRequested":
            yield Terminate(at_s=at_s, actor=actor)
        case "DrainRequested":
            yield WorkerDrain(at_s=at_s, worker=worker)
        case "begun anew":
            yield WorkerAdd(at_s=at_s, worker=worker)
        case "SandboxDied" | "GpuLost":
            yield FaultRecord(at_s=at_s, fault=_FAULTS[event], actor=actor)
        case _:
            pass


def _for_s(stays: Sequence[Stay]) -> float | None:
    """How long it ran until it ended by itself; None if it did not."""
    ran_s, left_by = 0.0, ""
    for before, stay in pairwise(stays):
        if before.state == State.RUNNING:
            ran_s += (before.end_s or before.begin_s) - before.begin_s
            left_by = stay.event
        if stay.state in _ENDED:
            return round(ran_s, 6) if left_by in _BY_ITSELF else None
    return None


def _fleet(records: Iterable[Record], how: Journals, told: _Told) -> Iterator[Record]:
    """The records without what is said twice: workers come, and go by a drain, once; an actor is assigned once."""
    there: set[str] = set()
    known: set[str] = set()
    gpus: dict[str, int] = {}
    for record in records:
        if not gpus:
            gpus = {worker: _most(held) if how.gpus is None else how.gpus for worker, held in told.held.items()}
        match record:
            case WorkerAdd(at_s=at_s, worker=worker):
                if worker not in there:
                    there.add(worker)
                    yield WorkerAdd(at_s=at_s, worker=worker, gpus=gpus[worker], model=how.model)
            case WorkerDrain(worker=worker):
                if worker in there:
                    there.remove(worker)
                    yield record
            case Assignment(at_s=at_s, actor=actor) if actor in known:
                # It went on somewhere else, from its snapshot.
                yield Resume(at_s=at_s, actor=actor)
            case Terminate(actor=actor):
                known.discard(actor)
                yield record
            case _:
                if isinstance(record, Assignment):
                    known.add(record.actor)
                yield record


def _most(held: list[tuple[float, int]]) -> int:
    """The most that were held at one time; who gives back and who takes at the same time do not meet."""
    return max(accumulate((gpus for _at_s, gpus in sorted(held)), initial=0))
