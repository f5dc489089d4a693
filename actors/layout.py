"""Where everything of a worker stands below its state directory. Source: DESIGN, "Files below the state directory"."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import Final

import attrs

CONTROL_SOCKET: Final = "control.sock"
"""The name of the socket in the run directory, where clients and a worker meet."""


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
    def snapshots(self) -> Path:
        """One directory per snapshot."""
        return self.root / "snapshots"

    def snapshot(self, snapshot_id: str) -> Path:
        """Checkpoint files, then manifest.json last."""
        return self.snapshots / snapshot_id

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
