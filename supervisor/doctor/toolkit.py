"""The NVIDIA container toolkit: is it there, and can its programs be run in this pod?"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

import attrs

from actors.gpu.toolkit import find_program, toolkit_directories, toolkit_of
from statemachine.problem import Problem, ProblemError
from statemachine.reasons import Reason
from supervisor.settings import CdiSource

from .check import fail, failed, ok
from .driver import linkage_or_why

if TYPE_CHECKING:
    from actors.gpu.toolkit import Program, Toolkit
    from actors.ports import Files, Processes

    from .check import Check

NAME: Final = "toolkit"


@attrs.frozen(kw_only=True)
class ToolkitFacts:
    """What was found of it.

    Attributes:
        program: the nvidia-ctk that would be run; a problem where there is none.
        absent_linker: the dynamic linker that the program names and this pod has not; empty when all is there.
        toolkit: what answered; a problem where nothing did.
    """

    program: Program | Problem
    absent_linker: str = ""
    toolkit: Toolkit | Problem | None = None


async def look_at_toolkit(files: Files, processes: Processes, named: Path | None) -> ToolkitFacts:
    """Look for nvidia-ctk where a worker would, and ask it for its version."""
    try:
        program = await find_program(files, toolkit_directories(named))
    except ProblemError as error:
        return ToolkitFacts(program=error.problem)
    linkage = await linkage_or_why(files, program.path)
    linker = "" if isinstance(linkage, str) else linkage.interpreter or ""
    if linker and not await _is_there(files, Path(linker)):
        return ToolkitFacts(program=program, absent_linker=linker)
    try:
        return ToolkitFacts(program=program, toolkit=await toolkit_of(files, processes, program))
    except ProblemError as error:
        return ToolkitFacts(program=program, toolkit=error.problem)


def judge_toolkit(facts: ToolkitFacts, *, source: CdiSource) -> Check:
    """It writes the CDI spec, where that comes from the pod."""
    check = _judged(facts)
    if source is CdiSource.HOST and check.reason is not None:
        message = f"not used, since the CDI spec comes from the host; {check.message}"
        return ok(NAME, message)
    return check


def _judged(facts: ToolkitFacts) -> Check:
    if isinstance(facts.program, Problem):
        return failed(NAME, facts.program)
    path = facts.program.path
    if facts.absent_linker:
        return fail(
            NAME,
            Reason.TOOLKIT_NOT_FOUND,
            f"{path} needs {facts.absent_linker}, which is not in this pod: it was built for another C library",
            "Use an image with glibc; one with musl has no dynamic linker for the toolkit.",
        )
    if isinstance(facts.toolkit, Problem):
        return failed(NAME, facts.toolkit)
    version = "" if facts.toolkit is None else f", version {facts.toolkit.version.text}"
    return ok(NAME, f"{path}{version}")


async def _is_there(files: Files, path: Path) -> bool:
    """Whether something is there; where nobody may look, running the program tells it."""
    try:
        return await files.stat(path) is not None
    except OSError:
        return True
