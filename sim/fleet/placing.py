"""Putting actors on workers: who goes now, who waits, and who is suspended so that somebody else can go."""

from __future__ import annotations

import math
from typing import Final

import attrs

from sim.fleet.config import FleetConfig
from sim.fleet.facts import Order, ResumeActor, SnapshotFrom, StartActor, StopActor, SuspendActor
from sim.fleet.idleness import Idleness
from sim.fleet.lines import Lines
from sim.fleet.roster import Counts, Listed, Wish, claim_of
from sim.fleet.schedulers import Claim, Place, Room, Scheduler, place_on
from sim.fleet.timers import Look, Timers
from statemachine.states import State

_AT_THE_END_S: Final = 1e18
"""Later than anybody is busy until."""


@attrs.define(eq=False)
class Placing:
    """The places of a fleet's workers, and all who want one. What is to be done is added to `orders`.

    Attributes:
        config, scheduler: as the fleet has them.
        at_s: now.
        actors: everybody who has not ended.
        on: by worker, whose lives are there.
    """

    config: FleetConfig
    scheduler: Scheduler
    room: Room = attrs.field(factory=Room)
    lines: Lines = attrs.field(factory=Lines)
    timers: Timers = attrs.field(factory=Timers)
    counts: Counts = attrs.field(factory=Counts)
    actors: dict[str, Listed] = attrs.field(factory=dict)
    on: dict[str, dict[str, Listed]] = attrs.field(factory=dict)
    orders: list[Order] = attrs.field(factory=list)
    idleness: Idleness = attrs.field(init=False)
    at_s: float = 0.0
    _looks_s: float = math.inf

    def __attrs_post_init__(self) -> None:
        self.idleness = Idleness(self.room, self.config.suspension.idle_min_s)

    def seek(self, one: Listed) -> None:
        """Somebody who rests, or has no life, is to run: send it where there is room, or let it wait there."""
        claim = one.claim
        if one.local_on is not None:
            home = self.room.places[one.local_on]
            at_home = Claim(claim.gpus, claim.models, claim.cpu_milli, claim.memory_bytes, home.name)
            if home.is_open and not one.in_store:
                claim = at_home
            elif home.is_open and claim.worker is None:
                claim = at_home if home.has_room_for(at_home) or self._waits_for_home else claim
            elif not home.is_open and not one.in_store:
                return  # its worker goes: it is brought back when the store has its snapshot
        self.go(one, claim)
        if one.line is not None and one.in_store and one.line.worker == one.local_on is not None:
            one.home_until_s = self.at_s + self.config.placement.locality_wait_s
            self.timers.set(one.home_until_s, Look.ELSEWHERE, one.name)

    @property
    def _waits_for_home(self) -> bool:
        return self.config.placement.locality_wait_s > 0

    def saved(self, one: Listed, worker: str) -> None:
        """It has a snapshot there, which a worker with GPUs of another model would refuse to restore."""
        one.local_on, one.is_stored = worker, False
        models = (self.room.places[worker].model,)
        if one.claim.gpus and one.claim.models != models:
            one.claim = attrs.evolve(one.claim, models=models)

    def uproot(self, one: Listed) -> None:
        """Its worker is gone. Without a snapshot it begins anew, if at all: on any model that it may have."""
        one.worker = one.local_on = one.state = None
        if not one.was_stored:
            one.claim = claim_of(one.assignment)

    def go(self, one: Listed, claim: Claim) -> None:
        """Send it where a claim has room, or let it wait with that claim."""
        place = None if self.lines.has(claim) else place_on(self.room, claim, self.scheduler)
        if place is not None:
            self._send(one, place)
            return
        self.lines.join(one, claim)
        self.counts.changed(one)
        self._make_room(one)

    def leave_line(self, one: Listed) -> None:
        """It is not wanted any more, or gone."""
        self.lines.leave(one)
        for name in sorted(one.victims):
            if name in self.actors:
                self.actors[name].saved_for = None
        one.victims.clear()

    def offer(self, place: Place) -> None:
        """A worker has got room: whoever has waited longest and fits goes there."""
        while one := self.lines.first_for(place):
            self._send(one, place)

    def resize(self, worker: str, gpus: int) -> None:
        """So many GPUs of a worker are well: nobody is sent to others, and whoever waits gets those that are back."""
        place = self.room.places.get(worker)
        if place is not None:
            self.room.resize(worker, gpus)
            self.offer(place)
            self.look_for_room(self.at_s)

    def free(self, one: Listed) -> None:
        """Nothing of it needs its worker's room any more; others are offered it."""
        if not one.has_room or one.worker is None:
            return
        one.has_room = False
        self.room.give_back(one.worker, one.claim)
        place = self.room.places[one.worker]
        self.offer(place)
        # What is left may be enough together with somebody who is idle; it is even for one GPU where some were lost.
        if self.lines.large or place.free_gpus <= 0 < one.claim.gpus:
            self.look_for_room(self.at_s)

    def is_needed(self, worker: str) -> bool:
        """Whether anything on a worker is lost with it that might be saved, or goes on there."""
        uploads = self.config.store.upload
        return any(
            one.is_active
            or one.has_room
            or (uploads and one.local_on == worker and not one.is_stored and one.wish is not Wish.END)
            for one in self.on[worker].values()
        )

    def stuck(self) -> list[str]:
        """Those who wait although a worker has room for them, or would have, were somebody suspended who is idle."""
        self.idleness.look_anew()
        found: list[str] = []
        for claim, one in self.lines:
            place = place_on(self.room, claim, self.scheduler)
            if place is not None:
                found.append(f"{one.name} waits, and {place.name} has room for it")
            elif self.config.suspension.oversubscribe and not one.victims:
                victims = self.idleness.victims(claim, _AT_THE_END_S)
                if not isinstance(victims, float):
                    found.append(f"{one.name} waits, and is not given the room of {victims[0].name}, who is idle")
        return found

    def spare(self, one: Listed) -> None:
        """It is not being suspended for somebody any more: it was, or it could not be."""
        waiting = self.actors.get(one.saved_for or "")
        one.saved_for = None
        if waiting is not None:
            waiting.victims.discard(one.name)
            if waiting.line is not None and not waiting.victims:
                self.look_for_room(self.at_s)

    def suspend(self, one: Listed) -> None:
        """Order it, for nobody's wish but the fleet's."""
        one.wish = Wish.SUSPEND
        self.idleness.left(one)
        if one.worker is not None:
            self.orders.append(SuspendActor(one.name, one.worker))

    def watch(self, one: Listed) -> None:
        """See, now or when it may be so, whether it is idle for so long that it is suspended."""
        if one.state is not State.RUNNING or one.wish is not Wish.RUN:
            return
        due_s = one.busy_until_s + self.config.suspension.idle_timeout_s
        if due_s <= self.at_s:
            self.suspend(one)
        elif not one.has_timer and due_s < math.inf:
            one.has_timer = True
            self.timers.set(due_s, Look.IDLE, one.name)

    def look_for_room(self, at_s: float) -> None:
        """See at that time whether somebody can be suspended for those who wait."""
        if self.lines.count and self.config.suspension.oversubscribe and at_s < self._looks_s:
            self._looks_s = at_s
            self.timers.set(at_s, Look.MAKE_ROOM, "")

    def make_room(self) -> None:
        """See now: for each who waits and for whom nobody is being suspended yet."""
        if self._looks_s > self.at_s:
            return  # another look came before
        self._looks_s = math.inf
        for claim, _ in self.lines:
            for one in self.lines.everybody(claim):
                if not one.victims and not self._make_room(one):
                    break  # for equal claims there is nobody either

    def _make_room(self, one: Listed) -> bool:
        """Have somebody suspended for it; says whether anybody can be."""
        claim = one.line
        if claim is None or not self.config.suspension.oversubscribe:
            return False
        if one.victims:
            return True
        victims = self.idleness.victims(claim, self.at_s)
        if isinstance(victims, float):
            self.look_for_room(victims)
            return False
        for each in victims:
            each.saved_for = one.name
            one.victims.add(each.name)
            self.suspend(each)
        return True

    def _send(self, one: Listed, place: Place) -> None:
        """It goes there: room is taken, and the life begins or goes on."""
        self.leave_line(one)
        self.room.take(place.name, one.claim)
        one.has_room = one.is_activating = True
        one.retries_at_s = math.inf
        left, one.worker, one.state = one.worker, place.name, State.ASSIGNED
        begins = SnapshotFrom.STORE if one.was_stored else SnapshotFrom.COLD
        if left == place.name:
            begins = SnapshotFrom.LOCAL if one.local_on == place.name else begins
            self.orders.append(ResumeActor(one.name, place.name, begins, one.asked_s))
        else:
            one.local_on = None
            self.on[place.name][one.name] = one
            self.orders.append(StartActor(one.assignment, place.name, begins, one.asked_s))
            if left is not None:
                del self.on[left][one.name]
                self.orders.append(StopActor(one.name, left))
        self.counts.changed(one)
