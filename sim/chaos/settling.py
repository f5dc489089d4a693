"""Liveness: the faults stop; within a bound everybody rests, can be resumed, saved and ended, and nothing is left."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import orjson
import trio

from actors.stores.asking import CHUNK_S
from sim.chaos.documents import document_of
from sim.chaos.gpu_checks import capacity_is_given_back
from sim.chaos.outcome import Phase
from sim.faults import Halfway, Kill
from statemachine.problem import ProblemError
from statemachine.reasons import Reason
from statemachine.states import FINAL, RESTING, State
from supervisor import client

if TYPE_CHECKING:
    from sim.chaos.plan import Plan, PlannedActor
    from sim.chaos.story import Story
    from sim.chaos.watching import Watch
    from sim.planting import Planted
    from sim.scenario import Stage

STARTS_S: Final = 400.0
"""In so many virtual seconds a worker must be ready, however often it has to be started."""
RESTS_S: Final = 1800.0
"""In so many everybody must rest, and every cleanup be done: longer than any deadline and backoff."""
WELL_S: Final = 2000.0
"""In so many GPUs that were ill must be granted again."""
STORED_S: Final = CHUNK_S + 300.0
"""In so many every snapshot must be in its store: what hangs is given up, and tried again after a minute at most."""
BECOMES_S: Final = 900.0
"""In so many somebody who rests must have become what is asked for."""
QUIET_S: Final = 0.5
FILES_AGAIN_S: Final = 12.0
"""In so many a file that was refused is looked at again, whatever has happened to it."""
ROUNDS_MAX: Final = 6
_PAUSE_S, _PAUSE_MAX_S = 0.5, 20.0
_LOOK_S: Final = 0.25
LOOKS_AT_REST: Final = 3
"""Seen at rest elsewhere so often, it does not come any more."""
CLEARED_S: Final = 150.0
"""In so many virtual seconds whatever was mended outside is known: a monitor is replaced after 30 s at most."""
LAST_GENERATION: Final = 1_000_000
"""Of the document that starts an actor cold in the end: higher than any other."""
_NAMED: Final = frozenset(
    {
        Reason.SNAPSHOT_INCOMPATIBLE, Reason.SNAPSHOT_CORRUPT, Reason.SNAPSHOT_MISSING, Reason.BUNDLE_CHANGED,
        Reason.DRIVER_UNSUPPORTED_BY_RUNTIME,
    }
)  # fmt: skip
"""Why somebody may not be restored here, and must be started cold: the driver or the snapshot is another one."""


def _kills(planted: Planted) -> bool:
    what = planted.fault.what
    return isinstance(what, Kill) or (isinstance(what, Halfway) and what.error is None)


class _StuckError(Exception):
    """Raised when nothing further can be looked at."""


class Settling:
    """The second part of a run.

    Args:
        here: the stage.
        plan: who there is.
        story: what has happened.
        watch: is told what is not as it must be.
    """

    def __init__(self, here: Stage, plan: Plan, story: Story, watch: Watch) -> None:
        self._here, self._plan, self._story, self._watch = here, plan, story, watch

    async def run(self) -> None:
        """Stop the faults, and see everything come."""
        self._mend()
        try:
            await self._start()
            await self._rest("Settles")
            await self._watch.look()
            self._look_at_wishes((await self._status())["actors"])
            await self._become_well()
            await self._be_stored()
            await self._end_all()
            await self._leave_nothing()
        except _StuckError:
            return

    def _tell(self, name: str, subject: str, message: str) -> None:
        self._watch.tell(Phase.LIVENESS, name, subject, message)

    # ---- the faults stop

    def _mend(self) -> None:
        world = self._here.world
        self._story.is_over = True
        outages = [each for each in world.plan.planted if each.fault.id.startswith("outage ")]
        self._story.fired += [(trio.current_time(), "store-outage") for each in outages if each.has_fired]
        self._story.planted += [each for each in world.plan.planted if each not in outages]
        for each in world.plan.planted:
            if each.fault.when.port == "files":
                each.release()  # of the others, what hangs may hang for ever: whoever waits has a deadline
        world.plan.planted = []
        if world.disk.find(world.settings.state_dir).volume.capacity_bytes != world.machine.capacity_bytes:
            self._story.full_in = world.worker.number
        world.make_room()
        for gpu in world.machine.gpus:
            world.gpus.recover(gpu.minor)
            self._story.is_back(gpu.minor, trio.current_time())
        if world.machine.gpus:
            world.gpus.allow_devices()
            world.gpus.upgrade_driver(world.machine.driver.version)
            world.gpus.reload_driver()
        if self._is_doomed() or self._watch.is_unswept():
            world.kill()

    def _is_doomed(self) -> bool:
        """Whether a call that waits for news will kill its worker when some come."""
        ledger = self._here.world.ledger
        fired = [ledger.calls[number - 1] for each in self._story.planted if _kills(each) for number in each.fired]
        return any(call.incarnation == self._here.worker.number for call in fired)

    async def _start(self) -> None:
        """Wait for a worker that takes requests."""
        with trio.move_on_after(STARTS_S):
            while True:
                try:
                    if (await self._status())["worker"]["ready"]:
                        return
                except ProblemError:
                    pass
                await trio.sleep(_PAUSE_S)
        error = self._here.worker.error
        self._tell("Starts", "the worker", f"none is ready after {STARTS_S:g} s; the last one ended with {error!r}")
        raise _StuckError

    async def _status(self) -> dict[str, Any]:
        status: dict[str, Any] = await self._ask("status")
        return status

    async def _ask(self, op: str, **arguments: Any) -> Any:
        world = self._here.world
        return await client.call(world.client, world.settings.control_socket, op, bound_s=BECOMES_S, **arguments)

    async def _rest(self, name: str) -> None:
        """Wait until everybody rests, and holds nothing that he should not."""
        pause_s = _PAUSE_S
        with trio.move_on_after(RESTS_S):
            while await self._restless():
                await trio.sleep(pause_s)
                pause_s = min(2 * pause_s, _PAUSE_MAX_S)
            await trio.sleep(QUIET_S)
            return
        self._tell(name, *(await self._restless())[0])
        raise _StuckError

    async def _restless(self) -> list[tuple[str, str]]:
        try:
            status = await self._status()
        except ProblemError as error:
            return [("the worker", f"it does not answer: {error.problem}")]
        found = [
            (each["uid"], f"is {each['state']} after {RESTS_S:g} s")
            for each in status["actors"]
            if State(each["state"]) not in RESTING | FINAL
        ]
        return found or list(capacity_is_given_back(status)) or self._uncleaned()

    def _uncleaned(self) -> list[tuple[str, str]]:
        """Whose cleanup is still to come; a journal that a full disk has cut off says nothing of that."""
        waiting = [("the worker", "it has not ended what its predecessor left")] if self._watch.has_unended() else []
        if any(each.under_way for each in self._story.wishes.values()):
            waiting.append(("the worker", "a request is not answered"))
        if trio.current_time() < self._watch.slow_until_s():
            waiting.append(("the worker", "a slow call is not through"))
        return waiting + [
            (each.uid, f"is {each.state}, and still holds {', '.join(map(str, each.actor.held))}")
            for each in self._watch.actors()
            if each.actor is not None
            and each.actor.held
            and each.state is not State.RUNNING
            and each.state == self._here.state(each.uid)
        ]

    # ---- what must have come

    def _look_at_wishes(self, actors: list[dict[str, Any]]) -> None:
        """Who is not what he was promised to be says why."""
        for each in actors:
            uid, planned, wish = each["uid"], self._plan.actor(each["uid"]), self._story.wish(each["uid"])
            if each["state"] == State.FAILED and each["error"] is None:
                self._tell("SaysWhy", uid, "is Failed, and says nothing of why")
            if planned is None or wish.state is None or wish.state == each["state"] or each["error"] is not None:
                continue
            if self._watch.is_unwritten(uid):
                continue
            # It has ended by itself; or was to be suspended, could not be, and has failed and begun anew since.
            is_other = each["state"] == State.TERMINATED or planned.restarts
            if planned.lasts or not is_other:
                self._tell(
                    "BecomesWhatIsWanted", uid, f"{wish.state} was promised; it is {each['state']}, and has no error"
                )

    async def _be_stored(self) -> None:
        """Wait for the snapshots that are to be in a store, which answers again."""
        pause_s = _PAUSE_S
        with trio.move_on_after(STORED_S):
            while self._unstored((await self._status())["actors"]):
                await trio.sleep(pause_s)
                pause_s = min(2 * pause_s, _PAUSE_MAX_S)
            return
        for uid, snapshot_id in self._unstored((await self._status())["actors"]):
            self._tell("IsStored", uid, f"snapshot {snapshot_id} is in no store {STORED_S:g} s after the last fault")

    def _unstored(self, actors: list[dict[str, Any]]) -> list[tuple[str, str]]:
        """Whose snapshot has still to come to its store; one that was found damaged here is not tried again."""
        found = []
        for each in actors:
            planned, good = self._plan.actor(each["uid"]), each["lastGoodSnapshot"]
            if planned is None or not planned.is_stored or good is None or good["storedUri"] is not None:
                continue
            if not self._watch.is_given_up(each["uid"], good["id"]):
                found.append((each["uid"], good["id"]))
        return found

    async def _become_well(self) -> None:
        """Wait for GPUs that were ill."""
        pause_s = _PAUSE_S
        with trio.move_on_after(WELL_S):
            while ill := [
                each["path"]
                for each in (await self._status())["worker"]["gpus"]
                if each["state"] == "Lost" or each["withheld"]
            ]:
                await trio.sleep(pause_s)
                pause_s = min(2 * pause_s, _PAUSE_MAX_S)
            return
        self._tell("GpusComeBack", ill[0], f"it is not granted again {WELL_S:g} s after the last fault")
        raise _StuckError

    async def _end_all(self) -> None:
        """Those who run first: so there are GPUs for the others, also for those whose files have waited for some."""
        for _ in range(ROUNDS_MAX):
            # A file that was refused is looked at again, and one that has vanished ends its actor.
            await trio.sleep(FILES_AGAIN_S if any(each.by_file for each in self._plan.actors) else QUIET_S)
            await self._rest("Settles")
            actors = (await self._status())["actors"]
            alive = [each for each in actors if each["state"] != State.TERMINATED]
            for each in sorted(alive, key=lambda each: (each["state"] != State.RUNNING, each["uid"])):
                planned = self._plan.actor(each["uid"])
                if planned is not None:
                    await self._exercise(planned, each["state"])
                    await self._become(planned.uid, "stop", State.TERMINATED)
            if not alive:
                return

    async def _exercise(self, planned: PlannedActor, state: str) -> None:
        """Bring it to Running, and once through a snapshot where it was there already."""
        if not planned.lasts:
            return
        if state == State.RUNNING:
            await self._become(planned.uid, "suspend", State.SUSPENDED)
        why = await self._try(planned.uid, "resume", State.RUNNING)
        if why in _NAMED:
            if not self._watch.is_of_other_times(planned.uid):
                self._tell("CanResume", planned.uid, f"its snapshot is as it was: {await self._why(planned.uid)}")
            await self._start_cold(planned)
        elif why is not None and not (why is Reason.INSUFFICIENT_GPUS and await self._is_outrun(planned)):
            self._tell("CanResume", planned.uid, f"{why}: {await self._why(planned.uid)}")

    async def _is_outrun(self, planned: PlannedActor) -> bool:
        """Whether somebody whose file has waited for GPUs has taken them, in the moment in which they were free."""
        gpus = (await self._status())["worker"]["gpus"]
        free = sum(each["holder"] is None for each in gpus)
        holders = {each["holder"]["uid"] for each in gpus if each["holder"] is not None}
        by_file = {each.uid for each in self._plan.actors if each.by_file}
        return free < sum(each.gpus for each in planned.containers) and bool(holders & by_file - {planned.uid})

    async def _start_cold(self, planned: PlannedActor) -> None:
        """A document of a new generation does it, where the snapshot is one of other times."""
        document = document_of(planned, generation=LAST_GENERATION, state="Running", cold=True)
        try:
            await self._ask("submit", document=orjson.dumps(document).decode(), base="/")
        except ProblemError as error:
            self._tell("CanStart", planned.uid, f"it is refused: {error.problem}")
            return
        if (why := await self._wait(planned.uid, State.RUNNING)) is not None:
            self._tell("CanStart", planned.uid, f"{why}: {await self._why(planned.uid)}")

    async def _become(self, uid: str, op: str, state: State) -> None:
        why = await self._try(uid, op, state)
        if why is not None:
            self._tell(f"Can{op.capitalize()}", uid, f"{why}: {await self._why(uid)}")

    async def _try(self, uid: str, op: str, state: State) -> Reason | None:
        """Ask, and ask again for as long as what was mended may not be known."""
        until_s, pause_s = trio.current_time() + CLEARED_S, 4 * _PAUSE_S
        while (why := await self._try_once(uid, op, state)) is not None:
            if why in _NAMED or trio.current_time() >= until_s:
                return why
            await trio.sleep(pause_s)
            pause_s *= 2
        return None

    async def _try_once(self, uid: str, op: str, state: State) -> Reason | None:
        try:
            await self._ask(op, uid=uid)
        except ProblemError as error:
            return error.problem.reason
        return await self._wait(uid, state)

    async def _wait(self, uid: str, state: State) -> Reason | None:
        """Look until it has come, or until it rests elsewhere; returns why it has not come."""
        pause_s, looks = _LOOK_S, 0
        with trio.move_on_after(BECOMES_S):
            while (now := self._here.state(uid)) != state:
                looks = looks + 1 if now is not None and State(now) in RESTING | FINAL else 0
                if looks == LOOKS_AT_REST:
                    break
                await trio.sleep(pause_s)
                pause_s = min(2 * pause_s, _PAUSE_MAX_S) if not looks else _LOOK_S
            if now == state:
                return None
        told = (await self._ask("status", uid=uid))["error"]
        return Reason.WAIT_TIMEOUT if told is None else Reason(told["reason"])

    async def _why(self, uid: str) -> str:
        try:
            status = await self._ask("status", uid=uid)
        except ProblemError as error:
            return str(error.problem)
        told = status["error"]
        return f"{status['state']}" + ("" if told is None else f", {told['reason']}: {told['message']}")

    async def _leave_nothing(self) -> None:
        await self._rest("Ends")
        await self._watch.look(is_last=True)
        for each in self._here.left():
            self._watch.tell(Phase.SAFETY, "NothingLeft", each, "is left when everybody has ended")
        status = await self._status()
        for gpu in status["worker"]["gpus"]:
            if gpu["holder"] is not None:
                self._tell("CapacityGivenBack", gpu["path"], f"is held by {gpu['holder']} when everybody has ended")
