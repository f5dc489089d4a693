"""What a checker finds: a fact that must never be so."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, TypeAlias

import attrs

if TYPE_CHECKING:
    from sim.engine import Record
    from sim.world.world import World


@attrs.frozen(kw_only=True)
class Violation:
    """One violated invariant.

    Attributes:
        name: of the invariant, as it stands in the registry.
        subject: the thing: an actor's uid, a file, a process.
        message: what is wrong with it.
    """

    name: str
    subject: str
    message: str

    def __str__(self) -> str:
        return f"{self.name}: {self.subject}: {self.message}"


@attrs.frozen(kw_only=True)
class Tally:
    """How often an invariant was looked at, and how often it was violated; the report of a simulation has this form."""

    checked: int = 0
    violated: int = 0


Finding: TypeAlias = tuple[str, str]
"""A subject and what is wrong with it."""

Checker: TypeAlias = "Callable[[World, Record], Iterator[Finding]]"
"""Looks at a world from outside, and at what happened in it; changes nothing, waits for nothing."""
