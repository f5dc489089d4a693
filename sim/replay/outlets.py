"""Where a replay can come from and go to: engines and writers of files, each loaded only when it is asked for."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, Protocol

from sim.fleet.config import FleetConfig
from sim.replay.results import MoveSink, ReplayResult
from sim.traces.records import Header, Record


class Engine(Protocol):
    """Replays a trace. What it makes of one seed is the same to the byte, but for `cpu_s`."""

    def __call__(
        self,
        header: Header,
        records: Iterator[Record],
        *,
        config: FleetConfig,
        seed: int = 0,
        sink: MoveSink | None = None,
    ) -> ReplayResult:
        """Replay it until nothing happens any more."""
        ...


class ReportWriter(Protocol):
    """Writes what a replay told as a page for people."""

    def __call__(self, result: ReplayResult, path: Path, /) -> None:
        """Write it.

        Raises:
            ProblemError: OutputUnwritable.
        """
        ...


class SinkOpener(Protocol):
    """Opens a file that hears of every transition while the replay goes on, and is whole when it is closed."""

    def __call__(self, path: Path, /) -> AbstractContextManager[MoveSink]:
        """Open it.

        Raises:
            ProblemError: OutputUnwritable.
        """
        ...


ENGINES: Final[Mapping[str, str]] = MappingProxyType(
    {"fast": "sim.replay.fast.engine:replay", "faithful": "sim.replay.faithful.engine:replay"}
)
"""Name -> `module:function`, an Engine."""
REPORT: Final[str | None] = "sim.reports.writing:write_report"
"""`module:function` of a ReportWriter; `sim replay` has the option --report when there is one."""
PERFETTO: Final[str | None] = "sim.reports.perfetto:opened"
"""`module:function` of a SinkOpener; `sim replay` has the option --perfetto when there is one."""


def loaded(place: str) -> Any:
    """What a `module:function` names."""
    module, _, name = place.partition(":")
    return getattr(importlib.import_module(module), name)
