"""What the desk for GPUs listens to: NVML's word as it comes, and the keeper of the CDI spec."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping

    from actors.gpu.desk import KeptSpec
    from actors.gpu.inventory import Inventory
    from actors.gpu.view import View
    from supervisor.spec_keeper import SpecCounts
    from supervisor.xid_reports import XidReports


class Watch(Protocol):
    """NVML's word, as it comes."""

    @property
    def view(self) -> View:
        """What it comes to now."""
        ...

    async def first_word(self, limit_s: float) -> View:
        """The view, once anything was said, or when the time is over."""
        ...

    async def changed(self, since: View | None = None) -> None:
        """Wait until the view is another one than this."""
        ...

    @property
    def xids(self) -> XidReports:
        """The XIDs that came."""
        ...

    @property
    def used_bytes(self) -> Mapping[str, int]:
        """How much of each GPU's memory is in use, as NVML has told it last."""
        ...

    @property
    def replaced(self) -> int:
        """How many monitors were replaced."""
        ...

    async def run(self) -> None:
        """Listen, until this is cancelled."""
        ...


class Keeper(Protocol):
    """The CDI spec."""

    @property
    def counts(self) -> SpecCounts:
        """What came of it so far, and what goes on now."""
        ...

    def start(self, inventory: Inventory, driver: str) -> None:
        """Have it made, for whoever will ask."""
        ...

    async def spec(self, inventory: Inventory, driver: str) -> KeptSpec:
        """The spec for these GPUs.

        Raises:
            ProblemError: of the step generate.
        """
        ...

    async def run(self) -> None:
        """Make what is asked for, and look again when something changes, until this is cancelled."""
        ...
