"""Delta debugging over a plan: parts are left out for as long as the same is found, in a bounded number of runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeVar

import attrs

from sim.world.runsc.settings import Flavour

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sim.chaos.outcome import Outcome, Phase
    from sim.chaos.plan import Plan

_Part = TypeVar("_Part")

RUNS_MAX: Final = 400
"""A plan of the standard campaign takes some hundred."""


@attrs.frozen(kw_only=True)
class Reduced:
    """What came of it.

    Attributes:
        plan: the smallest one in which the same was found.
        outcome: what is found in it.
        runs: how many it took.
    """

    plan: Plan
    outcome: Outcome
    runs: int


class _Spent(Exception):  # noqa: N818 - it ends a search, and is no error
    """Raised when there were as many runs as there may be."""


class _Search:
    """The smallest plan so far."""

    def __init__(
        self, plan: Plan, outcome: Outcome, what: tuple[Phase, str], run: Callable[[Plan], Outcome], runs_max: int
    ) -> None:
        self.plan, self.outcome, self.runs = plan, outcome, 0
        self._what, self._run, self._runs_max = what, run, runs_max

    def tries(self, plan: Plan) -> bool:
        """Whether the same is found in another plan, which is the smallest one then."""
        if plan == self.plan:
            return False
        if self.runs >= self._runs_max:
            raise _Spent
        self.runs += 1
        outcome = self._run(plan)
        if self._what not in {each.what for each in outcome.found}:
            return False
        self.plan, self.outcome = plan, outcome
        return True


def reduce_plan(plan: Plan, outcome: Outcome, run: Callable[[Plan], Outcome], *, runs_max: int = RUNS_MAX) -> Reduced:
    """Reduce a plan to what is needed for the first thing that was found in it.

    Args:
        plan: the whole one.
        outcome: what came of it; something was found.
        run: runs a plan.
        runs_max: how often, at most.
    """
    search = _Search(plan, outcome, outcome.found[0].what, run, runs_max)
    try:
        size = -1
        while size != (size := _size(search.plan)):
            _leave_out(search)
            _simplify(search)
    except _Spent:
        pass
    return Reduced(plan=search.plan, outcome=search.outcome, runs=search.runs)


def _size(plan: Plan) -> int:
    containers = sum(len(each.containers) for each in plan.actors)
    return len(plan.deeds) + len(plan.faults) + len(plan.actors) + containers + plan.gpus


def _leave_out(search: _Search) -> None:
    """Whole actors with all that is done to them; then deeds and faults, many at once and then one by one."""
    for actor in search.plan.actors:
        rest = tuple(each for each in search.plan.actors if each.uid != actor.uid)
        deeds = tuple(each for each in search.plan.deeds if getattr(each, "uid", None) != actor.uid)
        search.tries(attrs.evolve(search.plan, actors=rest, deeds=deeds))
    _thin(search, lambda plan: plan.deeds, lambda plan, deeds: attrs.evolve(plan, deeds=deeds))
    _thin(search, lambda plan: plan.faults, lambda plan, faults: attrs.evolve(plan, faults=faults))


def _thin(
    search: _Search,
    parts_of: Callable[[Plan], tuple[_Part, ...]],
    with_parts: Callable[[Plan, tuple[_Part, ...]], Plan],
) -> None:
    """Leave out runs of neighbours, half of all first, and shorter and shorter ones."""
    length = max(1, len(parts_of(search.plan)) // 2)
    while True:
        place = 0
        while place < len(parts := parts_of(search.plan)):
            rest = _without(parts, place, length)
            if not search.tries(with_parts(search.plan, rest)):
                place += length
        if length == 1:
            return
        length //= 2


def _without(parts: Sequence[_Part], place: int, length: int) -> tuple[_Part, ...]:
    return (*parts[:place], *parts[place + length :])


def _simplify(search: _Search) -> None:
    """A simpler machine, simpler actors, a shorter run."""
    plan = search.plan
    for change in (
        {"gpus": 0},
        {"gpus": 1},
        {"flavour": Flavour.R24},
        {"has_cgroups": True},
        {"state_bytes": 0},
        {"lasts_s": max((round(each.at_s + 1.0, 3) for each in plan.deeds), default=1.0)},
    ):
        search.tries(attrs.evolve(search.plan, **change))
    for place in range(len(search.plan.actors)):
        _simplify_actor(search, place)


def _simplify_actor(search: _Search, place: int) -> None:
    def tries(**changes: object) -> None:
        actors = list(search.plan.actors)
        actors[place] = attrs.evolve(actors[place], **changes)  # type: ignore[arg-type]  # attrs knows the fields
        search.tries(attrs.evolve(search.plan, actors=tuple(actors)))

    for name in ("restarts", "is_durable", "is_stored", "by_file"):
        tries(**{name: False})
    number = 0
    while number < len(containers := search.plan.actors[place].containers):
        before = len(containers)
        if before > 1:
            tries(containers=_without(containers, number, 1))
        if len(search.plan.actors[place].containers) == before:
            number += 1
