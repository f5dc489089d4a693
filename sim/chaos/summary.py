"""What came of many runs, so that sums of parts are the sum of all, however the seeds were divided."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any, Final

import attrs

from sim.chaos.kinds import KINDS
from sim.chaos.outcome import Outcome, Phase
from sim.chaos.watching import ALWAYS, CHECKED, OF_THIS_LIFE
from statemachine.events import EVENTS
from statemachine.states import State

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

FORMAT: Final = 1
KEPT_MAX: Final = 100
"""So many failing runs are told of; all are counted."""
_DIGITS: Final = 1 << 128
EXIT_CODES: Final[Mapping[Phase, int]] = {Phase.SAFETY: 3, Phase.LIVENESS: 4, Phase.CRASH: 5}


@attrs.frozen(kw_only=True)
class Summary:
    """Many runs.

    Attributes:
        runs: how many.
        failed: how many in which something was found.
        failing: the first of them, by seed.
        planned, fired, cells, checked, reasons: sums of those of runs.
        violated: of each thing that was found, in how many runs.
        virtual_s, calls, transitions: sums of those of runs.
        digest: what two campaigns have in common exactly when all their runs are the same.
    """

    runs: int = 0
    failed: int = 0
    failing: tuple[Outcome, ...] = ()
    planned: dict[str, int] = attrs.field(factory=dict)
    fired: dict[str, int] = attrs.field(factory=dict)
    cells: dict[str, int] = attrs.field(factory=dict)
    checked: dict[str, int] = attrs.field(factory=dict)
    violated: dict[str, int] = attrs.field(factory=dict)
    reasons: dict[str, int] = attrs.field(factory=dict)
    virtual_s: float = 0.0
    calls: int = 0
    transitions: int = 0
    digest: str = "0" * 32

    @property
    def phase(self) -> Phase | None:
        """The gravest of what was found."""
        found = {Phase(name.partition(":")[0]) for name in self.violated}
        return next((phase for phase in Phase if phase in found), None)

    @property
    def unfired(self) -> tuple[str, ...]:
        """The kinds of faults that have never happened."""
        return tuple(kind for kind in KINDS if not self.fired.get(kind))


def summary_of(outcome: Outcome) -> Summary:
    """One run as a sum."""
    own = hashlib.blake2b(f"{outcome.seed} {outcome.digest}".encode(), digest_size=16)
    return Summary(
        runs=1,
        failed=1 if outcome.found else 0,
        failing=(attrs.evolve(outcome, cells={}, checked={}),) if outcome.found else (),
        planned=outcome.planned,
        fired=outcome.fired,
        cells=outcome.cells,
        checked=outcome.checked,
        violated=dict.fromkeys((f"{phase}:{name}" for phase, name in {each.what for each in outcome.found}), 1),
        reasons=outcome.reasons,
        virtual_s=outcome.virtual_s,
        calls=outcome.calls,
        transitions=outcome.transitions,
        digest=own.hexdigest(),
    )


def added(summaries: Iterable[Summary]) -> Summary:
    """The sum of several."""
    parts = tuple(summaries)
    failing = sorted((outcome for each in parts for outcome in each.failing), key=lambda outcome: outcome.seed)
    return Summary(
        runs=sum(each.runs for each in parts),
        failed=sum(each.failed for each in parts),
        failing=tuple(failing[:KEPT_MAX]),
        planned=_counted(each.planned for each in parts),
        fired=_counted(each.fired for each in parts),
        cells=_counted(each.cells for each in parts),
        checked=_counted(each.checked for each in parts),
        violated=_counted(each.violated for each in parts),
        reasons=_counted(each.reasons for each in parts),
        virtual_s=round(sum(each.virtual_s for each in parts), 3),
        calls=sum(each.calls for each in parts),
        transitions=sum(each.transitions for each in parts),
        digest=f"{sum(int(each.digest, 16) for each in parts) % _DIGITS:032x}",
    )


def _counted(parts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """Counts by name, in the order of names."""
    counts: dict[str, int] = {}
    for part in parts:
        for name, count in part.items():
            counts[name] = counts.get(name, 0) + count
    return dict(sorted(counts.items()))


def as_json(summary: Summary) -> dict[str, Any]:
    """The document of a campaign, but for what its caller knows: seeds, seconds, repro files."""
    violations = {name.partition(":")[2]: count for name, count in summary.violated.items()}
    names = (*CHECKED, *OF_THIS_LIFE, *ALWAYS)
    return {
        "v": FORMAT,
        "engine": "faithful",
        "runs": summary.runs,
        "calls": summary.calls,
        "machineEvents": summary.transitions,
        "virtual_s": summary.virtual_s,
        "failures": summary.reasons,
        "faults": {
            kind: {"planned": summary.planned.get(kind, 0), "fired": summary.fired.get(kind, 0)} for kind in KINDS
        },
        "unfired": list(summary.unfired),
        "invariants": {
            name: {"checked": summary.checked.get(name, 0), "violated": violations.get(name, 0)} for name in names
        },
        "violated": summary.violated,
        "coverage": coverage_of(summary),
        "failed": summary.failed,
        "violations": [
            {"seed": outcome.seed, **attrs.asdict(found)} for outcome in summary.failing for found in outcome.found
        ],
        "digest": summary.digest,
        "verdict": str(summary.phase or "ok"),
    }


def coverage_of(summary: Summary) -> dict[str, Any]:
    """Which cells of state, event and kind of fault were met, and how many of the pairs of state and event."""
    pairs = {tuple(cell.split(" ")[:2]) for cell in summary.cells}
    by_kind: dict[str, int] = {}
    for cell in summary.cells:
        kind = cell.split(" ")[2]
        by_kind[kind] = by_kind.get(kind, 0) + 1
    return {
        "cells": len(summary.cells),
        "pairs": len(pairs),
        "pairsOfTable": len(State) * len(EVENTS),
        "byKind": dict(sorted(by_kind.items())),
        "met": summary.cells,
    }
