"""A look at a generated CDI spec before anybody relies on it: nvidia-ctk ends well with specs that cannot be used.

Measured with 1.20: a GPU whose `/dev/nvidia<minor>` is missing, but not its DRM nodes, gets a device without the one
node that counts, and the exit code is 0; so does a pod without nvidia-uvm. What passes here can be given to any
container of this pod, for it is judged by the very functions that an injection uses.

Hooks are not looked at: none is ever run by the path that a spec gives it.

Source: facts of nvidia-ctk, section 3 ("Consequences for the supervisor").
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import attrs

from statemachine.problem import Problem, ProblemError, Step
from statemachine.reasons import Reason

from .granted_edits import granted_edits, host_nodes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from actors.cdi import ContainerEdits, HostNode, Spec

    from .inventory import Gpu, Inventory

_PATHS_SHOWN: Final = 16


def problems_of(
    spec: Spec,
    inventory: Inventory,
    *,
    lstat: Callable[[str], HostNode | None],
    exists: Callable[[str], bool],
    step: Step = Step.GENERATE,
) -> tuple[Problem, ...]:
    """What is wrong with a spec for these GPUs; nothing, when each that can be granted can be injected.

    GPUs that are lost or in MIG mode are passed over: nobody gets them.

    Args:
        spec: as it was generated, read and valid.
        inventory: the GPUs of the pod.
        lstat: what stands at a device node's path in the pod.
        exists: whether a file, directory or socket stands at a path in the pod.
        step: whose problems these are.

    Returns:
        CdiDeviceUnresolved for a GPU without a device of its own or without its node, and for a control node that is
        missing in the spec or in the pod; MigUnsupported for a GPU whose device is a MIG device; GenerateFailed for
        mounts of files that are not there. Each thing once.
    """
    problems: list[Problem] = []
    edits: list[ContainerEdits] = [spec.container_edits]
    for gpu in inventory.usable:
        try:
            edits.append(_injected(spec, gpu, lstat))
        except ProblemError as error:
            problems += (attrs.evolve(problem, step=step) for problem in error.problems)
    problems += _absent_files(edits, exists, step)
    return tuple(dict.fromkeys(problems))


def _injected(spec: Spec, gpu: Gpu, lstat: Callable[[str], HostNode | None]) -> ContainerEdits:
    edits = granted_edits(spec, [gpu])
    host_nodes(edits.device_nodes, lstat)
    return edits


def _absent_files(edits: Iterable[ContainerEdits], exists: Callable[[str], bool], step: Step) -> Iterator[Problem]:
    """One problem for all of them: a driver root that is not there is a hundred files and one cause."""
    paths = tuple(dict.fromkeys(mount.host_path for each in edits for mount in each.mounts))
    absent = [path for path in paths if not exists(path)]
    if absent:
        named = ", ".join(absent[:_PATHS_SHOWN]) + (", …" if len(absent) > _PATHS_SHOWN else "")
        yield Problem(
            step=step,
            reason=Reason.GENERATE_FAILED,
            subject=absent[0],
            message=f"{len(absent)} of {len(paths)} files that the CDI spec mounts are not in this pod: {named}",
            hint="Mount the driver's files at these paths, or give the driver root under which this pod has them.",
        )
