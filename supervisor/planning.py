"""What a worker would do with an assignment's GPUs, worked out by the functions that do it, and nothing done.

The grants are those of a worker on which nobody holds a GPU, and the bundles those of a cold start. Names that only an
activation has stand as `ACTIVATION` and `SANDBOX` in paths and annotations.

Source: REQUIREMENTS R53 (what is injected is explicit and auditable).
"""

from __future__ import annotations

import difflib
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import attrs

from actors.bundle.activation_tree import identity_path
from actors.bundle.capabilities import claims_of
from actors.bundle.composing import compose_each
from actors.bundle.config import PAUSE_NAME, hostname_of
from actors.gpu.image_folder import compat_folder
from actors.gpu.injection_plan import OwnFiles, plan_injection, with_gpus
from actors.gpu.inventory import Inventory
from actors.gpu.partition import Pool, admit, grant
from actors.gpu.spec_inventory import UNKNOWN_MAJOR, nodes_as_specified
from actors.layout import StateDir
from actors.steps.bundles import require_no_gpus
from actors.steps.inject import links_directory, look_at_granted
from actors.steps.partition import claims_by_container

if TYPE_CHECKING:
    from collections.abc import Mapping

    from actors.assignment import Container, WorkerAssignment
    from actors.cdi import HostNode
    from actors.gpu.desk import KeptSpec
    from actors.gpu.inventory import Gpu
    from actors.ports import Files
    from actors.strict_json import JsonObject

ACTIVATION: Final = "ACTIVATION"
SANDBOX: Final = "SANDBOX"
_CONTEXT_LINES: Final = 3


@attrs.frozen(kw_only=True)
class Given:
    """What a plan is made of.

    Attributes:
        inventory: the GPUs.
        told: the UUIDs that may be repeated; None when all of it was told by NVML.
        spec: the CDI spec; None when nothing is claimed.
        warnings: what is to be known of both.
    """

    inventory: Inventory = attrs.field(factory=Inventory)
    told: frozenset[str] | None = None
    spec: KeptSpec | None = None
    warnings: tuple[str, ...] = ()


@attrs.frozen(kw_only=True)
class Plan:
    """What would come of an assignment.

    Attributes:
        actor: its uid.
        given: the GPUs and the spec.
        grants: by container in the order of declaration, `pause` first; by ordinal.
        diffs: by container, what its config.json gets; empty for what is left as it is.
        warnings: one sentence each.
    """

    actor: str
    given: Given
    grants: Mapping[str, tuple[Gpu, ...]]
    diffs: Mapping[str, str]
    warnings: tuple[str, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """The form of the answer."""
        return {
            "actor": self.actor,
            "inventory": [self._gpu(gpu) for gpu in self.given.inventory.gpus],
            "grants": {name: [self._granted(*each) for each in enumerate(gpus)] for name, gpus in self.grants.items()},
            "diffs": dict(self.diffs),
            "warnings": list(self.warnings),
        }

    def uuid(self, gpu: Gpu) -> str | None:
        """The UUID, where anybody told it."""
        return gpu.uuid if self.given.told is None or gpu.uuid in self.given.told else None

    def _gpu(self, gpu: Gpu) -> dict[str, Any]:
        of_nvml = self.given.told is None
        return {
            "minor": gpu.minor,
            "uuid": self.uuid(gpu),
            "path": gpu.path,
            "pciBusId": gpu.pci_bus_id if of_nvml else None,
            "model": gpu.model if of_nvml else None,
            "migDevices": None if gpu.mig_devices is None else list(gpu.mig_devices),
            "lost": gpu.lost,
        }

    def _granted(self, ordinal: int, gpu: Gpu) -> dict[str, Any]:
        return {"ordinal": ordinal, "uuid": self.uuid(gpu), "minor": gpu.minor, "path": gpu.path}


def claims_any(assignment: WorkerAssignment) -> bool:
    """Whether there is anything to be granted."""
    return any(claim.count for claim in claims_by_container(assignment))


async def make_plan(files: Files, assignment: WorkerAssignment, given: Given, *, state_dir: StateDir) -> Plan:
    """Work it out.

    Args:
        files: only read.
        assignment: as admitted.
        given: the GPUs and the spec.
        state_dir: where the worker's own files would be.

    Raises:
        ProblemError: whatever a worker would refuse or fail with, up to the start of the sandbox.
    """
    grants = grants_on_an_idle_worker(assignment, given.inventory)
    warnings = list(given.warnings)
    diffs = {PAUSE_NAME: ""}
    bundles = await _bundles(files, given, grants, state_dir)
    composed = await compose_each(
        files,
        assignment.containers,
        sandbox_id=SANDBOX,
        hostname=hostname_of(assignment),
        claims=claims_of(assignment.containers),
    )
    for container in assignment.containers:
        pristine = composed[container.name]
        require_no_gpus(container.name, pristine)
        made = pristine if bundles is None else await bundles.finish(container, pristine, grants[container.name])
        diffs[container.name] = difference(pristine, made, container.name)
    if bundles is not None:
        warnings += bundles.warnings
    if assignment.snapshot is not None and claims_any(assignment):
        warnings.append("this is a cold start; from a snapshot, its mounts and their order are taken over")
    return Plan(
        actor=assignment.uid,
        given=given,
        grants={PAUSE_NAME: (), **grants},
        diffs=diffs,
        warnings=tuple(dict.fromkeys(warnings)),
    )


def difference(before: JsonObject, after: JsonObject, name: str) -> str:
    """What changes from one document to the other, as a unified diff of both in one form; empty when nothing does."""
    lines = (_lines(before), _lines(after))
    titles = (f"{name}/config.json without GPUs", f"{name}/config.json")
    found = difflib.unified_diff(*lines, *titles, lineterm="", n=_CONTEXT_LINES)
    return "".join(f"{line}\n" for line in found)


def _lines(document: JsonObject) -> list[str]:
    return json.dumps(document, ensure_ascii=False, indent=2, sort_keys=True).splitlines()


def grants_on_an_idle_worker(assignment: WorkerAssignment, inventory: Inventory) -> dict[str, tuple[Gpu, ...]]:
    """As admission books and Partitioning grants, where nobody else holds anything."""
    if not claims_any(assignment):
        return {each.name: () for each in assignment.containers}
    by_uuid = {gpu.uuid: gpu for gpu in inventory.gpus}
    pool = admit(Pool(), inventory, assignment.uid, claims_by_container(assignment))
    ticket = grant(pool, inventory, assignment.uid).ticket(assignment.uid)
    granted = () if ticket is None else ticket.grants or ()
    return {each.container: tuple(by_uuid[uuid] for uuid in each.gpus) for each in granted}


@attrs.frozen(kw_only=True)
class _Bundles:
    """What becomes of the config.json of containers with a grant."""

    files: Files
    kept: KeptSpec
    links: Path
    nodes: Mapping[str, HostNode | None]
    state_dir: StateDir
    warnings: list[str]

    async def finish(self, container: Container, pristine: JsonObject, gpus: tuple[Gpu, ...]) -> JsonObject:
        """A container's config.json with its devices; the very same without a grant."""
        plan = plan_injection(
            self.kept.spec,
            gpus,
            container=container.name,
            own=OwnFiles(
                links=str(self.links),
                identity=str(identity_path(self.state_dir.activation(ACTIVATION), container.name)),
            ),
            found=self.nodes.get,
            compat_folder=await compat_folder(self.files, Path(pristine["root"]["path"]), self.kept.hooks.cuda_compat),
            trusted_hook=None if self.kept.hook is None else str(self.kept.hook),
        )
        self.warnings.extend(() if plan is None else plan.warnings)
        return with_gpus(pristine, plan)


async def _bundles(
    files: Files, given: Given, grants: Mapping[str, tuple[Gpu, ...]], state_dir: StateDir
) -> _Bundles | None:
    """Everything that the containers' documents have in common; None when nobody gets anything."""
    kept = given.spec
    if kept is None or not any(grants.values()):
        return None
    warnings = [f"{each.name} is skipped: {each.why}" for each in (*kept.hooks.skipped, *kept.links.skipped)]
    nodes: Mapping[str, HostNode | None]
    if given.told is None:
        nodes = await look_at_granted(files, kept, grants.values())
    else:
        specified = nodes_as_specified(kept.spec)
        nodes = specified.found
        warnings += [
            f"the numbers of {path} are known on its own machine only: major {UNKNOWN_MAJOR} stands for them"
            for path in specified.unknown
        ]
    return _Bundles(
        files=files,
        kept=kept,
        links=links_directory(state_dir, kept),
        nodes=nodes,
        state_dir=state_dir,
        warnings=warnings,
    )
