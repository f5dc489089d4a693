"""The calendar, the boot and fresh names."""

from __future__ import annotations

import os
import secrets
import time
from typing import Final

_BOOT_ID: Final = "/proc/sys/kernel/random/boot_id"
_CPUINFO: Final = "/proc/cpuinfo"
_FEATURES: Final = ("flags", "Features")
"""What the line is called on x86 and on Arm."""
_FRESH_ID_BYTES: Final = 8


class HostWall:
    """The real `Wall`. Source: random(4) for the boot id, getrandom(2) behind `secrets`."""

    def now_s(self) -> float:
        """Seconds since 1970 UTC."""
        return time.time()

    def boot_id(self) -> str:
        """The kernel's boot id: a UUID that changes with every boot and never in between."""
        with open(_BOOT_ID, encoding="ascii") as file:
            return file.read().strip()

    def machine(self) -> str:
        """The architecture in the kernel's word."""
        return os.uname().machine

    def cpu_features(self) -> tuple[str, ...] | None:
        """What the first processor can do. Of many processors the file is long, and slow to be made: no more is read.

        Source: proc_cpuinfo(5).
        """
        try:
            with open(_CPUINFO, encoding="ascii", errors="replace") as file:
                lines = (line.partition(":") for line in file)
                words = next((words.split() for key, _, words in lines if key.strip() in _FEATURES), None)
        except OSError:
            return None
        return None if words is None else tuple(sorted(set(words)))

    def fresh_id(self) -> str:
        """16 random hex digits: 64 bits, so that two alike are not met in the life of a fleet."""
        return secrets.token_hex(_FRESH_ID_BYTES)
