"""What there is to see of actors and activations from outside: on the disk and in the process table.

Checkers look through here, with the readers of the real supervisor where there are ones, and never ask it anything.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

import attrs
import orjson

from actors.assignment import WorkerAssignment
from actors.codec import CodecError, loads, structure
from actors.journal import Replayed, replay
from actors.layout import ActorDir
from actors.manifest import MANIFEST_NAME, Manifest, parse_manifest
from actors.runsc.record import RECORD_NAME, SandboxRecord
from actors.snapshots import is_snapshot_id
from actors.steps.stage import RUNSC_ROOT
from statemachine.problem import ProblemError
from statemachine.states import State

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from sim.world.process_table import SimProcess
    from sim.world.runsc.contained import Contained
    from sim.world.runsc.sentry import Sentry
    from sim.world.world import World
    from statemachine.actor import Actor

FORMAT: Final = 1


@attrs.frozen(kw_only=True)
class ActorOnDisk:
    """One actor's directory.

    Attributes:
        uid: whose.
        directory: where.
        assignment: as it was admitted; None when it is absent or cannot be read.
        journal: its bytes; None when it is absent.
        replayed: what it tells; None when it is absent or cannot be replayed.
        status: the document; None when it is absent or cannot be read.
        faults: files that are there and cannot be read, and why.
    """

    uid: str
    directory: ActorDir
    assignment: WorkerAssignment | None
    journal: bytes | None
    replayed: Replayed | None
    status: dict[str, Any] | None
    faults: tuple[tuple[str, str], ...]

    @property
    def actor(self) -> Actor | None:
        """The machine's memory."""
        return self.replayed.actor if self.replayed is not None else None

    @property
    def state(self) -> State | None:
        """Where it is, as its journal tells."""
        return self.replayed.actor.state if self.replayed is not None else None

    def lines(self) -> list[dict[str, Any]]:
        """The lines of its journal; none when it cannot be replayed."""
        if self.replayed is None or self.journal is None:
            return []
        return [orjson.loads(line) for line in self.journal.split(b"\n")[:-1]]


@attrs.frozen(kw_only=True)
class SnapshotOnDisk:
    """One directory below an actor's `snapshots/` that is ours.

    Attributes:
        directory: where.
        manifest: None when it is absent or cannot be read.
        fault: why it cannot be read; None when it is absent or good.
    """

    directory: Path
    manifest: Manifest | None
    fault: str | None


@attrs.frozen(kw_only=True)
class Activation:
    """What is there of one activation: a directory, processes, or both.

    Attributes:
        name: its directory's.
        is_directory: whether the directory is there.
        record: None when it is absent or cannot be read.
        processes: what runs with its runsc root on the command line.
    """

    name: str
    is_directory: bool
    record: SandboxRecord | None
    processes: tuple[SimProcess, ...]


def bytes_at(world: World, path: Path) -> bytes | None:
    """A file's content; None when there is no regular file."""
    try:
        return world.read(path)
    except OSError:
        return None


def names_in(world: World, path: Path) -> tuple[str, ...]:
    """The names in a directory; none when it is absent."""
    try:
        return tuple(sorted(world.disk.find_directory(path).entries))
    except OSError:
        return ()


def actors_in(world: World) -> Iterator[ActorOnDisk]:
    """Every actor that has a directory, by uid."""
    for uid in names_in(world, world.state.actors):
        yield actor_on_disk(world, uid)


def actor_on_disk(world: World, uid: str) -> ActorOnDisk:
    """One actor's directory, read."""
    directory = world.state.actor(uid)
    return _actor(
        uid,
        directory,
        bytes_at(world, directory.assignment),
        bytes_at(world, directory.journal),
        bytes_at(world, directory.status),
    )


@lru_cache(maxsize=1024)  # more than a machine has; it is kept beyond its world, some 10 kB each
def _actor(
    uid: str, directory: ActorDir, assignment: bytes | None, journal: bytes | None, status: bytes | None
) -> ActorOnDisk:
    """What the files say; every checker of one look asks, and nothing has changed in between."""
    faults: list[tuple[str, str]] = []

    def parsed(path: Path, data: bytes | None, parse: Callable[[bytes], Any]) -> Any:
        if data is None:
            return None
        try:
            return parse(data)
        except (ProblemError, CodecError, KeyError, TypeError, ValueError) as error:
            faults.append((str(path), str(error)))
            return None

    return ActorOnDisk(
        uid=uid,
        directory=directory,
        assignment=parsed(directory.assignment, assignment, _assignment),
        journal=journal,
        replayed=parsed(directory.journal, journal, lambda data: replay(data, subject=str(directory.journal))),
        status=parsed(directory.status, status, _document),
        faults=tuple(faults),
    )


def _assignment(data: bytes) -> WorkerAssignment:
    return structure(_document(data)["assignment"], WorkerAssignment)


def _document(data: bytes) -> dict[str, Any]:
    document = loads(data)
    if not isinstance(document, dict) or document.get("v") != FORMAT:
        raise ValueError("it is no document of a known format")
    return document


def snapshots_of(world: World, uid: str) -> Iterator[SnapshotOnDisk]:
    """Every directory of ours below an actor's `snapshots/`, by name."""
    directory = world.state.actor(uid).snapshots
    for name in filter(is_snapshot_id, names_in(world, directory)):
        path = directory / name
        data = bytes_at(world, path / MANIFEST_NAME)
        manifest, fault = None, None
        if data is not None:
            try:
                manifest = parse_manifest(data, path=path / MANIFEST_NAME)
            except ProblemError as error:
                fault = str(error)
        yield SnapshotOnDisk(directory=path, manifest=manifest, fault=fault)


def activations_in(world: World) -> Iterator[Activation]:
    """Every activation of which anything is left, by name."""
    above = world.state.sandboxes
    prefix = f"--root={above}/"
    processes: dict[str, list[SimProcess]] = {name: [] for name in names_in(world, above)}
    directories = frozenset(processes)
    for process in world.table:
        root = next((each for each in process.arguments if each.startswith(prefix)), None)
        if root is not None and process.is_running:
            processes.setdefault(root.removeprefix(prefix).removesuffix(f"/{RUNSC_ROOT}"), []).append(process)
    for name in sorted(processes):
        yield Activation(
            name=name,
            is_directory=name in directories,
            record=_record(world, above / name / RECORD_NAME),
            processes=tuple(processes[name]),
        )


def _record(world: World, path: Path) -> SandboxRecord | None:
    data = bytes_at(world, path)
    try:
        return None if data is None else SandboxRecord.from_json(orjson.loads(data))
    except (KeyError, TypeError, ValueError):
        return None


def sentry_of(world: World, activation: Activation) -> Sentry | None:
    """What runs inside an activation's sandbox; None when that is dead."""
    if activation.record is None or activation.record.sandbox is None:
        return None
    found = world.execution.sandboxes.get(activation.record.sandbox.pid)
    return None if found is None else found.sentry


def containers_in(world: World) -> Iterator[tuple[str, str, Contained | None]]:
    """Every container on record of a sandbox that lives: whose, its name, and what is inside; None when nothing is."""
    for activation in activations_in(world):
        sentry, record = sentry_of(world, activation), activation.record
        if sentry is not None and record is not None:
            for name, container_id in record.container_ids.items():
                yield record.actor, name, sentry.containers.get(container_id)
