"""What a look at one thing comes to."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Any, Final

import attrs

from statemachine.catalogue import CATALOGUE
from statemachine.problem import SENTENCE_CHARACTERS_MAX
from statemachine.wording import one_line

if TYPE_CHECKING:
    from statemachine.problem import Problem
    from statemachine.reasons import Reason

_SHOWN_MAX: Final = 8


class Status(enum.StrEnum):
    """How it is."""

    OK = "ok"
    WARN = "warn"
    """Something will not work as it might, or could not be looked at."""
    FAIL = "fail"
    """No GPU actor can run like this."""


def _sentence(text: str) -> str:
    return one_line(text, SENTENCE_CHARACTERS_MAX)


@attrs.frozen(kw_only=True)
class Check:
    """One line of the doctor's answer; what is not ok has a reason and a hint.

    Attributes:
        name: of the thing; stable.
        status: how it is.
        message: one sentence with what was found.
        reason: a word of the catalogue; None while it is ok.
        hint: what to do about it; empty while it is ok.
    """

    name: str
    status: Status
    message: str = attrs.field(converter=_sentence)
    reason: Reason | None = None
    hint: str = attrs.field(default="", converter=_sentence)

    def __attrs_post_init__(self) -> None:
        """Refuse a fault that says neither why nor what to do."""
        if (self.status is Status.OK) != (self.reason is None) or (self.reason is not None and not self.hint):
            message = f"{self.name} is {self.status} with reason {self.reason} and hint {self.hint!r}"
            raise ValueError(message)

    def as_json(self) -> dict[str, Any]:
        """The form of the answer."""
        return {
            "name": self.name,
            "status": str(self.status),
            "reason": None if self.reason is None else str(self.reason),
            "message": self.message,
            "hint": self.hint or None,
        }


def ok(name: str, message: str) -> Check:
    """It is as it should be."""
    return Check(name=name, status=Status.OK, message=message)


def warn(name: str, reason: Reason, message: str, hint: str = "") -> Check:
    """It need not be in the way; the catalogue's own hint where none is given."""
    return Check(name=name, status=Status.WARN, reason=reason, message=message, hint=hint or CATALOGUE[reason].hint)


def fail(name: str, reason: Reason, message: str, hint: str = "") -> Check:
    """It is in the way; the catalogue's own hint where none is given."""
    return Check(name=name, status=Status.FAIL, reason=reason, message=message, hint=hint or CATALOGUE[reason].hint)


def failed(name: str, problem: Problem) -> Check:
    """It is in the way, as a step or a reader found."""
    return fail(name, problem.reason, problem.message, problem.hint)


def listed(names: tuple[str, ...]) -> str:
    """Names in a sentence, not more than a reader wants."""
    more = f" and {len(names) - _SHOWN_MAX} more" if len(names) > _SHOWN_MAX else ""
    return ", ".join(names[:_SHOWN_MAX]) + more
