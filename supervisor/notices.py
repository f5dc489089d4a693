"""What is told of an actor beside its states: troubles with which it runs on.

An error that the driver reported of one of its GPUs, a container that lost its file server: nothing of it moves the
machine, and whoever looks for why an actor failed later wants to know it. So it is kept with the actor until it is
started anew, each trouble once and with how often it came, and only so many of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import attrs

from actors.codec import rfc3339

if TYPE_CHECKING:
    from collections.abc import Callable

    from statemachine.problem import Problem
    from statemachine.reasons import Reason

NOTICES_MAX: Final = 16
"""Of one actor; the one that was told longest ago goes for a new one."""


@attrs.frozen(kw_only=True)
class Notice:
    """One trouble.

    Attributes:
        problem: what was told first.
        count: how often it came.
        first_s: when it came first, seconds since 1970 UTC.
        last_s: when it came last.
    """

    problem: Problem
    count: int
    first_s: float
    last_s: float


class Notices:
    """The notices of one actor, by reason and subject.

    Args:
        now_s: seconds since 1970 UTC.
    """

    def __init__(self, now_s: Callable[[], float]) -> None:
        self._now_s = now_s
        self._kept: dict[tuple[Reason, str], Notice] = {}

    def add(self, problem: Problem, count: int = 1) -> bool:
        """Keep a trouble that came so often; whether it is one that was not known."""
        key, now_s = (problem.reason, problem.subject), self._now_s()
        known = self._kept.pop(key, None)
        if known is None:
            self._kept[key] = Notice(problem=problem, count=count, first_s=now_s, last_s=now_s)
            for oldest in list(self._kept)[:-NOTICES_MAX]:
                del self._kept[oldest]
        else:
            self._kept[key] = attrs.evolve(known, count=known.count + count, last_s=now_s)
        return known is None

    def clear(self) -> None:
        """It is started anew."""
        self._kept.clear()

    def as_json(self) -> list[dict[str, Any]]:
        """For the actor's status, the one that was told last at the end."""
        return [
            {
                "reason": str(each.problem.reason),
                "subject": each.problem.subject,
                "message": each.problem.message,
                "hint": each.problem.hint,
                "count": each.count,
                "first": rfc3339(each.first_s),
                "last": rfc3339(each.last_s),
            }
            for each in self._kept.values()
        ]
