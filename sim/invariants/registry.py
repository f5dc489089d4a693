"""Every invariant by its name, and what came of looking at all of them."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from sim.invariants.cgroups import cgroups_hold_their_actors
from sim.invariants.deadlines import deadlines_are_kept
from sim.invariants.exit_codes import exit_codes_are_right
from sim.invariants.freezes import freezes_are_paired
from sim.invariants.gpus import gpus_are_exact, gpus_have_one_holder
from sim.invariants.journals import journals_replay
from sim.invariants.leftovers import nothing_is_left, one_sandbox
from sim.invariants.never_lost import failures_say_why, nobody_is_lost
from sim.invariants.snapshots import last_good_is_kept, snapshots_are_whole
from sim.invariants.state_files import state_files_parse
from sim.invariants.truth import frozen_is_not_running, status_tells_the_truth, what_was_told_is_kept
from sim.invariants.violation import Tally, Violation

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sim.engine import Record
    from sim.invariants.violation import Checker
    from sim.world.world import World

INVARIANTS: Final[Mapping[str, Checker]] = MappingProxyType(
    {
        "NothingLeft": nothing_is_left,
        "OneSandbox": one_sandbox,
        "CgroupsHoldTheirActors": cgroups_hold_their_actors,
        "StateFilesParse": state_files_parse,
        "StatusTellsTheTruth": status_tells_the_truth,
        "FrozenIsNotRunning": frozen_is_not_running,
        "WhatWasToldIsKept": what_was_told_is_kept,
        "DeadlinesKept": deadlines_are_kept,
        "SnapshotsAreWhole": snapshots_are_whole,
        "LastGoodIsKept": last_good_is_kept,
        "FreezesArePaired": freezes_are_paired,
        "FailuresSayWhy": failures_say_why,
        "NobodyIsLost": nobody_is_lost,
        "JournalsReplay": journals_replay,
        "ExitCodesAreRight": exit_codes_are_right,
        "GpusAreExact": gpus_are_exact,
        "GpusHaveOneHolder": gpus_have_one_holder,
    }
)
"""What must be so whenever a living supervisor has nothing under way, or has left in good order."""


def check(world: World, record: Record) -> tuple[Violation, ...]:
    """Look at a world through every checker.

    Args:
        world: open, with a living supervisor that has nothing under way, or one that has left in good order.
        record: what has happened in it so far.
    """
    return tuple(
        Violation(name=name, subject=subject, message=message)
        for name, checker in INVARIANTS.items()
        for subject, message in checker(world, record)
    )


def tally(looks: list[tuple[Violation, ...]]) -> dict[str, Tally]:
    """Count over several looks."""
    return {
        name: Tally(checked=len(looks), violated=sum(any(each.name == name for each in look) for look in looks))
        for name in INVARIANTS
    }
