"""The walker: a life is run once, and then once more for each point at which it makes a difference what comes there.

A point is a call of a port after which the world may be another: a write, a rename, a removal, a command, a signal, an
answer on the socket; every line and every mark of a journal is one of them. What comes at each is of several kinds.
Here are the crashes: the supervisor is killed before the call, or after it, or the power is cut after it. The SIGTERMs
are in `sim.terminations`. Another supervisor starts on what is left, comes to rest, and every checker of
`sim.invariants` looks; then the actor is asked for Running and for its end, and they look again.

    report = walk(LIVES["run-stop"], seed=0)
    assert not report.violations, report
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

import attrs
import orjson
import trio

from sim.engine import run
from sim.faults import Fault, Kill, When
from sim.playing import Nothing, come_to_rest, go_on, play, violation

if TYPE_CHECKING:
    from sim.engine import Record
    from sim.invariants.violation import Violation
    from sim.lives import ActorLife
    from sim.scenario import Stage
    from sim.world.calls import Call
    from sim.world.incarnation import Incarnation
    from sim.world.world import World

_Place = TypeVar("_Place")

_SAME_S: Final = 1e-5
_CRASH: Final = "crash"


@attrs.frozen(kw_only=True)
class Point:
    """A point of a life.

    Attributes:
        number: of the call, among all calls of the run.
        name: the call, and of a line of a journal what it says.
    """

    number: int
    name: str


class Kind(Protocol):
    """What comes at a point; its text is its word on the command line."""

    def at(self, life: ActorLife, point: Point, *, seed: int) -> tuple[Violation, ...]:
        """Run a life to a point, let it come there, and look at what comes of it; returns what is violated."""
        ...


class How(enum.StrEnum):
    """A crash."""

    BEFORE = "before"
    """The supervisor is killed, and the call has no effect."""
    AFTER = "after"
    """The supervisor is killed when the call has all of its effect."""
    POWER = "power"
    """The power is cut when the call has all of its effect: what was not synced may be lost."""

    def at(self, life: ActorLife, point: Point, *, seed: int) -> tuple[Violation, ...]:
        """Run a life to a point, crash there, and look at what comes of it."""
        found: list[Violation] = []
        fault = Fault(id=_CRASH, when=When(number=point.number), what=Kill(after=self is not How.BEFORE))
        crash = Crash(point.number)

        async def scenario(here: Stage) -> None:
            await play(here, life, found, crash)
            if here.worker.lives:
                found.append(violation("PointReached", "the life went by, and the point did not come"))
                return
            if self is How.POWER:
                await here.world.reboot()
            found.extend([each async for each in go_on(here, life)])

        run(scenario, seed=seed, faults=[fault], machine=life.machine, prepare=crash.watch)
        return tuple(found)


class Crash:
    """A kill that is planted at a call; it comes with the call, and is over when the supervisor has ended."""

    def __init__(self, number: int) -> None:
        self._number = number
        self._come = trio.Event()
        self._worker: Incarnation | None = None

    def watch(self, world: World) -> None:
        """Be told when it comes in this world."""

        def observe(call: Call) -> None:
            if call.number == self._number:
                self._worker = world.worker
                self._come.set()

        world.ledger.observe = observe

    def has_come(self) -> bool:
        """Whether it has."""
        return self._come.is_set()

    async def wait_until_over(self) -> None:
        """Until the supervisor that it meets has ended."""
        await self._come.wait()
        if self._worker is not None:
            await self._worker.ended.wait()


@attrs.frozen(kw_only=True)
class Walked:
    """One run with something at one point, and what was found.

    Attributes:
        life, seed, point, how: what was run.
        violations: at rest afterwards, and after the actor went on.
    """

    life: str
    seed: int
    point: Point
    how: Kind
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
        undisturbed: what was violated without anything.
        walked: every run.
    """

    life: str
    seed: int
    points: int
    undisturbed: tuple[Violation, ...]
    walked: tuple[Walked, ...]

    @property
    def violations(self) -> tuple[tuple[Walked | None, Violation], ...]:
        """Every violation with the run in which it was; None is the undisturbed one."""
        walked = tuple((each, found) for each in self.walked for found in each.violations)
        return tuple((None, found) for found in self.undisturbed) + walked

    @property
    def names(self) -> frozenset[str]:
        """Names of the invariants that were violated."""
        return frozenset(found.name for _, found in self.violations)

    def __str__(self) -> str:
        places = len({each.point.number for each in self.walked})
        walked = f"{places} of {self.points} points, {len(self.walked)} runs, {len(self.violations)} violations"
        lines = [f"{self.life}, seed {self.seed}: {walked}"]
        for each, found in self.violations:
            lines += [f"  undisturbed: {found}"] if each is None else [f"  {each.place}: {found}", f"    {each.repro}"]
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
    """Run a life undisturbed; returns its points, and what is violated without anything."""
    found: list[Violation] = []
    ends: list[int] = []

    async def scenario(here: Stage) -> None:
        await play(here, life, found, Nothing())
        ends.append(here.world.ledger.count)
        found.extend([each async for each in come_to_rest(here, life) if each not in found])

    record = run(scenario, seed=seed, machine=life.machine)
    return points_in(record, last=ends[0]), tuple(found)


def points_in(record: Record, *, last: int) -> tuple[Point, ...]:
    """The points of a run up to a call; lines of a journal that stand in the file at the end have names."""
    calls = [call for call in record.calls if call.changes and call.number <= last]
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
    how: Sequence[Kind] = (How.BEFORE, How.AFTER),
    tell: Callable[[Walked], None] = lambda _: None,
) -> WalkReport:
    """Walk a life.

    Args:
        life: which.
        seed: of every run.
        share: which points; by default all.
        how: what comes at each.
        tell: is given each run as soon as it was looked at.
    """
    points, undisturbed = points_of(life, seed=seed)
    walked = []
    for point in (share or every())(points):
        for each in how:
            walked.append(walk_to(life, point, each, seed=seed))
            tell(walked[-1])
    return WalkReport(life=life.name, seed=seed, points=len(points), undisturbed=undisturbed, walked=tuple(walked))


def walk_to(life: ActorLife, point: Point, how: Kind, *, seed: int = 0) -> Walked:
    """Run a life to a point, let something come there, and look at what comes of it."""
    return Walked(life=life.name, seed=seed, point=point, how=how, violations=how.at(life, point, seed=seed))
