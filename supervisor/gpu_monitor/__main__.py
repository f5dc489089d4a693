"""The program: NVML of a driver root, and the loop that tells of it."""

from __future__ import annotations

import sys

from supervisor.gpu_monitor.nvml import DriverLibrary
from supervisor.gpu_monitor.telling import tell_facts


def main(driver_root: str, dev_root: str, proc_root: str, period: str) -> None:
    """Tell facts until nobody listens, or until the library has to be loaded by another process."""
    tell_facts(DriverLibrary(driver_root, dev_root, proc_root), float(period))


if __name__ == "__main__":
    main(*sys.argv[1:])
