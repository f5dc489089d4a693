"""Where everything of a worker stands below its state directory. Source: DESIGN, "Files below the state directory"."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import Final

import attrs

CONTROL_SOCKET: Final = "control.sock"
"""The name of the socket in the run directory, where clients and a worker meet."""
HTTP_SOCKET: Final = "http.sock"
"""The name of the one beside it, where health and metrics are served."""


@attrs.frozen
class ActorDir:
    """`actors/<uid>/`."""

    root: Path

    @cached_property
    def assignment(self) -> Path:
        """The admitted assignment."""
        return self.root / "assignment.json"

    @cached_property
    def status(self) -> Path:
        """Replaced at each transition, for those who only read files."""
        return self.root / "status.json"

    @cached_property
    def journal(self) -> Path:
        """Transitions and progress marks."""
        return self.root / "journal.jsonl"

    @cached_property
    def followed(self) -> Path:
        """From which followed directory the assignment came, if it came from one."""
        return self.root / "followed.json"

    @cached_property
    def snapshots(self) -> Path:
        """One directory per snapshot."""
        return self.root / "snapshots"

    def snapshot(self, snapshot_id: str) -> Path:
        """Checkpoint files, then manifest.json last."""
        return self.snapshots / snapshot_id

    @cached_property
    def volumes(self) -> Path:
        """One directory per durable volume."""
        return self.root / "volumes"

    def volume(self, name: str) -> Path:
        """What the containers that mount it see."""
        return self.volumes / name

    @cached_property
    def incoming_volumes(self) -> Path:
        """What a snapshot holds, while it is unpacked."""
        return self.root / ".volumes-incoming"

    @cached_property
    def replaced_volumes(self) -> Path:
        """The volumes as they were before a start from a snapshot, until that start has succeeded."""
        return self.root / ".volumes-replaced"

    @cached_property
    def removed_volumes(self) -> Path:
        """What nobody needs any more, while it is removed."""
        return self.root / ".volumes-removed"

    @cached_property
    def logs(self) -> Path:
        """One file per container."""
        return self.root / "logs"

    def log(self, container: str) -> Path:
        """What a container wrote to stdout and stderr, over all its activations."""
        return self.logs / f"{container}.log"


@attrs.frozen
class StateDir:
    """The state directory (0700, one flock for the whole)."""

    root: Path

    @property
    def lock(self) -> Path:
        """Held as long as a worker runs on it."""
        return self.root / "lock"

    @property
    def actors(self) -> Path:
        """One directory per uid."""
        return self.root / "actors"

    def actor(self, uid: str) -> ActorDir:
        """The directory of one actor."""
        return ActorDir(self.root.joinpath("actors", uid))

    @cached_property
    def sandboxes(self) -> Path:
        """One directory per activation."""
        return self.root / "sandboxes"

    def activation(self, activation_id: str) -> Path:
        """The place of runsc's root, the bundles and the record of one activation."""
        return self.sandboxes / activation_id

    @property
    def cdi(self) -> Path:
        """One directory per identity of a CDI spec."""
        return self.root / "cdi"

    @property
    def refused(self) -> Path:
        """One file per refused document of the assignments directory."""
        return self.root / "refused"
