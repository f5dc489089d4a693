"""The SIGTERM walk: a life is run once, and once more for each of its points, with a SIGTERM just before that call.

The worker must be gone by its deadline, and nothing of a sandbox may be left. Its last line must tell of every actor,
and what it tells must be so: Suspended with a snapshot that is whole, Terminated, or Failed with a reason. Then a next
supervisor starts on what is there, comes to rest, and the actor is asked for Running and for its end.

    report = walk_terminations(TERMINATED["run-stop"], seed=0)
    assert not report.violations, report
"""

from __future__ import annotations

import enum
import signal
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

import attrs
import trio

from sim.documents import actor, container, counter, idler
from sim.engine import record_of, run
from sim.invariants.evidence import actors_in, snapshots_of
from sim.invariants.registry import check
from sim.invariants.snapshots import faults_of
from sim.invariants.violation import Violation
from sim.lives import LIVES, ActorLife
from sim.walker import Walked, WalkReport, come_to_rest, end, every, look_on, points_in, run_again, settle
from sim.world.world import default_settings
from statemachine.problem import ProblemError
from statemachine.reasons import Reason
from statemachine.states import FINAL, INACTIVE, State
from supervisor.shutdown import HURRIED_S, LAST_S

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from typing import Any

    from sim.engine import Scenario
    from sim.hearing import Said
    from sim.invariants.evidence import ActorOnDisk
    from sim.scenario import Stage
    from sim.walker import Point, Share
    from sim.world.calls import Call
    from supervisor.settings import Settings

SHORT_S: Final = 0.3
"""A deadline that is over before a suspend is: everything that is left is stopped, and then killed."""
APART_MAX: Final = 61
"""The second signal comes at most so many calls after the first, another number at each point."""


class Asked(enum.StrEnum):
    """How the worker is asked for its end."""

    ONCE = "term"
    TWICE = "term-twice"
    """Once more while it drains."""
    SHORT = "term-short"
    """Once, and it has nearly no time."""

    @property
    def settings(self) -> Settings:
        """What the worker is started with."""
        usual = default_settings()
        return attrs.evolve(usual, drain_timeout_s=SHORT_S) if self is Asked.SHORT else usual


# ---- lives beside those of the crash walk


async def _taken_over(here: Stage) -> None:
    """A worker that takes over what one that was killed has left: running, suspended, and half suspended."""
    for uid in ("a1", "a2", "a3"):
        await here.submit(idler(uid))
    for uid in ("a1", "a2", "a3"):
        await here.wait(State.RUNNING, uid)
    await here.suspend("a2")
    await here.reach(State.SUSPENDING, "a3")
    if any(said.event == "draining" for said in here.world.hearing.said):
        return  # it is not killed while it leaves
    await here.restart(drain_timeout_s=here.world.settings.drain_timeout_s)
    await here.wait(State.RUNNING)
    await here.stop()


async def _crowd(here: Stage) -> None:
    """More actors than are suspended side by side: one is deaf to TERM, one ends by itself, one fails and restarts."""
    for document in _CROWD:
        await here.submit(document)
    for document in _CROWD:
        await here.until(State.RUNNING, document["metadata"]["uid"])
    await trio.sleep(2.0)
    await here.stop()


async def _stored(here: Stage) -> None:
    """With a store, which takes its time."""
    await here.submit(_STORED)
    await here.wait(State.RUNNING)
    await here.suspend()
    await here.resume()
    await here.stop()


_DEAF: Final = actor("a2", container(command=("sh", "-c", "trap '' TERM; while :; do sleep 1; done")))
_ONCE: Final = actor("a3", container(command=("sh", "-c", "sleep 1.2; exit 0")))
_FAILING: Final = actor("a4", container(command=("sh", "-c", "sleep 1; exit 3")), restartPolicy="OnFailure")
_CROWD: Final = (idler("a1"), _DEAF, _ONCE, _FAILING, *(idler(f"a{number}") for number in range(5, 9)))
_STORED: Final = counter(suspend={"uri": "s3://bucket/snapshots"})
_MORE: Final = (
    ActorLife(name="taken-over", play=_taken_over, document=idler()),
    ActorLife(name="crowd", play=_crowd, document=idler()),
    ActorLife(name="stored", play=_stored, document=_STORED),
)
TERMINATED: Final[Mapping[str, ActorLife]] = MappingProxyType({**LIVES, **{each.name: each for each in _MORE}})
"""Every life that is walked with SIGTERMs, by name."""


# ---- the walk


def points_of_termination(life: ActorLife, *, seed: int = 0) -> tuple[tuple[Point, ...], tuple[Violation, ...]]:
    """Run a life without any signal; returns its points, and what is violated in it."""
    found: list[Violation] = []
    span: list[int] = []

    async def scenario(here: Stage) -> None:
        span.append(here.world.ledger.count + 1)
        await _play(here, life, _Sender(here, 0, None), found)
        span.append(here.world.ledger.count)

    record = run(scenario, seed=seed, machine=life.machine)
    return points_in(record, first=span[0], last=span[1]), tuple(dict.fromkeys(found))


def walk_terminations(
    life: ActorLife,
    *,
    seed: int = 0,
    share: Share | None = None,
    how: Sequence[Asked] = tuple(Asked),
    tell: Callable[[Walked], None] = lambda _: None,
) -> WalkReport:
    """Walk a life.

    Args:
        life: which.
        seed: of every run.
        share: which points; by default all.
        how: how the worker is asked at each.
        tell: is given each run as soon as it was looked at.
    """
    points, undisturbed = points_of_termination(life, seed=seed)
    walked = []
    for point in (share or every())(points):
        for asked in how:
            walked.append(terminate(life, point, asked, seed=seed))
            tell(walked[-1])
    return WalkReport(life=life.name, seed=seed, points=len(points), undisturbed=undisturbed, walked=tuple(walked))


def terminate(life: ActorLife, point: Point, asked: Asked, *, seed: int = 0, apart: int | None = None) -> Walked:
    """Run a life to a point, ask the worker for its end there, and look at what comes of it.

    Args:
        life: which.
        point: where the first signal comes.
        asked: how it is asked.
        seed: of the run.
        apart: how many calls later the second signal comes, where there is one; None is another number at each point.
    """
    found: list[Violation] = []
    second = (point.number * 17 % APART_MAX + 1 if apart is None else apart) if asked is Asked.TWICE else None
    run(_terminated(life, point, second, found), seed=seed, machine=life.machine, settings=asked.settings)
    violations = tuple(dict.fromkeys(found))
    return Walked(life=life.name, seed=seed, point=point, how=asked, violations=violations)


class _Sender:
    """Sends the worker a SIGTERM just before a call, and perhaps another one some calls later.

    Attributes:
        sent_s: when, in virtual seconds.
        worker: the supervisor that got the first one.
        has_sent: set with the first one.
        patience: in which its end is waited for.
    """

    def __init__(self, here: Stage, number: int, apart: int | None) -> None:
        self.sent_s: list[float] = []
        self.worker = here.worker
        self.has_sent, self.patience = trio.Event(), trio.CancelScope()
        self._here, self._numbers = here, [number] if apart is None else [number, number + apart]
        here.world.ledger.observe = self._observe

    def _observe(self, call: Call) -> None:
        if call.number in self._numbers and self._here.worker.lives:
            self.worker = self._here.worker
            self.worker.signal(signal.SIGTERM)
            self.sent_s.append(trio.current_time())
            self.patience.deadline = self._ends_by_s()
            self.has_sent.set()

    def _ends_by_s(self) -> float:
        """When it must be gone."""
        by_first = self.sent_s[0] + self.worker.settings.drain_timeout_s
        return min([by_first, *(sent_s + HURRIED_S for sent_s in self.sent_s[1:])]) + LAST_S


def _terminated(life: ActorLife, point: Point, apart: int | None, found: list[Violation]) -> Scenario:
    async def scenario(here: Stage) -> None:
        sender = _Sender(here, point.number, apart)
        await _play(here, life, sender, found)
        here.world.ledger.observe = None
        worker = sender.worker
        if not sender.sent_s:
            found.append(_violation("PointReached", "the life went by, and the point did not come"))
            return
        if worker.lives:
            found.append(_violation("EndsInTime", f"{trio.current_time() - sender.sent_s[0]:g} s after the SIGTERM"))
            return
        found.extend(_looked_at(here, sender))
        life.mend(here.world)
        after = await here.start(drain_timeout_s=default_settings().drain_timeout_s)
        if not after.lives:
            found.append(_violation("Restarts", f"the next supervisor ended with {after.error!r}"))
            return
        for go_on in (come_to_rest, run_again, end):
            found.extend([each async for each in go_on(here, life)])
            if found:
                return

    return scenario


async def _play(here: Stage, life: ActorLife, sender: _Sender, found: list[Violation]) -> None:
    """Play until everything was played, or until the worker that was asked for its end has had its time."""

    def tell(violation: Violation) -> None:
        if not sender.sent_s:
            found.append(violation)

    async with trio.open_nursery() as nursery:

        async def play() -> None:
            try:
                await life.play(here)
                await settle(here)
            except Exception as error:  # noqa: BLE001 - who asks a worker that drains is told so, in whatever way
                tell(_violation("Plays", f"it does not go as it should: {error!r}"))
            if not sender.sent_s:
                nursery.cancel_scope.cancel()

        async def wait_for_the_end() -> None:
            await sender.has_sent.wait()
            with sender.patience:
                await sender.worker.ended.wait()
            nursery.cancel_scope.cancel()

        nursery.start_soon(play)
        nursery.start_soon(look_on, here, tell)
        nursery.start_soon(wait_for_the_end)


# ---- what must be so afterwards


def _looked_at(here: Stage, sender: _Sender) -> Iterator[Violation]:
    """The worker is gone: by itself and in order, with nothing left, and has told of everybody."""
    error, hurried = sender.worker.error, len(sender.sent_s) > 1
    is_short = sender.worker.settings.drain_timeout_s == SHORT_S
    if error is not None and not ((hurried or is_short) and _is_late(error)):
        yield _violation("EndsInOrder", f"it ended with {error!r}")
    yield from (_violation("NothingLeft", what) for what in here.left())
    yield from check(here.world, record_of(here.world))
    said = [line for line in here.world.hearing.said if line.incarnation == sender.worker.number]
    if not said or said[-1].event != "left":
        yield _violation("LastLine", f"its last line is {said[-1].event if said else 'none'}")
        return
    yield from _accounts(here, said[-1])


def _is_late(error: BaseException) -> bool:
    """Whether it says that the time was not enough, which is no fault where it was cut short."""
    late = {Reason.STEP_DEADLINE_EXCEEDED, Reason.SNAPSHOT_NOT_UPLOADED}
    return isinstance(error, ProblemError) and {problem.reason for problem in error.problems} <= late


def _accounts(here: Stage, last: Said) -> Iterator[Violation]:
    """The last line tells of every actor, and what it tells is so."""
    told: dict[str, dict[str, Any]] = last.fields["actors"]
    for each in actors_in(here.world):
        told_of = told.get(each.uid)
        if told_of is not None:
            yield from (_violation("Accounted", f"{each.uid}: {what}") for what in _untrue(here, each, told_of))
        elif each.assignment is not None and each.state not in FINAL and each.uid not in last.fields["not_recovered"]:
            yield _violation("Accounted", f"{each.uid} is {each.state}, and the last line does not tell of it")


def _untrue(here: Stage, on_disk: ActorOnDisk, told: dict[str, Any]) -> Iterator[str]:
    if State(told["state"]) not in INACTIVE:
        yield f"it was left {told['state']}"
    if told["state"] != on_disk.state:
        yield f"it is told to be {told['state']}, and its journal says {on_disk.state}"
    if told["state"] == State.FAILED and told["reason"] in {None, Reason.INTERNAL}:
        yield f"it has failed, and the reason is {told['reason']}"
    if told["state"] == State.SUSPENDED:
        whole = {
            snapshot.directory.name
            for snapshot in snapshots_of(here.world, on_disk.uid)
            if snapshot.manifest is not None and not any(faults_of(here.world, snapshot))
        }
        if told["snapshot"] not in whole:
            yield f"it is Suspended, and its snapshot {told['snapshot']} is not whole"


def _violation(name: str, message: str) -> Violation:
    return Violation(name=name, subject="the SIGTERM walk", message=message)
