"""What `greenroom sim replay` does with a repro of `greenroom sim chaos`: it runs the plan in it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import attrs
import click
import orjson

from supervisor.host.surroundings import read_small

if TYPE_CHECKING:
    from pathlib import Path

    from sim.chaos.outcome import Outcome

_HEAD_BYTES = 1 << 16
_MARK = b'"GreenroomRepro"'


def replayed_repro(path: Path, *, as_json: bool) -> int | None:
    """Run a file that is a repro, and say what was found; returns the exit code, and None for any other file."""
    try:
        head = read_small(path, limit_bytes=_HEAD_BYTES)
    except OSError:
        return None
    if _MARK not in head.split(b"\n", 1)[0]:
        return None
    from sim.chaos.summary import EXIT_CODES, summary_of  # noqa: PLC0415 - a trace needs no worker to be replayed
    from sim.shrinking.repro import run_repro  # noqa: PLC0415 - as above

    outcome = run_repro(path)
    for line in [orjson.dumps(_document(outcome)).decode()] if as_json else _shown(outcome):
        click.echo(line)
    phase = summary_of(outcome).phase
    return 0 if phase is None else EXIT_CODES[phase]


def _document(outcome: Outcome) -> dict[str, Any]:
    return {"v": 1, "kind": "GreenroomRepro", **attrs.asdict(outcome)}


def _shown(outcome: Outcome) -> list[str]:
    lines = [str(found) for found in outcome.found] or ["nothing was found"]
    size = f"{outcome.calls} port calls, {outcome.transitions} transitions, {outcome.virtual_s:g} virtual seconds"
    return [*lines, f"seed {outcome.seed}: {size}"]
