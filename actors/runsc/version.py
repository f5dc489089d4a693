"""Which runsc this is, and what follows from it."""

from __future__ import annotations

import enum
import re
from typing import TYPE_CHECKING, Final

import attrs

from actors.ports import DeadlineExceededError
from statemachine.problem import Problem, ProblemError, Step
from statemachine.reasons import Reason

from . import argv
from .log import words

if TYPE_CHECKING:
    from pathlib import Path

    from actors.ports import Finished, Processes

OLDEST: Final = 20240729
"""The first release that restores an actor of several containers."""

ENVIRONMENT: Final = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
"""The whole environment of every runsc."""

_VALIDATES_SINCE: Final = 20260821
"""From the release on whose source was read. Whether an older one knows the flag is not known."""
_ANSWER: Final = re.compile(r"^runsc version (\S+)\s*$", re.MULTILINE)
_DATE: Final = re.compile(r"(?<!\d)20\d{6}(?!\d)")


class Flavour(enum.Enum):
    """Which of two behaviours a runsc has, where they differ in what we do."""

    R24 = "r24"
    """The release that was measured: any runsc of the same flavour restores, nothing is compared."""
    HEAD = "head"
    """Everything newer, read in the source of 2026: a restore wants the identical version."""


@attrs.frozen(kw_only=True)
class RuntimeVersion:
    """The version of a runsc: its own text and the release's date as a number (20240729)."""

    text: str
    date: int

    @property
    def flavour(self) -> Flavour:
        """What may be expected of it."""
        return Flavour.R24 if self.date <= OLDEST else Flavour.HEAD

    @property
    def flags(self) -> tuple[str, ...]:
        """The global flags that only this flavour has, and needs.

        A current one keeps a network namespace for gofers as a mount in its root. Nobody takes that away from a sandbox
        that is ended by a signal, and its directory could not be removed (measured on 20260905); so each gofer gets one
        of its own.
        """
        return ("--gofer-network-namespace=new",) if self.flavour is Flavour.HEAD else ()

    @property
    def forcing_flags(self) -> tuple[str, ...]:
        """The global flags with which it restores a container although its spec is another one than was saved.

        Measured on 20260905: it warns then, and what lives in the container is what was saved.
        """
        return ("--restore-spec-validation=warning",) if self.date >= _VALIDATES_SINCE else ()

    @classmethod
    def of(cls, text: str) -> RuntimeVersion | None:
        """Read a version's text: `release-20240729.0`, or Debian's `0.0~20240729.0`; None when it names no release."""
        found = _DATE.search(text)
        return None if found is None else cls(text=text, date=int(found[0]))

    def can_restore(self, saved_by: str) -> bool:
        """Whether this runsc restores what a runsc of that version text saved, as far as versions go."""
        if saved_by == self.text:
            return True
        other = RuntimeVersion.of(saved_by)
        return other is not None and other.flavour is self.flavour is Flavour.R24


async def runtime_version(processes: Processes, path: Path, *, step: Step, deadline_s: float = 10.0) -> RuntimeVersion:
    """Ask a runsc for its version.

    Raises:
        ProblemError: RuntimeUnavailable when it cannot run or is no runsc, RuntimeTooOld.
    """
    try:
        finished = await processes.run((str(path), *argv.version()), deadline_s=deadline_s, env=ENVIRONMENT)
    except DeadlineExceededError as error:
        message = f"{path} --version did not end within {deadline_s:g} s"
        problem = _problem(Reason.RUNTIME_UNAVAILABLE, path, message, step)
        raise ProblemError(attrs.evolve(problem, detail=words(b"", error.stderr).detail)) from error
    except OSError as error:
        message = f"{path} cannot be run: {error.strerror or type(error).__name__}"
        raise ProblemError(_problem(Reason.RUNTIME_UNAVAILABLE, path, message, step)) from error
    return parse_version(finished, path=path, step=step)


def parse_version(finished: Finished, *, path: Path, step: Step) -> RuntimeVersion:
    """Read the answer to `--version`, whose first line is `runsc version …`.

    Raises:
        ProblemError: RuntimeUnavailable when it is no runsc's answer, RuntimeTooOld.
    """
    answer = _ANSWER.search(finished.stdout.decode("utf-8", "replace"))
    if finished.exit.code != 0 or answer is None:
        message = f"{path} --version ended with {finished.exit.code} and named no version"
        problem = _problem(Reason.RUNTIME_UNAVAILABLE, path, message, step)
        raise ProblemError(attrs.evolve(problem, detail=words(b"", finished.stderr).detail))
    version = RuntimeVersion.of(answer[1])
    if version is None:
        message = f"{path} does not say which release it is: {answer[1]}"
        raise ProblemError(_problem(Reason.RUNTIME_UNAVAILABLE, path, message, step))
    if version.date < OLDEST:
        message = f"{path} is version {version.text}; {OLDEST} or newer is needed"
        raise ProblemError(_problem(Reason.RUNTIME_TOO_OLD, path, message, step))
    return version


def _problem(reason: Reason, path: Path, message: str, step: Step) -> Problem:
    return Problem(step=step, reason=reason, subject=str(path), message=message)
