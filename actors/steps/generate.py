"""generate: the worker's CDI spec is at hand: verified against this pod, the same one for all who wait for it.

Needs the desk. Makes nothing of the actor's. Fails with what the desk says: ToolkitNotFound, GenerateFailed,
CdiDeviceUnresolved, MigUnsupported, NvmlUnavailable, StepDeadlineExceeded, …
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from statemachine.events import SpecGenerated

if TYPE_CHECKING:
    from actors.steps.stage import Stage


async def generate_spec(stage: Stage) -> SpecGenerated:
    """Perform GenerateSpec."""
    # Kept by the actor from here on: a spec that is made anew meanwhile is for whoever comes next.
    stage.spec = await stage.gpus.spec(stage.assignment.uid)
    return SpecGenerated()
