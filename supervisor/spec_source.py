"""Where CDI specs come from: the toolkit, in this pod, or somebody else, on the host."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from actors.gpu.host_specs import HostSpecs
from actors.gpu.pod_specs import PodSpecs
from supervisor.settings import CdiSource

if TYPE_CHECKING:
    from pathlib import Path

    from actors.gpu.checked_specs import MadeSpec
    from actors.gpu.inventory import Inventory
    from actors.ports import DriverPlaces, Ports


class SpecSource(Protocol):
    """`PodSpecs` or `HostSpecs`."""

    async def watched(self) -> tuple[Path, ...]:
        """The directories in which something comes when a spec can be had, or another one."""
        ...

    async def make(self, inventory: Inventory, driver: str, last: MadeSpec | None) -> MadeSpec:
        """The spec for these GPUs; the last one where it is still right.

        Raises:
            ProblemError: of the step generate.
        """
        ...


def spec_source_of(
    ports: Ports, *, source: CdiSource, places: DriverPlaces, toolkit_dir: Path | None, directory: Path
) -> SpecSource:
    """What makes specs.

    Args:
        ports: the ports.
        source: who writes the spec.
        places: where the driver is.
        toolkit_dir: where the toolkit is; None looks where it usually is.
        directory: where specs are generated; nothing else is written.
    """
    if source is CdiSource.HOST:
        return HostSpecs(files=ports.files, wall=ports.wall, places=places)
    return PodSpecs(
        files=ports.files,
        processes=ports.processes,
        wall=ports.wall,
        directory=directory,
        places=places,
        toolkit_dir=toolkit_dir,
    )
