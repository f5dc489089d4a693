"""Every workload by its name, with parameters as they are given, and the trace that a seed makes of it."""

from __future__ import annotations

import math
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

import attrs

from sim.traces.records import CONTAINERS_MAX, GPUS_MAX, Header, Record

from .agents import BurstyAgents
from .diurnal import Diurnal
from .herd import ThunderingHerd
from .mixed import Mixed
from .training import TrainingWithSidecars

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from .workload import Workload

WORKLOADS: Final[Mapping[str, type[Any]]] = MappingProxyType(
    {
        "bursty-agents": BurstyAgents,
        "training-with-sidecars": TrainingWithSidecars,
        "mixed": Mixed,
        "thundering-herd": ThunderingHerd,
        "diurnal": Diurnal,
    }
)
MAY_BE_NOTHING: Final = frozenset(
    {"workers", "gpus_per_worker", "gpus", "idle_timeout_s", "sidecars", "preempted_share", "herds", "within_s"}
    | {"swing", "peak", "skew", "agents", "jobs", "services", "batches", "replaced_workers"}
)
"""Parameters that may be 0; every other one is at least a thousandth, so that time goes on."""
MOST: Final[Mapping[str, float]] = MappingProxyType(
    {"preempted_share": 1, "swing": 1, "peak": 1, "skew": 10}
    | {"gpus_per_worker": GPUS_MAX, "gpus": GPUS_MAX, "sidecars": CONTAINERS_MAX - 1}
)
NUMBER_MAX: Final = 10_000_000
"""Of any other parameter."""


class ParameterError(ValueError):
    """Raised when a parameter cannot be set so; the message says why."""


def workload(name: str, parameters: Mapping[str, str | float]) -> Workload:
    """A workload with these parameters, and the rest as they are by themselves.

    Raises:
        ParameterError: there is none of that name, or it cannot be that.
    """
    fields = {field.name: field.default for field in attrs.fields(WORKLOADS[name])}
    given: dict[str, Any] = {}
    for each, value in parameters.items():
        if each not in fields:
            raise ParameterError(f"{name} has no parameter {each!r:.80}; it has {', '.join(fields)}")
        given[each] = _parameter(each, value, type(fields[each]))
    made: Workload = WORKLOADS[name](**given)
    return made


def generate(name: str, parameters: Mapping[str, str | float], seed: int) -> tuple[Header, Iterator[Record]]:
    """The trace of a workload; its header has all that makes it again.

    Raises:
        ParameterError: as `workload`.
    """
    made = workload(name, parameters)
    notes = {"workload": name, **{field.name: getattr(made, field.name) for field in attrs.fields(WORKLOADS[name])}}
    return Header(source=f"greenroom sim generate {name}", seed=seed, notes=notes), made.records(seed)


def _parameter(name: str, value: str | float, kind: type) -> str | float:
    if kind is str:
        text = str(value)
        if not text.isprintable() or not text.isascii() or not 0 < len(text) <= 128:  # noqa: PLR2004 - as of any label
            raise ParameterError(f"{name} is {text!r:.80}, which is no word of 1 to 128 printable ASCII characters")
        return text
    try:
        number = kind(value)
    except (ValueError, OverflowError):
        number = math.nan
    least = 0 if name in MAY_BE_NOTHING else 1 if kind is int else 0.001
    most = MOST.get(name, NUMBER_MAX)
    if not least <= number <= most:
        what = "whole number" if kind is int else "number"
        raise ParameterError(f"{name} is {value!r:.80}, which is no {what} from {least} to {most}")
    return float(number) if kind is float else int(number)
