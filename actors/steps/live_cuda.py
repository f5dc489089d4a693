"""Live CUDA contexts before a suspend: refused, waited for, or saved by gVisor's cuda-checkpoint, as the actor wishes.

Two witnesses are asked (`actors.gpu.live_cuda`), each alone enough to refuse, and only of an actor with a grant. One
that does not answer has not said no: NvmlUnavailable, ProcessesUnreadable. `Checkpoint` needs what runsc needs, and
each missing piece has its reason: CudaCheckpointUnsupported, CudaDriverTooOld, CudaCheckpointNotFound. Nothing is
touched here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import anyio

from actors.assignment import OnLiveCuda
from actors.bundle.activation_tree import config_path, read_config
from actors.gpu.cuda_checkpoint import DRIVER_MIN, is_driver_new_enough, places_in
from actors.gpu.live_cuda import Witnesses, computing, device_files
from actors.runsc.checkpoint_flags import CUDA_FLAGS
from statemachine.problem import Problem, ProblemError, Step
from statemachine.reasons import Reason

if TYPE_CHECKING:
    from collections.abc import Iterable

    from actors.gpu.inventory import Gpu
    from actors.runsc.sandbox import Sandbox
    from actors.steps.stage import Stage
    from actors.strict_json import JsonObject

WAIT_S: Final = 240.0
"""How long `Wait` waits: a save may take 600 s of the 900 s that a suspend has."""
STALE_S: Final = 8.0
"""For how long NVML's word alone is doubted: it looks every 3 s, and what it says may be of before."""
_LOOK_AGAIN_S: Final = 0.5


async def settle(stage: Stage, sandbox: Sandbox) -> str | None:
    """Bring an actor to where its CUDA contexts are no hindrance.

    Returns: the path of cuda-checkpoint inside its containers, when they are to be saved with it.

    Raises:
        ProblemError: LiveCudaContext, or why it is not known whether there is one, or cannot be saved.
    """
    if not has_grant(stage):
        return None
    wanted = stage.assignment.suspend.on_live_cuda
    if wanted is OnLiveCuda.CHECKPOINT:
        return await _way_to_save(stage, await _ask(stage, sandbox))
    if wanted is OnLiveCuda.WAIT:
        testimony, is_open = await _until_clear(stage, sandbox, WAIT_S), f"is still open after {WAIT_S:g} s"
    else:
        testimony, is_open = await _until_clear(stage, sandbox, 0.0), "is open"
    if testimony.is_live:
        raise ProblemError(_live(stage, testimony, is_open))
    if testimony.unanswered is not None:
        raise ProblemError(testimony.unanswered)
    return None


async def require_no_open_device(stage: Stage, sandbox: Sandbox) -> None:
    """Look at the one witness who tells of this very moment, in a frozen sandbox.

    Raises:
        ProblemError: LiveCudaContext, ProcessesUnreadable.
    """
    if has_grant(stage):
        testimony = Witnesses(files=await _device_files(stage, sandbox))
        if testimony.is_live:
            raise ProblemError(_live(stage, testimony, "was opened before the freeze"))


def has_grant(stage: Stage) -> bool:
    """Whether any container of the actor has a GPU."""
    return any(stage.granted.values())


# ------------------------------------------------------------------------------------------------- the two witnesses


async def _device_files(stage: Stage, sandbox: Sandbox) -> tuple[str, ...]:
    try:
        return device_files(await sandbox.open_files())
    except OSError as error:
        message = f"what the sandbox has open cannot be looked at: {error.strerror or error}"
        raise ProblemError(_problem(Reason.PROCESSES_UNREADABLE, stage.assignment.uid, message)) from error


async def _ask(stage: Stage, sandbox: Sandbox) -> Witnesses:
    """Ask both; one that answers for a context makes good for one that does not answer."""
    granted = tuple(_granted(stage))
    unanswered: list[Problem] = []
    files: tuple[str, ...] = ()
    processes: dict[str, tuple[int, ...]] = {}
    try:
        files = await _device_files(stage, sandbox)
    except ProblemError as error:
        unanswered.append(error.problem)
    try:
        processes = computing(await stage.gpus.compute_processes([gpu.uuid for gpu in granted]), granted)
    except ProblemError as error:
        unanswered.append(error.problem)
    return Witnesses(files=files, processes=processes, unanswered=next(iter(unanswered), None))


async def _until_clear(stage: Stage, sandbox: Sandbox, patience_s: float) -> Witnesses:
    """Ask until both say no, or for so long; whatever NVML alone says is asked once more after its next look."""
    began_s = anyio.current_time()
    testimony = await _ask(stage, sandbox)
    if not testimony.is_clear and patience_s:
        await stage.mark(Step.SUSPEND, "WaitingForCuda")
    while not testimony.is_clear:
        limit_s = max(patience_s, STALE_S if testimony.may_be_old else 0.0)
        if anyio.current_time() - began_s >= limit_s:
            break
        await anyio.sleep(_LOOK_AGAIN_S)
        testimony = await _ask(stage, sandbox)
    return testimony


def _granted(stage: Stage) -> Iterable[Gpu]:
    return (gpu for gpus in stage.granted.values() for gpu in gpus)


def _live(stage: Stage, testimony: Witnesses, is_open: str) -> Problem:
    return _problem(Reason.LIVE_CUDA_CONTEXT, stage.assignment.uid, f"a CUDA context {is_open}: {testimony}")


# ------------------------------------------------------------------------------------------------------- Checkpoint


async def _way_to_save(stage: Stage, testimony: Witnesses) -> str | None:
    """The path of cuda-checkpoint; None where there surely is no context and no way to save one.

    One may yet be opened before the freeze, so that a way that is there is taken even when there is none.

    Raises:
        ProblemError: there may be one, and a piece is missing.
    """
    try:
        return await _path_of_program(stage)
    except ProblemError as missing:
        if testimony.is_clear:
            return None
        said = f" ({testimony})" if testimony.is_live else ""
        problem = missing.problem
        message = f"{problem.message}, so that an open CUDA context cannot be saved{said}"
        raise ProblemError(_problem(problem.reason, problem.subject, message)) from missing


async def _path_of_program(stage: Stage) -> str:
    runtime = stage.runtime
    flags = None if runtime.checkpoint_flags is None else await runtime.checkpoint_flags.known()
    if flags is None or not flags >= CUDA_FLAGS:
        message = f"runsc {runtime.version.text} has no flags for cuda-checkpoint"
        raise ProblemError(_problem(Reason.CUDA_CHECKPOINT_UNSUPPORTED, str(runtime.path), message))
    if stage.spec is not None and not is_driver_new_enough(stage.spec.driver):
        message = f"cuda-checkpoint needs a driver of release {DRIVER_MIN} or newer; this is {stage.spec.driver}"
        raise ProblemError(_problem(Reason.CUDA_DRIVER_TOO_OLD, f"driver {stage.spec.driver}", message))
    return await _common_path(stage)


async def _common_path(stage: Stage) -> str:
    """The first path at which each container with a GPU has the program: runsc takes one for all.

    Raises:
        ProblemError: CudaCheckpointNotFound.
    """
    common: list[str] | None = None
    for name, gpus in stage.granted.items():
        if not gpus:
            continue
        places = await places_in(stage.ports.files, await _config_of(stage, name))
        common = list(places) if common is None else [path for path in common if path in places]
        if not common:
            where = "in its PATH" if not places else "at the path where the other containers have it"
            message = f"container {name} has no cuda-checkpoint {where}"
            raise ProblemError(_problem(Reason.CUDA_CHECKPOINT_NOT_FOUND, name, message))
    if not common:
        raise ValueError("no container has a GPU")
    return common[0]


async def _config_of(stage: Stage, name: str) -> JsonObject:
    """The container's document, as runsc was given it."""
    if stage.activation is None:
        raise ValueError("an actor with a sandbox has an activation")
    try:
        return await read_config(stage.ports.files, stage.activation, name)
    except (OSError, ValueError) as error:
        message = f"{config_path(stage.activation, name)} cannot be read: {error}"
        raise ProblemError(_problem(Reason.CUDA_CHECKPOINT_NOT_FOUND, name, message)) from error


def _problem(reason: Reason, subject: str, message: str) -> Problem:
    return Problem(step=Step.SUSPEND, reason=reason, subject=subject, message=message)
