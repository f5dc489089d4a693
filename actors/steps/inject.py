"""inject: the bundles of an actor with a claim, each container's config.json with exactly the GPUs it was granted.

Needs spec and grant; for a start from a snapshot its manifest, by which it judges the snapshot as restore does. Makes
`sandboxes/<activation>/` with bundles and `gpus/<container>/gpus.json`, which teardown removes, and once for a spec
`cdi/<identity>/lib-<digest>/` with the links to the driver's libraries, which stays. Refuses (nothing was made) what
restore refuses: SnapshotMissing, SnapshotCorrupt, NewerFormat, SnapshotIncompatible, BundleChanged. Fails with
CdiDeviceUnresolved, MigUnsupported, MountMissing, InvalidBundle, BundleNotFound, RootfsNotFound, StateUnwritable.

`pause` gets no device, and a container without a grant has the config.json that it has without any GPU.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

import anyio
import attrs
import structlog
from blake3 import blake3

from actors.gpu.granted_edits import granted_edits
from actors.gpu.hooks import plan_hooks
from actors.gpu.host_look import all_edits, look_at_nodes
from actors.gpu.identity_file import GpuIdentity, encode, identity_file
from actors.gpu.image_folder import compat_folder
from actors.gpu.injection_plan import OwnFiles, plan_injection, with_gpus
from actors.gpu.links import plan_links
from actors.gpu.restored_edits import as_at_snapshot
from actors.manifest import shape_of
from actors.ports import FileKind
from actors.steps.bundles import prepare
from actors.steps.origin import judge, take_over
from actors.strict_json import canonical
from statemachine.events import EditsInjected, RestoreRefused
from statemachine.problem import Problem, ProblemError, Step
from statemachine.reasons import Reason

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from actors.assignment import Container
    from actors.cdi import HostNode
    from actors.gpu.desk import KeptSpec
    from actors.gpu.hooks import HookPlan, Skipped
    from actors.gpu.inventory import Gpu
    from actors.gpu.links import LinkPlan
    from actors.layout import StateDir
    from actors.manifest import SnapshotContainer, SnapshotGpu
    from actors.ports import Files
    from actors.steps.stage import Stage
    from actors.strict_json import JsonObject
    from statemachine.actor import Snapshot

_NO_SNAPSHOT: Final[Mapping[str, SnapshotContainer]] = MappingProxyType({})
_DIGEST_CHARACTERS: Final = 16

_log = structlog.get_logger("greenroom.inject")


async def inject_edits(stage: Stage, origin: Snapshot | None) -> EditsInjected | RestoreRefused:
    """Perform InjectEdits.

    Args:
        stage: the actor's.
        origin: the snapshot that the activation will come from; None for a cold start.
    """
    kept = stage.spec
    if kept is None or not any(stage.granted.values()):
        message = "there is nothing to inject: generate and partition come before"
        raise ValueError(message)
    then, wanted = _NO_SNAPSHOT, list(stage.assignment.containers)
    if origin is not None:
        try:
            _, manifest = await judge(stage, origin.uri)
        except ProblemError as error:
            return RestoreRefused(problem=error.problem)
        then, wanted = {each.name: each for each in manifest.containers}, take_over(stage, manifest)
    grants = [stage.granted.get(each.name, ()) for each in wanted]
    nodes = await look_at_granted(stage.ports.files, kept, grants)
    hooks = plan_hooks(hook for edits in all_edits(kept.spec) for hook in edits.hooks)
    links = plan_links(kept.libraries, hooks.links)
    injection = _Injection(
        stage=stage, kept=kept, links=await _linked(stage, kept, links), hooks=hooks, nodes=nodes, then=then
    )
    stage.plan = await prepare(stage, wanted, step=Step.INJECT, finish=injection.finish)
    _tell(stage, (*hooks.skipped, *links.skipped), injection.warnings)
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
    hooks: HookPlan
    nodes: Mapping[str, HostNode | None]
    then: Mapping[str, SnapshotContainer]
    warnings: list[str] = attrs.field(factory=list)
    _compat_folders: dict[Path, str | None] = attrs.field(factory=dict, init=False)
    _turn: anyio.Lock = attrs.field(factory=partial(anyio.Lock, fast_acquire=True), init=False)

    async def finish(self, container: Container, pristine: JsonObject) -> JsonObject:
        """A container's config.json with its devices; the very same without a grant."""
        gpus, files = self.stage.granted.get(container.name, ()), self.stage.ports.files
        if not gpus:
            return pristine
        before = self.then.get(container.name)
        identity = self._identity_path(container.name)
        plan = plan_injection(
            self.kept.spec,
            gpus,
            container=container.name,
            own=OwnFiles(links=str(self.links), identity=str(identity)),
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
        await files.replace_readable(identity, encode(identity_file(container.name, now, at_snapshot=had)))
        return config

    async def _compat_folder(self, rootfs: Path) -> str | None:
        """As `image_folder` has it; containers of one image share the look."""
        async with self._turn:
            if rootfs not in self._compat_folders:
                found = await compat_folder(self.stage.ports.files, rootfs, self.hooks.cuda_compat)
                self._compat_folders[rootfs] = found
            return self._compat_folders[rootfs]

    def _identity_path(self, name: str) -> Path:
        if self.stage.activation is None:
            raise ValueError("there is no activation to write into")
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


async def _linked(stage: Stage, kept: KeptSpec, plan: LinkPlan) -> Path:
    """The directory of links to the driver's libraries.

    Raises:
        ProblemError: StateUnwritable.
    """
    directory, links = links_directory(stage.state_dir, kept, plan), _as_made(plan)
    files = stage.ports.files
    try:
        found = await files.lstat(directory)
        if found is None or found.kind is not FileKind.DIRECTORY:
            await files.make_links(directory, links)
    except OSError as error:
        message = f"the links to the driver's libraries cannot be made: {error.strerror or error}"
        raise ProblemError(
            Problem(step=Step.INJECT, reason=Reason.STATE_UNWRITABLE, subject=str(directory), message=message)
        ) from error
    return directory


def links_directory(state_dir: StateDir, kept: KeptSpec, plan: LinkPlan) -> Path:
    """Where the links to the driver's libraries are; named by its content, so that whoever finds it has it whole."""
    digest = blake3(canonical(_as_made(plan))).hexdigest()[:_DIGEST_CHARACTERS]
    return state_dir.cdi / kept.identity / f"lib-{digest}"


def identity_path(activation: Path, container: str) -> Path:
    """Where the file stands from which a container learns which GPUs it has."""
    return activation / "gpus" / container / "gpus.json"


def _as_made(plan: LinkPlan) -> dict[str, str]:
    return {link.name: link.target for link in plan.links}


def _identity(gpu: SnapshotGpu) -> GpuIdentity:
    return GpuIdentity(uuid=gpu.uuid, pci_bus_id=gpu.pci_bus_id, minor=gpu.minor, model=gpu.model)


def _tell(stage: Stage, skipped: Iterable[Skipped], warnings: Iterable[str]) -> None:
    """Each thing once, however many containers it concerns."""
    log = _log.bind(actor=stage.assignment.uid)
    for each in dict.fromkeys(skipped):
        log.info("skipped", name=each.name, why=each.why)
    for warning in dict.fromkeys(warnings):
        log.warning("injected", warning=warning)
