"""The one shape of every refusal and failure: `{step, reason, subject, message, hint, detail}`."""

from __future__ import annotations

import enum

import attrs

from .reasons import CATALOGUE, Reason


class Step(enum.StrEnum):
    """The steps; each has one module in `actors/steps/`, but for `admission` before and `supervise` around them."""

    ADMISSION = "admission"
    ASSIGN = "assign"
    DETECT = "detect"
    GENERATE = "generate"
    PARTITION = "partition"
    INJECT = "inject"
    CREATE = "create"
    RESTORE = "restore"
    VERIFY = "verify"
    SUSPEND = "suspend"
    RELEASE = "release"
    THAW = "thaw"
    TEARDOWN = "teardown"
    RECOVER = "recover"
    SUPERVISE = "supervise"


@attrs.frozen(kw_only=True)
class Problem:
    """Why something was refused or failed.

    Attributes:
        step: the step that met it.
        reason: a word of the catalogue (`statemachine.reasons.CATALOGUE`).
        subject: the thing it is about: a file, a document path, a container, a device, a hook.
        message: one sentence for a person, with the offending value.
        hint: what to do about it; the catalogue's own hint where none is given.
        detail: the last lines of the tool that failed, secrets removed; empty where no tool ran.
    """

    step: Step
    reason: Reason
    subject: str
    message: str
    hint: str = attrs.field()
    detail: str = ""

    @hint.default
    def _catalogue_hint(self) -> str:
        return CATALOGUE[self.reason].hint

    def __str__(self) -> str:
        """`Reason: message`, the form of the last line of stderr."""
        return f"{self.reason}: {self.message}"


class ProblemError(Exception):
    """Raised when a step, a reader or an admission refuses or fails; carries every problem found, in document order.

    Attributes:
        problems: one or more problems; the first is the one that is reported alone where only one can be.
    """

    def __init__(self, *problems: Problem) -> None:
        if not problems:
            message = "a ProblemError carries at least one problem"
            raise ValueError(message)
        super().__init__(*problems)
        self.problems: tuple[Problem, ...] = problems

    @property
    def problem(self) -> Problem:
        """The first problem."""
        return self.problems[0]

    def __str__(self) -> str:
        """All problems, one a line."""
        return "\n".join(str(problem) for problem in self.problems)
