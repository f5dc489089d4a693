"""The one shape of every refusal and failure: `{step, reason, subject, message, hint, detail}`."""

from __future__ import annotations

import enum
from typing import Final

import attrs

from .catalogue import CATALOGUE
from .reasons import Reason
from .secrecy import without_tokens
from .wording import one_line, some_lines

SUBJECT_CHARACTERS_MAX: Final = 512
SENTENCE_CHARACTERS_MAX: Final = 2000
DETAIL_CHARACTERS_MAX: Final = 8000


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


def _subject(text: str) -> str:
    return one_line(without_tokens(text), SUBJECT_CHARACTERS_MAX)


def _sentence(text: str) -> str:
    return one_line(without_tokens(text), SENTENCE_CHARACTERS_MAX)


def _detail(text: str) -> str:
    return some_lines(without_tokens(text), DETAIL_CHARACTERS_MAX)


@attrs.frozen(kw_only=True)
class Problem:
    """Why something was refused or failed.

    What it repeats of others (a uid, a file's name, a tool's words) may be as long as it likes and hold anything: here,
    and nowhere else, every text is bounded, loses what looks like a secret, and shows its control characters.

    Attributes:
        step: the step that met it.
        reason: a word of the catalogue (`statemachine.catalogue.CATALOGUE`).
        subject: the thing it is about: a file, a document path, a container, a device, a hook.
        message: one sentence for a person, with the offending value.
        hint: what to do about it; the catalogue's own hint where none is given.
        detail: the last lines of the tool that failed, secrets removed; empty where no tool ran.
    """

    step: Step
    reason: Reason
    subject: str = attrs.field(converter=_subject)
    message: str = attrs.field(converter=_sentence)
    hint: str = attrs.field(converter=_sentence)
    detail: str = attrs.field(default="", converter=_detail)

    @hint.default
    def _catalogue_hint(self) -> str:
        return CATALOGUE[self.reason].hint

    def __str__(self) -> str:
        """`Reason: message`, the form of the last line of stderr."""
        return f"{self.reason}: {self.message}"


def beyond(message: str, detail: str) -> str:
    """What a detail says beyond its message: a tool that said one sentence would be quoted twice otherwise."""
    return "\n".join(line for line in detail.splitlines() if line.strip() and line.strip() not in message)


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
