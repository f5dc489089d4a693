"""The desk: what the worker knows of its GPUs and decides of them, as the steps of one actor may ask for it.

There is one for all actors; `supervisor.gpu_desk` is the real one. The steps say what they need and which actor they
are for, and whatever cannot be had is the reason that the step fails with.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Protocol

import attrs

from .hooks import HookPlan, plan_hooks
from .host_look import all_edits
from .links import LinkPlan, plan_links

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from pathlib import Path

    from actors.cdi import Spec
    from actors.ports import DriverPlaces

    from .inventory import Inventory
    from .links import Library
    from .partition import Claim, Grant


@attrs.frozen(kw_only=True)
class SpecFacts:
    """What a CDI spec was, after it was used: enough to look after what it was used for.

    Attributes:
        identity: what it belongs to; its directory stays as long as somebody uses it.
        driver: the driver's version.
        toolkit: the NVIDIA container toolkit's version; None when somebody else wrote the spec.
    """

    identity: str
    driver: str
    toolkit: str | None = None


@attrs.frozen(kw_only=True)
class KeptSpec:
    """A CDI spec that was verified against this pod, and what was read for it once.

    Attributes:
        identity: what it belongs to (driver, toolkit, device table, boot): 16 hex digits.
        path: the file it was read from.
        spec: the document.
        driver: the driver's version.
        toolkit: the NVIDIA container toolkit's version; None when somebody else wrote the spec.
        hook: the toolkit's own hook program, the only one that is ever written into a container's document.
        libraries: the driver's libraries among its mounts, with their SONAMEs.
        warnings: one sentence each.
    """

    identity: str
    path: Path
    spec: Spec
    driver: str
    toolkit: str | None
    libraries: tuple[Library, ...]
    hook: Path | None = None
    warnings: tuple[str, ...] = ()

    @property
    def facts(self) -> SpecFacts:
        """What is written down of it."""
        return SpecFacts(identity=self.identity, driver=self.driver, toolkit=self.toolkit)

    @cached_property
    def hooks(self) -> HookPlan:
        """What becomes of its hooks, of whichever device."""
        return plan_hooks(hook for edits in all_edits(self.spec) for hook in edits.hooks)

    @cached_property
    def links(self) -> LinkPlan:
        """The links to the driver's libraries."""
        return plan_links(self.libraries, self.hooks.links)


class GpuDesk(Protocol):
    """What steps ask of the worker's GPUs."""

    @property
    def places(self) -> DriverPlaces:
        """Where the driver is."""
        ...

    async def inventory(self) -> Inventory:
        """Every GPU of the pod: device nodes that are there, and what NVML says of them. Waits for NVML, bounded.

        Raises:
            ProblemError: GpuNotDetected, NvmlUnavailable, CdiModeRequired; of the step detect.
        """
        ...

    async def spec(self, uid: str) -> KeptSpec:
        """The worker's CDI spec; single-flight, kept under its identity, and as long as an actor uses it.

        Raises:
            ProblemError: ToolkitNotFound, GenerateFailed, StepDeadlineExceeded, NvmlUnavailable, MigUnsupported, …; of
                the step generate.
        """
        ...

    async def grant(self, uid: str, claims: Sequence[Claim]) -> tuple[Grant, ...]:
        """What each container gets; an actor that holds its grant keeps it.

        Raises:
            ProblemError: InsufficientGpus, GpuLost, GpuNotDetected, MigUnsupported, NvmlUnavailable.
        """
        ...

    async def compute_processes(self, uuids: Collection[str]) -> Mapping[str, tuple[int, ...]]:
        """The pids that compute on each of these GPUs, as NVML has told it last; it looks every few seconds.

        Raises:
            ProblemError: NvmlUnavailable, of the step suspend: NVML has not told it of each of them. Waits for its
                word, bounded.
        """
        ...

    def grants(self, uid: str) -> tuple[Grant, ...]:
        """What each container of an actor holds; nothing when it holds none."""
        ...

    def give_back(self, uid: str) -> None:
        """An actor needs its GPUs no longer; it may have had none."""
        ...
