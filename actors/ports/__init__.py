"""The ports: everything that an actor's steps and the supervisor may do to the world, as Protocols.

`supervisor/host/` holds the real ones, the simulated world holds others. Nothing outside them calls `subprocess`, `os`,
`time`, `random`, `socket` or `open`. Durations are seconds of anyio's clock. A port raises `OSError` with an errno
where the kernel would, and the errors named below; steps turn them into problems of the catalogue.
"""

from __future__ import annotations

import attrs

from .files import (
    FileKind,
    FileLock,
    Files,
    FileStat,
    TooLargeError,
)
from .gpus import DriverPlaces, GpuMonitor, Gpus
from .outside import (
    PROMPT_S,
    Connection,
    Listener,
    Net,
    Peer,
    Signals,
    Wall,
    Watch,
)
from .processes import (
    AppendTo,
    Child,
    DeadlineExceededError,
    Exit,
    Finished,
    Output,
    Processes,
    ProcessIdentity,
)

__all__ = [
    "PROMPT_S",
    "AppendTo",
    "Child",
    "Connection",
    "DeadlineExceededError",
    "DriverPlaces",
    "Exit",
    "FileKind",
    "FileLock",
    "FileStat",
    "Files",
    "Finished",
    "GpuMonitor",
    "Gpus",
    "Listener",
    "Net",
    "Output",
    "Peer",
    "Ports",
    "ProcessIdentity",
    "Processes",
    "Signals",
    "TooLargeError",
    "Wall",
    "Watch",
]


@attrs.frozen(kw_only=True)
class Ports:
    """Every port, handed down from the composition root."""

    processes: Processes
    files: Files
    watch: Watch
    net: Net
    signals: Signals
    wall: Wall
    gpus: Gpus
