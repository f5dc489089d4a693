"""The CDI spec of a pod that is given one: `--cdi-source host`, found by CDI's own discovery.

The device plugin, the toolkit's refresh service, a DRA driver and people write specs, each of its own kind and with its
own names; and a pod may have a GPU from one file and the next from another. So a device is taken for a GPU by its UUID
where a spec has such names, and by its node where it has not, whatever the kind. What they write is what the host sees:
where the pod has the driver below another root, paths are rewritten.

Source: facts of CDI, section 1 (directories and precedence); facts of nvidia-ctk, section 7 (who writes what).
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import TYPE_CHECKING, Final

import attrs

from actors.cdi import DEFAULT_DIRECTORIES, Device, Spec, merged, minimum_version, scan_async, to_dict
from statemachine.problem import Problem, ProblemError, Step
from statemachine.reasons import Reason

from .checked_specs import MadeSpec, require_right, require_usable, stamps_for, with_libraries
from .desk import KeptSpec
from .granted_edits import device_of
from .host_look import all_edits
from .links import is_library
from .rerooting import Rerooting, with_edits
from .spec_identity import identity_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from actors.cdi import ContainerEdits, Registry
    from actors.ports import DriverPlaces, Files, Wall

    from .inventory import Gpu, Inventory
    from .spec_identity import Stamp

_ALL: Final = "all"
_SHOWN_MAX: Final = 32


class HostSpecs:
    """Finds them.

    Args:
        files, wall: the ports.
        places: where the driver is.
        directories: of CDI, the lowest priority first.
    """

    def __init__(
        self, *, files: Files, wall: Wall, places: DriverPlaces, directories: Sequence[str] = DEFAULT_DIRECTORIES
    ) -> None:
        self._files, self._wall, self._places = files, wall, places
        self._directories = tuple(directories)

    async def watched(self) -> tuple[Path, ...]:
        """The directories in which something comes when a spec or a device does."""
        return (*map(Path, self._directories), self._places.dev_root / "dev")

    async def make(self, inventory: Inventory, driver: str, last: MadeSpec | None) -> MadeSpec:
        """The spec for these GPUs, as the files say now.

        Raises:
            ProblemError: CdiDeviceUnresolved, MigUnsupported, GenerateFailed for files that are not in this pod, …
        """
        require_usable(inventory)
        registry = await scan_async(self._files, self._directories)
        given, paths = chosen(registry, inventory, self._directories)
        files = tuple(Path(file.path) for file in registry.files)
        spec, stamps = await self._fitting(given, inventory, files)
        identity = await identity_of(
            self._files, self._wall, self._places, inventory, driver=driver, maker=(*paths, _digest(spec))
        )
        if last is not None and last.kept.identity == identity:
            return MadeSpec(kept=last.kept, stamps=stamps)
        kept = KeptSpec(identity=identity, path=Path(paths[0]), spec=spec, driver=driver, toolkit=None, libraries=())
        return MadeSpec(kept=await with_libraries(self._files, kept), stamps=stamps)

    async def _fitting(
        self, spec: Spec, inventory: Inventory, files: tuple[Path, ...]
    ) -> tuple[Spec, tuple[Stamp, ...] | None]:
        """The spec as it is, or with the paths of this pod: whichever is right here, and the stamps of that.

        Raises:
            ProblemError: none is; what is wrong with the one that is nearest.
        """
        nearest: tuple[Problem, ...] = ()
        directories = await self.watched()
        for view in views(spec, self._places):
            stamps = await stamps_for(
                self._files, view, directories=directories, others=files, now_s=self._wall.now_s()
            )
            try:
                await require_right(self._files, view, inventory)
            except ProblemError as error:
                if not nearest or len(error.problems) < len(nearest):
                    nearest = error.problems
            else:
                return view, stamps
        raise ProblemError(*nearest)


def chosen(
    registry: Registry, inventory: Inventory, directories: Sequence[str] = DEFAULT_DIRECTORIES
) -> tuple[Spec, tuple[str, ...]]:
    """The spec that has a device for each GPU, and its file; or one put together from several files.

    Names that several files of one priority define are nobody's, as for every container engine.

    Raises:
        ProblemError: CdiDeviceUnresolved for each GPU without a device; MigUnsupported.
    """
    specs = tuple(_resolving(registry))
    best = {gpu.uuid: found for gpu in inventory.usable if (found := _best(specs, gpu)) is not None}
    absent = [gpu for gpu in inventory.usable if gpu.uuid not in best]
    if absent:
        raise ProblemError(*(_unresolved(gpu, registry, specs, directories) for gpu in absent))
    whole = _whole(specs, inventory)
    return whole if whole is not None else _together(best)


def _together(best: Mapping[str, tuple[str, Spec, Device]]) -> tuple[Spec, tuple[str, ...]]:
    """One spec of devices from several, each with the common edits of its own."""
    devices = tuple(
        Device(name=uuid, container_edits=merged((spec.container_edits, device.container_edits)))
        for uuid, (_, spec, device) in best.items()
    )
    _, first, _ = next(iter(best.values()))
    spec = Spec(cdi_version="", kind=first.kind, devices=devices)
    paths = dict.fromkeys(path for path, _, _ in best.values())
    return attrs.evolve(spec, cdi_version=minimum_version(spec)), tuple(paths)


def views(spec: Spec, places: DriverPlaces) -> Iterator[Spec]:
    """The spec as it is written, then with the paths under which this pod may have the same nodes and files."""
    yield spec
    old = _driver_root(spec)
    here, driver = str(places.dev_root), str(places.driver_root)
    for dev_root, driver_root in dict.fromkeys(((here, old), ("/", driver), (here, driver))):
        if (dev_root, driver_root) != ("/", old):
            yield _viewed(spec, Rerooting("/", dev_root), Rerooting(old, driver_root))


def _viewed(spec: Spec, nodes: Rerooting, files: Rerooting) -> Spec:
    def edits(given: ContainerEdits) -> ContainerEdits:
        return attrs.evolve(files.edits(given), device_nodes=nodes.edits(given).device_nodes)

    return with_edits(spec, edits)


def _driver_root(spec: Spec) -> str:
    """Below which root whoever wrote the spec had the driver: libraries keep their path below it in a container."""
    for edits in all_edits(spec):
        for mount in filter(is_library, edits.mounts):
            if mount.host_path.endswith(mount.container_path):
                return mount.host_path.removesuffix(mount.container_path) or "/"
    return "/"


def _resolving(registry: Registry) -> Iterator[tuple[str, Spec]]:
    """Each file's spec with those of its devices that are had by their name, the highest priority first."""
    for file in sorted(registry.files, key=lambda file: -file.priority):
        if file.spec is None:
            continue
        spec = file.spec
        devices = tuple(
            device
            for device in spec.devices
            if (found := registry.find(spec.qualified(device.name))) is not None and found.path == file.path
        )
        if devices:
            yield file.path, attrs.evolve(spec, devices=devices)


def _rank(spec: Spec, gpu: Gpu) -> tuple[int, Device] | None:
    """How surely a spec has this GPU, the surest first, and its device for it."""
    try:
        device = device_of(spec, gpu)
    except ProblemError:
        return None
    if device.name == gpu.uuid:
        return 0, device
    # A device `all` may be of another purpose: the mode management has everything in it.
    return (2 if device.name == _ALL else 1), device


def _best(specs: Sequence[tuple[str, Spec]], gpu: Gpu) -> tuple[str, Spec, Device] | None:
    ranked = [(*rank, path, spec) for path, spec in specs if (rank := _rank(spec, gpu)) is not None]
    if not ranked:
        return None
    _, device, path, spec = min(ranked, key=lambda each: each[0])
    return path, spec, device


def _whole(specs: Sequence[tuple[str, Spec]], inventory: Inventory) -> tuple[Spec, tuple[str, ...]] | None:
    """The file that has all GPUs as surely as any has each of them."""
    whole: list[tuple[int, str, Spec]] = []
    for path, spec in specs:
        ranks = [rank for gpu in inventory.usable if (rank := _rank(spec, gpu)) is not None]
        if len(ranks) == len(inventory.usable):
            whole.append((max((surety for surety, _ in ranks), default=0), path, spec))
    if not whole:
        return None
    _, path, spec = min(whole, key=lambda each: each[0])
    return spec, (path,)


def _unresolved(gpu: Gpu, registry: Registry, specs: Sequence[tuple[str, Spec]], directories: Sequence[str]) -> Problem:
    for _, spec in specs:
        try:
            device_of(spec, gpu)
        except ProblemError as error:
            if error.problem.reason is Reason.MIG_UNSUPPORTED:
                return attrs.evolve(error.problem, step=Step.GENERATE)
    names = registry.names()
    known = ", ".join(names[:_SHOWN_MAX]) + (", …" if len(names) > _SHOWN_MAX else "")
    broken = [str(problem) for problems in registry.errors.values() for problem in problems]
    return Problem(
        step=Step.GENERATE,
        reason=Reason.CDI_DEVICE_UNRESOLVED,
        subject=gpu.uuid,
        message=f"no CDI specification in {' or '.join(directories)} has a device for {gpu.path} ({gpu.uuid}); "
        f"known are: {known or 'none'}",
        hint="Mount the node's CDI directories, or let Greenroom generate the specification (--cdi-source pod).",
        detail="\n".join(broken[:_SHOWN_MAX]),
    )


def _digest(spec: Spec) -> str:
    return hashlib.sha256(json.dumps(to_dict(spec), sort_keys=True).encode("utf-8", "surrogateescape")).hexdigest()
