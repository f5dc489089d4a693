"""How `greenroom snapshots` tells what it found, for a person and as JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import click

from actors.compatibility import Force
from statemachine.problem import beyond
from statemachine.wording import one_line
from supervisor.cli.columns import aligned
from supervisor.status import problem_json

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from actors.compatibility import Difference
    from actors.manifest import Manifest, SnapshotContainer
    from statemachine.problem import Problem
    from supervisor.kept_snapshots import KeptSnapshot
    from supervisor.pruning import Pruning

_HEAD: Final = ("UID", "ID", "CREATED", "SCOPE", "SIZE", "GPUS", "URI", "ERROR")
_CELL_CHARACTERS_MAX: Final = 200
_MIB: Final = 1 << 20


def rows(found: Sequence[KeptSnapshot]) -> Iterator[str]:
    """A table."""
    yield from aligned((_HEAD, *map(_row, found)))


def _row(each: KeptSnapshot) -> tuple[str, ...]:
    uri = one_line(each.uri, _CELL_CHARACTERS_MAX)
    if each.manifest is None:
        return (each.actor, each.id, "-", "-", "-", "-", uri, str(each.problem.reason) if each.problem else "-")
    manifest = each.manifest
    gpus = sum(len(container.gpus) for container in manifest.containers)
    created = one_line(manifest.created_at, _CELL_CHARACTERS_MAX)
    return (each.actor, each.id, created, str(manifest.scope), _size(each.size_bytes), str(gpus), uri, "-")


def _size(size_bytes: int) -> str:
    return f"{size_bytes / _MIB:.1f} MiB"


def listed_json(found: Iterable[KeptSnapshot]) -> list[dict[str, Any]]:
    """One object for each."""
    return [
        {
            "actor": each.actor,
            "id": each.id,
            "uri": each.uri,
            "createdAt": each.manifest.created_at if each.manifest else None,
            "scope": str(each.manifest.scope) if each.manifest else None,
            "generation": each.manifest.generation if each.manifest else None,
            "size_bytes": each.size_bytes if each.manifest else None,
            "error": problem_json(each.problem),
        }
        for each in found
    ]


def shown_lines(uri: str, manifest: Manifest) -> Iterator[str]:
    """What a manifest says."""
    runsc = manifest.runsc
    told = {
        "snapshot": manifest.id,
        "uri": uri,
        "actor": f"{manifest.actor}, generation {manifest.generation}",
        "created": f"{manifest.created_at} by greenroom {manifest.greenroom}",
        "scope": str(manifest.scope),
        "machine": f"{manifest.arch}, {_features(manifest)}",
        "runsc": f"{runsc.version} ({runsc.platform}) {' '.join(runsc.flags)}",
        "driver": f"{manifest.driver}, toolkit {manifest.toolkit or 'not known'}" if manifest.driver else "none",
        "volumes": ", ".join(manifest.volumes) or "none",
    }
    for word, text in told.items():
        yield _line(word, text)
    for container in manifest.containers:
        yield _line("container", f"{container.name}: {_container(container)}")
        for gpu in container.gpus:
            yield _line("  gpu", f"{gpu.ordinal}: {gpu.uuid} {gpu.model}, minor {gpu.minor}")
    for file in manifest.files:
        yield _line("file", f"{file.name} {file.size_bytes} bytes {file.blake3}")


def _features(manifest: Manifest) -> str:
    if manifest.cpu_features is None:
        return "features of its processor not known"
    return f"{len(manifest.cpu_features)} features of its processor"


def _container(container: SnapshotContainer) -> str:
    state = "" if container.exited is None else f"exited with {container.exited}; "
    image = f", image {container.image_digest}" if container.image_digest else ""
    shape = container.shape
    return f"{state}{' '.join(map(repr, shape.args))} as {shape.user.uid}:{shape.user.gid}{image}"


def _line(word: str, text: str) -> str:
    return f"{word:<10}  {one_line(text, 10 * _CELL_CHARACTERS_MAX)}"


# ---- verify


def fault_lines(found: KeptSnapshot, faults: Mapping[str, str | None]) -> Iterator[str]:
    """A line for each file."""
    yield f"{found.id} of {found.actor} at {one_line(found.uri, _CELL_CHARACTERS_MAX)}"
    for name, fault in faults.items():
        yield f"{name}: {'ok' if fault is None else one_line(fault, 10 * _CELL_CHARACTERS_MAX)}"


def faults_json(found: KeptSnapshot, faults: Mapping[str, str | None]) -> dict[str, Any]:
    """One document."""
    return {
        "id": found.id,
        "actor": found.actor,
        "uri": found.uri,
        "ok": not any(faults.values()),
        "files": [{"name": name, "fault": fault} for name, fault in faults.items()],
    }


# ---- check


def difference_line(each: Difference) -> str:
    """What differs, what it was and what it is."""
    never = "" if each.force is Force.POSSIBLE else " (cannot be forced)"
    return f"{each.subject}: was {each.was}, is {each.now}{never}"


def difference_json(each: Difference) -> dict[str, str]:
    """The same."""
    return {
        "subject": each.subject,
        "was": each.was,
        "is": each.now,
        "reason": str(each.reason),
        "force": str(each.force),
    }


# ---- prune


def pruning_lines(done: Pruning, word: str) -> Iterator[str]:
    """A line for each snapshot."""
    for each in done.kept:
        yield f"{each.id}: kept"
    for each in done.damaged:
        yield f"{each.id}: damaged, left as it is"
    for each in done.removed:
        yield f"{each.id}: {word}, {_size(each.size_bytes)}"


def pruning_json(done: Pruning) -> dict[str, Any]:
    """Ids by what became of them."""
    return {
        "kept": [each.id for each in done.kept],
        "damaged": [each.id for each in done.damaged],
        "removed": [each.id for each in done.removed],
    }


def failed(problems: Sequence[Problem]) -> int:
    """Tell on stderr what the document on stdout has told already, the first one on the last line; the exit code."""
    for problem in reversed(problems):
        if more := beyond(problem.message, problem.detail):
            click.echo(more, err=True)
        if problem.hint:
            click.echo(f"hint: {problem.hint}", err=True)
        click.echo(f"error: {problem}", err=True)
    return 1
