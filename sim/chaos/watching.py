"""Safety: looks at the world while faults happen. Between two calls at what holds always, at rest at everything."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Final

import trio

from sim.chaos.excusing import Excused
from sim.chaos.following import wishes_are_followed
from sim.chaos.gpu_checks import grants_ascend, one_holder_now, ordinals_are_kept
from sim.chaos.losses import granted_ill, untold
from sim.chaos.momentary import (
    lives_on_what_is_gone,
    mounts_what_is_gone,
    newest_whole,
    restores_an_older,
    spec_of_other_times,
    two_sandboxes,
)
from sim.chaos.outcome import Found, Phase
from sim.chaos.standing import Standing
from sim.chaos.store_checks import stored_is_there
from sim.engine import Record
from sim.invariants.evidence import ActorOnDisk, actors_in, snapshots_of
from sim.invariants.never_lost import RUNS, SAVED
from sim.invariants.registry import INVARIANTS
from sim.invariants.snapshots import faults_of
from statemachine.actor import Resource
from statemachine.reasons import Reason
from statemachine.states import FINAL, RESTING, State

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from sim.chaos.story import Story
    from sim.hearing import Said
    from sim.invariants.violation import Checker, Finding
    from sim.scenario import Stage
    from sim.world.calls import Call

LOOK_EVERY_S: Final = 0.25
"""Virtual seconds between two thoughts of a look."""
_QUIET_S: Final = 0.2
"""So long nobody must have moved."""
FOUND_MAX: Final = 20
"""One run needs to tell no more."""
_TELLING: Final = frozenset(
    {
        ("files", "remove_tree"),
        ("files", "rename"),
        ("files", "replace"),
        ("processes", "kill_and_wait"),
        ("processes", "signal"),
        ("processes", "run"),
    }
)
"""Between which calls somebody can be lost."""

CHECKED: Final[Mapping[str, Checker]] = MappingProxyType(
    {
        **INVARIANTS,
        "GrantsAscend": grants_ascend,
        "OrdinalsKept": ordinals_are_kept,
        "MountsAreKept": lives_on_what_is_gone,
        "StoredIsThere": stored_is_there,
        "WishesAreFollowed": wishes_are_followed,
    }
)
"""What must be so whenever everything rests."""
_LEFTOVERS: Final = frozenset({"NothingLeft", "CgroupsHoldTheirActors", "GpusHaveOneHolder"})
_OF_LEFTOVERS: Final = "sandboxes/"
"""What is not gone may be in any condition."""
_DAMAGED: Final = frozenset({Reason.SNAPSHOT_CORRUPT, Reason.SNAPSHOT_MISSING})
OF_THIS_LIFE: Final = ("GoesOnWithIt", "LossIsTold")
"""What must be so at rest of what the newest supervisor has found or seen."""
ALWAYS: Final = (
    "GpuHasOneHolderNow",
    "IllGpusRest",
    "MountsAreThere",
    "NeverLost",
    "OneSandboxNow",
    "ResumesFromNewest",
    "SpecIsOfNow",
)
"""What must be so between two calls."""


class Watch:
    """Looks on during one run.

    Args:
        here: the stage.
        story: what has happened.

    Attributes:
        found: what is not as it must be.
        checked: how often each invariant was looked at.
    """

    def __init__(self, here: Stage, story: Story) -> None:
        self.found: list[Found] = []
        self.checked: dict[str, int] = {}
        self._here, self._story = here, story
        self._excused = Excused(here.world, story)
        self._known: set[tuple[Phase, str, str]] = set()
        self._saved: set[str] = set()
        self._told: dict[str, tuple[State, int]] = {}
        self._moves = self._given = 0
        self._standing = Standing(here.world, story)
        self._ready: set[int] = {1}
        self._has_gpus = bool(here.world.machine.gpus)

    def tell(self, phase: Phase, name: str, subject: str, message: str) -> None:
        """Note what is not as it must be, once."""
        key = phase, name, subject
        if key not in self._known and len(self.found) < FOUND_MAX:
            self._known.add(key)
            self.found.append(Found(phase=phase, name=name, subject=subject, message=message, at_s=trio.current_time()))

    # ---- between two calls

    def observe(self, call: Call) -> None:
        """Look before a call that may cost something."""
        if (call.port, call.method) not in _TELLING:
            return
        self._hear()
        self._count("NeverLost")
        for uid, (state, incarnation) in self._told.items():
            # What a dead worker has said last may not be what it has done last.
            lost = self._lost(uid, state) if incarnation == call.incarnation else None
            if lost is not None and not self._excused.excuses("NeverLost", uid):
                self.tell(Phase.SAFETY, "NeverLost", uid, f"before call {call.number}: {lost}")
        if call.method == "run":
            self._look_at("ResumesFromNewest", _before(call), restores_an_older(self._here.world, call.argument))
            self._look_at("OneSandboxNow", _before(call), two_sandboxes(self._here.world))
            if self._has_gpus:
                self._look_at("GpuHasOneHolderNow", _before(call), one_holder_now(self._here.world))
                self._look_at_documents(_before(call))

    def _look_at_documents(self, when: str) -> None:
        """Look at what runsc has read since the last look."""
        world, now_s = self._here.world, trio.current_time()
        documents = world.execution.given[self._given :]
        self._given = len(world.execution.given)
        losses = self._excused.known_losses()
        self._look_at("IllGpusRest", when, granted_ill(losses, documents, now_s))
        if not self._excused.is_spec_new():
            self._look_at("MountsAreThere", when, mounts_what_is_gone(world, documents))
            self._look_at("SpecIsOfNow", when, spec_of_other_times(world, documents))

    def _look_at(self, name: str, when: str, findings: Iterator[Finding]) -> None:
        self._count(name)
        for subject, message in findings:
            self.tell(Phase.SAFETY, name, subject, f"{when}: {message}")

    def _hear(self) -> None:
        """Note who was saved, and who runs anew and so has not been killed by anybody."""
        moves = self._here.world.hearing.moves
        for move in moves[self._moves :]:
            self._told[move.actor] = State(move.after), move.incarnation
            if move.event == "SnapshotProven":
                self._saved.add(move.actor)
            if move.after in {State.CREATING, State.RESTORING}:
                self._story.killed.discard(move.actor)
        self._moves = len(moves)

    def _lost(self, uid: str, state: State) -> str | None:
        needs_one = uid in self._saved or state in SAVED
        if not needs_one and (state not in RUNS or uid in self._story.killed):
            return None
        if self._has_whole(uid):
            return None
        if needs_one:
            return f"is {state}; a snapshot of it was proven, and none is whole"
        if not self._here.world.sandboxes_of(uid):
            return f"is {state}, and has neither a sandbox nor a snapshot that is whole"
        return None

    def _has_whole(self, uid: str) -> bool:
        world = self._here.world
        return any(each.manifest is not None and not any(faults_of(world, each)) for each in snapshots_of(world, uid))

    def is_of_other_times(self, uid: str) -> bool:
        """Whether the newest snapshot of an actor is damaged, or was made with another driver than there is now."""
        world = self._here.world
        newest = newest_whole(world, uid)
        return newest is None or newest.driver not in {None, world.gpus.loaded_version}

    # ---- at rest

    async def look_on(self) -> None:
        """Look whenever everything has come to rest anew, until this is cancelled.

        What is found counts when it is still so a moment later: a container may just have ended, unseen by anybody.
        """
        looked_at = 0
        while True:
            await trio.sleep(LOOK_EVERY_S)
            if self._has_gpus:
                self._look_at_documents("a moment ago")  # what nobody's command comes after is looked at in time, too
            moves = self._here.world.hearing.moves
            if len(moves) == looked_at or not self._rests():
                continue
            looked_at = len(moves)
            if suspects := self._looked():
                await trio.sleep(LOOK_EVERY_S)
                still = self._looked() if len(moves) == looked_at and self._rests() else {}
                for (name, subject), message in still.items():
                    if (name, subject) in suspects:
                        self.tell(Phase.SAFETY, name, subject, message)

    def _rests(self) -> bool:
        """Whether a living supervisor has nothing under way, as far as that can be seen from outside."""
        world = self._here.world
        now_s = trio.current_time()
        return (
            world.worker.lives
            and self._is_ready()
            and now_s - world.hearing.moves[-1].at_s > _QUIET_S
            and all(State(state) in RESTING | FINAL for state in world.hearing.states.values())
            and not any(each.under_way for each in self._story.wishes.values())
            and now_s >= self._excused.busy_until_s()
            and not self._excused.is_disk_full()
        )

    def _is_ready(self) -> bool:
        number = self._here.world.worker.number
        if number not in self._ready:

            def is_it(said: Said) -> bool:
                return said.event == "ready" and said.incarnation == number

            if not any(map(is_it, self._here.world.hearing.said)):
                return False
            self._ready.add(number)
        return True

    def is_unswept(self) -> bool:
        """Whether the newest worker could not remove what its predecessor has left."""
        return self._excused.is_unswept()

    def is_given_up(self, uid: str, snapshot_id: str) -> bool:
        """Whether the newest worker has said that a snapshot is damaged here, and is not uploaded."""
        world = self._here.world
        return any(
            said.event == "not_uploaded"
            and said.incarnation == world.worker.number
            and (said.fields["actor"], said.fields["snapshot"]) == (uid, snapshot_id)
            and said.fields["reason"] in _DAMAGED
            for said in world.hearing.said
        )

    def is_unwritten(self, uid: str) -> bool:
        """Whether something of an actor was ever told and not written down, which the next worker cannot know."""
        return self._excused.is_unwritten(uid)

    def slow_until_s(self) -> float:
        """When the last call is through that was made slow."""
        return self._excused.slow_until_s()

    def has_unended(self) -> bool:
        """Whether the newest worker goes on trying to end what its predecessor has left."""
        return self._excused.has_unended()

    def actors(self) -> tuple[ActorOnDisk, ...]:
        """Every actor that has a directory."""
        return tuple(actors_in(self._here.world))

    async def look(self, *, is_last: bool = False) -> None:
        """Look with every checker, when nothing at all is under way and every cleanup is done; twice, as `look_on`.

        Args:
            is_last: everybody has ended; until then a running actor may keep what could not be removed beside it.
        """
        if suspects := self._looked(is_clean=is_last or not self._excused.has_kept()):
            await trio.sleep(LOOK_EVERY_S)
            still = self._looked(is_clean=is_last or not self._excused.has_kept())
            for name, subject in filter(still.__contains__, suspects):
                self.tell(Phase.SAFETY, name, subject, still[name, subject])

    def _looked(self, *, is_clean: bool = False) -> dict[tuple[str, str], str]:
        """What every checker finds; where a cleanup has failed it is tried again, and what is left is no secret."""
        world, record = self._here.world, self._record()
        is_kept = self._excused.has_kept() or self._excused.has_unended() or any(map(_must_clean, self.actors()))
        is_clean = is_clean or not is_kept
        found: dict[tuple[str, str], str] = {}
        for name, checker in CHECKED.items():
            if name in _LEFTOVERS and not is_clean:
                continue
            self._count(name)
            for subject, message in checker(world, record):
                is_left = not is_clean and subject.startswith(_OF_LEFTOVERS)
                if not is_left and not self._excused.excuses(name, subject):
                    found.setdefault((name, subject), message)
        for name, findings in self._of_this_life().items():
            self._count(name)
            found |= {(name, subject): message for subject, message in findings}
        return found

    def _of_this_life(self) -> Mapping[str, Iterator[Finding]]:
        losses = self._excused.known_losses()
        told = untold(self._here.world, losses, trio.current_time())
        return dict(zip(OF_THIS_LIFE, (self._standing.findings(), told), strict=True))

    def note_standing(self) -> None:
        """Another supervisor is about to be started."""
        self._standing.note()

    def _record(self) -> Record:
        """What has happened so far, without the files, of which there are many."""
        world = self._here.world
        planted = [*self._story.planted, *world.plan.planted]
        return Record(
            seed=world.seed,
            virtual_s=trio.current_time(),
            calls=tuple(world.ledger.calls),
            moves=tuple(world.hearing.moves),
            faults=tuple(each.report() for each in planted),
            log=tuple(world.hearing.said),
            files={},
        )

    def _count(self, name: str) -> None:
        self.checked[name] = self.checked.get(name, 0) + 1


def _before(call: Call) -> str:
    return f"before call {call.number}"


def _must_clean(each: ActorOnDisk) -> bool:
    """Whether a cleanup of an actor is still to come, as its own journal says."""
    held = () if each.actor is None else each.actor.held
    return bool(held) and (each.state is not State.RUNNING or Resource.UNPROVEN_SNAPSHOT in held)
