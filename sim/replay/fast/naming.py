"""The snapshots of a replay as the machine sees them, and the events that are about them: equal ones are made once.

Names of an actor's snapshots come in turn, and their times are these numbers: equal lives are equal to the machine. It
tells snapshots apart by their names only, and knows at most three at a time of one actor.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import attrs

from statemachine.actor import Snapshot
from statemachine.events import Activate, SnapshotProven, SnapshotUploaded

if TYPE_CHECKING:
    from sim.replay.fast.paths import Paths
    from statemachine.events import Event

TURNS: Final = 8
NAMES_MAX: Final = 1000
"""That are kept; each is a turn, and which containers had ended with which codes."""


@attrs.frozen(eq=False)
class Copy:
    """A snapshot somewhere, and the event that begins from it."""

    snapshot: Snapshot
    activate: Event


@attrs.frozen(eq=False)
class Name:
    """A snapshot, wherever it is.

    Attributes:
        here: on its worker alone. there: in the store. both: on its worker, with a copy in the store.
        proven, uploaded: the events that tell of it.
    """

    here: Copy
    there: Copy
    both: Copy
    proven: Event
    uploaded: Event


class Names:
    """All of them, made for whoever asks what the machine says."""

    def __init__(self, paths: Paths) -> None:
        self._paths = paths
        self._names: dict[tuple[int, tuple[tuple[str, int], ...]], Name] = {}

    def of(self, turn: int, exited: tuple[tuple[str, int], ...]) -> Name:
        """The snapshot of a turn, in which these containers had ended."""
        key = turn, exited
        found = self._names.get(key)
        if found is None:
            found = self._made(turn, exited)
            if len(self._names) < NAMES_MAX:
                self._names[key] = found
        return found

    def _made(self, turn: int, exited: tuple[tuple[str, int], ...]) -> Name:
        # The actor's own; what the store has of others is never asked for.
        name, stored = f"s{turn}", f"store/s{turn}"
        here = Snapshot(id=name, uri=f"worker/{name}", created_at=float(turn), exited=exited)
        there = attrs.evolve(here, uri=stored, stored_uri=stored)
        both = attrs.evolve(here, stored_uri=stored)
        reused = self._paths.reused
        at_worker, at_store, at_both = (Copy(each, reused(Activate(source=each))) for each in (here, there, both))
        proven, uploaded = SnapshotProven(snapshot=here), SnapshotUploaded(snapshot=name, uri=stored)
        return Name(at_worker, at_store, at_both, reused(proven), reused(uploaded))
