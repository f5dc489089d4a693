"""The crash-point walker: a life is run once, and then once more for each point at which a crash makes a difference.

A point is a call of a port after which the world may be another: a write, a rename, a removal, a command, a signal, an
answer on the socket; every line and every mark of a journal is one of them. At each the supervisor is killed before the
call, or after it, or the power is cut after it. Another one starts on what is left, comes to rest, and every checker of
`sim.invariants` looks; then the actor is asked for Running and for its end, and they look again.

    report = walk(LIVES["run-stop"], seed=0)
    assert not report.violations, report
"""

from __future__ import annotations

import enum
from collections.abc import AsyncIterator, Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar

import attrs
import orjson
import trio

from sim.engine import record_of, run
from sim.faults import Fault, Kill, When
from sim.invariants.registry import check
from sim.invariants.standing import not_gone_on_with, standing_in
from sim.invariants.violation import Violation
from statemachine.problem import ProblemError
from statemachine.states import FINAL, RESTING, State

if TYPE_CHECKING:
    from sim.engine import Record, Scenario
    from sim.lives import ActorLife
    from sim.scenario import Stage
    from sim.world.calls import Call

_Place = TypeVar("_Place")

SETTLE_S: Final = 1800.0
"""Virtual seconds in which every actor must have come to rest: longer than any deadline."""
QUIET_S: Final = 0.5
"""Virtual seconds after rest in which what comes last is written."""
_LOOK_EVERY_S: Final = 1.0
_LOOK_ON_EVERY_S: Final = 0.2
_SAME_S: Final = 1e-5
_CRASH: Final = "crash"


class How(enum.StrEnum):
    """What happens at a point."""

    BEFORE = "before"
    """The supervisor is killed, and the call has no effect."""
    AFTER = "after"
    """The supervisor is killed when the call has all of its effect."""
    POWER = "power"
    """The power is cut when the call has all of its effect: what was not synced may be lost."""


@attrs.frozen(kw_only=True)
class Point:
    """A point of a life.

    Attributes:
        number: of the call, among all calls of the run.
        name: the call, and of a line of a journal what it says.
    """

    number: int
    name: str


@attrs.frozen(kw_only=True)
class Walked:
    """One crash at one point, and what was found afterwards.

    Attributes:
        life, seed, point, how: what was run.
        violations: at rest after the crash, and after the actor went on.
    """

    life: str
    seed: int
    point: Point
    how: enum.StrEnum
    violations: tuple[Violation, ...]

    @property
    def place(self) -> str:
        """Where it was."""
        return f"point {self.point.number} ({self.point.name}), {self.how}"

    @property
    def repro(self) -> str:
        """The command that runs just this."""
        return f"python -m sim.cli.walk {self.life} --seed {self.seed} --point {self.point.number} --how {self.how}"


@attrs.frozen(kw_only=True)
class WalkReport:
    """What a walk has found.

    Attributes:
        life: which life.
        seed: of every run.
        points: how many points it has.
        undisturbed: what was violated without any crash.
        walked: every crash.
    """

    life: str
    seed: int
    points: int
    undisturbed: tuple[Violation, ...]
    walked: tuple[Walked, ...]

    @property
    def violations(self) -> tuple[tuple[Walked | None, Violation], ...]:
        """Every violation with the crash that led to it; none led to one of the undisturbed run."""
        crashed = tuple((each, violation) for each in self.walked for violation in each.violations)
        return tuple((None, violation) for violation in self.undisturbed) + crashed

    @property
    def names(self) -> frozenset[str]:
        """Names of the invariants that were violated."""
        return frozenset(violation.name for _, violation in self.violations)

    def __str__(self) -> str:
        places = len({each.point.number for each in self.walked})
        walked = f"{places} of {self.points} points, {len(self.walked)} crashes, {len(self.violations)} violations"
        lines = [f"{self.life}, seed {self.seed}: {walked}"]
        for each, violation in self.violations:
            lines += (
                [f"  undisturbed: {violation}"]
                if each is None
                else [f"  {each.place}: {violation}", f"    {each.repro}"]
            )
        return "\n".join(lines)


# ---- which points


Share = Callable[[Sequence[Point]], Sequence[Point]]
"""Chooses the points that are walked."""


def every(nth: int = 1, *, first: int = 0) -> Callable[[Sequence[_Place]], Sequence[_Place]]:
    """Every nth point (or spot of a sweep), from the one with this place on."""
    return lambda places: places[first::nth]


def between(first: int, last: int) -> Share:
    """The points whose numbers are in this range, both ends included."""
    return lambda points: [each for each in points if first <= each.number <= last]


def named(text: str) -> Share:
    """The points with this in their names."""
    return lambda points: [each for each in points if text in each.name]


def points_of(life: ActorLife, *, seed: int = 0) -> tuple[tuple[Point, ...], tuple[Violation, ...]]:
    """Run a life undisturbed; returns its points, and what is violated without any crash."""
    found: list[Violation] = []
    ends: list[int] = []

    async def scenario(here: Stage) -> None:
        await _play_until_dead(here, life, lambda each: found.append(each) if each not in found else None)
        ends.append(here.world.ledger.count)
        found.extend([each async for each in come_to_rest(here, life) if each not in found])

    record = run(scenario, seed=seed, machine=life.machine)
    return points_in(record, last=ends[0]), tuple(found)


def points_in(record: Record, *, last: int, first: int = 1) -> tuple[Point, ...]:
    """The points of a run in these calls; lines of a journal that stand in the file at the end have names."""
    calls = [call for call in record.calls if call.changes and first <= call.number <= last]
    said: dict[int, str] = {}
    for uid in {move.actor for move in record.moves}:
        journal = f"actors/{uid}/journal.jsonl"
        writes = iter([call for call in calls if call.argument.endswith(f"/{journal}")])
        for line in map(orjson.loads, record.files.get(journal, "").splitlines()):
            # A write that failed has left no line: they find each other by their times.
            found = next((call for call in writes if abs(call.at_s - line["mono_s"]) < _SAME_S), None)
            said |= {found.number: _line_name(line)} if found is not None else {}
    return tuple(Point(number=call.number, name=_name(call, said.get(call.number))) for call in calls)


def _name(call: Call, said: str | None) -> str:
    name = f"{call.port}.{call.method} {call.argument}"
    return name if said is None else f"{name}: {said}"


def _line_name(line: dict[str, Any]) -> str:
    if "progress" in line:
        return f"mark {line['progress']['mark']}"
    return f"{line['from']} -> {line['to']}" if "event" in line else "base"


# ---- the walk


def walk(
    life: ActorLife,
    *,
    seed: int = 0,
    share: Share | None = None,
    how: Sequence[How] = (How.BEFORE, How.AFTER),
    tell: Callable[[Walked], None] = lambda _: None,
) -> WalkReport:
    """Walk a life.

    Args:
        life: which.
        seed: of every run.
        share: which points; by default all.
        how: what happens at each.
        tell: is given each crash as soon as it was looked at.
    """
    points, undisturbed = points_of(life, seed=seed)
    walked = []
    for point in (share or every())(points):
        for each in how:
            walked.append(crash(life, point, each, seed=seed))
            tell(walked[-1])
    return WalkReport(life=life.name, seed=seed, points=len(points), undisturbed=undisturbed, walked=tuple(walked))


def crash(life: ActorLife, point: Point, how: How, *, seed: int = 0) -> Walked:
    """Run a life to a point, crash there, and look at what comes of it."""
    found: list[Violation] = []
    fault = Fault(id=_CRASH, when=When(number=point.number), what=Kill(after=how is not How.BEFORE))
    run(_crashed(life, how, found), seed=seed, faults=[fault], machine=life.machine)
    return Walked(life=life.name, seed=seed, point=point, how=how, violations=tuple(found))


def _crashed(life: ActorLife, how: How, found: list[Violation]) -> Scenario:
    async def scenario(here: Stage) -> None:
        await _play_until_dead(here, life, found.append)
        if here.worker.lives:
            found.append(_violation("PointReached", "the life went by, and the point did not come"))
            return
        if how is How.POWER:
            await here.world.reboot()
        life.mend(here.world)
        standing = standing_in(here.world)
        worker = await here.start()
        if not worker.lives:
            found.append(_violation("Restarts", f"the next supervisor ended with {worker.error!r}"))
            return
        found.extend(_violation("GoesOnWithIt", what) for what in not_gone_on_with(here.world, standing))
        for go_on in (come_to_rest, run_again, end):
            found.extend([each async for each in go_on(here, life)])
            if found:
                return

    return scenario


async def _play_until_dead(here: Stage, life: ActorLife, tell: Callable[[Violation], None]) -> None:
    """Play until the supervisor has died, or everything was played. Undisturbed runs are the same up to a crash."""
    async with trio.open_nursery() as nursery:

        async def play() -> None:
            try:
                await life.play(here)
                await settle(here)
            except Exception as error:  # noqa: BLE001 - who asks a dead supervisor is told so, in whatever way
                if here.worker.lives:
                    tell(_violation("Plays", f"it does not go as it should: {error!r}"))
            nursery.cancel_scope.cancel()

        if here.worker.lives:
            nursery.start_soon(play)
            nursery.start_soon(look_on, here, tell)
            await here.worker.ended.wait()
            nursery.cancel_scope.cancel()


async def look_on(here: Stage, tell: Callable[[Violation], None]) -> None:
    """Look whenever everything has been at rest for a moment, not only at the end."""
    looked_at = -1
    while True:
        await trio.sleep(_LOOK_ON_EVERY_S)
        moves, states = here.world.hearing.moves, here.world.hearing.states.values()
        rests = all(State(state) in RESTING | FINAL for state in states)
        if rests and len(moves) > max(looked_at, 0) and trio.current_time() - moves[-1].at_s > _LOOK_ON_EVERY_S / 2:
            looked_at = len(moves)
            for each in check(here.world, record_of(here.world)):
                tell(each)


async def settle(here: Stage) -> list[str]:
    """Wait until every actor rests; returns those that do not."""
    with trio.move_on_after(SETTLE_S):
        while True:
            actors = (await here.ask("status"))["actors"]
            if all(State(each["state"]) in RESTING | FINAL for each in actors):
                await trio.sleep(QUIET_S)
                return []
            await trio.sleep(_LOOK_EVERY_S)
    return [f"{each['uid']} is {each['state']}" for each in (await here.ask("status"))["actors"]]


# ---- after a crash


async def come_to_rest(here: Stage, _life: ActorLife) -> AsyncIterator[Violation]:
    """Everything comes to rest, and is as it must be."""
    for what in await settle(here):
        yield _violation("Settles", f"{what} after {SETTLE_S:g} s")
    for each in check(here.world, record_of(here.world)):
        yield each


async def run_again(here: Stage, life: ActorLife) -> AsyncIterator[Violation]:
    """Whatever became of the actor, a new generation brings it to Running, where it can run."""
    document = life.again()
    uid = document["metadata"]["uid"]
    try:
        await here.submit(document)
        if life.can_run:
            await here.wait(State.RUNNING, uid)
    except ProblemError as error:
        yield _violation("GoesOn", f"it cannot be brought to Running: {error.problem}")
    async for each in come_to_rest(here, life):
        yield each


async def end(here: Stage, life: ActorLife) -> AsyncIterator[Violation]:
    """It can be ended for good, and leaves nothing."""
    uid = life.document["metadata"]["uid"]
    try:
        await here.stop(uid)
    except ProblemError as error:
        yield _violation("GoesOn", f"it cannot be stopped: {error.problem}")
    async for each in come_to_rest(here, life):
        yield each


def _violation(name: str, message: str) -> Violation:
    return Violation(name=name, subject="the walk", message=message)
