"""The simulated calendar, boots and fresh names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

import anyio

if TYPE_CHECKING:
    from collections.abc import Callable

# 2026-01-01T00:00:00Z: after everything that this code depends on.
_START_S: Final = 1_767_225_600.0
_CPU_FEATURES: Final = ("avx", "avx2", "fpu", "sse4_2", "tsc")


class Randomness(Protocol):
    """The part of random.Random that is needed; it is seeded by who hands it in."""

    def getrandbits(self, k: int, /) -> int:
        """K random bits."""
        ...


class SimWall:
    """The simulated `Wall`: one for the machine, whatever process asks.

    Args:
        randomness: what ids are made of.
        start_s: the date when the backend's clock is at 0, seconds since 1970.
        machine: the architecture.
        cpu_features: what its processor can do.
        clock: seconds of a clock that only goes forward; the backend's.
    """

    def __init__(
        self,
        randomness: Randomness,
        *,
        start_s: float = _START_S,
        machine: str = "x86_64",
        cpu_features: tuple[str, ...] = _CPU_FEATURES,
        clock: Callable[[], float] = anyio.current_time,
    ) -> None:
        self._randomness = randomness
        self._offset_s = start_s
        self._machine = machine
        self._cpu_features = cpu_features
        self.clock = clock
        self._given: set[int] = set()
        self._stamped_s, self._stamp_ns = 0.0, 0
        self._boot_id = self._fresh_uuid()

    def now_s(self) -> float:
        """Seconds since 1970 UTC, as the machine believes."""
        return self.clock() + self._offset_s

    def now_ns(self) -> int:
        """The same in whole nanoseconds; what a simulated disk stamps files with."""
        now_s = self.clock() + self._offset_s
        if now_s != self._stamped_s:
            self._stamped_s, self._stamp_ns = now_s, round(now_s * 1e9)
        return self._stamp_ns

    def boot_id(self) -> str:
        """The kernel's boot id."""
        return self._boot_id

    def machine(self) -> str:
        """The architecture in the kernel's word."""
        return self._machine

    def cpu_features(self) -> tuple[str, ...] | None:
        """What the processor can do."""
        return self._cpu_features

    def fresh_id(self) -> str:
        """16 random hex digits, never twice."""
        return f"{self._fresh_bits(64):016x}"

    def jump(self, by_s: float) -> None:
        """Set the calendar forward or back, as somebody with a clock of his own does."""
        self._offset_s += by_s

    def reboot(self) -> None:
        """Begin a new boot; the calendar goes on."""
        self._boot_id = self._fresh_uuid()

    def _fresh_bits(self, count: int) -> int:
        while (bits := self._randomness.getrandbits(count)) in self._given:
            pass
        self._given.add(bits)
        return bits

    def _fresh_uuid(self) -> str:
        """Of version 4, as random(4) says of the boot id."""
        digits = f"{self._fresh_bits(128):032x}"
        return f"{digits[:8]}-{digits[8:12]}-4{digits[13:16]}-a{digits[17:20]}-{digits[20:]}"
