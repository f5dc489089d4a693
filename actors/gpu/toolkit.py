"""NVIDIA's container toolkit in this pod: where it is, which of its programs can be run, and which version it is.

The operator installs each program as a shell wrapper with the program itself beside it, `nvidia-ctk.real`. The wrapper
sets PATH, which Greenroom does itself, and needs a shell, which a distroless pod has not: so the program is taken where
there is one. A toolkit may be mounted late, so that nothing of this is remembered longer than its file stays the same.

Source: facts of nvidia-ctk, sections 1 and 7.
"""

from __future__ import annotations

import errno
import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

import attrs

from actors.ports import DeadlineExceededError, FileKind
from statemachine.problem import Problem, ProblemError, Step
from statemachine.reasons import Reason

from .toolkit_errors import problem_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from actors.ports import Files, FileStat, Processes

TOOL: Final = "nvidia-ctk"
HOOK: Final = "nvidia-cdi-hook"
USUAL_DIRECTORIES: Final = (Path("/usr/local/nvidia/toolkit"), Path("/opt/nvidia-toolkit"))
"""Where the operator puts it, and where pods that are given one of their own have it mounted."""
PROGRAM_FOLDERS: Final = tuple(
    map(Path, ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"))
)
"""What PATH is for a program that is given nothing of the pod's own environment."""
VERSION_S: Final = 10.0
_NO_PROGRAM: Final = frozenset(
    {errno.ENOENT, errno.EACCES, errno.EPERM, errno.ENOEXEC, errno.ENOTDIR, errno.ELOOP, errno.ELIBBAD}
)
"""How execve(2) refuses a file that is none of this machine's programs."""
_EXECUTABLE: Final = 0o111
_SHEBANG_BYTES_MAX: Final = 256
_ANSWER: Final = re.compile(r"\bversion v?(\S+)")
_NUMBERS: Final = re.compile(r"(\d{1,4})\.(\d{1,4})(?:\.\d|[-+~]|$)", re.ASCII)


class ToolkitHungError(ProblemError):
    """Raised when a call of a program did not end in time; it has been killed, which it may not have heeded.

    Attributes:
        program: whose call it was.
        argument: one of its arguments, by which what is left of the call is found.
    """

    def __init__(self, program: Path, argument: str, problem: Problem) -> None:
        super().__init__(problem)
        self.program, self.argument = program, argument


@attrs.frozen
class ToolkitVersion:
    """The version of a toolkit: its own text, and major and minor in it."""

    text: str
    numbers: tuple[int, int] | None

    @classmethod
    def of(cls, text: str) -> ToolkitVersion:
        """Read a version's text, as `1.17.0` or `1.18.0-rc.2`; whoever builds it himself may have given it none."""
        found = _NUMBERS.match(text)
        return cls(text, (int(found[1]), int(found[2])) if found else None)

    def has(self, minor: int) -> bool:
        """Whether what came with 1.<minor> can be expected of it; one that names no release is taken for a new one."""
        return self.numbers is None or self.numbers >= (1, minor)


@attrs.frozen(kw_only=True)
class Program:
    """A program that is there and can be executed, and its file as it was when it was looked at."""

    path: Path
    file: FileStat


@attrs.frozen(kw_only=True)
class Toolkit:
    """A toolkit that answered.

    Attributes:
        program: its nvidia-ctk.
        hook: its nvidia-cdi-hook beside it, which it is told to write into specs; None when there is none.
        version: which it says it is.
    """

    program: Program
    hook: Path | None
    version: ToolkitVersion


def toolkit_directories(named: Path | None, program_folders: Sequence[Path] = PROGRAM_FOLDERS) -> tuple[Path, ...]:
    """Where it is looked for, the first first: only there where somebody named a place.

    What is named is its directory, or the one that the operator installs it below, as a pool names it.
    """
    if named is not None:
        return (named, named / USUAL_DIRECTORIES[0].name)
    return tuple(dict.fromkeys((*USUAL_DIRECTORIES, *program_folders)))


async def find_program(files: Files, directories: Sequence[Path]) -> Program:
    """The nvidia-ctk that is to be run.

    Raises:
        ProblemError: ToolkitNotFound, with all places and what is wrong at each.
    """
    faults: list[str] = []
    for directory in directories:
        found = await _look(files, directory, TOOL)
        if isinstance(found, Program):
            return found
        faults.append(f"{directory / TOOL}: {found}")
    subject = str(directories[0] / TOOL) if directories else TOOL
    raise ProblemError(_not_found(subject, f"{TOOL} was not found: {'; '.join(faults) or 'nowhere to look'}"))


async def toolkit_of(files: Files, processes: Processes, program: Program) -> Toolkit:
    """The toolkit that a program belongs to.

    Raises:
        ProblemError: as `ask_version`.
    """
    version = await ask_version(processes, program.path)
    hook = await _look(files, program.path.parent, HOOK)
    return Toolkit(program=program, hook=hook.path if isinstance(hook, Program) else None, version=version)


async def ask_version(processes: Processes, program: Path, *, deadline_s: float = VERSION_S) -> ToolkitVersion:
    """Ask an nvidia-ctk for its version.

    Raises:
        ToolkitHungError: StepDeadlineExceeded.
        ProblemError: ToolkitNotFound when it cannot run or is no nvidia-ctk, or what its words mean.
    """
    env = clean_environment(program)
    try:
        finished = await processes.run((str(program), "--version"), deadline_s=deadline_s, env=env)
    except DeadlineExceededError as error:
        raise hung(program, ("--version", str(program)), deadline_s, error) from error
    except OSError as error:
        raise ProblemError(cannot_run(program, error)) from error
    stderr = finished.stderr.decode("utf-8", "replace")
    if finished.exit.code:
        raise ProblemError(problem_of(finished.exit.code, stderr, subject=str(program)))
    answer = _ANSWER.search(finished.stdout.decode("utf-8", "replace"))
    if answer is None:
        raise ProblemError(_not_found(str(program), f"{program} is no {TOOL}: --version named no version"))
    return ToolkitVersion.of(answer[1])


def clean_environment(program: Path) -> dict[str, str]:
    """The whole environment of a call.

    From 1.18 on every flag can be given by a variable, which a pod may have for something else. Its own directory comes
    first in PATH, as its wrapper would have it.
    """
    folders = dict.fromkeys((program.parent, *PROGRAM_FOLDERS))
    return {"PATH": ":".join(map(str, folders)), "LC_ALL": "C"}


def hung(program: Path, call: tuple[str, str], deadline_s: float, error: DeadlineExceededError) -> ToolkitHungError:
    """A call that did not end, as a reason; the call is what was called, and the argument that tells it from others."""
    words, argument = call
    problem = Problem(
        step=Step.GENERATE,
        reason=Reason.STEP_DEADLINE_EXCEEDED,
        subject=str(program),
        message=f"{program} {words} did not end within {deadline_s:g} s and was killed",
        hint="NVML hangs in the driver: look at the kernel's log of the node, and whether nvidia-smi answers.",
        detail=error.stderr.decode("utf-8", "replace"),
    )
    return ToolkitHungError(program, argument, problem)


def cannot_run(program: Path, error: OSError) -> Problem:
    """A program that cannot be executed, as a reason."""
    message = f"{program} cannot be run: {error.strerror or error}"
    if isinstance(error, FileNotFoundError):
        # It was there a moment ago: what execve(2) misses is most often what is to load it.
        message += " (the file, its interpreter or its dynamic linker)"
    if error.errno in _NO_PROGRAM:
        return _not_found(str(program), message)
    # No process or descriptor to be had, no memory: that says nothing of the program.
    return Problem(step=Step.GENERATE, reason=Reason.GENERATE_FAILED, subject=str(program), message=message)


def _not_found(subject: str, message: str) -> Problem:
    return Problem(step=Step.GENERATE, reason=Reason.TOOLKIT_NOT_FOUND, subject=subject, message=message)


async def _look(files: Files, directory: Path, name: str) -> Program | str:
    """A program in a directory: itself where it stands beside its wrapper, else what has its name; or why not."""
    found = await _executable(files, directory / f"{name}.real")
    if isinstance(found, Program):
        return found
    found = await _executable(files, directory / name)
    if isinstance(found, Program):
        interpreter = await _absent_interpreter(files, found.path)
        if interpreter:
            return f"it is a script, {interpreter} is not in this pod, and {name}.real is not beside it"
    return found


async def _executable(files: Files, path: Path) -> Program | str:
    try:
        file = await files.stat(path)
    except OSError as error:
        return error.strerror or str(error)
    if file is None:
        return "not there"
    if file.kind is not FileKind.REGULAR:
        return f"no file, but a {file.kind}"
    return Program(path=path, file=file) if file.mode & _EXECUTABLE else "not executable"


async def _absent_interpreter(files: Files, script: Path) -> str:
    """The interpreter of a script, when it is not there; nothing for what is no script, or has one."""
    try:
        begin = await files.read_from(script, offset_bytes=0, limit_bytes=_SHEBANG_BYTES_MAX)
        words = begin.partition(b"\n")[0].removeprefix(b"#!").split()
        if not begin.startswith(b"#!") or not words:
            return ""
        interpreter = words[0].decode("utf-8", "surrogateescape")
        return "" if await files.stat(Path(interpreter)) is not None else interpreter
    except (OSError, ValueError):
        # Whether it can be run is then found out by running it.
        return ""
