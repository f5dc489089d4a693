"""The engine: a scenario with the real supervisor, run in virtual time, and everything that happened written down.

    record = run(scenario, seed=7, faults=(Fault(...),))

The same seed is the same run to the byte, in every process. trio is the only loop that this can be had of: its clock is
replaced, its scheduling is seeded by a hook that is private (tests/sim/test_engine.py notices when it goes), and
nothing real is within reach (`sim.guard`).
"""

from __future__ import annotations

import gc
import hashlib
import math
import random  # noqa: TID251 - seeded: the order in which simulated tasks go on
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

import attrs
import orjson
import trio
import trio._core._run as trio_run
from trio.testing import MockClock

from sim.faults import CONVERTER, Fault, FaultReport
from sim.guard import guarded
from sim.hearing import Moved, Said
from sim.scenario import Stage, stage
from sim.world.calls import Call
from sim.world.world import Machine, World

if TYPE_CHECKING:
    from collections.abc import MutableSequence, Sequence

    from supervisor.settings import Settings

_Result = TypeVar("_Result")


FORMAT: Final = 1
_FOR_EVER_S: Final = 1e9
GC_THRESHOLDS: Final = (50_000, 20, 100)
LIMIT_S: Final = 2 * 3600.0
"""Virtual seconds that a scenario may take: whatever waits longer waits for ever."""

Scenario: TypeAlias = "Callable[[Stage], Awaitable[None]]"


class JumpingClock(trio.abc.Clock):
    """trio's MockClock that jumps at once and never runs: it need not ask a real clock how far it has run."""

    def __init__(self, when_quiet: Callable[[], None] = lambda: None) -> None:
        """`when_quiet` is called whenever nothing can go on and no time would change that."""
        self._now_s = 0.0
        self._when_quiet = when_quiet

    def start_clock(self) -> None:
        """Ask the loop for `_autojump` whenever nothing but time can go on."""
        trio_run.GLOBAL_RUN_CONTEXT.runner.clock_autojump_threshold = 0.0

    def current_time(self) -> float:
        """Virtual seconds."""
        return self._now_s

    def deadline_to_sleep_time(self, deadline: float) -> float:
        """How long the loop would have to wait: for ever, were it not for the jump."""
        return 0.0 if deadline <= self._now_s else _FOR_EVER_S

    def _autojump(self) -> None:
        wait_s = trio.lowlevel.current_statistics().seconds_to_next_deadline
        if 0 < wait_s < math.inf:
            self._now_s += wait_s
        elif wait_s == math.inf:
            self._when_quiet()


class _Scheduling(random.Random):
    """In which of all possible orders the tasks go on that can; every turn of the loop asks."""

    def shuffle(self, x: MutableSequence[Any]) -> None:
        """Shuffle in place; several times as fast as the original, which spares no call to be exactly uniform."""
        draw = self.random
        for last in range(len(x) - 1, 0, -1):
            chosen = int(draw() * (last + 1))
            x[last], x[chosen] = x[chosen], x[last]


MockClock.register(JumpingClock)  # the loop asserts that it is one


class HungError(Exception):
    """Raised when a scenario does not end in its virtual time."""


@attrs.frozen(kw_only=True)
class Record:
    """One run.

    Attributes:
        seed: its seed.
        virtual_s: how long it took in virtual seconds.
        calls: every port call.
        moves: every transition of every actor.
        faults: what became of each planned fault.
        log: every line of a supervisor's log.
        files: the state directory at the end: text by relative path, of binary files a digest.
    """

    seed: int
    virtual_s: float
    calls: tuple[Call, ...]
    moves: tuple[Moved, ...]
    faults: tuple[FaultReport, ...]
    log: tuple[Said, ...]
    files: dict[str, str]

    def as_json(self) -> bytes:
        """All of it, one document."""
        return orjson.dumps({"v": FORMAT, **CONVERTER.unstructure(self)}, option=orjson.OPT_NON_STR_KEYS)

    def digest(self) -> str:
        """What two runs have in common exactly when they are the same: BLAKE2b of the document."""
        return hashlib.blake2b(self.as_json(), digest_size=16).hexdigest()

    def states(self, uid: str) -> list[str]:
        """The states that an actor came through, in order."""
        return [move.after for move in self.moves if move.actor == uid]


def run(
    scenario: Scenario,
    *,
    seed: int = 0,
    faults: Sequence[Fault] = (),
    machine: Machine | None = None,
    settings: Settings | None = None,
    prepare: Callable[[World], None] = lambda _: None,
    limit_s: float = LIMIT_S,
) -> Record:
    """Run a scenario.

    Args:
        scenario: what is done; it is given a stage with a supervisor on it.
        seed: of everything that may differ.
        faults: what goes wrong.
        machine: what the simulated machine is like.
        settings: how its supervisor is started.
        prepare: is given the world before that.
        limit_s: virtual seconds that it may take.

    Raises:
        Exception: whatever the scenario raises, with a note of seed and faults.
        HungError: it did not end.
    """
    world = World(seed=seed, faults=faults, machine=machine, settings=settings)
    prepare(world)
    try:
        return run_in_virtual_time(lambda: _play(world, scenario, limit_s), seed=seed)
    except BaseException as error:  # noqa: BLE001 - it goes on, out of its groups and with a note
        reason = _innermost(error)
        reason.add_note(f"seed {seed}, faults {[fault.id for fault in faults]}")
        raise reason from reason.__cause__


async def _play(world: World, scenario: Scenario, limit_s: float) -> Record:
    with guarded():
        with trio.move_on_after(limit_s) as patience:
            async with stage(world) as here:
                await scenario(here)
        if patience.cancelled_caught:
            raise HungError(f"the scenario did not end within {limit_s:g} virtual seconds")
        return record_of(world)


def run_in_virtual_time(
    main: Callable[[], Awaitable[_Result]], *, seed: int, clock: JumpingClock | None = None
) -> _Result:
    """Run an async function on trio with a clock that jumps and scheduling from a seed."""
    before = trio_run._ALLOW_DETERMINISTIC_SCHEDULING, trio_run._r  # noqa: SLF001 - there is no public way
    trio_run._ALLOW_DETERMINISTIC_SCHEDULING = True  # type: ignore[misc]  # noqa: SLF001 - as above: final by name only
    trio_run._r = _Scheduling(seed)  # noqa: SLF001 - as above
    thresholds = gc.get_threshold()
    # A world is many small objects that stay: looking through all of them as often as usual costs a tenth of the run.
    gc.set_threshold(*GC_THRESHOLDS)
    try:
        return trio.run(main, clock=clock or JumpingClock())
    finally:
        gc.set_threshold(*thresholds)
        trio_run._ALLOW_DETERMINISTIC_SCHEDULING, trio_run._r = before  # type: ignore[misc]  # noqa: SLF001 - as above, undone


def _innermost(error: BaseException) -> BaseException:
    """What a group holds when it is the only one: nurseries wrap it, and say nothing by that."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error


def record_of(world: World) -> Record:
    """What has happened in a world so far."""
    return Record(
        seed=world.seed,
        virtual_s=trio.current_time(),
        calls=tuple(world.ledger.calls),
        moves=tuple(world.hearing.moves),
        faults=world.plan.reports(),
        log=tuple(world.hearing.said),
        files={name: _text(content) for name, content in world.files_below(world.state.root).items()},
    )


def _text(content: str | bytes | None) -> str:
    """A file as text where it is, else its size and digest; a symlink's target; nothing for a directory."""
    if content is None:
        return ""
    if isinstance(content, str):
        return f"-> {content}"
    try:
        return content.decode()
    except UnicodeDecodeError:
        return f"{len(content)} bytes {hashlib.blake2b(content, digest_size=16).hexdigest()}"
