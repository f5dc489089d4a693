"""`greenroom trace`: an actor's life from its journal, for a person or for Perfetto. No worker is asked."""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING, Final

import attrs
import click
import orjson

from actors.codec import rfc3339
from actors.journal import LIMIT_BYTES
from actors.layout import StateDir
from statemachine.problem import Problem, ProblemError, Step
from statemachine.reasons import Reason
from supervisor.cli.columns import aligned
from supervisor.cli.places import PLACE
from supervisor.cli.worker_options import CONTEXT, config_option, state_dir_option
from supervisor.host.surroundings import read_small, write_whole
from supervisor.timeline import events_for_perfetto, timeline

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from supervisor.timeline import Timeline

BAR_CHARACTERS: Final = 24
_UID: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]{0,62}")


@click.command(context_settings=CONTEXT)
@click.argument("uid")
@click.option("-o", "--output", type=PLACE, help="Write it for Perfetto instead, as Chrome's JSON; - is stdout.")
@state_dir_option
@config_option
def trace(uid: str, output: Path | None, state_dir: Path) -> None:
    """Show an actor's life: its states with their durations, what led to each and what happened in it."""
    found = timeline(_journal(state_dir, uid), subject=f"the journal of {uid}")
    if output is None:
        for line in shown(found, uid=uid):
            click.echo(line)
        return
    document = {
        "displayTimeUnit": "ms",
        "otherData": {"actor": uid, "began": rfc3339(found.began_s)},
        "traceEvents": list(events_for_perfetto(found, uid=uid)),
    }
    data = orjson.dumps(document) + b"\n"
    if str(output) == "-":
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
    else:
        _write(output, data)


def shown(found: Timeline, *, uid: str) -> Iterator[str]:
    """The lines for a person: times since the beginning, durations, and a bar for what took long beside the rest."""
    yield f"{uid}  from {rfc3339(found.began_s)} to {rfc3339(found.began_s + found.last_s)}"
    longest_s = max((stay.end_s - stay.begin_s for stay in found.stays if stay.end_s and not stay.rests), default=0.0)
    rows = [("AT", "LASTED", "STATE", "", "AFTER")]
    for stay in found.stays:
        lasted_s = None if stay.end_s is None else stay.end_s - stay.begin_s
        bar = "" if lasted_s is None or stay.rests or not longest_s else "#" * _bar(lasted_s / longest_s)
        about = " ".join(word for word in (stay.event, stay.reason and f"{stay.reason}:", stay.detail) if word)
        rows.append((_seconds(stay.begin_s), "" if lasted_s is None else _seconds(lasted_s), stay.state, bar, about))
        rows += [(_seconds(each.at_s), "", f"  {each.name}", "", each.detail) for each in stay.happenings]
    yield from aligned(rows)


def _bar(share: float) -> int:
    return max(1, round(BAR_CHARACTERS * share))


def _seconds(value_s: float) -> str:
    return f"{value_s:.3f} s".rjust(12)


def _journal(state_dir: Path, uid: str) -> bytes:
    if not _UID.fullmatch(uid):
        raise ProblemError(_problem(Reason.ACTOR_NOT_FOUND, uid, f"{uid!r} can be no uid"))
    path = StateDir(state_dir.absolute()).actor(uid).journal
    try:
        return read_small(path, limit_bytes=LIMIT_BYTES)
    except FileNotFoundError as error:
        message = f"there is no actor {uid} below {state_dir}"
        raise ProblemError(_problem(Reason.ACTOR_NOT_FOUND, uid, message)) from error
    except OSError as error:
        message = f"{path} cannot be read: {error.strerror or error}"
        raise ProblemError(_problem(Reason.UNREADABLE_FILE, str(path), message)) from error


def _write(path: Path, data: bytes) -> None:
    try:
        write_whole(path, data)
    except OSError as error:
        message = f"{path} cannot be written: {error.strerror or error}"
        problem = _problem(Reason.OUTPUT_UNWRITABLE, str(path), message)
        hint = "Name a file in a directory that is there and that you may write to."
        raise ProblemError(attrs.evolve(problem, hint=hint)) from error


def _problem(reason: Reason, subject: str, message: str) -> Problem:
    return Problem(step=Step.SUPERVISE, reason=reason, subject=subject, message=message)
