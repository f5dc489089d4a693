"""What a page is made of: one run, or two that are compared."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias

import attrs

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sim.replay.results import ReplayResult

CLASSES: Final = ("a", "b")
"""Of the style sheet, which gives each run its colour."""


@attrs.frozen
class Run:
    """One of them.

    Attributes:
        label: what it is called on the page.
        result: what it told.
    """

    label: str
    result: ReplayResult


Runs: TypeAlias = "Sequence[Run]"
"""One, or two."""


def latest_s(runs: Runs) -> float:
    """When the longer one ended: how far a page's axis of time goes."""
    return max(run.result.virtual_s for run in runs) or 1.0
