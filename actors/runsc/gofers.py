"""The gofer of a container: the process that serves its files, and whose end is the container's end.

Measured on runsc 20240729: `<root>/<id>_sandbox:<sandbox id>.state` is JSON with `goferPid`; a container's gofer exits
in the same instant as the container, so that its pidfd is the exit signal that costs no process. A sub-container's
gofer is made by `start`, not by `create`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from actors.strict_json import StrictJsonError, parse_object
from statemachine.problem import Problem, ProblemError
from statemachine.reasons import Reason

if TYPE_CHECKING:
    from pathlib import Path

    from actors.ports import Files
    from statemachine.problem import Step

_STATE_BYTES_MAX: Final = 8 << 20  # it holds the container's whole specification, which may be 4 MiB


def state_file(root: Path, *, container_id: str, sandbox_id: str) -> Path:
    """Return where runsc keeps a container's state."""
    return root / f"{container_id}_sandbox:{sandbox_id}.state"


def parse_gofer_pid(data: bytes, *, container_id: str) -> int:
    """Read the gofer's pid from a state file.

    Raises:
        ValueError: it is not this container's state, or names no process.
    """
    document = parse_object(data)
    if document.get("id") != container_id:
        message = f"it is the state of {document.get('id')!r}, not of {container_id!r}"
        raise ValueError(message)
    pid = document.get("goferPid")
    if not isinstance(pid, int) or isinstance(pid, bool) or pid <= 1:
        message = f"goferPid is no process: {pid!r}"
        raise ValueError(message)
    return pid


async def gofer_pid(files: Files, root: Path, *, name: str, container_id: str, sandbox_id: str, step: Step) -> int:
    """Read the pid of a started container's gofer.

    Raises:
        ProblemError: RuntimeFailed when runsc left no such state.
    """
    path = state_file(root, container_id=container_id, sandbox_id=sandbox_id)
    try:
        return parse_gofer_pid(await files.read(path, limit_bytes=_STATE_BYTES_MAX), container_id=container_id)
    except (OSError, StrictJsonError, ValueError) as error:
        message = f"runsc's state of container {name!r} cannot be used: {error}"
        raise ProblemError(Problem(step=step, reason=Reason.RUNTIME_FAILED, subject=name, message=message)) from error
