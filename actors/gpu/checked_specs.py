"""From the bytes of a CDI spec to one that is kept: read strictly, verified in this pod, its libraries read once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import attrs

from actors.cdi import read_spec
from statemachine.problem import Problem, ProblemError, Step
from statemachine.reasons import Reason

from .desk import KeptSpec
from .generating import failed
from .host_look import all_edits, look_at
from .links import read_libraries
from .spec_check import problems_of
from .spec_identity import stamps_of, watched_paths

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from actors.cdi import Spec
    from actors.ports import Files

    from .inventory import Inventory
    from .spec_identity import Stamp

_PROBLEMS_SHOWN: Final = 20
_RESOURCE: Final = "nvidia.com/gpu"


@attrs.frozen(kw_only=True)
class MadeSpec:
    """A spec, and what can be looked at to see that it is still right.

    Attributes:
        kept: the spec.
        stamps: None when something it depends on was changing at the time, so that it has to be looked at anew.
    """

    kept: KeptSpec
    stamps: tuple[Stamp, ...] | None


def require_usable(inventory: Inventory) -> None:
    """Refuse a pod of which no GPU can be given to anybody: there is nothing to make a spec of.

    Raises:
        ProblemError: GpuNotDetected, GpuLost, MigUnsupported.
    """
    if inventory.usable:
        return
    split = [gpu for gpu in inventory.gpus if gpu.mig_devices is not None]
    if split:
        message = f"every GPU that answers is in MIG mode: {', '.join(gpu.path for gpu in split)}"
        raise ProblemError(_refused(Reason.MIG_UNSUPPORTED, split[0].path, message))
    if inventory.gpus:
        named = ", ".join(f"{gpu.path} ({gpu.lost})" for gpu in inventory.gpus)
        raise ProblemError(_refused(Reason.GPU_LOST, inventory.gpus[0].path, f"every GPU of this pod is lost: {named}"))
    raise ProblemError(_refused(Reason.GPU_NOT_DETECTED, _RESOURCE, "this pod has no GPU"))


def read_strictly(data: bytes, path: Path) -> Spec:
    """The spec in a file's bytes.

    Raises:
        ProblemError: GenerateFailed, with every problem of the file in its detail.
    """
    reading = read_spec(data, str(path))
    if reading.spec is None:
        told = [str(problem) for problem in reading.problems]
        message = f"{path} is no CDI specification that can be used: {told[0]}"
        raise ProblemError(failed(path, message, "\n".join(told[:_PROBLEMS_SHOWN])))
    return reading.spec


async def require_right(files: Files, spec: Spec, inventory: Inventory) -> None:
    """Verify a spec against what is in this pod now.

    Raises:
        ProblemError: what `spec_check.problems_of` finds.
    """
    look = await look_at(files, spec)
    problems = problems_of(spec, inventory, lstat=look.lstat, exists=look.exists)
    if problems:
        raise ProblemError(*problems)


async def with_libraries(files: Files, kept: KeptSpec) -> KeptSpec:
    """The spec with the SONAMEs of the libraries that it mounts."""
    mounts = dict.fromkeys(mount for edits in all_edits(kept.spec) for mount in edits.mounts)
    libraries, skipped = await read_libraries(files, mounts)
    warnings = tuple(f"{each.name}: {each.why}" for each in skipped)
    return attrs.evolve(kept, libraries=libraries, warnings=(*kept.warnings, *warnings))


async def stamps_for(
    files: Files, spec: Spec, *, directories: Iterable[Path], others: Iterable[Path], now_s: float
) -> tuple[Stamp, ...] | None:
    """The stamps of what a spec mounts, and of what else it depends on; taken before it is verified."""
    folders, mounted = watched_paths(spec)
    return await stamps_of(files, directories=(*directories, *folders), others=(*others, *mounted), now_s=now_s)


def _refused(reason: Reason, subject: str, message: str) -> Problem:
    return Problem(step=Step.GENERATE, reason=reason, subject=subject, message=message)
