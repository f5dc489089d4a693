"""A GPU monitor that asks no NVML: for a mock node on a machine without a C compiler, where there is none to load.

It speaks the protocol (`actors.gpu.facts`) and looks as the real one does (`supervisor.gpu_monitor`), at the model of
NVML over the node's state file. It takes the real one's arguments.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Final

from actors.ports import DriverPlaces
from sim.mock.fake_ending import ending_with_nvml
from sim.mock.fake_hardware import MockHardware
from sim.world.nvml_library import SimLibrary
from supervisor.gpu_monitor.telling import tell_facts

# A state file that is renamed into place tells nobody: who waits looks so often whether there is another one.
_GLANCE_S: Final = 0.02


class MockLibrary(SimLibrary):
    """The model of NVML over a mock node, with which one can wait."""

    def __init__(self, hardware: MockHardware, places: DriverPlaces) -> None:
        super().__init__(hardware, places, self._hear)
        self._hardware = hardware
        self._has_heard = False

    def wait(self, limit_s: float) -> tuple[str | None, int] | None:
        """The next XID and the UUID of its GPU; None when the time is over."""
        until_s = time.monotonic() + limit_s
        event = self.next_xid()
        while event is None:
            left_s = until_s - time.monotonic()
            if left_s <= 0:
                return None
            time.sleep(min(left_s, _GLANCE_S))
            self._has_heard = False
            self._hardware.refresh()
            event = self.next_xid() if self._has_heard else None
        return event

    def _hear(self) -> None:
        self._has_heard = True


def main(directory: str, driver_root: str, dev_root: str, proc_root: str, period: str) -> None:
    """Be the monitor of a mock node until nobody listens, or until NVML makes the process hang or crash."""
    places = DriverPlaces(dev_root=Path(dev_root), proc_root=Path(proc_root), driver_root=Path(driver_root))
    with ending_with_nvml():
        tell_facts(MockLibrary(MockHardware(Path(directory)), places), float(period))
