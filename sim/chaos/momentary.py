"""What is looked at in the moment in which a command is run: later nobody could tell what was there then."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from actors.codec import epoch_s
from sim.chaos.gpu_checks import minors_of
from sim.invariants.evidence import activations_in, containers_in, sentry_of, snapshots_of
from sim.invariants.snapshots import faults_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from actors.manifest import Manifest
    from sim.engine import Record
    from sim.invariants.violation import Finding
    from sim.world.given import Given
    from sim.world.world import World

_RESTORE: Final = re.compile(r" restore .*--image-path=(\S+)")


def restores_an_older(world: World, command: str) -> Iterator[Finding]:
    """A restore takes the newest snapshot of its actor that is whole."""
    found = _RESTORE.search(command)
    image = None if found is None else Path(found[1])
    if image is None or not image.is_relative_to(world.state.actors):
        return
    uid = image.relative_to(world.state.actors).parts[0]
    newest = newest_whole(world, uid)
    if newest is not None and image.name != newest.id:
        yield uid, f"is restored from snapshot {image.name}, and {newest.id} is newer"


def newest_whole(world: World, uid: str) -> Manifest | None:
    """The manifest of the newest snapshot of an actor that is whole."""
    found = (
        each.manifest
        for each in snapshots_of(world, uid)
        if each.manifest is not None and not any(faults_of(world, each))
    )
    return max(found, key=lambda manifest: epoch_s(manifest.created_at), default=None)


def mounts_what_is_gone(world: World, documents: Iterable[Given]) -> Iterator[Finding]:
    """What a container with a GPU mounts is there: its spec is of the driver that is installed."""
    for document in documents:
        if minors_of(document.config):
            for source in _sources(document.config):
                # What is made for one activation goes with it, perhaps before anybody has looked.
                if not source.is_relative_to(world.state.sandboxes) and not _is_there(world, source):
                    yield f"{document.container} of {document.actor}", f"is given {source}, which is not there"


def _sources(config: Mapping[str, Any]) -> Iterator[Path]:
    for mount in config.get("mounts") or ():
        source = Path(mount.get("source") or "")
        if source.is_absolute():
            yield source


def _is_there(world: World, path: Path) -> bool:
    try:
        world.disk.find(path)
    except OSError:
        return False
    return True


def two_sandboxes(world: World) -> Iterator[Finding]:
    """Nobody has two sandboxes that live, whatever is under way: what both do, only one of them would have done."""
    owned: dict[str, list[str]] = {}
    for activation in activations_in(world):
        if activation.record is not None and sentry_of(world, activation) is not None:
            owned.setdefault(activation.record.actor, []).append(activation.name)
    for uid, names in owned.items():
        if len(names) > 1:
            yield uid, f"has {len(names)} sandboxes: {', '.join(names)}"


def lives_on_what_is_gone(world: World, _record: Record) -> Iterator[Finding]:
    """What the worker has made for a container that lives stays as long as it does: the links to its libraries."""
    for actor, name, found in containers_in(world):
        for source in () if found is None else _sources(found.spec):
            if source.is_relative_to(world.state.cdi) and not _is_there(world, source):
                yield actor, f"{name} mounts {source}, which is not there any more"


def spec_of_other_times(world: World, documents: Iterable[Given]) -> Iterator[Finding]:
    """Who is given a GPU is given it by a spec of this driver, made by this toolkit."""
    number = world.worker.number
    specs = [said.fields for said in world.hearing.said if said.event == "spec" and said.incarnation == number]
    here = {"driver": world.gpus.loaded_version, "toolkit": world.gpus.toolkit.version}
    for document in documents if specs else ():
        for what, version in here.items():
            if minors_of(document.config) and specs[-1][what] != version:
                whose = f"{document.container} of {document.actor}"
                yield whose, f"has GPUs by a spec of {what} {specs[-1][what]}, and there is {version}"
