"""One run of `nvidia-ctk cdi generate`: into a directory of its own, in a clean environment, with a deadline.

The tool reads every spec beside its output, and with stdout those of TMPDIR; a stray one there has made it panic. So
both are a fresh private directory, which is removed whatever happens: nothing half-written is left, and what comes out
is bytes that nobody has read yet.

Source: facts of nvidia-ctk, sections 1 to 3.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

import anyio
import attrs

from actors.cdi import SPEC_BYTES_MAX
from actors.ports import DeadlineExceededError
from statemachine.problem import Problem, ProblemError, Step
from statemachine.reasons import Reason

from .driver_files import library_folder
from .driver_folders import SEARCHED
from .toolkit import cannot_run, clean_environment, hung
from .toolkit_errors import problem_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from actors.ports import DriverPlaces, Files, Finished, Processes, Wall

    from .inventory import Inventory
    from .toolkit import Toolkit, ToolkitVersion

GENERATE_S: Final = 60.0
"""Far above the 30 ms that it takes: without persistence mode NVML wakes each GPU, which takes seconds."""
REMOVAL_S: Final = 10.0
PRIVATE_PREFIX: Final = ".new-"
"""How the names of private directories begin; one that is found at a start is what a dead life has left."""
_SEARCH_PATH, _DEV_ROOT, _UUIDS, _HOOK_PATH, _DEVICE_IDS = 16, 15, 15, 16, 19
"""The minor versions that brought a flag; the search path is one that 1.14 has and does not heed."""


@attrs.frozen(kw_only=True)
class Generator:
    """Runs the tool.

    Attributes:
        directory: below which private directories are made: that of all specs.
        places: where the driver is.
        deadline_s: how long a run may take.
    """

    processes: Processes
    files: Files
    wall: Wall
    directory: Path
    places: DriverPlaces
    deadline_s: float = GENERATE_S

    async def generate(self, toolkit: Toolkit, inventory: Inventory) -> bytes:
        """A spec as the tool wrote it.

        Raises:
            ToolkitHungError: StepDeadlineExceeded.
            ProblemError: StateUnwritable, or what the tool's words mean.
        """
        private = self.directory / f"{PRIVATE_PREFIX}{self.wall.fresh_id()}"
        try:
            await self.files.make_directory(private)
        except OSError as error:
            raise ProblemError(unwritable(private, error)) from error
        try:
            return await self._run(toolkit, inventory, private)
        finally:
            with anyio.move_on_after(REMOVAL_S, shield=True), suppress(OSError):  # the next start removes what stays
                await self.files.remove_tree(private)

    async def _run(self, toolkit: Toolkit, inventory: Inventory, private: Path) -> bytes:
        folder = await library_folder(self.files, self.places.driver_root)
        output, program = private / "nvidia.json", toolkit.program.path
        argv = command(toolkit, self.places, output=output, inventory=inventory, library_folder=folder)
        env = environment(toolkit, private, folder)
        try:
            finished = await self.processes.run(argv, deadline_s=self.deadline_s, env=env)
        except DeadlineExceededError as error:
            raise hung(program, ("cdi generate", output_flag(output)), self.deadline_s, error) from error
        except OSError as error:
            raise ProblemError(cannot_run(program, error)) from error
        _require_success(finished, program)
        try:
            return await self.files.read(output, limit_bytes=SPEC_BYTES_MAX)
        except OSError as error:
            message = f"{program} ended well, and what it wrote cannot be read: {error.strerror or error}"
            raise ProblemError(failed(program, message, _text(finished))) from error


def command(
    toolkit: Toolkit, places: DriverPlaces, *, output: Path, inventory: Inventory, library_folder: Path | None = None
) -> tuple[str, ...]:
    """The command line for this toolkit's version; every default that a file of the host could change is given.

    Args:
        toolkit: which one.
        places: where the driver is.
        output: the file; its ending decides the format as well.
        inventory: GPUs that are lost are left out, where the toolkit can leave one out.
        library_folder: where NVML is.
    """
    version = toolkit.version
    words = [str(toolkit.program.path), "cdi", "generate", output_flag(output), "--format=json"]
    words += [f"--driver-root={places.driver_root}"]
    if version.has(_DEV_ROOT):
        words += [f"--dev-root={places.dev_root}"]
    if version.has(_UUIDS):
        words += ["--device-name-strategy=uuid", "--device-name-strategy=index"]
    if toolkit.hook is not None and version.has(_HOOK_PATH):
        words += [f"--nvidia-cdi-hook-path={toolkit.hook}"]
    if version.has(_SEARCH_PATH) and library_folder is not None and not _is_searched(library_folder, places):
        words += [f"--library-search-path={library_folder}"]
    return (*words, *_without_lost(version, inventory))


def output_flag(output: Path) -> str:
    """The argument that names the output, which no other run has."""
    return f"--output={output}"


def environment(toolkit: Toolkit, private: Path, library_folder: Path | None) -> dict[str, str]:
    """The whole environment of a run."""
    env = clean_environment(toolkit.program.path) | {"TMPDIR": str(private), "HOME": str(private)}
    # Where GKE's device plugin mounts the driver's programs: the tool looks for nvidia-smi on PATH.
    env["PATH"] += ":/usr/local/nvidia/bin"
    if library_folder is not None and not toolkit.version.has(_SEARCH_PATH):
        env["LD_LIBRARY_PATH"] = str(library_folder)
    return env


def failed(subject: Path, message: str, detail: str = "") -> Problem:
    """GenerateFailed."""
    return Problem(
        step=Step.GENERATE, reason=Reason.GENERATE_FAILED, subject=str(subject), message=message, detail=detail
    )


def unwritable(path: Path, error: OSError) -> Problem:
    """StateUnwritable."""
    message = f"{error.filename or path} cannot be written: {error.strerror or error}"
    return Problem(step=Step.GENERATE, reason=Reason.STATE_UNWRITABLE, subject=str(path), message=message)


def _is_searched(folder: Path, places: DriverPlaces) -> bool:
    return folder in {places.driver_root / name for name in SEARCHED}


def _without_lost(version: ToolkitVersion, inventory: Inventory) -> Iterable[str]:
    """One lost GPU would fail the spec of all; before 1.19 that cannot be helped, and the tool's words tell it."""
    if all(gpu.lost is None for gpu in inventory.gpus) or not version.has(_DEVICE_IDS):
        return ()
    return (f"--device-id={gpu.uuid}" for gpu in inventory.usable)


def _require_success(finished: Finished, program: Path) -> None:
    code = finished.exit.code
    if code is None:
        raise ProblemError(failed(program, f"how {program} ended is not known: somebody else waited for it"))
    if code != 0:
        raise ProblemError(problem_of(code, _text(finished), subject=str(program)))


def _text(finished: Finished) -> str:
    return finished.stderr.decode("utf-8", "replace")
