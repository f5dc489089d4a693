"""The runsc of this worker, looked at once before anything is taken on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from actors.pause_elf import pause_elf
from actors.runsc.checkpoint_flags import CheckpointFlags
from actors.runsc.flags import GlobalFlags
from actors.runsc.nvproxy import SupportedDrivers
from actors.runsc.version import runtime_version
from actors.static_elf import UnsupportedMachineError
from actors.steps.stage import Runtime
from statemachine.problem import Problem, ProblemError, Step
from statemachine.reasons import Reason

if TYPE_CHECKING:
    from actors.ports import Ports
    from supervisor.settings import Settings

VERSION: Final = "0.1.0"
"""Our own version, for manifests; a test holds it against pyproject.toml."""


async def look_at_runtime(ports: Ports, settings: Settings) -> Runtime:
    """Ask runsc for its version and take its digest.

    Raises:
        ProblemError: RuntimeUnavailable, RuntimeTooOld.
    """
    version = await runtime_version(ports.processes, settings.runsc, step=Step.SUPERVISE)
    machine = ports.wall.machine()
    try:
        pause_elf(machine)
        sha256 = await ports.files.sha256(settings.runsc)
    except UnsupportedMachineError as error:
        raise ProblemError(_unavailable(settings, str(error))) from error
    except OSError as error:
        raise ProblemError(_unavailable(settings, error.strerror or str(error))) from error
    return Runtime(
        path=settings.runsc,
        version=version,
        sha256=sha256,
        flags=GlobalFlags(platform=settings.platform, network=settings.network, extra=version.flags),
        machine=machine,
        cpu_features=ports.wall.cpu_features(),
        greenroom=VERSION,
        nvproxy=settings.nvproxy,
        drivers=SupportedDrivers(ports.processes, settings.runsc),
        checkpoint_flags=CheckpointFlags(ports.processes, settings.runsc),
    )


def _unavailable(settings: Settings, what: str) -> Problem:
    return Problem(
        step=Step.SUPERVISE,
        reason=Reason.RUNTIME_UNAVAILABLE,
        subject=str(settings.runsc),
        message=f"{settings.runsc} cannot be used: {what}",
    )
