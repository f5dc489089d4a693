"""One worker of a fleet: a simulated machine and the real supervisor on it, asked over its control socket.

It tells what its supervisor says of its actors. What the fleet orders is done actor by actor, in order; a refusal is
told as what it is: the actor is where it was, with a reason.
"""

from __future__ import annotations

import hashlib
import math
import random  # noqa: TID251 - seeded: what is different from worker to worker comes from the fleet's seed
import signal
from collections import deque
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias

import attrs
import orjson
import trio

from actors.gpu.quarantine import WELL_MAX_S
from sim.fleet.facts import (
    Moved,
    ResumeActor,
    SnapshotFrom,
    StartActor,
    StopActor,
    SuspendActor,
    Uploaded,
    WorkerGone,
    WorkerReady,
)
from sim.replay.faithful.carrying import Carrier
from sim.replay.faithful.pace import Pace
from sim.replay.faithful.papers import document_of, uid_of
from sim.world.gpus import Driver, Health, Toolkit, some_gpus
from sim.world.world import Machine, World, default_settings
from statemachine.actor import OnDrain
from statemachine.problem import ProblemError
from statemachine.reasons import Reason
from statemachine.states import FINAL, INACTIVE, RESTING, STARTING, State
from supervisor import client

if TYPE_CHECKING:
    from pathlib import Path

    from sim import hearing
    from sim.fleet.config import FleetConfig
    from sim.fleet.facts import Fact
    from sim.hearing import Said
    from sim.replay.faithful.carrying import Way
    from sim.traces.records import WorkerAdd
    from sim.world.stores import SimObjects
    from supervisor.settings import Settings

STORE: Final = "s3://fleet/snapshots"
DRIVER: Final = "550.90.07"
"""One that the model's runsc supports."""
MONITOR_TELLS_FOR_S: Final = WELL_MAX_S + 60.0
"""After something has happened to GPUs: longer than it takes to trust a GPU again that was ill again and again."""
PATIENCE_S: Final = 24 * 3600.0
_UNCOUNTED: Final = 1 << 62
_AT_REST: Final = RESTING | FINAL

ActorOrder: TypeAlias = StartActor | ResumeActor | SuspendActor | StopActor


class Fleetwide(Protocol):
    """What all workers of a fleet share.

    Attributes:
        config, seed: of the replay.
        objects, way: the store, and the way to it.
        stored: where the newest snapshot of an actor is in the store, by the actor's name.
    """

    config: FleetConfig
    seed: int
    objects: SimObjects
    way: Way

    stored: dict[str, str]

    def tell(self, fact: Fact) -> None:
        """Something has happened."""
        ...

    def tell_move(self, worker: str, moved: hearing.Moved, actor: str) -> None:
        """An actor's supervisor has told of a transition."""
        ...

    def tell_step(self) -> None:
        """A supervisor's machine was fed an event that changed nothing."""
        ...

    def tell_refusal(self, reason: Reason) -> None:
        """A supervisor has refused to start an actor."""
        ...

    def size_of(self, uid: str) -> float:
        """How many bytes a snapshot of an actor has."""
        ...

    def generation_of(self, actor: str) -> int:
        """A generation that nobody has seen of an actor, higher than all before."""
        ...


class Worker:
    """One worker, from its start to the end of its machine.

    Attributes:
        name: as the trace calls it.
        world: its machine. gpus: how many it has.
        faults: what its supervisors called a fault of ours; there must never be one.
        unwritten: the uids of those of whom they said that something could not be written.
    """

    def __init__(self, record: WorkerAdd, fleet: Fleetwide) -> None:
        self.name, self.gpus = record.worker, record.gpus
        self._fleet = fleet
        digest = hashlib.blake2b(f"{fleet.seed}/{record.worker}".encode(), digest_size=8).digest()
        chance = random.Random(digest)  # noqa: S311 - a simulation wants to be repeated
        self._pace = Pace(fleet.config, chance, fleet.size_of)
        carrier = Carrier(record.worker, fleet.way, lambda: self._pace.draw("store"), fleet.size_of)
        machine = Machine(
            pace=self._pace.of_command,
            carry=carrier.carry,
            append_s=self._append_s,
            calls_max=_UNCOUNTED,
            keeps_calls=False,
            keeps_history=False,
            gpus=tuple(attrs.evolve(gpu, model=record.model or gpu.model) for gpu in some_gpus(record.gpus)),
            driver=Driver(version=DRIVER),
            toolkit=Toolkit(command_s=self._pace.draw("generate")),
            monitor_tells_for_s=MONITOR_TELLS_FOR_S,
        )
        self.world = World(
            seed=int.from_bytes(digest), machine=machine, settings=_settings(fleet.config), objects=fleet.objects
        )
        self.world.hearing.listeners.append(self._hear)
        self.faults: list[str] = []
        self.unwritten: set[str] = set()
        self._names: dict[str, str] = {}
        self._since_s: dict[str, float] = {}
        self._refused_starts: dict[str, StartActor] = {}
        self._orders: dict[str, deque[ActorOrder]] = {}
        self._is_draining = False
        self._is_gone = False
        self._gone = trio.Event()
        self._ready = trio.Event()

    async def live(self) -> None:
        """Start, run, and end when it is taken away."""
        with trio.move_on_after(self._pace.draw("worker_start")):
            await self._gone.wait()
        if not self._is_gone:
            async with self.world.passing():
                self._begin()
                await self._gone.wait()

    @property
    def is_at_rest(self) -> bool:
        """Whether its supervisor lives and has nothing under way."""
        states = self.world.hearing.states.values()
        return self._ready.is_set() and self.world.worker.lives and all(each in _AT_REST for each in states)

    @property
    def is_up(self) -> bool:
        """Whether a supervisor of it lives."""
        return not self._is_gone and bool(self.world.incarnations) and self.world.worker.lives

    @property
    def actors(self) -> list[str]:
        """Whoever was ever sent here, by name."""
        return list(self._names.values())

    def gpus_of(self, uid: str) -> list[int]:
        """The minors of the GPUs that an actor's status says it has, by container and ordinal."""
        try:
            status = orjson.loads(self.world.read(self.world.state.actor(uid).status))
        except FileNotFoundError:
            return []
        minors = {gpu.uuid: gpu.minor for gpu in self.world.gpus.visible()}
        return [minors[gpu] for each in status["containers"] for gpu in each["gpus"]]

    async def usable_gpus(self) -> int:
        """How many of its GPUs its supervisor grants to whoever asks next, or has granted.

        Raises:
            ProblemError: it does not answer.
        """
        gpus = (await self._ask("status"))["worker"]["gpus"]
        told = {each["minor"] for each in gpus}
        # One that was lost when the supervisor started is told of only once somebody asks for GPUs: it looks anew then.
        well = [each for each in self.world.gpus.visible() if each.minor not in told and each.health is Health.HEALTHY]
        return len(well) + sum(
            not each["lost"] and (each["withheld"] is None or each["holder"] is not None) for each in gpus
        )

    def _append_s(self, path: Path, data: bytes) -> float:
        """How long a line of a journal waits, so that the step that it ends has lasted as long as it is to."""
        uid = path.parent.name
        if path != self.world.state.actor(uid).journal:
            return 0.0
        event = orjson.loads(data).get("event", {}).get("type", "")
        return self._pace.of_ending(event, trio.current_time() - self._since_s.get(uid, 0.0))

    # ---- orders

    def perform(self, order: ActorOrder) -> None:
        """Do what is ordered of an actor, after everything that was ordered of it before."""
        if self._is_gone:
            return
        waiting = self._orders.get(order.actor)
        if waiting is not None:
            waiting.append(order)
            return
        self._orders[order.actor] = deque([order])
        self.world.beside(self._perform_for, order.actor)

    def drain(self) -> None:
        """SIGTERM."""
        self._is_draining = True
        if self.world.incarnations:
            self.world.worker.signal(signal.SIGTERM)

    def remove(self) -> None:
        """The machine is gone, at once."""
        if self._is_gone:
            return
        self._is_gone = True
        for incarnation in self.world.incarnations:
            incarnation.kill()
        self._gone.set()
        self._fleet.tell(WorkerGone(trio.current_time(), self.name))

    def kill(self, down_s: float = 0.0) -> None:
        """SIGKILL its supervisor, which must be there: another one starts soon, and finds what is left."""
        self.world.kill()
        self._ready = trio.Event()
        self.world.beside(self._start_again, down_s)

    # ---- parts

    async def _start_again(self, down_s: float) -> None:
        await trio.sleep(down_s + self._pace.draw("recover"))
        if not self._is_gone and not self._is_draining:
            self._begin()

    def _begin(self) -> None:
        self.world.start()
        if self._is_draining:
            self.world.worker.signal(signal.SIGTERM)

    async def _perform_for(self, actor: str) -> None:
        waiting = self._orders[actor]
        try:
            while waiting and not self._is_gone:
                await self._perform(waiting[0])
                waiting.popleft()
        finally:
            del self._orders[actor]

    async def _perform(self, order: ActorOrder) -> None:
        uid = uid_of(order.actor)
        self._names[uid] = order.actor
        try:
            match order:
                case StartActor():
                    await self._submit(order)
                case ResumeActor() if uid in self._refused_starts:
                    start = self._refused_starts[uid]
                    await self._submit(attrs.evolve(start, snapshot_from=order.snapshot_from, asked_s=order.asked_s))
                    del self._refused_starts[uid]
                case ResumeActor():
                    await self._ask("resume", uid=uid)
                case SuspendActor():
                    await self._ask("suspend", uid=uid)
                case StopActor() if self._refused_starts.pop(uid, None) is not None:
                    self._fleet.tell(Moved(trio.current_time(), order.actor, self.name, State.TERMINATED))
                case StopActor():
                    await self._ask("stop", uid=uid)
        except ProblemError as error:
            self._refused(order, uid, error.problem.reason)

    async def _submit(self, order: StartActor) -> None:
        assignment = order.assignment
        uri = self._fleet.stored.get(order.actor) if order.snapshot_from is SnapshotFrom.STORE else None
        document = document_of(
            assignment,
            self._fleet.config,
            generation=self._fleet.generation_of(order.actor),
            snapshot_uri=uri,
        )
        await self._ask("submit", document=orjson.dumps(document).decode(), base="/")

    async def _ask(self, op: str, **arguments: object) -> Any:
        await self._ready.wait()
        socket = self.world.settings.control_socket
        return await client.call(self.world.client, socket, op, bound_s=PATIENCE_S, **arguments)

    def _refused(self, order: ActorOrder, uid: str, reason: Reason) -> None:
        """It is where it was: the fleet counts on something else where an activation was ordered."""
        if self._is_gone or isinstance(order, SuspendActor | StopActor):
            return
        self._fleet.tell_refusal(reason)
        known = self.world.hearing.states.get(uid)
        state = State.FAILED if known is None else State(known)
        if known is not None:
            self._refused_starts.pop(uid, None)
        elif isinstance(order, StartActor):
            self._refused_starts[uid] = order  # the fleet has it here, and orders to resume it when it tries again
        if state in INACTIVE:
            self._fleet.tell(Moved(trio.current_time(), order.actor, self.name, state, reason))

    def _hear(self, said: Said, moved: hearing.Moved | None) -> None:
        if self._is_gone:
            return
        if moved is not None:
            self._moved(moved)
        elif said.event == "uploaded":
            actor = self._names[said.fields["actor"]]
            self._fleet.stored[actor] = said.fields["uri"]
            self._fleet.tell(Uploaded(said.at_s, actor, self.name))
        elif said.event == "ready":
            self._ready.set()
            self._fleet.tell(WorkerReady(said.at_s, self.name))
        elif said.event in {"ignored", "refused", "late"}:
            self._fleet.tell_step()
        elif said.event == "unwritten":
            self.unwritten.add(said.fields.get("actor", ""))
        elif said.event == "fault":
            self.faults.append(str(said.fields.get("exception", said.fields)))

    def _moved(self, moved: hearing.Moved) -> None:
        actor = self._names[moved.actor]
        self._fleet.tell_move(self.name, moved, actor)
        state = State(moved.after)
        if state is State.TERMINATED:
            self._since_s.pop(moved.actor, None)
        elif moved.before != moved.after or moved.event is None:
            self._since_s[moved.actor] = moved.at_s
        reason = None if moved.reason is None else Reason(moved.reason)
        holds = reason is not None and state in INACTIVE and bool(self.world.sandboxes_of(moved.actor))
        if moved.before != moved.after and state not in STARTING:
            self._fleet.tell(Moved(moved.at_s, actor, self.name, state, reason, holds))


def _settings(config: FleetConfig) -> Settings:
    return attrs.evolve(
        default_settings(),
        assignments=None,
        snapshot_store=STORE if config.store.upload else None,
        max_actors=config.placement.actors_per_worker_max,
        on_drain=OnDrain(config.drain.on_drain.capitalize()),
        drain_timeout_s=config.drain.timeout_s,
        gpu_silence_s=math.inf,
    )
