"""Everything that differs between a snapshot and the place where it is to be restored, the most fundamental first."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from actors.assignment import SnapshotScope
from actors.runsc.version import Flavour
from statemachine.reasons import Reason

from .difference import ABSENT, Difference, Force, Here
from .shapes import shape_differences

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from actors.manifest import Manifest, SnapshotContainer

    from .difference import ContainerHere

_KERNELS_OWN: Final = frozenset({
    "acc_power", "always", "amd_dcm", "aperfmperf", "arch_perfmon", "art", "bts", "constant_tsc", "cpb", "cpuid",
    "cpuid_fault", "epb", "ept", "ept_ad", "evtstrm", "extd_apicid", "flexpriority", "hw_pstate", "ibpb", "ibrs",
    "ibrs_enhanced", "intel_ppin", "k8", "nonstop_tsc", "nonstop_tsc_s3", "nopl", "pebs", "proc_feedback", "pti",
    "rapl", "rep_good", "ring3mwait", "split_lock_detect", "ssbd", "stibp", "tpr_shadow", "tsc_known_freq",
    "tsc_reliable", "up", "user_shstk", "vmmcall", "vnmi", "vpid", "xtopology",
})  # fmt: skip
"""Words that the kernel made up: they tell of the kernel and its settings, and no program relies on them.

Source: arch/x86/include/asm/cpufeatures.h, the words that are "Linux-defined", and evtstrm of arm64.
"""
_NOT_AMONG_FLAGS: Final = frozenset({"--platform", "--restore-spec-validation"})
"""One has a subject of its own; the other is how a restore was forced once, and nothing in a sandbox depends on it."""
_DIGEST_CHARACTERS: Final = 12
_MAPPING_DRIVER: Final = 580
"""The first release whose cuda-checkpoint takes a map from the GPUs of then to those of now."""


def differences(manifest: Manifest, here: Here) -> tuple[Difference, ...]:
    """Everything that speaks against restoring this snapshot here; none when nothing does.

    Of a snapshot of scope Data only the volumes count: its actor is started cold.

    Args:
        manifest: the snapshot's.
        here: where it would be restored.
    """
    found = [*_volumes(manifest.volumes, here.volumes)]
    if manifest.scope is SnapshotScope.FULL:
        found = [
            *_machine(manifest, here),
            *_runtime(manifest, here),
            *_containers(manifest, here.containers),
            *_gpus(manifest, here),
            *found,
            *_bundles(manifest, here.containers),
        ]
    return tuple(found)


def _machine(manifest: Manifest, here: Here) -> Iterator[Difference]:
    if manifest.arch != here.arch:
        yield Difference(subject="arch", was=manifest.arch, now=here.arch, force=Force.NEVER)
    if manifest.cpu_features is not None and here.cpu_features is not None and manifest.arch == here.arch:
        missing = set(manifest.cpu_features) - set(here.cpu_features) - _KERNELS_OWN
        for feature in sorted(missing):
            yield Difference(subject=f"CPU feature {feature}", was="present", now=ABSENT)


def _runtime(manifest: Manifest, here: Here) -> Iterator[Difference]:
    then = manifest.runsc
    if then.platform != here.flags.platform:
        yield Difference(subject="platform", was=then.platform, now=here.flags.platform)
    if not here.runtime.can_restore(then.version):
        yield Difference(subject="runsc", was=then.version, now=here.runtime.text)
    elif here.runtime.flavour is Flavour.HEAD and then.sha256 != here.runsc_sha256:
        # A build of one's own has the version of the release that it began with.
        was, now = (f"{here.runtime.text} ({each[:_DIGEST_CHARACTERS]})" for each in (then.sha256, here.runsc_sha256))
        yield Difference(subject="runsc", was=was, now=now)
    were, are = _by_name(then.flags), _by_name(here.flags.as_list())
    for name in dict.fromkeys((*were, *are)):
        if were.get(name) != are.get(name) and name not in _NOT_AMONG_FLAGS:
            what = "flag" if name.startswith("--") else "annotation"
            yield Difference(subject=f"{what} {name}", was=were.get(name, ABSENT), now=are.get(name, ABSENT))


def _by_name(flags: Iterable[str]) -> dict[str, str]:
    return {name: value or "set" for name, _, value in (flag.partition("=") for flag in flags)}


def _containers(manifest: Manifest, here: Sequence[ContainerHere]) -> Iterator[Difference]:
    were, are = [each.name for each in manifest.containers], [each.name for each in here]
    if sorted(were) != sorted(are):
        # One that is missing leaves the others waiting for ever; of one too many there is nothing to restore.
        yield Difference(subject="containers", was=_listed(were), now=_listed(are), force=Force.NEVER)
    if not manifest.restorable:
        yield Difference(subject="containers", was="all exited", now="to be restored", force=Force.NEVER)


def _gpus(manifest: Manifest, here: Here) -> Iterator[Difference]:
    granted = {each.name: each.gpus for each in here.containers}
    others = [each for each in manifest.containers if each.name in granted]
    are_as_many = True
    for container in others:
        now = granted[container.name]
        if len(container.gpus) != len(now):
            are_as_many = False
            yield Difference(
                subject=f"{container.name}: GPUs", was=str(len(container.gpus)), now=str(len(now)), force=Force.NEVER
            )
            continue
        for then, gpu in zip(container.gpus, now, strict=True):
            if then.model != gpu.model:
                yield Difference(subject=f"{container.name}: GPU {then.ordinal}", was=then.model, now=gpu.model)
    if are_as_many:
        yield from _device_map(others, [gpu.minor for each in others for gpu in granted[each.name]])
        yield from _moved_contexts(manifest, here, others)
    # Without a GPU on either side there is no driver to compare.
    if manifest.driver and here.driver and manifest.driver != here.driver:
        yield Difference(subject="driver", was=manifest.driver, now=here.driver)


def _device_map(then: Sequence[SnapshotContainer], minors: Sequence[int]) -> Iterator[Difference]:
    """By gVisor the GPUs here are taken for those of the snapshot in the order of their minors, whatever is meant."""
    places = [f"{each.name}/{gpu.ordinal}" for each in then for gpu in each.gpus]
    were, are = (
        [place for _, place in sorted(zip(numbers, places, strict=True))]
        for numbers in ([gpu.minor for each in then for gpu in each.gpus], minors)
    )
    if were != are:
        yield Difference(subject="device map", was=_listed(were), now=_listed(are))


def _moved_contexts(manifest: Manifest, here: Here, then: Sequence[SnapshotContainer]) -> Iterator[Difference]:
    """CUDA contexts go to other GPUs by a map of all of them, which older drivers do not know.

    Source: NVIDIA/cuda-checkpoint, issues 46 and 54; google/gvisor, issue 14817.
    """
    if manifest.cuda_checkpoint is None or here.driver is None or _release(here.driver) >= _MAPPING_DRIVER:
        return
    granted = {each.name: each.gpus for each in here.containers}
    were = [gpu.uuid for each in then for gpu in each.gpus]
    are = [gpu.uuid for each in then for gpu in granted[each.name]]
    if were != are:
        now = f"{_listed(are)}, to which drivers before {_MAPPING_DRIVER} move no CUDA context"
        yield Difference(subject="device map", was=_listed(were), now=now, force=Force.NEVER)


def _release(driver: str) -> int:
    release = driver.partition(".")[0]
    return int(release) if release.isascii() and release.isdecimal() else _MAPPING_DRIVER


def _volumes(were: Sequence[str], are: Sequence[str]) -> Iterator[Difference]:
    """A volume that the actor has now and had not then is an empty one."""
    for name in sorted(set(were) - set(are)):
        yield Difference(subject=f"volume {name}", was="saved", now=ABSENT)


def _bundles(manifest: Manifest, here: Sequence[ContainerHere]) -> Iterator[Difference]:
    saved = {each.name: each for each in manifest.containers}
    for container in here:
        then = saved.get(container.name)
        if then is None:
            continue
        if then.image_digest and container.image_digest and then.image_digest != container.image_digest:
            yield Difference(
                subject=f"{container.name}: imageDigest",
                was=then.image_digest,
                now=container.image_digest,
                reason=Reason.BUNDLE_CHANGED,
            )
        if then.exited is None and container.shape is not None:
            yield from shape_differences(container.name, then.shape, container.shape, container.injected)


def _listed(names: Iterable[str]) -> str:
    return ", ".join(names) or "none"
