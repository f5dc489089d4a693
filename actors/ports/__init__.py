"""The ports: everything that an actor's steps and the supervisor may do to the world, as Protocols.

`supervisor/host/` holds the real ones, the simulated world holds others. Nothing outside them calls `subprocess`, `os`,
`time`, `random`, `socket` or `open`. Durations are seconds of anyio's clock. A port raises `OSError` with an errno
where the kernel would, and the errors named below; steps turn them into problems of the catalogue.
"""

from __future__ import annotations

import attrs

from .files import (
    Archived,
    DamagedArchiveError,
    FileDigests,
    FileKind,
    FileLock,
    FilePart,
    Files,
    FileStat,
    TooLargeError,
)
from .gpus import DriverPlaces, GpuMonitor, Gpus
from .new_tree import NewDirectory, NewEntry, NewFile
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
    OpenFile,
    Output,
    Processes,
    ProcessIdentity,
)
from .stores import OBJECTS_MAX, SnapshotStore, StoredObject, StoreError, Stores

__all__ = [
    "OBJECTS_MAX",
    "PROMPT_S",
    "AppendTo",
    "Archived",
    "Child",
    "Connection",
    "DamagedArchiveError",
    "DeadlineExceededError",
    "DriverPlaces",
    "Exit",
    "FileDigests",
    "FileKind",
    "FileLock",
    "FilePart",
    "FileStat",
    "Files",
    "Finished",
    "GpuMonitor",
    "Gpus",
    "Listener",
    "Net",
    "NewDirectory",
    "NewEntry",
    "NewFile",
    "OpenFile",
    "Output",
    "Peer",
    "Ports",
    "ProcessIdentity",
    "Processes",
    "Signals",
    "SnapshotStore",
    "StoreError",
    "StoredObject",
    "Stores",
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
    stores: Stores
