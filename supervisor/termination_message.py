"""The termination message: what became of the worker's actors, for a person who runs `kubectl describe`. Pure.

Kubernetes shows at most 4096 bytes of it. What went wrong comes first, then the actors of which something is to be
said, then the others; what does not fit is counted, and stands in the last line of the log.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from statemachine.reasons import Reason
from statemachine.states import INACTIVE, State
from statemachine.wording import one_line

if TYPE_CHECKING:
    from collections.abc import Sequence

    from statemachine.problem import Problem
    from supervisor.left import Left, LeftActor

LIMIT_BYTES: Final = 4096
"""So much Kubernetes reads."""
LINE_CHARACTERS_MAX: Final = 400
"""One problem of one actor must not take the place of all others."""


def termination_message(left: Left | None, problems: Sequence[Problem]) -> bytes:
    """What became of every actor, as text.

    Args:
        left: the actors; None when there never was a worker that could have had any.
        problems: why the worker did not start, or did not end as it should.
    """
    lines = [f"error: {problem}" for problem in problems]
    if left is not None:
        lines += [_sum(left), *map(_line, sorted(left.actors, key=_rank))]
        lines += [f"{uid}: not looked at, as the worker had just started" for uid in left.not_recovered]
    return _fitting([one_line(line, LINE_CHARACTERS_MAX) for line in lines])


def _sum(left: Left) -> str:
    counts = Counter(str(each.state) for each in left.actors)
    told = ", ".join(f"{count} {state}" for state, count in sorted(counts.items()))
    return f"the worker has left; its actors: {told or 'none'}"


def _rank(actor: LeftActor) -> tuple[int, str]:
    """Who still ran first, then who lost something, then who has a snapshot."""
    if actor.state not in INACTIVE:
        return 0, actor.uid
    if actor.is_owed or actor.problem is not None:
        return 1, actor.uid
    return 2, actor.uid


def _line(actor: LeftActor) -> str:
    parts = [f"{actor.uid}: {actor.state}"]
    if actor.snapshot is not None:
        where = f"in {actor.snapshot.stored_uri}" if actor.snapshot.stored_uri else "on this worker's disk"
        owed = ", not in its store" if actor.is_owed else ""
        last = "" if actor.state is State.SUSPENDED else "last good "
        parts.append(f"{last}snapshot {actor.snapshot.id} {where}{owed}")
    if actor.problem is not None and actor.problem.reason is not Reason.COMPLETED:
        parts.append(str(actor.problem))
    return "; ".join(parts)


def _fitting(lines: Sequence[str]) -> bytes:
    """As many whole lines as there is room for, and how many more there are."""
    kept: list[str] = []
    for number, line in enumerate(lines):
        rest = len(lines) - number - 1
        more = f"and {rest} more: see the last line of the worker's log"
        if len("\n".join((*kept, line, *([more] if rest else ()))).encode()) + 1 > LIMIT_BYTES:
            kept.append(f"and {rest + 1} more: see the last line of the worker's log")
            break
        kept.append(line)
    return ("\n".join(kept) + "\n").encode()
