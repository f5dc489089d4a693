"""The CDI spec that a worker would use here, made once for a command, in a directory of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from actors.gpu.host_specs import HostSpecs
from actors.gpu.pod_specs import PodSpecs
from supervisor.settings import CdiSource

if TYPE_CHECKING:
    from pathlib import Path

    from actors.gpu.desk import KeptSpec
    from actors.gpu.detection import Detected
    from actors.ports import DriverPlaces, Ports


async def look_for_spec(
    ports: Ports,
    detected: Detected,
    *,
    source: CdiSource,
    places: DriverPlaces,
    toolkit_dir: Path | None,
    directory: Path,
) -> KeptSpec:
    """The spec for the GPUs that were detected, verified against this pod.

    Args:
        ports: the world.
        detected: the GPUs.
        source: who writes the spec.
        places: where the driver is.
        toolkit_dir: where the toolkit is; None looks where it usually is.
        directory: where one is generated; nothing else is written.

    Raises:
        ProblemError: of the step generate.
    """
    if source is CdiSource.HOST:
        found = HostSpecs(files=ports.files, wall=ports.wall, places=places)
        return (await found.make(detected.inventory, detected.driver, None)).kept
    made = PodSpecs(
        files=ports.files,
        processes=ports.processes,
        wall=ports.wall,
        directory=directory,
        places=places,
        toolkit_dir=toolkit_dir,
    )
    return (await made.make(detected.inventory, detected.driver, None)).kept
