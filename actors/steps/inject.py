"""inject: the bundles of an actor with a claim, each container's config.json with exactly the GPUs it was granted.

Needs spec and grant; for a start from a snapshot its manifest, by which it judges the snapshot as restore does. Makes
`sandboxes/<activation>/` with bundles and `gpus/<container>/gpus.json`, which teardown removes, and once for a spec
`cdi/<identity>/lib-<digest>/` with the links to the driver's libraries, which stays. Refuses (nothing was made) what
restore refuses: SnapshotMissing, SnapshotCorrupt, NewerFormat, SnapshotIncompatible, BundleChanged, MountMissing. Fails
with CdiDeviceUnresolved, MigUnsupported, InvalidBundle, BundleNotFound, RootfsNotFound, StateUnwritable.

`pause` gets no device, and a container without a grant has the config.json that it has without any GPU.
"""

from __future__ import annotations

from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

import attrs
import structlog

from actors.assignment import SnapshotScope
from actors.bundle.activation_tree import ContainerFiles, identity_path
from actors.gpu.desk import KeptSpec
from actors.gpu.granted_edits import granted_edits
from actors.gpu.host_look import look_at_nodes
from actors.gpu.identity_file import GpuIdentity, encode, identity_file
from actors.gpu.image_folder import compat_folder
from actors.gpu.injection_plan import OwnFiles, plan_injection, with_gpus
from actors.gpu.restored_edits import as_at_snapshot
from actors.manifest import shape_of
from actors.ports import FileKind
from actors.steps.bundles import prepare
from actors.steps.fetching import drop_damaged_copy, fetched
from actors.steps.origin import judge, take_over
from statemachine.events import EditsInjected, RestoreRefused
from statemachine.problem import Problem, ProblemError, Step
from statemachine.reasons import Reason

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from actors.assignment import Container
    from actors.cdi import HostNode
    from actors.gpu.hooks import Skipped
    from actors.gpu.inventory import Gpu
    from actors.layout import StateDir
    from actors.manifest import SnapshotContainer, SnapshotGpu
    from actors.ports import Files
    from actors.steps.stage import Stage
    from actors.strict_json import JsonObject
    from statemachine.actor import OnDifference, Snapshot

_NO_SNAPSHOT: Final[Mapping[str, SnapshotContainer]] = MappingProxyType({})
_DIGEST_CHARACTERS: Final = 16

_log = structlog.get_logger("greenroom.inject")


async def inject_edits(
    stage: Stage, origin: Snapshot | None, on_difference: OnDifference
) -> EditsInjected | RestoreRefused:
    """Perform InjectEdits.

    Args:
        stage: the actor's.
        origin: the snapshot that the activation will come from; None for a cold start.
        on_difference: whether it is restored although something differs here.
    """
    kept = stage.spec
    if not isinstance(kept, KeptSpec) or not any(stage.granted.values()):
        message = "there is nothing to inject: generate and partition come before"
        raise ValueError(message)
    then, wanted, stage.forced = _NO_SNAPSHOT, list(stage.assignment.containers), ()
    if origin is not None:
        try:
            manifest = (await judge(stage, await fetched(stage, origin), on_difference)).manifest
        except ProblemError as error:
            await drop_damaged_copy(stage, origin, error.problem)
            return RestoreRefused(problem=error.problem)
        wanted = take_over(stage, manifest)
        if manifest.scope is SnapshotScope.FULL:  # without an image the containers start anew, on whatever they get
            then = {each.name: each for each in manifest.containers}
    grants = [stage.granted.get(each.name, ()) for each in wanted]
    nodes = await look_at_granted(stage.ports.files, kept, grants)
    injection = _Injection(stage=stage, kept=kept, links=await _linked(stage, kept), nodes=nodes, then=then)
    stage.plan = await prepare(stage, wanted, step=Step.INJECT, finish=injection.finish)
    _tell(stage, (*kept.hooks.skipped, *kept.links.skipped), injection.warnings)
    return EditsInjected()


@attrs.frozen(kw_only=True)
class _Injection:
    """One activation's.

    Attributes:
        links: the directory of links.
        nodes: the host's, of every device that is granted here.
        then: the containers of the snapshot that it comes from, by name.
        warnings: what is to be told, in the order of its finding.
    """

    stage: Stage
    kept: KeptSpec
    links: Path
    nodes: Mapping[str, HostNode | None]
    then: Mapping[str, SnapshotContainer]
    warnings: list[str] = attrs.field(factory=list)
    _compat_folders: dict[Path, str | None] = attrs.field(factory=dict, init=False)

    async def finish(self, container: Container, pristine: JsonObject) -> ContainerFiles:
        """A container's config.json with its devices and its gpus.json; without a grant the very same, and none."""
        gpus = self.stage.granted.get(container.name, ())
        if not gpus:
            return ContainerFiles(config=pristine)
        before = self.then.get(container.name)
        plan = plan_injection(
            self.kept.spec,
            gpus,
            container=container.name,
            own=OwnFiles(links=str(self.links), identity=str(self._identity_path(container.name))),
            found=self.nodes.get,
            compat_folder=await self._compat_folder(Path(pristine["root"]["path"])),
            trusted_hook=None if self.kept.hook is None else str(self.kept.hook),
        )
        if plan is not None and before is not None:
            plan = as_at_snapshot(plan, before.shape, without_gpus=shape_of(pristine))
        config = with_gpus(pristine, plan)
        self.warnings.extend(() if plan is None else plan.warnings)
        now = [GpuIdentity.of(gpu) for gpu in gpus]
        had = None if before is None else [_identity(gpu) for gpu in before.gpus]
        identity = encode(identity_file(container.name, now, at_snapshot=had))
        return ContainerFiles(config=config, identity=identity, is_covered=config is not pristine)

    async def _compat_folder(self, rootfs: Path) -> str | None:
        """As `image_folder` has it; containers of one image share the look."""
        if rootfs not in self._compat_folders:
            found = await compat_folder(self.stage.ports.files, rootfs, self.kept.hooks.cuda_compat)
            self._compat_folders[rootfs] = found
        return self._compat_folders[rootfs]

    def _identity_path(self, name: str) -> Path:
        if self.stage.activation is None:
            raise ValueError("there is no activation to write for")
        return identity_path(self.stage.activation, name)


async def look_at_granted(
    files: Files, kept: KeptSpec, grants: Iterable[tuple[Gpu, ...]]
) -> Mapping[str, HostNode | None]:
    """What the host has of the nodes of all that is granted, each looked at once.

    Raises:
        ProblemError: CdiDeviceUnresolved, MigUnsupported.
    """
    edits = [granted_edits(kept.spec, gpus) for gpus in grants if gpus]
    paths = dict.fromkeys(node.source for each in edits for node in each.device_nodes)
    return await look_at_nodes(files, paths)


async def _linked(stage: Stage, kept: KeptSpec) -> Path:
    """The directory of links to the driver's libraries.

    Raises:
        ProblemError: StateUnwritable.
    """
    directory, files = links_directory(stage.state_dir, kept), stage.ports.files
    try:
        found = await files.lstat(directory)
        if found is None or found.kind is not FileKind.DIRECTORY:
            await files.make_links(directory, kept.links.targets)
    except OSError as error:
        message = f"the links to the driver's libraries cannot be made: {error.strerror or error}"
        raise ProblemError(
            Problem(step=Step.INJECT, reason=Reason.STATE_UNWRITABLE, subject=str(directory), message=message)
        ) from error
    return directory


def links_directory(state_dir: StateDir, kept: KeptSpec) -> Path:
    """Where the links to the driver's libraries are; named by its content, so that whoever finds it has it whole."""
    return state_dir.cdi / kept.identity / f"lib-{kept.links.digest[:_DIGEST_CHARACTERS]}"


def _identity(gpu: SnapshotGpu) -> GpuIdentity:
    return GpuIdentity(uuid=gpu.uuid, pci_bus_id=gpu.pci_bus_id, minor=gpu.minor, model=gpu.model)


def _tell(stage: Stage, skipped: Iterable[Skipped], warnings: Iterable[str]) -> None:
    """Each thing once, however many containers it concerns."""
    log = _log.bind(actor=stage.assignment.uid)
    for each in dict.fromkeys(skipped):
        log.info("skipped", name=each.name, why=each.why)
    for warning in dict.fromkeys(warnings):
        log.warning("injected", warning=warning)
