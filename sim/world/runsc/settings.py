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
        state_bytes: size to which `checkpoint.img` is filled up; a real one has 0.5 to 1.5 MB.
    """

    flavour: Flavour = Flavour.R24
    version: str = attrs.field()
    latencies: Latencies = attrs.field(factory=Latencies)
    programs: Mapping[tuple[str, ...], Program] = attrs.field(factory=dict)
    has_nvidia_driver: bool = False
    state_bytes: int = 0

    @version.default
    def _version_of_flavour(self) -> str:
        return VERSION_OF[self.flavour]
