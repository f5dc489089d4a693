"""The fault sweep: a life is run once, and once more for every port call of it and every fault that it can meet.

Run, suspended, resumed, stopped: each time one call fails, hangs, is slow, lies, or is cut in the middle. The actor
must end in a state that is promised for where the fault came, with a reason that is right for it (`sim.promises`);
nobody may be lost at any instant between two calls; every checker looks; then a fresh supervisor on the same state
directory must come to rest, bring the actor to Running and end it. A fault that did not fire is a violation itself.

    report = sweep(seed=0, share=every(40))
    assert not report.violations, report
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import attrs

from sim.engine import run
from sim.faults import Fault, When
from sim.invariants.never_lost import lost_now
from sim.invariants.violation import Violation
from sim.lives import ActorLife
from sim.playing import come_to_rest, end, run_again
from sim.promises import Ending, broken_promise, is_excused
from sim.spots import SWEPT, UID, Kind, Progress, Spot, live, spots_of
from statemachine.problem import ProblemError
from statemachine.states import State

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence

    from sim.engine import Scenario
    from sim.scenario import Stage
    from sim.world.calls import Call

_FAULT: Final = "fault"


@attrs.frozen(kw_only=True)
class Swept:
    """One run with one fault.

    Attributes:
        name: which actor.
        seed: of the run.
        spot: the call and the fault.
        ending: what became of the actor.
        violations: whatever was not as it must be.
    """

    name: str
    seed: int
    spot: Spot
    ending: Ending
    violations: tuple[Violation, ...]

    @property
    def repro(self) -> str:
        """The command that runs just this."""
        which = f"{self.name} --seed {self.seed} --call {self.spot.number}"
        return f"python -m sim.cli.sweep {which} --fault '{self.spot.fault}'"


@attrs.frozen(kw_only=True)
class SweepReport:
    """What a sweep has found.

    Attributes:
        seed: of every run.
        calls: how many calls the life has.
        spots: how many faults there are to be met.
        swept: the runs.
    """

    seed: int
    calls: int
    spots: int
    swept: tuple[Swept, ...]

    @property
    def violations(self) -> tuple[tuple[Swept, Violation], ...]:
        """Every violation with its run."""
        return tuple((each, violation) for each in self.swept for violation in each.violations)

    @property
    def names(self) -> frozenset[str]:
        """Names of what was violated."""
        return frozenset(violation.name for _, violation in self.violations)

    def __str__(self) -> str:
        head = f"seed {self.seed}: {len(self.swept)} of {self.spots} faults in {self.calls} calls"
        lines = [f"{head}, {len(self.violations)} violations"]
        for each, violation in self.violations:
            lines += [f"  {each.spot}: {violation}", f"    {each.repro}"]
        return "\n".join(lines)


# ---- the sweep


def sweep(
    name: str = "local",
    *,
    seed: int = 0,
    share: Callable[[Sequence[Spot]], Sequence[Spot]] = lambda spots: spots,
    tell: Callable[[Swept], None] = lambda _: None,
) -> SweepReport:
    """Sweep the life of an actor.

    Args:
        name: which of `sim.spots.SWEPT`.
        seed: of every run.
        share: which spots; by default all.
        tell: is given each run as soon as it was looked at.
    """
    spots = spots_of(name, seed=seed)
    swept = []
    for spot in share(spots):
        swept.append(disturb(spot, name, seed=seed))
        tell(swept[-1])
    calls = len({spot.number for spot in spots})
    return SweepReport(seed=seed, calls=calls, spots=len(spots), swept=tuple(swept))


def _life(name: str) -> ActorLife:
    document = SWEPT[name]
    return ActorLife(name=name, play=lambda here: live(here, document, Progress()), document=document)


def look_on(life: ActorLife, *, seed: int = 0) -> tuple[Violation, ...]:
    """Run a life of actor `a1` undisturbed, and look between any two calls and at rest; returns what is violated."""
    found: list[Violation] = []

    async def scenario(here: Stage) -> None:
        here.world.ledger.observe = _onlooker(here, found)
        try:
            await life.play(here)
        except ProblemError as error:
            found.append(_violation("Plays", f"it does not go as it should: {error.problem}"))
        found.extend([each async for each in come_to_rest(here, life)])

    run(scenario, seed=seed, machine=life.machine)
    return tuple(found)


def disturb(spot: Spot, name: str = "local", *, seed: int = 0) -> Swept:
    """Run the life with one fault, and look at what comes of it."""
    found: list[Violation] = []
    endings: list[Ending] = []
    fault = Fault(id=_FAULT, when=When(number=spot.number), what=spot.what)
    run(_disturbed(spot, _life(name), found, endings), seed=seed, faults=[fault])
    return Swept(name=name, seed=seed, spot=spot, ending=endings[0], violations=tuple(dict.fromkeys(found)))


def _disturbed(spot: Spot, life: ActorLife, found: list[Violation], endings: list[Ending]) -> Scenario:
    async def scenario(here: Stage) -> None:
        progress = Progress()
        instants: list[Violation] = []
        here.world.ledger.observe = _onlooker(here, instants)
        await live(here, life.document, progress)
        (planted,) = here.world.plan.planted
        if not planted.has_fired or here.world.ledger.calls[spot.number - 1].method != spot.method:
            found.append(_violation("FaultFired", "the life went by, and the fault did not come"))
        # A call of files that hangs cannot be given up: nothing but a fresh supervisor goes on then.
        hangs = spot.kind is Kind.HANG and spot.port == "files"
        if here.worker.lives and not hangs:
            found.extend([each async for each in come_to_rest(here, life)])
        found[:] = [each for each in found if not is_excused(spot, each)]
        endings.append(_ending(here, progress))
        if (broken := broken_promise(spot, endings[0])) is not None:
            found.append(_violation("Promised", broken))
        planted.release()
        if spot.cuts_power:
            here.world.ledger.observe = None  # no sandbox outlives that, and the checkers look for what should
            await here.world.reboot()
        fresh = [each async for each in _fresh(here, life)]
        found.extend(each for each in fresh if not is_excused(spot, each, after=True))
        found.extend(each for each in instants if not is_excused(spot, each, after=True))

    return scenario


def _onlooker(here: Stage, found: list[Violation]) -> Callable[[Call], None]:
    """Looks between any two calls whether the actor is lost."""
    told: set[str] = set()

    def observe(call: Call) -> None:
        was_saved = any(move.event == "SnapshotProven" for move in here.world.hearing.moves)
        lost = lost_now(here.world, UID, was_saved=was_saved) if call.changes else None
        if lost is not None and lost not in told:
            told.add(lost)
            found.append(Violation(name="NeverLost", subject=UID, message=f"before call {call.number}: {lost}"))

    return observe


def _ending(here: Stage, progress: Progress) -> Ending:
    moves = [move for move in here.world.hearing.moves if move.actor == UID]
    status: dict[str, Any] = {}
    try:
        status = here.status_file(UID)
    except (OSError, ValueError):
        status = {}
    return Ending(
        op="" if progress.is_through else progress.op,
        state=State(moves[-1].after) if moves else None,
        reason=(status.get("error") or {}).get("reason"),
        answer=None if progress.problem is None else str(progress.problem.problem.reason),
        worker_lives=here.worker.lives,
        worker_error=repr(here.worker.error) if here.worker.error is not None else None,
    )


async def _fresh(here: Stage, life: ActorLife) -> AsyncIterator[Violation]:
    """Another supervisor on the same state directory puts everything right that can be put right."""
    worker = await here.restart()
    if not worker.lives:
        yield _violation("Restarts", f"the next supervisor ended with {worker.error!r}")
        return
    for go_on in (come_to_rest, run_again, end):
        async for each in go_on(here, life):
            yield each


def _violation(name: str, message: str) -> Violation:
    return Violation(name=name, subject="the sweep", message=message)
