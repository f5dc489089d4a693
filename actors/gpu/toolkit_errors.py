"""From nvidia-ctk's words to a class of failure and a reason of the catalogue.

Its exit code is 1 for nearly everything; the last line that it logs as an error says what it was. The words are those
of releases 1.12 to 1.20. What is said otherwise is `OTHER` with the tool's own words, never a wrong reason.

Source: facts of nvidia-ctk, section 3.
"""

from __future__ import annotations

import enum
import re
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

import attrs

from actors.runsc.log import condensed
from statemachine.problem import Problem, Step
from statemachine.reasons import Reason
from statemachine.secrecy import without_secrets

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_CODES_OF_A_SHELL: Final = frozenset({126, 127})
"""What a wrapper ends with that cannot execute the program behind it."""
_ERROR_LINE: Final = re.compile(r'\blevel=(?:error|fatal|panic) msg=(?:"((?:[^"\\]|\\.)*)"|(\S+))')
_PANIC: Final = re.compile(r"^(?:panic|fatal error): ")
_ESCAPE: Final = re.compile(r"\\(.)")
_ESCAPED: Final = MappingProxyType({"n": " ", "r": " ", "t": " "})


class ToolkitFailure(enum.StrEnum):
    """The classes of failures that somebody may want to tell apart."""

    LIBRARY_NOT_FOUND = "LibraryNotFound"
    VERSION_MISMATCH = "VersionMismatch"
    DRIVER_NOT_LOADED = "DriverNotLoaded"
    LIBRARY_INCOMPLETE = "LibraryIncomplete"
    NVML_FAILED = "NvmlFailed"
    GPU_LOST = "GpuLost"
    NO_GPUS = "NoGpus"
    GPU_WITHOUT_NODES = "GpuWithoutNodes"
    CUDA_NOT_FOUND = "CudaNotFound"
    UNKNOWN_DEVICE = "UnknownDevice"
    MIG_DEVICE = "MigDevice"
    DUPLICATE_DEVICE = "DuplicateDevice"
    BAD_ARGUMENTS = "BadArguments"
    OUTPUT_UNWRITABLE = "OutputUnwritable"
    PROGRAM_NOT_FOUND = "ProgramNotFound"
    CRASHED = "Crashed"
    OTHER = "Other"


F: Final = ToolkitFailure

# In this order: the library's own words stand at the end of a line whose beginning says what was asked of it.
_WORDS: Final = tuple(
    (failure, re.compile(pattern))
    for failure, pattern in (
        (F.CRASHED, _PANIC.pattern),
        (F.LIBRARY_INCOMPLETE, r"symbol lookup error|undefined symbol"),
        (F.LIBRARY_NOT_FOUND, r"\bERROR_LIBRARY_NOT_FOUND\b"),
        (F.VERSION_MISMATCH, r"(?i)driver/library version mismatch"),
        (F.DRIVER_NOT_LOADED, r"(?i)driver not loaded"),
        (F.GPU_LOST, r"(?i)\bGPU (?:is lost|requires (?:restart|reset))"),
        (F.NVML_FAILED, r"failed to initi?alize NVML"),
        (F.NO_GPUS, r'failed add device "all": .*empty device edits|no NVIDIA device nodes found'),
        (F.GPU_WITHOUT_NODES, r'failed add device "[^"]*": .*empty device edits'),
        (F.DUPLICATE_DEVICE, r'multiple device "'),
        (F.CUDA_NOT_FOUND, r"libcuda\.so\S*\b.* not found"),
        (F.MIG_DEVICE, r"failed to get MIG (?:device )?handle"),
        (F.UNKNOWN_DEVICE, r"failed to get device handle from (?:index|UUID)|not a valid UUID or index"),
        (
            F.BAD_ARGUMENTS,
            r"invalid (?:discovery mode|device name strategy|output format|CDI \w+ name)\b|flag (?:provided|needs)\b",
        ),
        (F.OUTPUT_UNWRITABLE, r"failed to (?:create|write) Spec (?:dir|file)"),
    )
)


@attrs.frozen
class _Told:
    """How a failure is told; an empty hint is the catalogue's."""

    reason: Reason
    sentence: str
    hint: str = ""


_NVML, _GENERATE = Reason.NVML_UNAVAILABLE, Reason.GENERATE_FAILED
_TOLD: Final[Mapping[ToolkitFailure, _Told]] = MappingProxyType(
    {
        F.LIBRARY_NOT_FOUND: _Told(
            _NVML,
            "nvidia-ctk finds no libnvidia-ml.so.1",
            "Mount the driver's libraries, and name the driver root or the folder that holds them.",
        ),
        F.VERSION_MISMATCH: _Told(
            _NVML,
            "the driver that is loaded is not the one whose libraries are here",
            "The driver was upgraded below this pod; once the upgrade is done, start the pod anew.",
        ),
        F.DRIVER_NOT_LOADED: _Told(
            _NVML,
            "no NVIDIA driver is loaded, or its device nodes are not in this pod",
            "Check the node's driver and that the pod was given its GPUs.",
        ),
        F.LIBRARY_INCOMPLETE: _Told(
            _NVML,
            "NVML lacks a function that nvidia-ctk calls",
            "Use a toolkit that is not newer than the driver, and the driver's own library.",
        ),
        F.NVML_FAILED: _Told(_NVML, "nvidia-ctk cannot initialise NVML"),
        F.GPU_LOST: _Told(
            _GENERATE,
            "a GPU of this pod is lost, and nvidia-ctk makes no specification of the others",
            "Ask for the healthy GPUs alone, or have the lost one reset.",
        ),
        F.NO_GPUS: _Told(
            Reason.GPU_NOT_DETECTED,
            "nvidia-ctk finds no GPU in this pod",
            "Check the device plugin; a GPU in MIG mode does not count.",
        ),
        F.GPU_WITHOUT_NODES: _Told(
            _GENERATE,
            "a GPU has no device node in this pod",
            "Check the device plugin and that the pod's /dev holds /dev/nvidia<minor>.",
        ),
        F.CUDA_NOT_FOUND: _Told(
            _GENERATE,
            "nvidia-ctk finds no libcuda of the driver's version",
            "Mount the driver's libraries, and name the driver root or the folder that holds them.",
        ),
        F.UNKNOWN_DEVICE: _Told(_GENERATE, "a GPU that was asked for is not in this pod"),
        F.MIG_DEVICE: _Told(Reason.MIG_UNSUPPORTED, "a MIG device was asked for"),
        F.DUPLICATE_DEVICE: _Told(_GENERATE, "a GPU was asked for twice"),
        F.BAD_ARGUMENTS: _Told(
            _GENERATE, "nvidia-ctk refuses its arguments", "Use a container toolkit of release 1.12 or newer."
        ),
        F.OUTPUT_UNWRITABLE: _Told(
            _GENERATE, "nvidia-ctk cannot write its output", "Check the free space and that the directory is writable."
        ),
        F.PROGRAM_NOT_FOUND: _Told(Reason.TOOLKIT_NOT_FOUND, "nvidia-ctk's wrapper cannot execute what is behind it"),
        F.CRASHED: _Told(_GENERATE, "nvidia-ctk crashed", "Use another release of the container toolkit."),
        F.OTHER: _Told(_GENERATE, "nvidia-ctk failed"),
    }
)


def failure_of(exit_code: int, stderr: str) -> ToolkitFailure:
    """Which failure this is.

    Args:
        exit_code: as the process port has it: a negative one is the signal that ended it.
        stderr: what it said.
    """
    line = last_error(stderr)
    found = next((failure for failure, words in _WORDS if words.search(line)), None)
    if found is not None:
        return found
    if exit_code < 0:
        return F.CRASHED
    return F.PROGRAM_NOT_FOUND if exit_code in _CODES_OF_A_SHELL else F.OTHER


def last_error(stderr: str) -> str:
    """The last line logged as an error, its message alone; a panic's first line; else the last line that is there."""
    lines = [line.strip() for line in stderr.splitlines() if line.strip()]
    panic = next((line for line in lines if _PANIC.match(line)), "")
    if panic:
        return panic
    logged = [found for line in lines if (found := _ERROR_LINE.search(line))]
    if logged:
        return _unescaped(logged[-1][1]) if logged[-1][1] is not None else logged[-1][2]
    return lines[-1] if lines else ""


def problem_of(exit_code: int, stderr: str, *, subject: str, secrets: Iterable[str] = ()) -> Problem:
    """The problem that a failed call of nvidia-ctk is.

    Args:
        exit_code: as the process port has it: a negative one is the signal that ended it.
        stderr: what it said.
        subject: what it is about: the program's path.
        secrets: values that no text may carry, as `statemachine.secrecy.secrets_of` has them; none are needed where the
            tool was given none.
    """
    told = _TOLD[failure_of(exit_code, stderr)]
    # Before anything is shortened, and also as the log writes them: half a secret is not found any more.
    spelled = [each for secret in secrets for each in (secret, _escaped(secret)) if secret]
    tellable = without_secrets(stderr, spelled)
    line = without_secrets(_words_of(exit_code, tellable), spelled)
    problem = Problem(
        step=Step.GENERATE,
        reason=told.reason,
        subject=subject,
        message=f"{told.sentence}: {line}",
        detail=condensed(tellable).detail,
    )
    return attrs.evolve(problem, hint=told.hint) if told.hint else problem


def _words_of(exit_code: int, stderr: str) -> str:
    said = last_error(stderr)
    if exit_code < 0:
        # What it logged last is what it did before, no error.
        return f"signal {-exit_code} ended it, after {said}" if said else f"signal {-exit_code} ended it"
    return said or f"it ended with exit code {exit_code} and said nothing"


def _escaped(text: str) -> str:
    """As the log writes it between quotes."""
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _unescaped(text: str) -> str:
    return _ESCAPE.sub(lambda found: _ESCAPED.get(found[1], found[1]), text)
