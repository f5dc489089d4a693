"""From runsc's words to the catalogue's reasons.

The substrings are those that were seen to be stable, measured on runsc 20240729. A runsc that says it otherwise gives
RuntimeFailed with its own words, never a wrong reason.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import attrs

from statemachine.problem import Problem, Step
from statemachine.reasons import Reason
from statemachine.secrecy import without_secrets

from .log import condensed

if TYPE_CHECKING:
    from .log import Words

_COMMAND: Final = re.compile(
    r"failed to load (?P<path>.+?): no such file or directory"
    r"|error finding executable \"(?P<name>.+?)\" in PATH .*: no such file or directory"
)

_UNKNOWN_DRIVER: Final = re.compile(r"unsupported Nvidia driver version: (?P<version>[0-9.]+)")
_BOOT_ENDED: Final = "waiting for sandbox to start: EOF"
"""Measured: why stands in the messages before this one, and then it is they that count."""

# In this order: a disk that is full may also end the sandbox, and then the disk is the cause.
_SUBSTRINGS: Final = (
    (Reason.INSUFFICIENT_DISK, re.compile(r"no space left on device")),
    (Reason.OPEN_DELETED_FILE, re.compile(r"deleted and invalidated dentries")),
    # The words of 20240729 and of 20260905; with --leave-running the sandbox lives on.
    (
        Reason.LIVE_CUDA_CONTEXT,
        re.compile(r"can't save with live nvproxy clients|nvproxy: object handle .* is not restorable"),
    ),
    (
        Reason.SANDBOX_DIED,
        re.compile(
            r"connecting to control server .*: (?:connect: )?(?:connection refused|no such file or directory)"
            r"|connection refused"
            r"|urpc method .* failed: EOF"
            r"|sandbox is not running"
        ),
    ),
)

_MESSAGES: Final = {
    Reason.INSUFFICIENT_DISK: "the disk is full: {words}",
    Reason.OPEN_DELETED_FILE: "a deleted file is held open: {words}",
    Reason.LIVE_CUDA_CONTEXT: "a CUDA context is open: {words}",
    Reason.SANDBOX_DIED: "the sandbox does not answer any more: {words}",
}


@attrs.frozen(kw_only=True)
class Call:
    """What was called and for whom, as problems need it.

    Attributes:
        step: the step that the call belongs to.
        verb: runsc's subcommand.
        subject: the container's name.
        secrets: values that no text may carry, see `statemachine.secrecy`.
        nvidia_driver: the version of the driver that the sandbox passes calls on to, when it is the one that boots.
    """

    step: Step
    verb: str
    subject: str
    secrets: tuple[str, ...] = attrs.field(default=(), repr=False)
    nvidia_driver: str | None = None


def detail_of(call: Call, said: Words) -> str:
    """Return the last lines of what a command said, without secrets."""
    return condensed(without_secrets(said.text, call.secrets)).detail


def classify(call: Call, said: Words, *, status: str) -> Problem:
    """Return the problem that a failed call is.

    Args:
        call: what was called.
        said: what runsc said.
        status: how the command ended, for the case that it said nothing: `exit code 128`, `signal 9`.
    """
    # Before anything is shortened: half a secret is not found any more.
    tellable = condensed(without_secrets(said.text, call.secrets))
    message = tellable.message or f"runsc {call.verb} ended with {status} and said nothing"

    def problem(reason: Reason, sentence: str) -> Problem:
        return Problem(step=call.step, reason=reason, subject=call.subject, message=sentence, detail=tellable.detail)

    for reason, pattern in _SUBSTRINGS:
        if pattern.search(said.text):
            return problem(reason, _MESSAGES[reason].format(words=message))
    driver = _driver_problem(call, said.text, tellable)
    if driver is not None:
        return driver
    command = _COMMAND.search(said.text)
    if command is not None:
        argv0 = without_secrets(command["path"] or command["name"], call.secrets)
        return problem(Reason.COMMAND_NOT_FOUND, f"container {call.subject!r} has no command {argv0!r}")
    return problem(Reason.RUNTIME_FAILED, message)


def _driver_problem(call: Call, text: str, tellable: Words) -> Problem | None:
    """Return what a sandbox that did not boot has said of the driver, or that it has said nothing of anything."""
    named = _UNKNOWN_DRIVER.search(text)
    if named is not None:
        driver = f"driver {call.nvidia_driver or named['version']}"
        return Problem(
            step=call.step,
            reason=Reason.DRIVER_UNSUPPORTED_BY_RUNTIME,
            subject=driver,
            message=f"{driver} is not supported by this runsc",
            detail=tellable.detail,
        )
    if call.nvidia_driver is None or tellable.detail.count("\n") or not tellable.message.endswith(_BOOT_ENDED):
        return None
    message = f"the sandbox ended while it started: cause not reported, driver {call.nvidia_driver}"
    return Problem(
        step=call.step, reason=Reason.RUNTIME_FAILED, subject=call.subject, message=message, detail=tellable.detail
    )
