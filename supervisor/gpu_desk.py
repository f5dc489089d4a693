"""The worker's desk for its GPUs: who holds which. Who is told what befalls one stands in `supervisor.gpu_telling`.

Admission books; Partitioning turns a booking into a grant; an actor at rest holds none. NVML's word comes from the
watch, device nodes are looked at anew each time, and the CDI spec comes from its keeper.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import anyio
import attrs
import structlog

from actors.gpu.detection import judge, look_for_nodes, require_nodes
from actors.gpu.inventory import Inventory
from actors.gpu.partition import Claim, Pool, Ticket, admit, grant, hand_over, release
from actors.gpu.view import SILENT, NvmlAnswers, unanswered
from actors.steps.partition import claims_by_container
from statemachine.problem import Problem, ProblemError, Step
from statemachine.reasons import Reason
from supervisor.gpu_telling import GpuTelling
from supervisor.gpu_watch import GpuWatch
from supervisor.spec_keeper import spec_keeper_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence

    from actors.assignment import WorkerAssignment
    from actors.gpu.desk import KeptSpec, SpecFacts
    from actors.gpu.detection import Detected, Seen
    from actors.gpu.inventory import Gpu
    from actors.gpu.partition import Grant
    from actors.gpu.view import View
    from actors.ports import DriverPlaces, Files, Ports
    from statemachine.events import GpuLost
    from supervisor.gpu_sources import Keeper, Watch
    from supervisor.settings import Settings
    from supervisor.spec_keeper import SpecCounts

FIRST_WORD_S: Final = 20.0
"""How long NVML may take for its first answer; without persistence mode it takes seconds."""
NEXT_WORD_S: Final = 8.0
"""How long it may take for one in Partitioning, which has 10 s: the monitor may just have been replaced."""

LOOK_S: Final = 0.02
"""How long a look at the device nodes counts for the next steps; what is injected is looked at once more anyway."""

_log = structlog.get_logger("greenroom.gpus")


class WorkerGpus:
    """The one desk of a worker; `actors.gpu.desk.GpuDesk` for its actors' steps.

    Attributes:
        places: where the driver is.
        pool: who has booked or holds what.
    """

    def __init__(
        self, *, files: Files, places: DriverPlaces, watch: Watch, keeper: Keeper, specs: dict[str, str]
    ) -> None:
        """`specs` is kept here: the identity of the CDI spec that each actor uses, for whoever removes others."""
        self.places = places
        self.pool = Pool()
        self._files, self._watch, self._keeper = files, watch, keeper
        self._known: Inventory | None = None
        self._looked: tuple[float, Seen] | None = None
        self._warned: tuple[str, ...] = ()
        self._telling = GpuTelling(watch, pool=lambda: self.pool, known=lambda: self._known)
        self._specs = specs

    # ---- what the steps of an actor ask

    async def inventory(self) -> Inventory:
        """Every GPU of the pod, as it is now."""
        return (await self._detected(await self._look())).inventory

    async def spec(self, uid: str) -> KeptSpec:
        """The worker's CDI spec, which an actor uses until it gives its GPUs back."""
        try:
            detected = await self._detected(await self._last_look())
        except ProblemError as error:
            raise _of_step(error, Step.GENERATE) from error
        kept = await self._keeper.spec(detected.inventory, detected.driver)
        self._specs[uid] = kept.identity
        return kept

    async def _look(self) -> Seen:
        """The device nodes, looked at now."""
        seen = await look_for_nodes(self._files, self.places)
        self._looked = (anyio.current_time(), seen)
        return seen

    async def _last_look(self) -> Seen:
        """The device nodes as somebody has just seen them: the steps of an actor follow one another within that."""
        if self._looked is not None and anyio.current_time() - self._looked[0] <= LOOK_S:
            return self._looked[1]
        return await self._look()

    async def _detected(self, seen: Seen, limit_s: float = FIRST_WORD_S) -> Detected:
        require_nodes(seen)  # a pod without GPUs has no need of NVML
        detected = judge(seen, await self._watch.first_word(limit_s))
        self._known = detected.inventory
        if detected.warnings != self._warned:
            self._warned = detected.warnings
            for warning in detected.warnings:
                _log.warning("gpus", message=warning)
        return detected

    async def grant(self, uid: str, claims: Sequence[Claim]) -> tuple[Grant, ...]:
        """Turn a booking into a grant; who has not booked stands behind all who have."""
        try:
            inventory = (await self._detected(await self._last_look(), NEXT_WORD_S)).inventory
            self.pool = grant(admit(self.pool, inventory, uid, claims), inventory, uid)
        except ProblemError as error:
            raise _of_step(error, Step.PARTITION) from error
        return self.grants(uid)

    async def compute_processes(self, uuids: Collection[str]) -> Mapping[str, tuple[int, ...]]:
        """The pids that compute on each of these GPUs, as NVML has told it last."""
        view = await self._watch.first_word(NEXT_WORD_S)
        with anyio.move_on_after(NEXT_WORD_S):
            # A monitor tells of its GPUs first, and then of who computes on each.
            while isinstance(view, NvmlAnswers) and not view.processes.keys() >= set(uuids):
                await self._watch.changed(view)
                view = self._watch.view
        if not isinstance(view, NvmlAnswers) or not view.processes.keys() >= set(uuids):
            raise ProblemError(_untold(view, uuids))
        return {uuid: view.processes[uuid] for uuid in uuids}

    def grants(self, uid: str) -> tuple[Grant, ...]:
        """What each container of an actor holds."""
        ticket = self.pool.ticket(uid)
        return (ticket.grants or ()) if ticket is not None else ()

    def give_back(self, uid: str) -> None:
        """An actor needs its GPUs no longer."""
        self.pool = release(self.pool, uid)
        self._specs.pop(uid, None)
        self._telling.forget(uid)

    # ---- what the worker asks

    def leave_to(self, activation: str, uid: str) -> None:
        """What an actor held is held by an activation of its own, with which nobody goes on: it may book anew."""
        self.pool = hand_over(self.pool, uid, activation)
        spec = self._specs.pop(uid, None)
        if spec is not None:
            self._specs[activation] = spec
        self._telling.forget(uid)

    def used_bytes(self, uid: str) -> int | None:
        """How much memory is in use on the GPUs that an actor holds; None when it holds none, or NVML does not tell."""
        held = [gpu for grant in self.grants(uid) for gpu in grant.gpus]
        told = [self._watch.used_bytes.get(gpu) for gpu in held]
        return sum(each for each in told if each is not None) if told and None not in told else None

    def keep(self, uid: str, grants: Sequence[Grant], spec: SpecFacts) -> bool:
        """Book what an actor holds since an earlier life of the worker; whether it can: no GPU has two holders.

        Before anybody else may have it. That one of them is lost by now, or gone, it is told like any other holder.
        """
        claims = tuple(Claim(each.container, len(each.gpus)) for each in grants)
        number = 1 + max((ticket.number for ticket in self.pool.tickets), default=0)
        try:
            kept = Ticket(number=number, uid=uid, claims=claims, grants=tuple(grants))
            self.pool = Pool((*self.pool.tickets, kept))
        except ValueError:
            return False
        self._specs[uid] = spec.identity
        return True

    async def book(self, assignment: WorkerAssignment) -> bool:
        """Book what an actor claims; whether there is a booking now that there was not before.

        While NVML does not answer nothing is booked: that is for Detecting to say, of the actor and not of its
        document.

        Raises:
            ProblemError: GpuNotDetected, CdiModeRequired, MigUnsupported, InsufficientGpus, which names the holders.
        """
        claims = claims_by_container(assignment)
        if not any(claim.count for claim in claims) or self.pool.ticket(assignment.uid) is not None:
            return False
        try:
            inventory = await self.inventory()
        except ProblemError as error:
            if error.problem.reason is Reason.NVML_UNAVAILABLE:
                return False
            raise _of_step(error, Step.ADMISSION) from error
        if self.pool.ticket(assignment.uid) is not None:
            return False  # another request for it came first
        self.pool = admit(self.pool, inventory, assignment.uid, claims)
        return True

    async def run(
        self,
        tell: Callable[[str, GpuLost], Awaitable[None]],
        tell_trouble: Callable[[str, Problem, int], Awaitable[None]],
    ) -> None:
        """Watch the GPUs until this is cancelled.

        Args:
            tell: tells an actor that a GPU which it holds is lost.
            tell_trouble: tells an actor of a trouble that came so often, and with which it runs on.
        """
        async with anyio.create_task_group() as group:
            group.start_soon(self._watch.run, name="gpus:watch")
            group.start_soon(self._keeper.run, name="gpus:spec")
            group.start_soon(self._look_ahead, name="gpus:first look")
            group.start_soon(self._telling.xids, tell_trouble, name="gpus:xids")
            await self._telling.losses(tell)

    async def _look_ahead(self) -> None:
        """From the worker's start on, once NVML answers: have the CDI spec made, so that no actor waits for it."""
        while True:
            try:
                detected = await self._detected(await self._look())
            except ProblemError as error:
                reason = error.problem.reason
                if reason is not Reason.GPU_NOT_DETECTED:
                    _log.warning("gpus", reason=str(reason), message=error.problem.message)
                if reason is not Reason.NVML_UNAVAILABLE:
                    return
                await self._watch.changed(self._watch.view)
            else:
                self._keeper.start(detected.inventory, detected.driver)
                return

    # ---- what is shown

    def as_json(self) -> list[dict[str, Any]]:
        """The `gpus` of the worker's status: what NVML says now of those whose nodes were found at the last look."""
        view, holders = self._watch.view, self.pool.holders
        known = self._known or Inventory()
        seen = view.inventory if isinstance(view, NvmlAnswers) else known
        found = {gpu.uuid for gpu in (seen if self._known is None else known).gpus} | set(holders)
        return [
            {
                "minor": gpu.minor,
                "uuid": gpu.uuid,
                "path": gpu.path,
                "pciBusId": gpu.pci_bus_id,
                "model": gpu.model,
                "state": _state(gpu, seen, holders),
                "lost": gpu.lost,
                "withheld": seen.withheld.get(gpu.uuid),
                "xids": self._watch.xids.as_json(gpu.uuid),
                "holder": attrs.asdict(holders[gpu.uuid]) if gpu.uuid in holders else None,
            }
            for gpu in seen.gpus
            if gpu.uuid in found
        ]

    @property
    def watch(self) -> Watch:
        """NVML's word, as it comes."""
        return self._watch

    def spec_counts(self) -> SpecCounts:
        """What came of the CDI spec so far, and what goes on now."""
        return self._keeper.counts

    def problems(self) -> tuple[Problem, ...]:
        """What keeps the GPUs from being granted, as far as it is known."""
        view = self._watch.view
        if view is SILENT or isinstance(view, NvmlAnswers):
            return ()
        return (unanswered(view, step=Step.DETECT),)

    def held_by(self, uid: str) -> dict[str, tuple[str, ...]]:
        """The UUIDs of each container of an actor, by ordinal."""
        return {each.container: each.gpus for each in self.grants(uid)}


def desk_of(ports: Ports, settings: Settings) -> WorkerGpus:
    """The desk of a worker with these settings."""
    places = settings.places
    watch = GpuWatch(ports.gpus, places, silence_s=settings.gpu_silence_s)
    specs: dict[str, str] = {}
    keeper = spec_keeper_of(ports, settings, in_use=specs.values)
    return WorkerGpus(files=ports.files, places=places, watch=watch, keeper=keeper, specs=specs)


def _state(gpu: Gpu, seen: Inventory, holders: Collection[str]) -> str:
    """As it is to whoever would be granted it."""
    if gpu.lost is not None:
        return "Lost"
    if gpu.uuid in holders:
        return "Held"
    return "Lost" if gpu.uuid in seen.withheld else "Free"


def _of_step(error: ProblemError, step: Step) -> ProblemError:
    """The pod is looked at in several steps; what speaks against one of them is that one's."""
    return ProblemError(*(attrs.evolve(each, step=step) for each in error.problems))


def _untold(view: View, uuids: Collection[str]) -> Problem:
    """NvmlUnavailable: nobody knows who computes on these GPUs."""
    if not isinstance(view, NvmlAnswers):
        return unanswered(view, step=Step.SUSPEND)
    untold = ", ".join(sorted(set(uuids) - view.processes.keys()))
    message = f"NVML does not say which processes compute on {untold}"
    return Problem(step=Step.SUSPEND, reason=Reason.NVML_UNAVAILABLE, subject="nvml", message=message)
