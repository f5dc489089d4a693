"""The files of the state directory: whole, readable, and no others."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from sim.invariants.evidence import actors_in, snapshots_of
from statemachine.states import FINAL, RESTING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sim.engine import Record
    from sim.invariants.violation import Finding
    from sim.world.world import World

_TEMPORARY: Final = re.compile(r"(?:.*/)?\..+\.tmp")


def state_files_parse(world: World, _record: Record) -> Iterator[Finding]:
    """Assignment, status, journal and manifests can be read; an actor that was admitted has the first three.

    And no temporary file stands beside them.
    """
    for each in actors_in(world):
        yield from each.faults
        for snapshot in snapshots_of(world, each.uid):
            if snapshot.fault is not None:
                yield str(snapshot.directory), snapshot.fault
        if each.assignment is None:
            continue
        if each.journal is None:
            yield each.uid, "has an assignment and no journal"
        elif each.status is None and each.state in RESTING | FINAL:
            yield each.uid, f"is {each.state} and has no status"
        if each.journal and not each.journal.endswith(b"\n"):
            yield str(each.directory.journal), "the last line is torn"
    for name in world.files_below(world.state.root):
        if _TEMPORARY.fullmatch(name):
            yield name, "a temporary file is left"
