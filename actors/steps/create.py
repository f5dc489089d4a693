"""create: bundles are written unless inject has, and sandbox and containers are started cold.

Needs the assignment; of an actor with a claim, what inject has made. Makes `sandboxes/<activation>/` with bundles,
runsc's root and the sandbox's processes, and the durable volumes that are not there yet, which stay. Undone by
teardown: the processes first, then the directory. Refuses: RootfsNotFound, BundleNotFound, InvalidBundle,
DriverUnsupportedByRuntime; fails with StateUnwritable, InsufficientDisk, or what runsc says (CommandNotFound,
RuntimeFailed, SandboxDied, …).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from actors.runsc.activation import start_cold
from actors.steps.bundles import bundles_of, driver, require_known_driver
from actors.steps.volumes import make_volumes
from statemachine.events import SandboxCreated
from statemachine.problem import Step

if TYPE_CHECKING:
    from actors.steps.stage import Stage


async def create_sandbox(stage: Stage) -> SandboxCreated:
    """Perform CreateSandbox."""
    stage.exited, stage.forced = {}, ()
    plan = await bundles_of(stage, stage.assignment.containers, step=Step.CREATE)
    await require_known_driver(stage, step=Step.CREATE)
    await make_volumes(stage, Step.CREATE)
    stage.sandbox = await start_cold(driver(stage), plan)
    return SandboxCreated()
