"""Problems on their way to the reader of the message: collected as they are met, handed out in document order."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from statemachine.problem import Problem, ProblemError, Step

from .limits import FINDINGS_MAX
from .nodes import Place

if TYPE_CHECKING:
    from collections.abc import Iterable

    from statemachine.reasons import Reason

    from .nodes import Node


@attrs.frozen
class Finding:
    """A problem and the place that it is about."""

    place: Place
    problem: Problem


class DocumentError(ProblemError):
    """Raised when a document cannot be read.

    Attributes:
        findings: the problems with their places, at least one.
        root: the tree as far as it could be made, when reading came to the end all the same.
    """

    def __init__(self, findings: tuple[Finding, ...], root: Node | None = None) -> None:
        super().__init__(*(finding.problem for finding in findings))
        self.findings = findings
        self.root = root

    def __reduce__(self) -> tuple[type[DocumentError], tuple[tuple[Finding, ...], Node | None]]:
        """Copied and pickled as it was made: the base class would be given the problems."""
        return (DocumentError, (self.findings, self.root))


class Findings:
    """The problems of one document; keeps the first `FINDINGS_MAX` that are met."""

    def __init__(self, step: Step) -> None:
        self._step = step
        self._found: list[Finding] = []

    @property
    def is_full(self) -> bool:
        """Whether more would be dropped, so that looking for them is a waste."""
        return len(self._found) >= FINDINGS_MAX

    def add(self, place: Place, reason: Reason, *, subject: str, message: str) -> None:
        """Keep one problem; its message gets the line number."""
        if not self.is_full:
            self._found.append(located(place, self._step, reason, subject=subject, message=message))

    def in_document_order(self) -> tuple[Finding, ...]:
        """All that were kept, by place; those of one place in the order they were met."""
        return in_document_order(self._found)


def located(place: Place, step: Step, reason: Reason, *, subject: str, message: str) -> Finding:
    """One finding whose message ends with its line number."""
    text = f"{message} (line {place.line})"
    return Finding(place, Problem(step=step, reason=reason, subject=subject, message=text))


def in_document_order(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """By place; stable, so that findings of one place keep their order."""
    return tuple(sorted(findings, key=lambda finding: finding.place))


def raise_if_any(findings: Iterable[Finding]) -> None:
    """Raise them together.

    Raises:
        ProblemError: there is at least one; its problems are in document order.
    """
    ordered = in_document_order(findings)
    if ordered:
        raise ProblemError(*(finding.problem for finding in ordered))
