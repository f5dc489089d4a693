"""Snapshots that belong to one actor and that another one may have to go back to."""

from __future__ import annotations

from typing import TYPE_CHECKING

from statemachine.states import FINAL

if TYPE_CHECKING:
    from collections.abc import Iterable

    from supervisor.life import Life
    from supervisor.worker import Worker


def needed_by_others(worker: Worker, uid: str) -> frozenset[str]:
    """The ids of the snapshots that the actors beside this one were restored from, or would be.

    No id is ever given twice, so that it does not matter whose snapshot it is. Who is over goes back to none.
    """
    return frozenset(_origins(life for life in worker.lives if life.uid != uid and life.actor.state not in FINAL))


def _origins(lives: Iterable[Life]) -> Iterable[str]:
    for life in lives:
        for snapshot in (life.actor.origin, life.actor.last_good, life.source_now()):
            if snapshot is not None:
                yield snapshot.id
