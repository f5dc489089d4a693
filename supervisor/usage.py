"""What each actor uses, read when somebody asks. Nothing here runs by itself, and nothing waits for a step.

`worker.usages.of_all(uids)` is for whoever exports numbers; what is not measured is None there, never 0.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

import anyio
import attrs

from actors.codec import rfc3339
from actors.concurrency import together
from actors.ports import CgroupUsage
from actors.steps.leaf import usage
from supervisor.status import worker_status

if TYPE_CHECKING:
    from collections.abc import Callable, Collection
    from pathlib import Path

    from actors.steps.stage import Stage
    from supervisor.life import Life
    from supervisor.worker import Worker

READS_MAX: Final = 64
"""Actors that are read side by side."""


@attrs.frozen(kw_only=True)
class ActorUsage:
    """What one actor has used since its activation began.

    Attributes:
        activation: whose numbers these are; None where there is none.
        measured: the numbers; None where nothing is measured.
        observed_at_s: when, in seconds since the epoch; None where nothing is measured.
        why: why nothing is measured.
        gpu_memory_bytes: in use on the GPUs that it holds; None when it holds none or NVML does not tell.
    """

    activation: Path | None = None
    measured: CgroupUsage | None = None
    observed_at_s: float | None = None
    why: str = ""
    gpu_memory_bytes: int | None = None

    def as_json(self) -> dict[str, Any]:
        """Its part of an actor's status: every field is always there, and null is not measured."""
        found = self.measured or CgroupUsage()
        return {
            "source": "Unspecified" if self.measured is None else "Cgroup",
            "observedAt": None if self.observed_at_s is None else rfc3339(self.observed_at_s),
            "why": self.why or None,
            "cpu_usec": found.cpu_usec,
            "throttledPeriods": found.throttled_periods,
            "throttled_usec": found.throttled_usec,
            "memory_bytes": found.memory_bytes,
            "memoryPeak_bytes": found.memory_peak_bytes,
            "workingSet_bytes": found.working_set_bytes,
            "oomKills": found.oom_kills,
            "processes": found.processes,
            "gpuMemory_bytes": self.gpu_memory_bytes,
        }


class Usages:
    """Reads what actors use, off the stages that they are on.

    Args:
        now_s: the calendar.
        gpu_memory: how much memory is in use on the GPUs that an actor holds.
    """

    def __init__(self, now_s: Callable[[], float], gpu_memory: Callable[[str], int | None]) -> None:
        self._now_s, self._gpu_memory = now_s, gpu_memory
        self._stages: dict[str, Stage] = {}
        self._reading: anyio.CapacityLimiter | None = None

    def follow(self, uid: str, stage: Stage) -> None:
        """From now on an actor is on this stage."""
        self._stages[uid] = stage

    def forget(self, uid: str) -> None:
        """Its life is not remembered any more."""
        self._stages.pop(uid, None)

    async def of(self, uid: str) -> ActorUsage:
        """What one actor has used; an error is that actor's alone."""
        found = await self._measured(uid)
        return attrs.evolve(found, gpu_memory_bytes=self._gpu_memory(uid))

    async def _measured(self, uid: str) -> ActorUsage:
        stage = self._stages.get(uid)
        if stage is None or stage.cgroups is None:
            return ActorUsage(why="the worker has no cgroup to measure by")
        try:
            found = await usage(stage)
        except OSError as error:
            return ActorUsage(why=f"its cgroup cannot be read: {error.strerror or error}")
        if found is None:
            return ActorUsage(why="it has no cgroup now")
        return ActorUsage(activation=stage.activation, measured=found, observed_at_s=self._now_s())

    def still(self, uid: str, found: ActorUsage) -> ActorUsage:
        """The same, if it is still of the activation that is live; so much later is a status made of it."""
        stage = self._stages.get(uid)
        is_so = found.measured is None or (stage is not None and stage.activation == found.activation)
        return found if is_so else ActorUsage(why="its activation has ended since")

    async def of_all(self, uids: Collection[str]) -> dict[str, ActorUsage]:
        """What these actors have used, read side by side."""
        # Of whoever is over or at rest, by the thousand, nothing is read: a task would cost more than that answer.
        found = {uid: await self.of(uid) for uid in uids if not self._is_live(uid)}
        live = [uid for uid in uids if self._is_live(uid)]
        self._reading = self._reading or anyio.CapacityLimiter(READS_MAX)
        limit = self._reading

        async def read(uid: str) -> None:
            async with limit:
                found[uid] = await self.of(uid)

        await together(*(partial(read, uid) for uid in live))
        return found

    def _is_live(self, uid: str) -> bool:
        stage = self._stages.get(uid)
        return stage is not None and stage.activation is not None


async def measured_status(worker: Worker, life: Life) -> dict[str, Any]:
    """The status object of one actor, with what it uses."""
    found = await worker.usages.of(life.uid)
    return _with_usage(worker.status_of(life), worker.usages, found)


async def measured_worker_status(worker: Worker, *, boot_id: str) -> dict[str, Any]:
    """The status document of the worker, with what each actor uses."""
    found = await worker.usages.of_all([life.uid for life in worker.lives])
    document = worker_status(worker, boot_id=boot_id)
    for actor in document["actors"]:
        _with_usage(actor, worker.usages, found.get(actor["uid"], ActorUsage(why="it has only just come")))
    return document


def _with_usage(actor: dict[str, Any], usages: Usages, found: ActorUsage) -> dict[str, Any]:
    actor["usage"] = usages.still(actor["uid"], found).as_json()
    return actor
