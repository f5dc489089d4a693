"""The ports: everything that an actor's steps and the supervisor may do to the world, as Protocols.

`supervisor/host/` holds the real ones, the simulated world holds others. Nothing outside them calls `subprocess`, `os`,
`time`, `random`, `socket` or `open`. Durations are seconds of anyio's clock. A port raises `OSError` with an errno
where the kernel would, and the errors named below; steps turn them into problems of the catalogue.
"""

from __future__ import annotations

import attrs

from .cgroups import (
    CGROUP_ROOT,
    CPU_PERIOD_USEC,
    PROCESSES_FILE,
    CgroupLimits,
    Cgroups,
    CgroupsUnavailableError,
    CgroupUsage,
    Delegation,
)
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
    OWNER_ALONE,
    PROMPT_S,
    Channel,
    Connection,
    Listener,
    Net,
    Peer,
    Signals,
    TcpAddress,
    TcpListener,
    Wall,
    Watch,
)
from .processes import (
    CLIENT_STREAM,
    AppendTo,
    Child,
    DeadlineExceededError,
    Exit,
    Finished,
    OpenFile,
    Output,
    OwnUsage,
    Processes,
    ProcessIdentity,
)
from .stores import OBJECTS_MAX, SnapshotStore, StoredObject, StoreError, Stores

__all__ = [
    "CGROUP_ROOT",
    "CLIENT_STREAM",
    "CPU_PERIOD_USEC",
    "OBJECTS_MAX",
    "OWNER_ALONE",
    "PROCESSES_FILE",
    "PROMPT_S",
    "AppendTo",
    "Archived",
    "CgroupLimits",
    "CgroupUsage",
    "Cgroups",
    "CgroupsUnavailableError",
    "Channel",
    "Child",
    "Connection",
    "DamagedArchiveError",
    "DeadlineExceededError",
    "Delegation",
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
    "OwnUsage",
    "Peer",
    "Ports",
    "ProcessIdentity",
    "Processes",
    "Signals",
    "SnapshotStore",
    "StoreError",
    "StoredObject",
    "Stores",
    "TcpAddress",
    "TcpListener",
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
    cgroups: Cgroups
