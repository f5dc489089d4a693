"""SIGTERM at a point of a life: what `sim.walker` lets come there beside crashes.

The worker must be gone by its deadline, and nothing of a sandbox may be left. Its last line must tell of every actor,
and what it tells must be so: Suspended with a snapshot that is whole, Terminated, or Failed with a reason. Then the
next supervisor goes on as after a crash. Of a worker that is killed in the middle of its drain, as a kubelet does when
the grace period is over, only that is asked.

    report = walk(LIVES["run-stop"], how=tuple(Asked))
    assert not report.violations, report
"""

from __future__ import annotations

import enum
import math
import signal
from typing import TYPE_CHECKING, Final

import attrs
import trio

from actors.manifest import MANIFEST_NAME
from sim.engine import record_of, run
from sim.invariants.evidence import actors_in, snapshots_of
from sim.invariants.registry import check
from sim.invariants.snapshots import faults_of
from sim.playing import go_on, play, violation
from sim.world.world import default_settings
from statemachine.problem import ProblemError
from statemachine.reasons import Reason
from statemachine.states import FINAL, INACTIVE, State
from supervisor.shutdown import HURRIED_S, LAST_S

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from typing import Any

    from sim.invariants.evidence import ActorOnDisk
    from sim.invariants.violation import Violation
    from sim.lives import ActorLife
    from sim.scenario import Stage
    from sim.walker import Point
    from sim.world.calls import Call
    from sim.world.incarnation import Incarnation
    from sim.world.world import World
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
    KILLED = "term-kill"
    """Once, and it is killed while it drains."""

    @property
    def settings(self) -> Settings:
        """What the worker is started with."""
        usual = default_settings()
        return attrs.evolve(usual, drain_timeout_s=SHORT_S) if self is Asked.SHORT else usual

    def at(self, life: ActorLife, point: Point, *, seed: int) -> tuple[Violation, ...]:
        """Run a life to a point, ask the worker for its end there, and look at what comes of it."""
        return terminate(life, point, self, seed=seed, apart=point.number * 17 % APART_MAX + 1)


_SECOND: Final = {Asked.TWICE: signal.SIGTERM, Asked.KILLED: signal.SIGKILL}


def terminate(life: ActorLife, point: Point, asked: Asked, *, seed: int, apart: int) -> tuple[Violation, ...]:
    """Run a life to a point, ask the worker for its end there, and look at what comes of it.

    Args:
        life: which.
        point: where the first signal comes.
        asked: how it is asked.
        seed: of the run.
        apart: how many calls later the second signal comes, where there is one.
    """
    found: list[Violation] = []
    numbers = {point.number: signal.SIGTERM}
    if asked in _SECOND:
        numbers[point.number + apart] = _SECOND[asked]
    signals = Signals(numbers)

    async def scenario(here: Stage) -> None:
        await play(here, life, found, signals)
        here.world.ledger.observe = None
        if signals.worker is None:
            found.append(violation("PointReached", "the life went by, and the point did not come"))
            return
        if signals.worker.lives:
            found.append(violation("EndsInTime", f"{trio.current_time() - signals.sent_s[0]:g} s after the SIGTERM"))
            return
        if not signals.has_killed:
            found.extend(_looked_at(here, signals, signals.worker))
        if not found:
            found.extend([each async for each in go_on(here, life)])

    run(scenario, seed=seed, machine=life.machine, settings=asked.settings, prepare=signals.watch)
    return tuple(dict.fromkeys(found))


class Signals:
    """Signals to the worker, each just before the call with its number.

    Attributes:
        sent_s: when the SIGTERMs were sent, in virtual seconds.
        worker: the supervisor that got the first one.
        has_killed: whether there was a SIGKILL among them.
    """

    def __init__(self, numbers: Mapping[int, int]) -> None:
        self.sent_s: list[float] = []
        self.worker: Incarnation | None = None
        self.has_killed = False
        self._numbers = numbers
        self._come, self._patience = trio.Event(), trio.CancelScope()

    def watch(self, world: World) -> None:
        """Send them to the supervisors of a world."""

        def observe(call: Call) -> None:
            if (signum := self._numbers.get(call.number)) is not None and world.worker.lives:
                self._send(signum, world.worker)

        world.ledger.observe = observe

    def has_come(self) -> bool:
        """Whether the first one was sent."""
        return self._come.is_set()

    async def wait_until_over(self) -> None:
        """Until the worker is gone, or has had its time."""
        await self._come.wait()
        if self.worker is not None:
            with self._patience:
                await self.worker.ended.wait()

    def _send(self, signum: int, worker: Incarnation) -> None:
        worker.signal(signum)
        if signum == signal.SIGKILL:
            self.has_killed = True
            return
        self.worker = self.worker or worker
        self.sent_s.append(trio.current_time())
        self._patience.deadline = self._ends_by_s(worker.settings.drain_timeout_s)
        self._come.set()

    def _ends_by_s(self, drain_timeout_s: float) -> float:
        """When it must be gone."""
        hurried = (sent_s + HURRIED_S for sent_s in self.sent_s[1:])
        return min(self.sent_s[0] + drain_timeout_s, *hurried, math.inf) + LAST_S


# ---- what must be so afterwards


def _looked_at(here: Stage, signals: Signals, worker: Incarnation) -> Iterator[Violation]:
    """The worker is gone: by itself and in order, with nothing left, and has told of everybody."""
    had_time = len(signals.sent_s) == 1 and worker.settings.drain_timeout_s > SHORT_S
    if worker.error is not None and (had_time or not _is_late(worker.error)):
        yield violation("EndsInOrder", f"it ended with {worker.error!r}")
    yield from (violation("NothingLeft", what) for what in here.left())
    yield from check(here.world, record_of(here.world))
    said = [line for line in here.world.hearing.said if line.incarnation == worker.number]
    if not said or said[-1].event != "left":
        yield violation("LastLine", f"its last line is {said[-1].event if said else 'none'}")
        return
    yield from (violation("Accounted", what) for what in _untold(here, said[-1].fields))
    if had_time:
        yield from (violation("Suspended", what) for what in _only_stopped(here, worker))


def _is_late(error: BaseException) -> bool:
    """Whether it says that the time was not enough, which is no fault where it was cut short."""
    late = {Reason.STEP_DEADLINE_EXCEEDED, Reason.SNAPSHOT_NOT_UPLOADED}
    return isinstance(error, ProblemError) and {problem.reason for problem in error.problems} <= late


def _only_stopped(here: Stage, worker: Incarnation) -> Iterator[str]:
    """Whoever runs is suspended, or it is tried."""
    for move in here.world.hearing.moves:
        was = (move.incarnation, move.event, move.before, move.after)
        if was == (worker.number, "DrainRequested", State.RUNNING, State.STOPPING):
            yield f"{move.actor} was stopped, and there was time to suspend it"


def _untold(here: Stage, last: Mapping[str, Any]) -> Iterator[str]:
    """Of which actor the last line does not tell, or not as it is."""
    for each in actors_in(here.world):
        told = last["actors"].get(each.uid)
        if told is not None:
            untrue = (*_untrue(here, each, told), *_not_stored(here, each, told, last["not_uploaded"]))
            yield from (f"{each.uid}: {what}" for what in untrue)
        elif each.assignment is not None and each.state not in FINAL and each.uid not in last["not_recovered"]:
            yield f"{each.uid} is {each.state}, and the last line does not tell of it"


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
    if told["state"] == State.TERMINATED and told["reason"] is None and not _was_stopped(here, on_disk.uid):
        yield "it is Terminated, nobody has asked for that, and there is no reason"


def _not_stored(here: Stage, on_disk: ActorOnDisk, told: dict[str, Any], not_uploaded: Sequence[str]) -> Iterator[str]:
    wants = on_disk.assignment is not None and on_disk.assignment.suspend.uri is not None
    if told["storedUri"] is not None and f"{told['storedUri']}/{MANIFEST_NAME}" not in here.world.objects.content:
        yield f"there is no snapshot at {told['storedUri']}"
    if wants and told["snapshot"] and told["storedUri"] is None and on_disk.uid not in not_uploaded:
        yield f"its snapshot {told['snapshot']} is not in its store, and nobody tells"


def _was_stopped(here: Stage, uid: str) -> bool:
    """Whether somebody has asked for its end."""
    return any(move.actor == uid and move.event == "StopRequested" for move in here.world.hearing.moves)
