"""From what actors are asked for to when they are suspended: an actor that nobody asks for a while is idle."""

from __future__ import annotations

import heapq
import math
from typing import TYPE_CHECKING

from .records import Record, Resume, Suspend, Terminate

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


def suspended_when_idle(records: Iterable[Record], idle_timeout_s: float | None) -> Iterator[Record]:
    """The records in their order, and a suspend wherever an actor was asked for nothing for so long.

    The time counts from the end of what the actor was asked for (`busy_s`). Only actors with a `resume` are looked at;
    what is still idle after the last record is suspended, too. None leaves that to the fleet.
    """
    if idle_timeout_s is None:
        yield from records
        return
    idle_at_s: dict[str, float] = {}  # of actors that run
    looks: dict[str, float] = {}  # when each is looked at next, never later than it may be idle
    due: list[tuple[float, str]] = []  # those times, and some that an earlier one has overtaken
    for record in records:
        yield from _suspends(due, looks, idle_at_s, until_s=record.at_s)
        match record:
            case Resume(at_s=at_s, actor=actor, busy_s=busy_s):
                # What is asked for at once is worked on at once, as servers of language models do.
                until_s = round(at_s + (busy_s or 0.0) + idle_timeout_s, 6)
                until_s = idle_at_s[actor] = max(until_s, idle_at_s.get(actor, 0.0))
                if until_s < looks.get(actor, math.inf):
                    looks[actor] = until_s
                    heapq.heappush(due, (until_s, actor))
            case Suspend(actor=actor) | Terminate(actor=actor):
                idle_at_s.pop(actor, None)
            case _:
                pass
        yield record
    yield from _suspends(due, looks, idle_at_s, until_s=math.inf)


def _suspends(
    due: list[tuple[float, str]], looks: dict[str, float], idle_at_s: dict[str, float], *, until_s: float
) -> Iterator[Record]:
    while due and due[0][0] < until_s:
        at_s, actor = heapq.heappop(due)
        if looks.get(actor) != at_s:
            continue
        del looks[actor]
        idle_s = idle_at_s.get(actor, 0.0)
        if idle_s > at_s:  # it was asked for something again
            looks[actor] = idle_s
            heapq.heappush(due, (idle_s, actor))
        elif idle_s == at_s:
            del idle_at_s[actor]
            yield Suspend(at_s=at_s, actor=actor)
