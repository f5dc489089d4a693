"""The verdict on a snapshot without a worker: what a worker here would find, on which nobody holds a GPU."""

from __future__ import annotations

from typing import TYPE_CHECKING

from actors.gpu.desk import SpecFacts
from actors.gpu.inventory import Inventory
from actors.layout import StateDir
from actors.steps.bundles import require_known_driver
from actors.steps.origin import verdict
from actors.steps.stage import Stage
from statemachine.problem import Step
from supervisor.gpu_desk import desk_of
from supervisor.planning import grants_on_an_idle_worker
from supervisor.runtime import look_at_runtime

if TYPE_CHECKING:
    from actors.assignment import WorkerAssignment
    from actors.compatibility import Difference
    from actors.gpu.detection import Detected
    from actors.journal import Mark
    from actors.manifest import Manifest
    from actors.ports import Ports
    from supervisor.settings import Settings


async def verdict_here(
    ports: Ports, settings: Settings, manifest: Manifest, assignment: WorkerAssignment, detected: Detected | None
) -> tuple[Difference, ...]:
    """What the restore step of a worker with these settings would find.

    What today's CDI spec would inject is not asked for: it is taken to give what the snapshot had.

    Args:
        ports: only asked and read.
        settings: the worker's.
        manifest: the snapshot's.
        assignment: as admitted.
        detected: the GPUs of this pod; None when nothing is claimed.

    Raises:
        ProblemError: RuntimeUnavailable, RuntimeTooOld; InvalidBundle, BundleNotFound, RootfsNotFound;
            InsufficientGpus; DriverUnsupportedByRuntime where nothing else differs.
    """
    inventory = Inventory() if detected is None else detected.inventory
    stage = Stage(
        ports=ports,
        state_dir=StateDir(settings.state_dir),
        runtime=await look_at_runtime(ports, settings),
        gpus=desk_of(ports, settings),
        assignment=assignment,
        note=_nobody,
        spec=None if detected is None else SpecFacts(identity="", driver=detected.driver),
        granted=grants_on_an_idle_worker(assignment, inventory),
    )
    found = await verdict(stage, manifest)
    if not found:
        await require_known_driver(stage, step=Step.RESTORE)
    return found


async def _nobody(_mark: Mark) -> None:
    """Nothing is journaled."""
