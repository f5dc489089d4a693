"""The rows of a sweep: one for each run, of replays and of chaos alike. docs/simulator.md has them as a table.

Columns may be added, never renamed; a column that says nothing of a kind of run is null there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import orjson
from msgspec import Struct

if TYPE_CHECKING:
    from sim.replay.results import ReplayResult

LEFT_OUT: Final = ("timeline", "occupancy", "slowest", "violations")
"""Of the document of a replay: they are long, and a row that is looked at closer is replayed by its seed."""


class Row(Struct, frozen=True, kw_only=True):
    """One run; `COLUMNS` says what each is."""

    key: str
    kind: str
    trace: str | None
    trace_digest: str | None
    source: str | None
    engine: str
    config: str
    overrides: dict[str, str]
    seed: int
    code: str
    verdict: str
    violated: int
    transitions: int
    virtual_s: float
    cpu_s: float
    document: str
    records: int | None = None
    skipped: int | None = None
    workers: int | None = None
    gpus: int | None = None
    activations: int | None = None
    activation_p50_s: float | None = None
    activation_p95_s: float | None = None
    activation_p99_s: float | None = None
    activation_max_s: float | None = None
    suspend_p50_s: float | None = None
    suspend_p95_s: float | None = None
    suspend_max_s: float | None = None
    density: float | None = None
    held: float | None = None
    cost: float | None = None
    waiting: int | None = None
    failures: int | None = None


COLUMNS: Final = {
    "key": "string: what the row is kept under: a digest of config, trace, seed, engine and code",
    "kind": "string: `replay` or `chaos`",
    "trace": "string: as it was named",
    "trace_digest": "string: of the bytes of its file",
    "source": "string: of the trace, by its header",
    "engine": "string: `fast` or `faithful`",
    "config": "string: as it was named; `default` where nothing was",
    "overrides": "map of string to string: what the axes of the grid say, `workers` too",
    "seed": "int64",
    "code": "string: a digest of the sources that made the row",
    "verdict": "string: `Held` or `Violated`; of chaos `ok`, `safety`, `liveness` or `crash`",
    "violated": "int64: of all invariants; of chaos, how many things were found",
    "transitions": "int64: of the state machine",
    "virtual_s": "double: how long it took in the simulation",
    "cpu_s": "double: how long it took here, the one column that differs between two runs of one key",
    "document": "string: JSON, all else that the run has told, but for its timelines",
    "records": "int64: of the trace",
    "skipped": "int64: of them, passed over",
    "workers": "int64: there were",
    "gpus": "int64: there were",
    "activations": "int64: that reached Running",
    "activation_p50_s": "double: from being asked to Running, waiting included",
    "activation_p95_s": "double",
    "activation_p99_s": "double",
    "activation_max_s": "double",
    "suspend_p50_s": "double: from being asked to Suspended",
    "suspend_p95_s": "double",
    "suspend_max_s": "double",
    "density": "double: actors by GPU, a mean over time",
    "held": "double: the share of the GPUs' time in which somebody held them",
    "cost": "double: by the config's prices",
    "waiting": "int64: who found no room until the end",
    "failures": "int64: of all reasons",
}
"""Column -> its type in Parquet, and what it says."""


def measures(result: ReplayResult) -> dict[str, Any]:
    """The columns that a replay fills."""
    held, free = result.gpu_seconds["held"], result.gpu_seconds["free"]
    document = result.document()
    for name in LEFT_OUT:
        del document[name]
    del document["cpu_s"]
    activation, suspend = result.activation_s, result.suspend_s
    return {
        "source": result.source,
        "verdict": str(result.verdict),
        "violated": sum(each.violated for each in result.invariants.values()),
        "transitions": result.transitions,
        "virtual_s": result.virtual_s,
        "cpu_s": round(result.cpu_s, 3),
        "document": orjson.dumps(document).decode(),
        "records": result.rows,
        "skipped": result.skipped,
        "workers": result.workers,
        "gpus": result.gpus,
        "activations": result.lifecycles,
        **{f"activation_{name}_s": float(activation[name]) for name in ("p50", "p95", "p99", "max")},
        **{f"suspend_{name}_s": float(suspend[name]) for name in ("p50", "p95", "max")},
        "density": result.density,
        "held": round(held / (held + free), 6) if held + free else 0.0,
        "cost": result.cost,
        "waiting": result.states.get("Waiting", 0),
        "failures": sum(result.failures.values()),
    }
