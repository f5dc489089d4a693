"""Alibaba's OpenB: the pods and nodes of a cluster with GPUs (cluster-trace-gpu-v2023), as actors and workers.

A pod asks for its GPUs when it was created, and its work takes as long as it did after it was scheduled; one that was
never scheduled gives up when it was deleted. Half of the pods share a GPU, which no actor of ours does.

Source: github.com/alibaba/clusterdata, cluster-trace-gpu-v2023; Weng et al., "Beware of Fragmentation", ATC 2023.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Final

import attrs

from sim.traces.ordering import from_zero, in_order
from sim.traces.records import GPUS_MAX, Assignment, Container, Header, Record, Terminate, WorkerAdd

from .rows import BadRowError, BadRows, Row, label, rows

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from sim.traces.records import Scalar

POD_COLUMNS: Final = (
    "name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli", "gpu_spec", "qos", "pod_phase", "creation_time",
    "deletion_time", "scheduled_time",
)  # fmt: skip
NODE_COLUMNS: Final = ("sn", "cpu_milli", "memory_mib", "gpu", "model")
PHASES: Final = frozenset({"Pending", "Running", "Succeeded", "Failed"})
WHOLE_MILLI: Final = 1000
"""`gpu_milli` of a whole GPU."""


class Fractions(enum.StrEnum):
    """What becomes of a pod that asks for a part of a GPU."""

    ROUND_UP = "round-up"
    """It gets a whole one."""
    SKIP = "skip"
    """It is left out."""


@attrs.frozen(kw_only=True)
class OpenB:
    """How pods and nodes are imported.

    Attributes:
        nodes: the file with the nodes; None adds no workers.
        fractions: what becomes of parts of GPUs.
    """

    nodes: Path | None = None
    fractions: Fractions = Fractions.ROUND_UP


def import_openb(files: Sequence[Path], how: OpenB, bad: BadRows) -> tuple[Header, Iterator[Record]]:
    """The trace of these files. The header's notes are whole when the first record is taken.

    Raises, while records are taken:
        ProblemError: UnreadableFile; InvalidRow.
    """
    counts: dict[str, Scalar] = {
        "pods": 0, "workers": 0, "fractions": str(how.fractions), "fractionsRoundedUp": 0, "fractionsSkipped": 0,
        "withoutGpus": 0, "neverScheduled": 0, "failed": 0,
    }  # fmt: skip
    source = f"OpenB: {', '.join(map(label, files if how.nodes is None else (*files, how.nodes)))}"
    return Header(source=source, notes=counts), _trace(files, how, bad, counts)


def _trace(files: Sequence[Path], how: OpenB, bad: BadRows, notes: dict[str, Scalar]) -> Iterator[Record]:
    workers = [] if how.nodes is None else list(_workers(how.nodes, bad))
    notes["workers"] = len(workers)
    pods = bad.judged(from_zero(in_order(_pods(files, how, bad, notes)), notes), notes)
    first = next(pods, None)
    yield from workers
    if first is not None:
        yield first
        yield from pods


def _workers(path: Path, bad: BadRows) -> Iterator[Record]:
    seen: set[str] = set()
    for row in rows(path, NODE_COLUMNS, bad):
        try:
            yield WorkerAdd(
                at_s=0.0,
                worker=_once(row.name("sn"), seen),
                gpus=row.whole("gpu", most=GPUS_MAX),
                model=row.text("model"),
                cpu_milli=row.whole("cpu_milli"),
                memory_bytes=row.whole("memory_mib", most=1 << 32) << 20,
            )
        except BadRowError as error:
            bad.add(path, row.number, str(error))


def _pods(files: Sequence[Path], how: OpenB, bad: BadRows, notes: dict[str, Scalar]) -> Iterator[Record]:
    seen: set[str] = set()
    for path in files:
        for row in rows(path, POD_COLUMNS, bad):
            try:
                pod = _pod(row, seen)
            except BadRowError as error:
                bad.add(path, row.number, str(error))
                continue
            if pod.is_fraction:
                if how.fractions is Fractions.SKIP:
                    _count(notes, "fractionsSkipped")
                    continue
                _count(notes, "fractionsRoundedUp")
            _count(notes, "pods")
            _count(notes, "withoutGpus", pod.assignment.gpus == 0)
            _count(notes, "failed", pod.phase == "Failed")
            yield pod.assignment
            if pod.gives_up_at_s is not None:
                _count(notes, "neverScheduled")
                yield Terminate(at_s=pod.gives_up_at_s, actor=pod.assignment.actor)


def _count(notes: dict[str, Scalar], name: str, more: int = 1) -> None:
    before = notes[name]
    notes[name] = (before if isinstance(before, int) else 0) + more


@attrs.frozen
class _Pod:
    assignment: Assignment
    phase: str
    is_fraction: bool
    gives_up_at_s: float | None


def _pod(row: Row, seen: set[str]) -> _Pod:
    phase = row.cells["pod_phase"]
    if phase not in PHASES:
        raise BadRowError(f"pod_phase is {phase!r:.80}, which is none of {', '.join(sorted(PHASES))}")
    gpus, milli = row.whole("num_gpu", most=GPUS_MAX), row.whole("gpu_milli", most=WHOLE_MILLI)
    if (milli == 0) != (gpus == 0) or (gpus > 1 and milli != WHOLE_MILLI):
        raise BadRowError(f"num_gpu {gpus} and gpu_milli {milli} do not go together")
    created_s, scheduled_s, deleted_s = map(row.seconds, ("creation_time", "scheduled_time", "deletion_time"))
    if created_s is None:
        raise BadRowError("creation_time is empty")
    earlier_s = created_s if scheduled_s is None else scheduled_s
    if earlier_s < created_s:
        raise BadRowError(f"scheduled_time {earlier_s:g} is before creation_time {created_s:g}")
    if deleted_s is not None and deleted_s < earlier_s:
        word = "creation_time" if scheduled_s is None else "scheduled_time"
        raise BadRowError(f"deletion_time {deleted_s:g} is before {word} {earlier_s:g}")
    assignment = Assignment(
        at_s=created_s,
        actor=_once(row.name("name"), seen),
        containers=(Container(name="main", gpus=gpus),),
        model=row.text("gpu_spec"),
        cpu_milli=row.whole("cpu_milli"),
        memory_bytes=row.whole("memory_mib", most=1 << 32) << 20,
        for_s=None if deleted_s is None or scheduled_s is None else deleted_s - scheduled_s,
        class_=row.text("qos"),
    )
    return _Pod(assignment, phase, 0 < milli < WHOLE_MILLI, deleted_s if scheduled_s is None else None)


def _once(name: str, seen: set[str]) -> str:
    if name in seen:
        raise BadRowError(f"the name {name} stands there a second time")
    seen.add(name)
    return name
