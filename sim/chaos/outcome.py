"""What came of one run, as values that fit into one line of JSON."""

from __future__ import annotations

import enum

import attrs


class Phase(enum.StrEnum):
    """Which promise was broken."""

    SAFETY = "safety"
    """Something was so that must never be so."""
    LIVENESS = "liveness"
    """Without faults, something did not come that must come."""
    CRASH = "crash"
    """The worker ended by a fault of its own, or the run did."""


@attrs.frozen(kw_only=True)
class Found:
    """One thing that is not as it must be.

    Attributes:
        phase: which promise.
        name: of the invariant, or of what did not come.
        subject: an actor's uid, a file, a process.
        message: what is wrong with it.
        at_s: virtual seconds.
    """

    phase: Phase
    name: str
    subject: str
    message: str
    at_s: float

    @property
    def what(self) -> tuple[Phase, str]:
        """What a smaller plan must find again to be a repro of this."""
        return self.phase, self.name

    def __str__(self) -> str:
        return f"{self.phase}: {self.name}: {self.subject}: {self.message} (at {self.at_s:.3f} s)"


@attrs.frozen(kw_only=True)
class Outcome:
    """One run.

    Attributes:
        seed: of its plan.
        found: what is not as it must be.
        planned, fired: of each kind of fault, how many.
        cells: how often a state met an event under a kind of fault: `state event kind`.
        checked: of each invariant, how often it was looked at.
        reasons: of each reason of a failure, how often it was told.
        virtual_s, calls, transitions: how large it was.
        digest: what two runs have in common exactly when they are the same.
    """

    seed: int
    found: tuple[Found, ...] = ()
    planned: dict[str, int] = attrs.field(factory=dict)
    fired: dict[str, int] = attrs.field(factory=dict)
    cells: dict[str, int] = attrs.field(factory=dict)
    checked: dict[str, int] = attrs.field(factory=dict)
    reasons: dict[str, int] = attrs.field(factory=dict)
    virtual_s: float = 0.0
    calls: int = 0
    transitions: int = 0
    digest: str = ""
