"""What stands at the moment of a scrape, read from where it is kept. Nothing of it is counted anywhere else."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from actors.gpu.xids import XidPolicy
from actors.ports import CgroupUsage
from statemachine.states import State
from supervisor.metrics import catalogue as m
from supervisor.metrics.tallies import family

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from actors.ports import OwnUsage
    from supervisor.metrics.catalogue import Metric
    from supervisor.metrics.tallies import Family
    from supervisor.usage import ActorUsage
    from supervisor.worker import Worker

GPU_STATES: Final = ("Free", "Held", "Lost")
"""The words of `status`; each is told also when no GPU is so."""


def of_worker(worker: Worker) -> Iterator[Family]:
    """What a worker is doing."""
    lives = worker.lives
    states = Counter(life.actor.state for life in lives)
    yield family(m.ACTOR_STATES, (((state,), states[state]) for state in State))
    yield family(m.ACTORS_MAX, [((), worker.settings.max_actors)])
    yield family(m.EVENTS_WAITING, [((), sum(life.waiting for life in lives))])
    yield family(m.FILES_REFUSED, [((), len(worker.refused))])
    gpus = Counter(gpu["state"] for gpu in worker.gpus.as_json())
    yield family(m.GPUS, (((state,), gpus[state]) for state in (*GPU_STATES, *sorted(gpus.keys() - {*GPU_STATES}))))
    watch = worker.gpus.watch
    yield family(m.XIDS, (((policy,), watch.xids.counts[policy]) for policy in XidPolicy))
    yield family(m.MONITORS, [((), watch.replaced)])
    specs = worker.gpus.spec_counts()
    yield family(m.SPECS, [(("made",), specs.made), (("kept",), specs.kept), (("failed",), specs.failed)])
    yield family(m.SPECS_RUNNING, [((), specs.running)])
    yield family(m.SPECS_WAITING, [((), specs.waiting)])
    yield family(m.STUCK, [((), specs.stuck)])
    yield family(m.UPLOADS_PENDING, [((), len(worker.uploads.left))])


def of_actors(usages: Mapping[str, ActorUsage]) -> Iterator[Family]:
    """What each actor uses; what is not measured is left out, for it is not 0."""
    found = [(uid, usage, usage.measured or CgroupUsage()) for uid, usage in sorted(usages.items())]
    yield _of_each(m.ACTOR_CPU, ((uid, _seconds(used.cpu_usec)) for uid, _, used in found))
    yield _of_each(m.ACTOR_MEMORY, ((uid, used.memory_bytes) for uid, _, used in found))
    yield _of_each(m.ACTOR_WORKING_SET, ((uid, used.working_set_bytes) for uid, _, used in found))
    yield _of_each(m.ACTOR_OOM_KILLS, ((uid, used.oom_kills) for uid, _, used in found))
    yield _of_each(m.ACTOR_GPU_MEMORY, ((uid, usage.gpu_memory_bytes) for uid, usage, _ in found))


def _of_each(metric: Metric, values: Iterable[tuple[str, float | None]]) -> Family:
    return family(metric, (((uid,), value) for uid, value in values if value is not None))


def _seconds(usec: int | None) -> float | None:
    return None if usec is None else usec / 1e6


def of_process(usage: OwnUsage) -> Iterator[Family]:
    """What the worker's own process uses."""
    yield family(m.CPU, [((), usage.cpu_s)])
    yield family(m.RESIDENT, [((), usage.resident_bytes)])
    if usage.proportional_bytes is not None:
        yield family(m.PROPORTIONAL, [((), usage.proportional_bytes)])
    yield family(m.THREADS, [((), usage.threads)])
    yield family(m.OPEN_FILES, [((), usage.open_files)])
    yield family(m.OPEN_FILES_MAX, [((), usage.open_files_max)])
    yield family(m.REAPED, [((), usage.reaped)])
