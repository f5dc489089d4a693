"""All specs of a host: directories, precedence, conflicts, and names to edits.

SPEC.md says nothing about directories; README.md of the CDI project describes the two, and the Go library has the rest.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from actors.document.wording import nearest

from .aliases import AliasGroup, join_aliases
from .names import is_qualified
from .problems import CdiProblem, CdiReason, quoted, raise_if_any
from .resolving import edits_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from .model import ContainerEdits, Device, Spec


@attrs.frozen(kw_only=True)
class SpecFile:
    """One spec file that was looked at.

    Attributes:
        path: as it is found on the host.
        priority: the place of its directory in the list; a higher one wins.
        spec: the spec, unless it is broken.
        problems: what is wrong with it.
        warnings: see `Reading.warnings`.
    """

    path: str
    priority: int = 0
    spec: Spec | None = None
    problems: tuple[CdiProblem, ...] = ()
    warnings: tuple[CdiProblem, ...] = ()


@attrs.frozen(kw_only=True)
class Found:
    """A device by its qualified name, with the spec and the file that it comes from."""

    name: str
    device: Device
    spec: Spec
    path: str
    priority: int


@attrs.frozen(kw_only=True)
class Conflict:
    """A device that several files of one priority define.

    Attributes:
        name: the qualified name.
        paths: the files.
        shadowed_by: the file of a higher priority that settles it, or "": then nobody gets the device.
    """

    name: str
    paths: tuple[str, ...]
    priority: int
    shadowed_by: str = ""


@attrs.frozen(kw_only=True)
class Registry:
    """A snapshot of all spec files; pure and never changed. `registry_of` makes one.

    Attributes:
        files: every file that was looked at, lowest priority first, by name within one directory.
        conflicts: by name.
        directory_problems: directories that are there and could not be read.
    """

    files: tuple[SpecFile, ...] = ()
    conflicts: tuple[Conflict, ...] = ()
    directory_problems: tuple[CdiProblem, ...] = ()
    found: Mapping[str, Found] = attrs.field(factory=dict, hash=False, repr=False)

    @property
    def errors(self) -> dict[str, tuple[CdiProblem, ...]]:
        """Path -> what is wrong there, conflicts included; what is right is not listed."""
        errors: dict[str, tuple[CdiProblem, ...]] = {}
        for problem in self.directory_problems:
            errors[problem.file] = (*errors.get(problem.file, ()), problem)
        for file in self.files:
            problems = (*file.problems, *(_conflict_problem(each, file.path) for each in self._conflicts_at(file.path)))
            if problems:
                errors[file.path] = (*errors.get(file.path, ()), *problems)
        return errors

    def names(self) -> tuple[str, ...]:
        """The qualified names of all devices that resolve, sorted."""
        return tuple(sorted(self.found))

    def vendors(self) -> tuple[str, ...]:
        """The vendors of all specs that loaded, sorted."""
        return tuple(sorted({_kind(file.spec)[0] for file in self.files if file.spec}))

    def classes(self) -> tuple[str, ...]:
        """The classes of all specs that loaded, of all vendors, sorted."""
        return tuple(sorted({_kind(file.spec)[1] for file in self.files if file.spec}))

    def find(self, name: str) -> Found | None:
        """The device that a qualified name stands for."""
        return self.found.get(name)

    def resolve(self, names: Iterable[str]) -> ContainerEdits:
        """The edits of some devices in the order given, each once; those of a spec right before its first device.

        Raises:
            CdiError: one problem for each name that resolves to nothing, in their order.
        """
        wanted = tuple(dict.fromkeys(names))
        raise_if_any(self.explain(name) for name in wanted if name not in self.found)
        return edits_of((self.found[name].spec, self.found[name].device) for name in wanted)

    def explain(self, name: str) -> CdiProblem:
        """Why a name that `found` does not have resolves to nothing, and what was perhaps meant."""
        conflict = next((each for each in self.conflicts if each.name == name), None)
        if conflict is not None:
            definers = " and by ".join(conflict.paths)
            message = f"{quoted(name)} is defined by {definers}, so nobody can tell which is meant"
            related = conflict.paths
        else:
            message, related = self._unknown(name)
        return CdiProblem(reason=CdiReason.UNRESOLVABLE, message=message, value=name, related=related)

    def aliases(self) -> tuple[AliasGroup, ...]:
        """Devices that are one and the same under several names."""
        return join_aliases((found.name, found.device.container_edits) for found in self.found.values())

    def _unknown(self, name: str) -> tuple[str, tuple[str, ...]]:
        front = f"no device is called {quoted(name)}"
        if not is_qualified(name):
            front = f"{quoted(name)} is no qualified name (vendor/class=device)"
        guess = self._guess(name)
        if guess is not None:
            return f"{front}; did you mean {guess.name}, from {guess.path}?", (guess.path,)
        broken = tuple(file.path for file in self.files if file.spec is None)
        if broken:
            return f"{front}; it may be in a file that is broken: {', '.join(broken)}", broken
        known = ", ".join(self.names()[:10]) or "none"
        return f"{front}; known are {known}", ()

    def _guess(self, name: str) -> Found | None:
        # An unqualified name is most often the device's own.
        same = [found for found in self.found.values() if found.device.name == name]
        if len(same) == 1:
            return same[0]
        guess = nearest(name, self.names())
        return self.found[guess] if guess else None

    def _conflicts_at(self, path: str) -> Iterable[Conflict]:
        return (conflict for conflict in self.conflicts if path in conflict.paths)


def registry_of(files: Iterable[SpecFile], directory_problems: Iterable[CdiProblem] = ()) -> Registry:
    """A registry of files that were read, wherever they come from.

    Of several files that define one device, that of the highest priority has it; two of that priority are a conflict,
    and neither has. A conflict below a file that settles it harms nobody (the Go library drops the device even then).
    """
    ordered = tuple(sorted(files, key=lambda file: file.priority))
    definitions: dict[str, list[Found]] = {}
    for file in ordered:
        for found in _devices(file):
            definitions.setdefault(found.name, []).append(found)
    winners: dict[str, Found] = {}
    conflicts: list[Conflict] = []
    for name, candidates in definitions.items():
        highest = [found for found in candidates if found.priority == candidates[-1].priority]
        winner = highest[0] if len(highest) == 1 else None
        if winner is not None:
            winners[name] = winner
        conflicts += _conflicts(name, candidates, winner)
    return Registry(
        files=ordered,
        conflicts=tuple(sorted(conflicts, key=lambda conflict: (conflict.name, conflict.priority))),
        directory_problems=tuple(directory_problems),
        found=winners,
    )


def _devices(file: SpecFile) -> Iterable[Found]:
    spec = file.spec
    if spec is None:
        return
    for device in spec.devices:
        name = spec.qualified(device.name)
        yield Found(name=name, device=device, spec=spec, path=file.path, priority=file.priority)


def _conflicts(name: str, candidates: list[Found], winner: Found | None) -> Iterable[Conflict]:
    for priority in sorted({found.priority for found in candidates}):
        paths = tuple(found.path for found in candidates if found.priority == priority)
        if len(paths) > 1:
            settled = winner.path if winner is not None else ""
            yield Conflict(name=name, paths=paths, priority=priority, shadowed_by=settled)


def _conflict_problem(conflict: Conflict, path: str) -> CdiProblem:
    others = " and ".join(other for other in conflict.paths if other != path)
    message = f"{conflict.name} is defined by {others} as well"
    if conflict.shadowed_by:
        message = f"{message}; {conflict.shadowed_by} settles it"
    return CdiProblem(
        reason=CdiReason.CONFLICT, message=message, file=path, value=conflict.name, related=conflict.paths
    )


def _kind(spec: Spec) -> tuple[str, str]:
    vendor, _, class_name = spec.kind.partition("/")
    return vendor, class_name
