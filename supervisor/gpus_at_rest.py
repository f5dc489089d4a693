"""Who comes to rest gives its GPUs back.

In a state in which nothing of an actor runs, it needs neither a grant nor a booking. They are given back when it comes
there, and not while it stays: then it may have booked to go on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from statemachine.actor import Resource
from statemachine.states import INACTIVE

if TYPE_CHECKING:
    from statemachine.states import State
    from supervisor.gpu_desk import WorkerGpus
    from supervisor.life import Life


class GpusAtRest:
    """Who has come to rest and was seen to.

    Args:
        gpus: the desk that takes them back.
    """

    def __init__(self, gpus: WorkerGpus) -> None:
        self._gpus = gpus
        self._seen_to = set[str]()

    def find(self, uid: str, state: State) -> None:
        """An actor was found on disk. One at rest is so long since, and may book before its loop has begun."""
        if state in INACTIVE:
            self._seen_to.add(uid)

    def settle(self, life: Life) -> None:
        """Look at where a life is now.

        One that only passes by, because a kept request is about to be followed, has booked to go on. A grant that could
        not be undone is kept, since what could not be ended may still use it.
        """
        if life.actor.state not in INACTIVE:
            self._seen_to.discard(life.uid)
        elif life.uid not in self._seen_to and not (life.follows or life.begins_anew):
            self._seen_to.add(life.uid)
            if Resource.GRANT not in life.actor.held:
                self._gpus.give_back(life.uid)

    def forget(self, uid: str) -> None:
        """Its life is not remembered any more."""
        self._seen_to.discard(uid)
