"""How a sandbox is frozen: once, saved once while it is, and thawed once if it is to run again."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import attrs

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sim.engine import Record
    from sim.invariants.violation import Finding
    from sim.world.world import World

_COMMAND: Final = re.compile(r"--root=\S*/sandboxes/([^/\s]+)/runsc\s")
_VERB: Final = re.compile(r" (pause|checkpoint|resume) ")


@attrs.define
class _Freeze:
    """What is known of one activation: None where a fault or the end of a supervisor came between."""

    incarnation: int
    is_frozen: bool | None = False
    saves: int = 0


def freezes_are_paired(_world: World, record: Record) -> Iterator[Finding]:
    """No sandbox is paused twice, saved twice in one freeze, or resumed when it was not paused.

    A second pause would need a second resume; a second save would meet the files of the first.
    """
    met = {number for report in record.faults for number in report.fired}
    freezes: dict[str, _Freeze] = {}
    for call in record.calls:
        found = _COMMAND.search(call.argument) if call.method == "run" else None
        if found is None:
            continue
        name, verb = found[1], _verb(call.argument)
        freeze = freezes.setdefault(name, _Freeze(call.incarnation))
        if call.incarnation != freeze.incarnation:
            freeze.incarnation, freeze.is_frozen, freeze.saves = call.incarnation, None, 0
        if verb is None:
            continue
        if call.number in met:
            freeze.is_frozen, freeze.saves = None, 0
            continue
        yield from ((name, f"call {call.number}: {what}") for what in _wrong(freeze, verb))
        match verb:
            case "pause":
                freeze.is_frozen, freeze.saves = True, 0
            case "checkpoint":
                freeze.saves += 1
            case _:
                freeze.is_frozen = False


def _verb(command: str) -> str | None:
    found = _VERB.search(command)
    return None if found is None else found[1]


def _wrong(freeze: _Freeze, verb: str) -> Iterator[str]:
    if verb == "pause" and freeze.is_frozen:
        yield "it is paused, and was already"
    if verb == "checkpoint" and freeze.is_frozen is False:
        yield "it is saved while it runs"
    if verb == "checkpoint" and freeze.saves:
        yield "it is saved twice in one freeze"
    if verb == "resume" and freeze.is_frozen is False:
        yield "it is resumed, and was not paused"
