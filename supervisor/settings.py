"""What a worker is started with. Flags, environment, a file and defaults meet in the CLI; here are only values."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING

import attrs

from statemachine.actor import OnDrain

if TYPE_CHECKING:
    from pathlib import Path


class Backend(enum.StrEnum):
    """The event loop."""

    ASYNCIO = "asyncio"
    TRIO = "trio"


@attrs.frozen(kw_only=True)
class Settings:
    """The settings of one worker.

    Attributes:
        state_dir: what outlives the process.
        run_dir: the control socket.
        assignments: the watched directory; None watches none.
        runsc: the runsc executable.
        platform: gVisor's platform.
        network: gVisor's network.
        max_actors: how many actors that have not ended may be here.
        on_drain: what a shutdown does to running actors.
        drain_timeout_s: how long a shutdown may take before the rest is ended at once.
    """

    state_dir: Path
    run_dir: Path
    assignments: Path | None
    runsc: Path
    platform: str = "systrap"
    network: str = "none"
    max_actors: int = 1000
    on_drain: OnDrain = OnDrain.STOP
    drain_timeout_s: float = 120.0

    @property
    def control_socket(self) -> Path:
        """Where clients and server meet."""
        return self.run_dir / "control.sock"
