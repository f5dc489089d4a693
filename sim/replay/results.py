"""What a replay tells, whichever engine made it: the document of `greenroom sim replay --json`.

Fields may be added, never renamed; docs/simulator.md says what each means. With one seed the document is the same to
the byte, but for `cpu_s`.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Any, Final, Protocol

import attrs
import orjson

from sim.invariants.violation import Tally
from statemachine.reasons import Reason
from statemachine.states import State

FORMAT: Final = 1
SLOWEST_MAX: Final = 20
VIOLATIONS_MAX: Final = 20


class Verdict(enum.StrEnum):
    """Whether every invariant held whenever it was looked at."""

    HELD = "Held"
    VIOLATED = "Violated"


class MoveSink(Protocol):
    """Whoever wants to hear of every transition while it happens: the writer of a Perfetto file, a test.

    Nothing of them is kept, so that a long trace takes no more memory than a short one.
    """

    def moved(  # noqa: PLR0917 - called some hundred thousand times a second, where names would cost
        self,
        at_s: float,
        worker: str,
        actor: str,
        before: State | None,
        event: str,
        after: State,
        reason: Reason | None,
    ) -> None:
        """An actor took an event: `before` is None where its life on this worker begins; `reason` is its trouble."""
        ...


@attrs.frozen(kw_only=True)
class FaultCount:
    """How often a fault was planned, and how often it happened to somebody."""

    planned: int = 0
    fired: int = 0


@attrs.frozen(kw_only=True)
class Slow:
    """One of the slowest activations: where its seconds went. `wait` is the time until a worker had room."""

    actor: str
    worker: str
    at_s: float
    activation_s: float
    steps: Mapping[str, float]


@attrs.frozen(kw_only=True)
class Timeline:
    """Means in buckets of `bucket_s`: how many actors ran, waited for room, were suspended; GPUs that were held.

    `gpus` is how many were there: those of the workers that were up. Results of earlier versions do not tell it.
    """

    bucket_s: float
    at_s: list[float]
    running: list[float]
    waiting: list[float]
    suspended: list[float]
    held_gpus: list[float]
    gpus: list[float] = attrs.field(factory=list)


@attrs.frozen(kw_only=True)
class Occupancy:
    """By worker and bucket of the timeline: the share of its GPUs that was held. The first 200 workers with GPUs.

    `up` is the share of the bucket in which the worker was there. Results of earlier versions do not tell it.
    """

    workers: list[str]
    held: list[list[float]]
    up: list[list[float]] = attrs.field(factory=list)


@attrs.frozen(kw_only=True)
class ReplayResult:
    """The whole of it.

    Attributes:
        seed, engine: what it was made with.
        source: of the trace, by its header.
        rows: records of the trace.
        skipped: records that meant nothing where they came: an actor that is not there, an old generation.
        events: what happened in the simulated fleet, records and timers and answers.
        machine_events: events that were fed to the state machine; `transitions` of them changed something.
        lifecycles: activations that reached Running.
        virtual_s, cpu_s: how long it took, in the simulation and here.
        activation_s: from being asked to Running, waiting included; of who ran and was to go on, from when it ran no
            more: its worker was drained or lost, its sandbox died. suspend_s: from Suspending to Suspended.
        steps: each step of an activation or a suspend, and `wait` for room, by its name.
        density: actors that claim GPUs and have not ended, as a mean over time, by GPU that was up.
        states: how many actors came to rest where, at the end; `Waiting` found no room.
        ways: how activations began: cold, from the snapshot on the worker, from the store.
        failures: troubles by reason. faults: those of the trace, by name.
        gpu_seconds: held and free. cost: by the config's prices.
        notes: what could not be done of the trace and why, for a person.
        config: what it says otherwise than the default, by dotted names.
    """

    seed: int
    engine: str
    source: str
    rows: int
    skipped: int
    events: int
    machine_events: int
    transitions: int
    lifecycles: int
    virtual_s: float
    cpu_s: float
    activation_s: Mapping[str, float]
    suspend_s: Mapping[str, float]
    density: float
    failures: Mapping[str, int]
    faults: Mapping[str, FaultCount]
    invariants: Mapping[str, Tally]
    verdict: Verdict
    violations: tuple[str, ...]
    states: Mapping[str, int]
    ways: Mapping[str, int]
    steps: Mapping[str, Mapping[str, float]]
    workers: int
    gpus: int
    gpu_seconds: Mapping[str, float]
    cost: float
    slowest: tuple[Slow, ...]
    timeline: Timeline
    occupancy: Occupancy
    notes: tuple[str, ...] = ()
    config: Mapping[str, Any] = attrs.field(factory=dict)

    def document(self) -> dict[str, Any]:
        """As JSON has it."""
        plain = attrs.asdict(self)
        machine_events = plain.pop("machine_events")
        head = {name: plain.pop(name) for name in ("seed", "engine", "source", "rows", "skipped", "events")}
        return {"v": FORMAT, **head, "machineEvents": machine_events, **plain, "verdict": str(self.verdict)}

    def as_json(self) -> bytes:
        """One document, which ends with a line feed."""
        return orjson.dumps(self.document(), option=orjson.OPT_APPEND_NEWLINE)
