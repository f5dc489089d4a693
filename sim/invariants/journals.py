"""The journal: replayed, it gives the memory that its supervisor had, whatever was rebased and restarted meanwhile."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

from actors.journal import replay
from sim.invariants.evidence import actors_in
from statemachine.problem import ProblemError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sim.engine import Record
    from sim.invariants.evidence import ActorOnDisk
    from sim.invariants.violation import Finding
    from sim.world.world import World
    from statemachine.actor import Actor


def journals_replay(world: World, record: Record) -> Iterator[Finding]:
    """Its numbers rise; and each base in it is the memory that the lines before it lead to, as far as it must be."""
    unwritten = {said.fields.get("actor") for said in record.log if said.event == "unwritten"}
    for each in actors_in(world):
        lines = each.lines()
        for before, after in pairwise(lines):
            if after["seq"] <= before["seq"]:
                yield each.uid, f"line {after['seq']} comes after line {before['seq']}"
        if each.uid not in unwritten:
            yield from ((each.uid, what) for what in _broken_bases(each, lines))


def _broken_bases(each: ActorOnDisk, lines: list[dict[str, Any]]) -> Iterator[str]:
    whole = (each.journal or b"").split(b"\n")[:-1]
    for place, line in enumerate(lines):
        if not place or "base" not in line:
            continue
        try:
            before = _memory(whole[:place])
            after = _memory(whole[: place + 1])
        except ProblemError as error:
            yield str(error)
            return
        if _lasting(before) != _lasting(after):
            yield f"line {line['seq']} is a base that does not follow: {_lasting(before)}, then {_lasting(after)}"
        elif before.last_good is not None and after.last_good is None:
            yield f"line {line['seq']} is a base that has forgotten snapshot {before.last_good.id}"


def _memory(lines: list[bytes]) -> Actor:
    return replay(b"\n".join(lines) + b"\n", subject="the journal").actor


def _lasting(actor: Actor) -> tuple[str, tuple[tuple[str, int | None], ...], str, int]:
    """What neither a restart nor a new generation changes."""
    fates = tuple((fate.name, fate.exit_code) for fate in actor.containers)
    return str(actor.state), fates, str(actor.claims), actor.tries
