"""One plan, run: faults and wishes first, then nothing but what must come."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Final

import attrs
import trio

from sim.chaos.coverage import cells_of
from sim.chaos.keeping import Keeper
from sim.chaos.kinds import fault_kind, mishap_kind
from sim.chaos.outcome import Found, Outcome, Phase
from sim.chaos.performing import Performer
from sim.chaos.plan import MISHAPS
from sim.chaos.settling import Settling
from sim.chaos.story import Story
from sim.chaos.watching import Watch
from sim.engine import LIMIT_S, HungError, run_in_virtual_time
from sim.guard import guarded
from sim.scenario import Stage, stage
from sim.world.gpus import Driver, some_gpus
from sim.world.runsc.settings import Flavour
from sim.world.world import Machine, World, default_settings

if TYPE_CHECKING:
    from sim.chaos.plan import Plan

DRAIN_S: Final = 40.0
"""How long an evicted worker has."""
CALLS_MAX: Final = 400_000
"""A run that makes more goes round in circles."""
WHOLE_S: Final = 6 * LIMIT_S
_DRIVERS: Final = {Flavour.R24: "550.54.15", Flavour.HEAD: "580.65.06"}
_RUN: Final = "the run"


@attrs.define
class _Result:
    """What is known of a run, however it ends."""

    story: Story = attrs.field(factory=Story)
    found: list[Found] = attrs.field(factory=list)
    checked: dict[str, int] = attrs.field(factory=dict)


def run_plan(plan: Plan) -> Outcome:
    """Run a plan; whatever goes wrong is in what is returned."""
    machine = Machine(
        flavour=plan.flavour,
        state_bytes=plan.state_bytes,
        calls_max=CALLS_MAX,
        gpus=some_gpus(plan.gpus),
        driver=Driver(version=_DRIVERS[plan.flavour]),
        no_cgroups=None if plan.has_cgroups else "the plan has none",
    )
    settings = attrs.evolve(default_settings(), drain_timeout_s=DRAIN_S)
    world = World(seed=plan.seed, machine=machine, settings=settings)
    result = _Result()
    crash: BaseException | None = None
    try:
        run_in_virtual_time(lambda: _play(world, plan, result), seed=plan.seed)
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # noqa: BLE001 - whatever ends a run is what came of it
        crash = _innermost(error)
    return _outcome(plan, world, result, crash)


async def _play(world: World, plan: Plan, result: _Result) -> None:
    with guarded():
        with trio.move_on_after(WHOLE_S) as patience:
            async with stage(world) as here:
                await _both_parts(here, plan, result)
        if patience.cancelled_caught:
            raise HungError(f"the run did not end within {WHOLE_S:g} virtual seconds")


async def _both_parts(here: Stage, plan: Plan, result: _Result) -> None:
    story = result.story
    for deed in plan.deeds:
        if isinstance(deed, MISHAPS):
            story.plan(mishap_kind(deed))
    for fault in plan.faults:
        story.plan(fault_kind(fault))
        here.plant(fault)
    watch = Watch(here, story)
    result.found, result.checked = watch.found, watch.checked
    keeper = Keeper(
        here,
        lambda what: watch.tell(Phase.CRASH, "WorkerLives", "the worker", what),
        lambda uid, what: watch.tell(Phase.SAFETY, "LeavesInOrder", uid, what),
        watch.note_standing,
    )
    here.world.ledger.observe = watch.observe
    async with trio.open_nursery() as nursery:
        nursery.start_soon(keeper.run)
        nursery.start_soon(watch.look_on)
        await Performer(here, plan, story, keeper).run()
        await Settling(here, plan, story, watch).run()
        nursery.cancel_scope.cancel()


def _innermost(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error


def _outcome(plan: Plan, world: World, result: _Result, crash: BaseException | None) -> Outcome:
    found = list(result.found)
    if crash is not None:
        found.append(
            Found(phase=Phase.CRASH, name=type(crash).__name__, subject=_RUN, message=str(crash), at_s=world.now_s())
        )
    moves = world.hearing.moves
    reasons: dict[str, int] = {}
    for move in moves:
        if move.reason is not None:
            reasons[move.reason] = reasons.get(move.reason, 0) + 1
    digest = hashlib.blake2b(digest_size=16)
    for move in moves:
        digest.update(repr(move).encode())
    digest.update(repr([world.ledger.count, world.now_s(), *map(str, found)]).encode())
    return Outcome(
        seed=plan.seed,
        found=tuple(found),
        planned=result.story.planned,
        fired=result.story.fired_kinds(),
        cells=cells_of(world, result.story),
        checked=result.checked,
        reasons=reasons,
        virtual_s=round(world.now_s(), 3),
        calls=world.ledger.count,
        transitions=len(moves),
        digest=digest.hexdigest(),
    )
