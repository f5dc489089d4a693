"""What goes into one container that was granted GPUs, as a plan, and its config.json with it.

The plan is decided from the spec, the grant and the host's device nodes; writing it into a document needs nothing else.
The document carries a digest of plan and origin: made again from the same it stays as it is, and from others it is made
anew from the config.json as it was before any device, so that nothing of an earlier plan is ever left in it. A
container without a grant has no plan, and its document is not touched.

Exactly one `NVIDIA_VISIBLE_DEVICES=void` ends in the environment: whatever an image says there, runsc or a hook of
NVIDIA's that reads it would hand out GPUs by another book.

Source: DESIGN, "Partition" and rule 9; facts of runsc section 6 and of CDI section 10.
"""

from __future__ import annotations

import posixpath
import re
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final

import attrs
from blake3 import blake3

from actors.bundle.mounts import normalised_options
from actors.cdi import CdiError, Mount, inject
from actors.strict_json import canonical
from statemachine.problem import Problem, ProblemError, Step
from statemachine.reasons import Reason

from .granted_edits import GPU_NODE, granted_edits, host_nodes, is_gpu
from .hooks import is_emulated
from .identity_file import IDENTITY_PATH
from .links import PRIVATE_DIRECTORY

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from actors.cdi import ContainerEdits, Hook, HostNode, Spec
    from actors.strict_json import JsonObject

    from .inventory import Gpu

MARKER: Final = "dev.greenroom.injection"
"""The annotation that holds the digest."""
_VISIBLE: Final = "NVIDIA_VISIBLE_DEVICES"
_LIBRARY_PATH: Final = "LD_LIBRARY_PATH"
_OWN_OPTIONS: Final = ("bind", "nodev", "noexec", "nosuid", "ro")
_LIBRARY_OPTIONS: Final = ("bind", "nodev", "nosuid", "ro")
_SHARED: Final = re.compile(r"r?shared")


@attrs.frozen(kw_only=True)
class InjectionPlan:
    """What one container gets.

    Attributes:
        container: its name.
        gpus: the UUIDs of its grant, by ordinal.
        edits: complete; hooks are in it only where the plan was made to write them.
        library_folders: what comes first in LD_LIBRARY_PATH, in this order.
        warnings: one sentence each.
    """

    container: str
    gpus: tuple[str, ...]
    edits: ContainerEdits
    library_folders: tuple[str, ...]
    warnings: tuple[str, ...] = ()

    @property
    def digest(self) -> str:
        """BLAKE3 of everything that goes into the container."""
        content = [self.container, list(self.gpus), attrs.asdict(self.edits), list(self.library_folders)]
        return blake3(canonical(content)).hexdigest()


@attrs.frozen(kw_only=True)
class OwnFiles:
    """What Greenroom made for a container, by their paths in the pod: the directory of links and the identity file."""

    links: str
    identity: str

    def mounts(self) -> tuple[Mount, Mount]:
        """Both, read-only, where a container finds them."""
        return (
            Mount(host_path=self.links, container_path=PRIVATE_DIRECTORY, options=_LIBRARY_OPTIONS, type="bind"),
            Mount(host_path=self.identity, container_path=IDENTITY_PATH, options=_OWN_OPTIONS, type="bind"),
        )


def plan_injection(
    spec: Spec,
    gpus: Sequence[Gpu],
    *,
    container: str,
    own: OwnFiles,
    found: Callable[[str], HostNode | None],
    compat_folder: str | None = None,
    trusted_hook: str | None = None,
) -> InjectionPlan | None:
    """The plan for a container; None when it was granted nothing.

    Args:
        spec: that all GPUs of the pod are in.
        gpus: the grant, by ordinal.
        container: its name.
        own: what Greenroom made for it.
        found: what lstat(2) says of a device node's path on the host.
        compat_folder: the image's folder of newer CUDA libraries, where `CudaCompat.folder_for` has found one.
        trusted_hook: the path of the toolkit's own hook program, to write the hooks that Greenroom does itself into the
            document as well; None to write none. The path in the spec is never used.

    Raises:
        ProblemError: CdiDeviceUnresolved, MigUnsupported; of the step inject.
    """
    if not gpus:
        return None
    edits = granted_edits(spec, gpus)
    nodes, warnings = host_nodes(edits.device_nodes, found)
    return InjectionPlan(
        container=container,
        gpus=tuple(gpu.uuid for gpu in gpus),
        edits=attrs.evolve(
            edits,
            env=_last_of_each(edits.env),
            device_nodes=tuple(sorted(nodes, key=attrgetter("path"))),
            mounts=_mounts(edits.mounts, own),
            hooks=_hooks(edits.hooks, trusted_hook),
            additional_gids=tuple(sorted(set(edits.additional_gids))),
        ),
        library_folders=(*([compat_folder] if compat_folder else []), PRIVATE_DIRECTORY),
        warnings=warnings,
    )


def with_gpus(pristine: JsonObject, plan: InjectionPlan | None, *, current: JsonObject | None = None) -> JsonObject:
    """The config.json of a container with what its plan says.

    Args:
        pristine: as it is without any device; never changed.
        plan: None for a container without a grant: it gets `pristine`, the very object.
        current: the config.json that was written before, where there is one; returned when it is of the same plan and
            origin.

    Raises:
        ProblemError: InvalidBundle, when it brings a GPU of its own, or cannot be edited.
    """
    if plan is None:
        return pristine
    digest = blake3(plan.digest.encode() + canonical(pristine)).hexdigest()
    if current is not None and (current.get("annotations") or {}).get(MARKER) == digest:
        return current
    _require_no_gpus(pristine, plan)
    try:
        # Every node is complete, so that nothing has to be looked up.
        made = inject(pristine, attrs.evolve(plan.edits, env=()), lstat=lambda _path: None)
    except CdiError as error:
        raise _refusal(plan, str(error)) from error
    process = dict(made.get("process") or {})
    process["env"] = _environment(process.get("env") or [], plan)
    return {**made, "process": process, "annotations": {**(made.get("annotations") or {}), MARKER: digest}}


def gpus_brought(document: JsonObject) -> tuple[str, ...]:
    """The GPUs that a config.json has by itself, by path: nodes by name or by numbers, and mounts of nodes."""
    devices: Any = (document.get("linux") or {}).get("devices") or []
    mounts: Any = document.get("mounts") or []
    nodes = [
        device["path"]
        for device in devices
        if _leads_to_gpu(device["path"]) or is_gpu(device.get("major"), device.get("minor"))
    ]
    ends = [mount.get(end) for mount in mounts if isinstance(mount, dict) for end in ("source", "destination")]
    return tuple(dict.fromkeys([*nodes, *(end for end in ends if isinstance(end, str) and _leads_to_gpu(end))]))


def _leads_to_gpu(path: str) -> bool:
    """Whether a path is that of a GPU's node, in whichever spelling; two slashes in front are one to Linux."""
    return bool(GPU_NODE.fullmatch(posixpath.normpath(f"/{path.lstrip('/')}")))


# --------------------------------------------------------------------------------------------------------------- parts


def _mounts(mounts: Iterable[Mount], own: OwnFiles) -> tuple[Mount, ...]:
    """Each destination once, the last that wants it, in one order and with options in their one form."""
    every = (*map(_normalised, mounts), *own.mounts())
    by_destination = {mount.container_path: mount for mount in every}
    return tuple(by_destination[path] for path in sorted(by_destination))


def _normalised(mount: Mount) -> Mount:
    # A mount that is shared with the host is refused by gVisor, and nothing of ours is to be seen outside.
    options = [option for option in mount.options if not _SHARED.fullmatch(option)]
    if not {"bind", "rbind"} & set(options):
        options.append("bind")
    return Mount(
        host_path=mount.host_path,
        container_path=posixpath.normpath(mount.container_path),
        options=tuple(normalised_options(options)),
        type=mount.type or "bind",
    )


def _hooks(hooks: Iterable[Hook], trusted: str | None) -> tuple[Hook, ...]:
    if trusted is None:
        return ()
    # Without the spec's variables: LD_PRELOAD is one. The arguments stay, the program's own name among them.
    written = (attrs.evolve(hook, path=trusted, env=()) for hook in hooks if is_emulated(hook))
    return tuple(dict.fromkeys(written))


def _last_of_each(entries: Iterable[str]) -> tuple[str, ...]:
    """Each variable once; the last that sets it counts, and one of them is not for anybody to set."""
    last = {_variable(entry): entry for entry in entries}
    last[_VISIBLE] = f"{_VISIBLE}=void"
    return tuple(last.values())


def _environment(entries: Sequence[str], plan: InjectionPlan) -> list[str]:
    ours = {_variable(entry): entry for entry in plan.edits.env}
    said = {_variable(entry): entry for entry in entries} | ours
    folders = said.get(_LIBRARY_PATH, "").partition("=")[2]
    ours[_LIBRARY_PATH] = f"{_LIBRARY_PATH}={_with_folders(folders, plan.library_folders)}"
    return [entry for entry in entries if _variable(entry) not in ours] + list(ours.values())


def _with_folders(folders: str, first: Iterable[str]) -> str:
    """Each folder once. An empty one means the working directory, which nobody means: it goes."""
    return ":".join(dict.fromkeys(folder for folder in (*first, *folders.split(":")) if folder))


def _variable(entry: object) -> str:
    return str(entry).partition("=")[0]


def _require_no_gpus(pristine: JsonObject, plan: InjectionPlan) -> None:
    brought = gpus_brought(pristine)
    if brought:
        raise _refusal(plan, f"it brings {', '.join(brought)} itself; GPUs are granted, by claims alone")


def _refusal(plan: InjectionPlan, why: str) -> ProblemError:
    message = f"the bundle of {plan.container} cannot be given its GPUs: {why}"
    return ProblemError(
        Problem(step=Step.INJECT, reason=Reason.INVALID_BUNDLE, subject=plan.container, message=message)
    )
