"""Whether a snapshot can be restored here: the differences that are known before anything is created.

Measured on runsc 20240729: it compares nothing itself. Another platform restores and then dies; other overlay or
network flags fail at the last container; a container name that is missing leaves the others waiting for ever.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from statemachine.problem import Problem, Step
from statemachine.reasons import Reason

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from actors.gpu.inventory import Gpu
    from actors.manifest import Manifest
    from actors.runsc.flags import GlobalFlags
    from actors.runsc.version import RuntimeVersion


def compatibility(
    manifest: Manifest,
    *,
    runtime: RuntimeVersion,
    flags: GlobalFlags,
    arch: str,
    containers: Collection[str],
    step: Step = Step.RESTORE,
) -> Problem | None:
    """Return what is different here, or None when nothing speaks against a restore.

    Args:
        manifest: the snapshot's.
        runtime: the runsc that would restore it.
        flags: the global flags that it would get.
        arch: this machine, as `uname -m` names it.
        containers: the names of the actor's application containers.
        step: the step that the problem belongs to.
    """
    return _problem(list(_differences(manifest, runtime, flags, arch, containers)), step)


def gpu_compatibility(
    manifest: Manifest, *, gpus: Mapping[str, Sequence[Gpu]], driver: str | None, step: Step = Step.RESTORE
) -> Problem | None:
    """Return what is different about the GPUs here, or None when nothing speaks against a restore.

    Other boards of the same model are none: gVisor takes them for those of the snapshot, in the order of their minors.

    Args:
        manifest: the snapshot's.
        gpus: what each container was granted, by ordinal.
        driver: the NVIDIA driver's version; None without a GPU.
        step: the step that the problem belongs to.
    """
    return _problem([*_other_gpus(manifest, gpus), *_other_driver(manifest, driver)], step)


def _problem(differences: Sequence[tuple[str, str]], step: Step) -> Problem | None:
    """The first difference, with the others as its detail."""
    if not differences:
        return None
    subject, message = differences[0]
    return Problem(
        step=step,
        reason=Reason.SNAPSHOT_INCOMPATIBLE,
        subject=subject,
        message=message,
        detail="\n".join(message for _, message in differences[1:]),
    )


def _differences(
    manifest: Manifest, runtime: RuntimeVersion, flags: GlobalFlags, arch: str, containers: Collection[str]
) -> Iterator[tuple[str, str]]:
    """The subject and the sentence of each difference, the most fundamental first."""
    if manifest.arch != arch:
        yield "arch", f"the snapshot is of {manifest.arch}, this machine is {arch}"
    if manifest.runsc.platform != flags.platform:
        yield "platform", f"the snapshot is of platform {manifest.runsc.platform}, here it is {flags.platform}"
    if not runtime.can_restore(manifest.runsc.version):
        yield "runsc", f"the snapshot was taken by runsc {manifest.runsc.version}, here is {runtime.text}"
    then, now = set(manifest.runsc.flags), set(flags.as_list())
    if then != now:
        changed = ", ".join(sorted(then ^ now))
        yield "flags", f"runsc's flags differ from the snapshot's: {changed}"
    saved, wanted = {container.name for container in manifest.containers}, set(containers)
    if saved != wanted:
        yield "containers", f"the snapshot has containers {_names(saved)}, the actor has {_names(wanted)}"
    if not manifest.restorable:
        yield "containers", "every container of the snapshot has exited, so there is nothing to restore"


def _other_gpus(manifest: Manifest, gpus: Mapping[str, Sequence[Gpu]]) -> Iterator[tuple[str, str]]:
    for container in manifest.containers:
        name, now = container.name, gpus.get(container.name, ())
        if len(container.gpus) != len(now):
            yield name, f"container {name} had {len(container.gpus)} GPUs in the snapshot, here it has {len(now)}"
            continue
        for then, gpu in zip(container.gpus, now, strict=True):
            if then.model != gpu.model:
                yield name, f"GPU {then.ordinal} of {name} was {then.model} in the snapshot, here it is {gpu.model}"


def _other_driver(manifest: Manifest, driver: str | None) -> Iterator[tuple[str, str]]:
    # Without a GPU on either side there is no driver to compare.
    if manifest.driver and driver and manifest.driver != driver:
        yield "driver", f"the snapshot was taken with NVIDIA driver {manifest.driver}, here is {driver}"


def _names(names: set[str]) -> str:
    return ", ".join(sorted(names)) or "none"
