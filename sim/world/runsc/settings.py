"""Which runsc this is, how fast it is, and what machine it finds."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

import attrs

if TYPE_CHECKING:
    from .programs import Program


class Flavour(enum.StrEnum):
    """Which of two behaviours, where they differ."""

    R24 = "r24"
    """Debian 13's runsc 20240729, which was measured."""
    HEAD = "head"
    """The source of 2026, which was read: no duplicate create loses a state file, images carry version and spec."""


DRIVERS_OF: Final = {
    Flavour.R24: (
        "535.104.12", "535.129.03", "535.154.05", "535.161.07", "550.54.14", "550.54.15", "550.90.07",
    ),
    Flavour.HEAD: (
        "535.129.03", "535.183.06", "535.247.01", "535.261.03", "535.274.02", "535.288.01", "535.309.01", "550.90.12",
        "570.124.06", "570.133.20", "570.172.08", "570.195.03", "580.65.06", "580.105.08", "580.126.09", "580.126.20",
        "580.159.03", "580.159.04", "580.173.02", "590.48.01", "610.57.04",
    ),
}  # fmt: skip
"""What `nvproxy list-supported-drivers` says."""
VERSION_OF: Final = {Flavour.R24: "0.0~20240729.0", Flavour.HEAD: "release-20260821.0"}


@attrs.frozen(kw_only=True)
class Latencies:
    """Seconds that commands take, medians of what was measured on two CPUs with a prompt reaper.

    Attributes:
        command_s: any command: loading the program and its state.
        create_root_s: more for a sandbox to boot.
        start_s: more for a container to start.
        save_s: more for a small checkpoint.
        restore_s: more for a restore that only registers.
        last_restore_s: more for the restore that completes the count.
        delete_poll_s: how often R24's `delete` looks whether a process is gone.
    """

    command_s: float = 0.020
    create_root_s: float = 0.070
    start_s: float = 0.050
    save_s: float = 0.090
    restore_s: float = 0.045
    last_restore_s: float = 0.165
    delete_poll_s: float = 0.1


INSTANT: Final = Latencies(
    command_s=0.0,
    create_root_s=0.0,
    start_s=0.0,
    save_s=0.0,
    restore_s=0.0,
    last_restore_s=0.0,
    delete_poll_s=0.02,
)
"""Nothing takes time but what waits for something."""


@attrs.frozen(kw_only=True)
class RunscSettings:
    """One runsc.

    Attributes:
        flavour: its behaviour.
        version: what `--version` says; by default that of the flavour.
        latencies: how long commands take.
        programs: applications by their argv, before the built-in ones of `programs.recognise`.
        has_nvidia_driver: whether `/dev/nvidiactl` can be opened; without it `--nvproxy` fails every sandbox.
        nvidia_driver: the version of that driver; empty is one that every runsc knows.
        known_drivers: those it can pass calls on to; None for a runsc that cannot tell.
        state_bytes: size to which `checkpoint.img` is filled up; a real one has 0.5 to 1.5 MB.
    """

    flavour: Flavour = Flavour.R24
    version: str = attrs.field()
    latencies: Latencies = attrs.field(factory=Latencies)
    programs: Mapping[tuple[str, ...], Program] = attrs.field(factory=dict)
    has_nvidia_driver: bool = False
    nvidia_driver: str = ""
    known_drivers: tuple[str, ...] | None = attrs.field()
    state_bytes: int = 0

    @known_drivers.default
    def _known_to_flavour(self) -> tuple[str, ...]:
        return DRIVERS_OF[self.flavour]

    @version.default
    def _version_of_flavour(self) -> str:
        return VERSION_OF[self.flavour]
