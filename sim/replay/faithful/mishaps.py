"""The faults of a trace, as they happen to simulated workers; by the names that `greenroom sim chaos` has for them."""

from __future__ import annotations

import signal
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Protocol

import trio

from sim.fleet.facts import GpusUsable
from sim.replay.faithful.papers import uid_of
from sim.world.gpu_monitor import COMMAND_LINE
from statemachine.problem import ProblemError

if TYPE_CHECKING:
    from sim.fleet.facts import Fact
    from sim.replay.faithful.carrying import Way
    from sim.replay.faithful.worker import Worker
    from sim.traces.records import FaultRecord
    from sim.world.world import World

FOR_S: Final = 60.0
"""How long an outage lasts, where the trace does not say."""
OTHER_DRIVER: Final = "550.54.15"
_FELL_OFF_THE_BUS: Final = 79
_LOOK_S: Final = 0.01
"""After this a supervisor has heard what its monitor has to say of a GPU."""
_LOOKS_AGAIN_S: Final = 5.0


class Scene(Protocol):
    """What there is that something can go wrong with."""

    way: Way
    workers: dict[str, Worker]

    @property
    def tasks(self) -> trio.Nursery:
        """Where things go on by themselves."""
        ...

    def tell(self, fact: Fact) -> None:
        """Something has happened."""
        ...


def happens(record: FaultRecord, scene: Scene) -> bool:
    """Let a fault happen; says whether there was somebody whom it could happen to."""
    if record.fault == "store-outage":
        scene.tasks.start_soon(scene.way.down, _number(record, "for_s", FOR_S))
        return True
    worker, fault = _where(record, scene), _FAULTS.get(record.fault)
    has_met = worker is not None and fault is not None and _can_meet(worker, record) and fault(worker, record)
    if has_met and worker is not None and record.fault in _OF_GPUS:
        # Without a word in the trace an XID is over at once: it depends on its number what follows.
        for_s = _number(record, "for_s", FOR_S) if record.fault == "lose-gpu" else 0.0
        worker.world.beside(partial(_tell_gpus, worker, scene, for_s))
    return has_met


async def _tell_gpus(worker: Worker, scene: Scene, for_s: float) -> None:
    """Ask the supervisor how many of its GPUs are well, and tell the fleet, until all are."""
    told = worker.gpus
    await trio.sleep(_LOOK_S)
    ends_s = trio.current_time() + for_s
    while True:
        with suppress(ProblemError):  # it is being killed, or ends: whoever comes after it is asked
            gpus = await worker.usable_gpus()
            if gpus != told:
                scene.tell(GpusUsable(trio.current_time(), worker.name, gpus))
                told = gpus
            if gpus == worker.gpus and trio.current_time() >= ends_s:
                return
        await trio.sleep(max(_LOOKS_AGAIN_S, ends_s - trio.current_time()))


def _where(record: FaultRecord, scene: Scene) -> Worker | None:
    """The worker that is named, or the one on which the named actor has a sandbox."""
    if record.worker is not None:
        return scene.workers.get(record.worker)
    uid = uid_of(record.actor or "")
    found = (each for each in scene.workers.values() if each.is_up and each.world.sandboxes_of(uid))
    return next(found, None)


def _can_meet(worker: Worker, record: FaultRecord) -> bool:
    return worker.is_up and (worker.gpus > 0 or record.fault not in _OF_DRIVERS)


def _kill_worker(worker: Worker, record: FaultRecord) -> bool:
    worker.kill(_number(record, "down_s", 0.0))
    return True


def _kill_sandbox(worker: Worker, record: FaultRecord) -> bool:
    names = [record.actor] if record.actor is not None else worker.actors
    uid = next((uid_of(name) for name in names if worker.world.sandboxes_of(uid_of(name))), None)
    if uid is not None:
        worker.world.kill_sandbox(uid)
    return uid is not None


def _lose_gpu(worker: Worker, record: FaultRecord) -> bool:
    minor = _minor(worker, record)
    if minor is None:
        return False
    worker.world.gpus.lose(minor)
    _later(worker, record, lambda world: world.gpus.recover(minor))
    return True


def _report_xid(worker: Worker, record: FaultRecord) -> bool:
    minor = _minor(worker, record)
    if minor is None:
        return False
    worker.world.gpus.report(minor, int(_number(record, "xid", _FELL_OFF_THE_BUS)))
    return True


def _upgrade_driver(worker: Worker, record: FaultRecord) -> bool:
    worker.world.gpus.upgrade_driver(str(record.args.get("version", OTHER_DRIVER)))
    _later(worker, record, lambda world: world.gpus.reload_driver())
    return True


def _deny_devices(worker: Worker, record: FaultRecord) -> bool:
    worker.world.gpus.deny_devices()
    _later(worker, record, lambda world: world.gpus.allow_devices())
    return True


def _fill_disk(worker: Worker, record: FaultRecord) -> bool:
    worker.world.fill_disk(slack_bytes=int(_number(record, "slack_bytes", 0)))
    _later(worker, record, lambda world: world.make_room())
    return True


def _kill_monitor(worker: Worker, _record: FaultRecord) -> bool:
    table = worker.world.table
    monitors = [each for each in table if each.arguments == COMMAND_LINE and each.is_running]
    for each in monitors:
        table.signal(each, signal.SIGKILL)
    return bool(monitors)


_FAULTS: Final[Mapping[str, Callable[[Worker, FaultRecord], bool]]] = MappingProxyType(
    {
        "kill-worker": _kill_worker,
        "kill-sandbox": _kill_sandbox,
        "lose-gpu": _lose_gpu,
        "xid": _report_xid,
        "upgrade-driver": _upgrade_driver,
        "deny-devices": _deny_devices,
        "fill-disk": _fill_disk,
        "kill-monitor": _kill_monitor,
    }
)
_OF_GPUS: Final = frozenset({"lose-gpu", "xid"})
_OF_DRIVERS: Final = frozenset({"upgrade-driver", "deny-devices"})
"""Of these a worker without GPUs knows nothing."""
NAMES: Final = frozenset({"store-outage", *_FAULTS})


def _later(worker: Worker, record: FaultRecord, act: Callable[[World], object]) -> None:
    """End it when its time is over, if the machine is still there then."""

    async def wait() -> None:
        await trio.sleep(_number(record, "for_s", FOR_S))
        act(worker.world)

    worker.world.beside(wait)


def _minor(worker: Worker, record: FaultRecord) -> int | None:
    """Of the GPU that is meant: one that is named, in the order of minors, or the first that the named actor holds."""
    gpus: Any = sorted(worker.world.gpus.visible(), key=lambda gpu: gpu.minor)
    index = int(_number(record, "gpu", 0))
    if record.actor is not None and "gpu" not in record.args:
        held = worker.gpus_of(uid_of(record.actor))
        return held[0] if held else None
    return gpus[index].minor if index < len(gpus) else None


def _number(record: FaultRecord, name: str, default: float) -> float:
    value = record.args.get(name)
    return float(value) if isinstance(value, int | float) and value >= 0 else default
