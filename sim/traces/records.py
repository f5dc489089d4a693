"""The records of a trace, as they stand in its lines. docs/traces.md says what each means.

These are the one place with msgspec's classes: they are made and read a million times, and each is a line of a file.
"""

from __future__ import annotations

from typing import Annotated, Final, TypeAlias

from msgspec import Meta, Struct, field

FORMAT: Final = 1
AT_S_MAX: Final = 1e12
"""Seconds since the beginning of a trace, or since 1970 while one is put in order: more than until the year 9999."""
GPUS_MAX: Final = 1024
"""Of one container, and of one worker."""
CONTAINERS_MAX: Final = 64

NAME_PATTERN: Final = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,62}\Z"
LABEL_PATTERN: Final = r"^[ -~]{1,128}\Z"

Seconds: TypeAlias = Annotated[float, Meta(ge=0, le=AT_S_MAX)]
Name: TypeAlias = Annotated[str, Meta(pattern=NAME_PATTERN)]
"""Of an actor or a worker: what can be a uid, and a host's name."""
Label: TypeAlias = Annotated[str, Meta(pattern=LABEL_PATTERN)]
"""A model, a pool, a class: any text that can be printed."""
Gpus: TypeAlias = Annotated[int, Meta(ge=0, le=GPUS_MAX)]
Amount: TypeAlias = Annotated[int, Meta(ge=0, le=1 << 53)]
Whole: TypeAlias = Annotated[int, Meta(ge=-(1 << 53), le=1 << 53)]
Scalar: TypeAlias = str | Whole | float | bool | None
COUNTED: Final = frozenset({"gpu", "xid", "slack_bytes"})
"""Arguments of faults that are whole numbers from 0 on."""


class Header(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="kind", tag="GreenroomTrace"):
    """The first line.

    Attributes:
        v: the version of the format.
        source: what made the trace, for a person.
        seed: what it was made with, if chance had a part in it.
        notes: numbers and words about how it was made: parameters, what was rounded or left out.
    """

    v: int = FORMAT
    source: str
    seed: int | None = None
    notes: dict[str, Scalar] = {}


class Container(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, gc=False):
    """A container of an actor, and how many whole GPUs it claims."""

    name: Name
    gpus: Gpus = 0


class _Record(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True, tag_field="event"):
    """What every record has: when it is, in seconds since the beginning of the trace."""

    at_s: Seconds


class WorkerAdd(_Record, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="worker-add", gc=False):
    """A worker is there, with so many GPUs of one model; without amounts of CPU and memory these are not counted."""

    worker: Name
    gpus: Gpus = 0
    model: Label | None = None
    pool: Label | None = None
    cpu_milli: Amount | None = None
    memory_bytes: Amount | None = None


class WorkerRemove(_Record, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="worker-remove", gc=False):
    """A worker is gone at once, with all that is on it."""

    worker: Name


class WorkerDrain(_Record, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="worker-drain", gc=False):
    """A worker is asked to go (SIGTERM): what runs on it is suspended first."""

    worker: Name


class Assignment(_Record, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="assignment"):
    """An actor is to run, from the first time on.

    Attributes:
        actor: its uid.
        containers: with what they claim; a trace that says nothing means one without GPUs.
        model: the model that its GPUs must have, or several with `|` between them; None takes any.
        cpu_milli: what it needs of a worker's CPU, in thousandths of a core.
        memory_bytes: what it needs of a worker's memory.
        generation: of its assignment.
        worker: the only one that it may be on; None for any.
        for_s: so long it runs until its work is done and it ends by itself; None for ever.
        class_: a word for reports: `train`, `agent`, …; `class` in the file.
    """

    actor: Name
    containers: Annotated[tuple[Container, ...], Meta(min_length=1, max_length=CONTAINERS_MAX)] = (
        Container(name="main"),
    )
    model: Label | None = None
    cpu_milli: Amount | None = None
    memory_bytes: Amount | None = None
    generation: Annotated[int, Meta(ge=1, le=1 << 53)] = 1
    worker: Name | None = None
    for_s: Seconds | None = None
    class_: Label | None = field(name="class", default=None)

    def __post_init__(self) -> None:
        """The containers have different names."""
        if len(self.containers) > 1 and len({each.name for each in self.containers}) < len(self.containers):
            raise ValueError("two containers have one name")

    @property
    def gpus(self) -> int:
        """What all its containers claim together."""
        return sum(container.gpus for container in self.containers)

    @property
    def models(self) -> tuple[str, ...]:
        """The models that its GPUs may have; empty for any."""
        return () if self.model is None else tuple(filter(None, self.model.split("|")))


class Suspend(_Record, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="suspend", gc=False):
    """An actor is to be suspended."""

    actor: Name


class Resume(_Record, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="resume", gc=False):
    """An actor is asked for something now: a suspended one is resumed, of a running one it is activity.

    Attributes:
        actor: its uid.
        busy_s: how long it works on that.
    """

    actor: Name
    busy_s: Seconds | None = None


class Terminate(_Record, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="terminate", gc=False):
    """An actor is to end for good."""

    actor: Name


class FaultRecord(_Record, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="fault"):
    """Something goes wrong.

    Attributes:
        fault: its name.
        worker: where, if it is about a worker.
        actor: whose, if it is about an actor.
        args: what else that fault wants to know; those in seconds have names that end in `_s`.
    """

    fault: Name
    worker: Name | None = None
    actor: Name | None = None
    args: dict[str, Scalar] = {}

    def __post_init__(self) -> None:
        """Arguments that are numbers are such numbers: what engines do not understand they would pass over."""
        for name, value in self.args.items():
            is_number = isinstance(value, int | float) and not isinstance(value, bool)
            if name in COUNTED and not (isinstance(value, int) and is_number and value >= 0):
                raise ValueError(f"args.{name} is {value!r:.80}, which is no whole number from 0 on")
            if name.endswith("_s") and not (is_number and 0 <= value <= AT_S_MAX):  # type: ignore[operator]  # a number
                raise ValueError(f"args.{name} is {value!r:.80}, which is no number of seconds from 0 to {AT_S_MAX:g}")


Record: TypeAlias = WorkerAdd | WorkerRemove | WorkerDrain | Assignment | Suspend | Resume | Terminate | FaultRecord
EVENTS: Final[tuple[type[_Record], ...]] = (
    WorkerAdd,
    WorkerRemove,
    WorkerDrain,
    Assignment,
    Suspend,
    Resume,
    Terminate,
    FaultRecord,
)
"""Every kind of record, in the order of docs/traces.md."""
