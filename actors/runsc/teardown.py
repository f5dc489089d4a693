"""The end of an activation: its processes killed, waited for, its directory removed.

Never `runsc delete`: it kills by a pid that it once stored, and a hung sandbox blocks it for ever. Measured on runsc
20240729: SIGKILL of the sandbox works always and takes its gofers with it within some milliseconds. What is ours is
known by our own handles and by `--root=<activation>/runsc` on the command line, which the sandbox, every gofer and
every runsc command carry; so an activation whose record or pid file was never written ends the same way.
"""

from __future__ import annotations

import errno
import re
import signal
from functools import partial
from typing import TYPE_CHECKING, Final

import anyio
import attrs

from actors.concurrency import together
from actors.ports import DeadlineExceededError, ProcessIdentity
from statemachine.problem import Problem, ProblemError, Step
from statemachine.reasons import Reason

from .flags import root_argument

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from actors.ports import Child, Files, Processes

RUNSC_ROOT: Final = "runsc"
"""The name of runsc's root in an activation's directory."""

_ROUNDS_MAX: Final = 8
"""How often is looked for processes: a command that was killed while it forked leaves one more, not eight times."""

_LOOK_AGAIN_S: Final = 0.005

_ACTIVATION_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")


async def end_activation(
    processes: Processes, files: Files, activation: Path, *, owned: Iterable[Child] = (), deadline_s: float = 10.0
) -> None:
    """End whatever is left of an activation; nothing is left to do when it has ended already.

    Call it shielded: half a teardown is none. The processes are gone, and the zombies of those that are our children
    reaped, before anything is removed.

    Args:
        processes: the port.
        files: the port.
        activation: its directory, `sandboxes/<activation>`.
        owned: handles of its processes, where we have them: the sandbox first, then its gofers. They stay open.
        deadline_s: seconds for the processes to be gone; a killed one takes milliseconds.

    Raises:
        ProblemError: StepDeadlineExceeded when a process does not end, ProcessesUnreadable when it cannot be looked for
            or killed (nothing is removed then); StateUnwritable when the directory cannot be removed.
    """
    try:
        with anyio.fail_after(deadline_s):
            handles = tuple(owned)
            await _end_owned(handles)
            # Without handles a start may have been cut off, and a process that is just being replaced by exec has no
            # command line for an instant: one look is not enough then.
            await _end_found(processes, activation, deadline_s, looks=1 if handles else 2)
    except TimeoutError as error:  # the port's DeadlineExceededError is one
        message = f"processes of activation {activation.name} are still there after {deadline_s:g} s"
        raise ProblemError(_problem(Reason.STEP_DEADLINE_EXCEEDED, activation, message)) from error
    except OSError as error:  # no descriptor to be had, or somebody else's process carries our root
        message = f"processes of activation {activation.name} cannot be ended: {error.strerror or error}"
        raise ProblemError(_problem(Reason.PROCESSES_UNREADABLE, activation, message)) from error
    try:
        try:
            await files.remove_tree(activation)
        except OSError as error:
            if error.errno != errno.EBUSY:
                raise
            # Whatever is mounted below a root of runsc's, runsc has mounted: nothing else ever makes anything there.
            await files.unmount_below(activation / RUNSC_ROOT)
            await files.remove_tree(activation)
    except OSError as error:
        message = f"{activation} cannot be removed: {error.strerror or error}"
        raise ProblemError(_problem(Reason.STATE_UNWRITABLE, activation, message)) from error


@attrs.frozen(kw_only=True)
class Leftover:
    """An activation that an earlier life left behind.

    Attributes:
        activation: its name; its directory may be gone.
        processes: those of its processes that live.
    """

    activation: str
    processes: tuple[ProcessIdentity, ...]


async def find_leftovers(processes: Processes, files: Files, sandboxes: Path) -> tuple[Leftover, ...]:
    """Return every activation below `sandboxes` that has a directory or a living process, by name.

    Raises:
        ProblemError: ProcessesUnreadable when processes cannot be looked at, or the directory is there and cannot be.
    """
    try:
        return await _leftovers(processes, files, sandboxes)
    except OSError as error:
        message = f"what an earlier life left below {sandboxes} cannot be looked for: {error.strerror or error}"
        raise ProblemError(_problem(Reason.PROCESSES_UNREADABLE, sandboxes, message)) from error


async def _leftovers(processes: Processes, files: Files, sandboxes: Path) -> tuple[Leftover, ...]:
    prefix = f"{root_argument(sandboxes)}/"
    found: dict[str, list[ProcessIdentity]] = {}
    for identity, argument in await processes.find_arguments(prefix=prefix):
        name, _, rest = argument.removeprefix(prefix).partition("/")
        if rest == RUNSC_ROOT and _ACTIVATION_NAME.fullmatch(name):
            found.setdefault(name, []).append(identity)
    try:
        for name in await files.list_directory(sandboxes):
            found.setdefault(name, [])
    except FileNotFoundError:
        pass
    return tuple(Leftover(activation=name, processes=tuple(found[name])) for name in sorted(found))


async def _end_owned(owned: tuple[Child, ...]) -> None:
    for child in owned:
        child.signal(signal.SIGKILL)
    for child in owned:
        await child.wait()


async def _end_found(processes: Processes, activation: Path, deadline_s: float, *, looks: int) -> None:
    """Kill whatever carries the activation's root, until that many looks in a row have found nothing."""
    argument = root_argument(activation / RUNSC_ROOT)

    empty = 0
    for _ in range(_ROUNDS_MAX):
        found = await processes.find(argument=argument)
        if not found:
            empty += 1
            if empty == looks:
                return
            await anyio.sleep(_LOOK_AGAIN_S)
            continue
        empty = 0
        await together(*(partial(processes.kill_and_wait, each, deadline_s=deadline_s) for each in found))
    raise DeadlineExceededError


def _problem(reason: Reason, activation: Path, message: str) -> Problem:
    return Problem(step=Step.TEARDOWN, reason=reason, subject=activation.name, message=message)
