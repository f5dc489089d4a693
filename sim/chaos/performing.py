"""Does what a plan says: asks a worker like any client, and lets things go wrong around it."""

from __future__ import annotations

import signal
from contextlib import suppress
from functools import partial, singledispatchmethod
from typing import TYPE_CHECKING, Any, Final

import orjson
import trio

from sim.chaos import plan as p
from sim.chaos.documents import document_of
from sim.chaos.kinds import mishap_kind
from sim.chaos.losses import loss_of
from sim.faults import STORE, Fail, Fault, When
from sim.world.gpu_monitor import COMMAND_LINE
from statemachine.problem import ProblemError
from statemachine.reasons import Reason
from supervisor import client
from supervisor.admitting import Effect

if TYPE_CHECKING:
    from collections.abc import Callable

    from sim.chaos.keeping import Keeper
    from sim.chaos.story import Story
    from sim.scenario import Stage

ANSWER_S: Final = 60.0
"""Virtual seconds after which a client gives up waiting for an answer."""
APART_S: Final = 0.3
"""Between a SIGTERM and its repetition."""
_TAKEN: Final = frozenset({Effect.BEGUN, Effect.UPDATED})
"""What a document must have done for it to be the last promise."""
OTHER_TOOLKIT: Final = "1.20.{}"
"""What a toolkit is exchanged by: the first, the second, …"""
_STATES: Final = {"suspend": "Suspended", "resume": "Running", "stop": "Terminated"}


class Performer:
    """Performs deeds, one after the other; what takes its time goes on beside.

    Args:
        here: the stage.
        plan: whose deeds they are.
        story: where it is noted.
        keeper: starts the next worker.
    """

    def __init__(self, here: Stage, plan: p.Plan, story: Story, keeper: Keeper) -> None:
        self._here, self._plan, self._story, self._keeper = here, plan, story, keeper
        self._given: dict[str, dict[str, Any]] = {}
        self._outages = self._swaps = 0
        self._socket = here.world.settings.control_socket

    async def run(self) -> None:
        """Perform everything, each at its time, and return when the time is over."""
        began_s = trio.current_time()
        for deed in self._plan.deeds:
            await trio.sleep_until(began_s + deed.at_s)
            await self._perform(deed)
        await trio.sleep_until(began_s + self._plan.lasts_s)

    @singledispatchmethod
    async def _perform(self, deed: Any) -> None:
        raise TypeError(f"{deed} is no deed")

    def _happened(self, deed: p.Mishap) -> None:
        self._story.happened(mishap_kind(deed), trio.current_time())

    # ---- requests

    @_perform.register
    async def _(self, deed: p.Assign) -> None:
        planned = self._plan.actor(deed.uid)
        if planned is not None:
            if deed.cold:
                self._story.cold.add(deed.uid)
            self._give(planned, document_of(planned, generation=deed.generation, state=deed.state, cold=deed.cold))

    @_perform.register
    async def _(self, deed: p.Command) -> None:
        if self._plan.actor(deed.uid) is not None:
            self._here.world.beside(self._ask, deed.uid, _STATES[deed.op], deed.op, {"uid": deed.uid})

    @_perform.register
    async def _(self, deed: p.Vanish) -> None:
        with suppress(FileNotFoundError):
            self._here.world.remove_assignment(f"{deed.uid}.json")
            self._story.wish(deed.uid).state = None

    @_perform.register
    async def _(self, deed: p.Duplicate) -> None:
        planned, given = self._plan.actor(deed.uid), self._given.get(deed.uid)
        if planned is not None and given is not None:
            self._give(planned, given)
            self._happened(deed)

    @_perform.register
    async def _(self, deed: p.Stale) -> None:
        planned, given = self._plan.actor(deed.uid), self._given.get(deed.uid)
        if planned is None or given is None or given["metadata"]["generation"] < 2:  # noqa: PLR2004 - there is no older one
            return
        older = document_of(planned, generation=given["metadata"]["generation"] - 1, state=deed.state)
        self._give(planned, older, is_newest=False)
        self._happened(deed)

    @_perform.register
    async def _(self, deed: p.Reordered) -> None:
        planned, given = self._plan.actor(deed.uid), self._given.get(deed.uid)
        if planned is None or given is None or given["metadata"]["generation"] >= deed.generation:
            return
        self._give(planned, document_of(planned, generation=deed.generation + 1, state=deed.state))
        self._give(planned, document_of(planned, generation=deed.generation, state="Terminated"), is_newest=False)
        self._happened(deed)

    def _give(self, planned: p.PlannedActor, document: dict[str, Any], *, is_newest: bool = True) -> None:
        uid = planned.uid
        before = self._given.get(uid)
        is_newest = is_newest and (
            before is None or before["metadata"]["generation"] < document["metadata"]["generation"]
        )
        if is_newest:
            self._given[uid] = document
        if planned.by_file:
            self._story.wish(uid).state = None
            with suppress(OSError):  # whoever writes it has no room either
                self._here.world.put_assignment(f"{uid}.json", document)
            return
        arguments = {"document": orjson.dumps(document).decode(), "base": "/"}
        self._here.world.beside(self._ask, uid, document["spec"]["desiredState"], "submit", arguments)

    async def _ask(self, uid: str, wanted: str, op: str, arguments: dict[str, Any]) -> None:
        """Ask, and note what has been promised: nothing where two ask at once, or where no answer comes.

        Where a document has changed nothing, what was promised before is still so. A duplicate may change something:
        the first of the two may never have been heard.
        """
        wish = self._story.wish(uid)
        wish.under_way += 1
        wish.asked += 1
        number, was_alone = wish.asked, wish.under_way == 1
        known, wish.state = wish.state, None
        state: str | None = None
        try:
            told = await client.call(self._here.world.client, self._socket, op, bound_s=ANSWER_S, **arguments)
        except ProblemError as error:
            is_refused = error.problem.reason is not Reason.WORKER_UNREACHABLE
            state = known if is_refused and op != "submit" else None
        else:
            state = wanted if op != "submit" or told["effect"] in _TAKEN else known
        finally:
            wish.under_way -= 1
            planned = self._plan.actor(uid)
            # Files that come and go say something else at any time.
            is_sure = was_alone and wish.asked == number and planned is not None and not planned.by_file
            wish.state = state if is_sure else None

    # ---- the worker and its machine

    @_perform.register
    async def _(self, deed: p.KillWorker) -> None:
        if self._here.worker.lives:
            self._keeper.down_s = deed.down_s
            self._here.kill()
            self._happened(deed)

    @_perform.register
    async def _(self, deed: p.CutPower) -> None:
        self._keeper.down_s = deed.down_s
        self._story.killed.update(each.uid for each in self._plan.actors)
        for wish in self._story.wishes.values():
            wish.state = None  # a command is on the platter with the rest that it leads to, and not before
        self._happened(deed)
        await self._keeper.reboot()

    @_perform.register
    async def _(self, deed: p.Evict) -> None:
        if self._here.worker.lives:
            self._keeper.down_s = deed.down_s
            for wish in self._story.wishes.values():
                wish.state = None  # a drain overrules it
            self._here.worker.signal(signal.SIGTERM)
            if deed.is_repeated:
                self._later(APART_S, partial(self._here.worker.signal, signal.SIGTERM))
            self._happened(deed)

    @_perform.register
    async def _(self, deed: p.KillSandbox) -> None:
        with suppress(LookupError):
            self._here.world.kill_sandbox(deed.uid)
            self._story.killed.add(deed.uid)
            self._happened(deed)

    @_perform.register
    async def _(self, deed: p.FillDisk) -> None:
        self._here.world.fill_disk(slack_bytes=deed.slack_bytes)
        self._story.full_in = self._here.worker.number

        def over() -> None:
            self._story.full_in = self._here.worker.number
            self._here.world.make_room()

        self._later(deed.for_s, over)
        self._happened(deed)

    @_perform.register
    async def _(self, deed: p.JumpClock) -> None:
        self._here.world.wall.jump(deed.by_s)
        self._happened(deed)

    # ---- stores

    @_perform.register
    async def _(self, deed: p.StoreOutage) -> None:
        self._outages += 1
        fault = Fault(id=f"outage {self._outages}", when=When(port="stores", times_max=None), what=Fail(STORE))
        planted = self._here.plant(fault)

        def over() -> None:
            if planted in self._here.world.plan.planted:
                self._here.world.plan.planted.remove(planted)
                if planted.has_fired:
                    self._happened(deed)

        self._later(deed.for_s, over)

    @_perform.register
    async def _(self, deed: p.TruncateStore) -> None:
        objects = self._here.world.objects
        if names := sorted(objects.content):
            name = names[deed.place % len(names)]
            objects.cut(name, len(objects.content[name]) // 2)
            self._story.cut_objects.add(name)
            self._happened(deed)

    # ---- GPUs

    def _minor(self, place: int) -> int | None:
        gpus = self._here.world.machine.gpus
        return gpus[place].minor if place < len(gpus) else None

    @_perform.register
    async def _(self, deed: p.Xid) -> None:
        if (minor := self._minor(deed.gpu)) is not None:
            self._here.world.gpus.report(minor, deed.xid)
            self._happened(deed)

    @_perform.register
    async def _(self, deed: p.LoseGpu) -> None:
        if (minor := self._minor(deed.gpu)) is not None:
            self._story.is_lost(loss_of(self._here.world, minor, trio.current_time()))
            self._here.world.gpus.lose(minor)

            def over() -> None:
                self._here.world.gpus.recover(minor)
                self._story.is_back(minor, trio.current_time())

            self._later(deed.for_s, over)
            self._happened(deed)

    @_perform.register
    async def _(self, deed: p.UpgradeDriver) -> None:
        if self._plan.gpus:
            self._here.world.gpus.upgrade_driver(deed.version)
            self._later(deed.reload_s, self._here.world.gpus.reload_driver)
            self._happened(deed)

    @_perform.register
    async def _(self, deed: p.SwapToolkit) -> None:
        if self._plan.gpus:
            self._swaps += 1
            self._here.world.gpus.swap_toolkit(OTHER_TOOLKIT.format(self._swaps))
            self._happened(deed)

    @_perform.register
    async def _(self, deed: p.KillMonitor) -> None:
        table = self._here.world.table
        monitors = [each for each in table if each.arguments == COMMAND_LINE and each.is_running]
        for monitor in monitors:
            table.signal(monitor, signal.SIGKILL)
        if monitors:
            self._happened(deed)

    @_perform.register
    async def _(self, deed: p.DenyDevices) -> None:
        if self._plan.gpus:
            self._here.world.gpus.deny_devices()
            self._later(deed.for_s, self._here.world.gpus.allow_devices)
            self._happened(deed)

    def _later(self, after_s: float, act: Callable[[], object]) -> None:
        """Let something happen later, unless all faults have stopped by then."""

        async def wait() -> None:
            await trio.sleep(after_s)
            if not self._story.is_over:
                act()

        self._here.world.beside(wait)
