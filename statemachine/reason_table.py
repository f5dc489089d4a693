"""The reason catalogue in Markdown, for docs/reasons.md, in the groups of the enum. Pure."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Final

from .catalogue import CATALOGUE
from .reasons import Reason

if TYPE_CHECKING:
    from collections.abc import Iterator

GROUPS: Final = (
    ("Documents", Reason.EMPTY_DOCUMENT),
    ("Quantities and claims", Reason.INVALID_QUANTITY),
    ("Containers and paths", Reason.INVALID_CONTAINER_NAME),
    ("Generations and operations", Reason.GENERATION_CONFLICT),
    ("The worker", Reason.WORKER_FULL),
    ("The runtime and the sandbox", Reason.RUNTIME_UNAVAILABLE),
    ("Suspend and restore", Reason.LIVE_CUDA_CONTEXT),
    ("GPUs", Reason.GPU_NOT_DETECTED),
    ("Network", Reason.NETWORK_UNAVAILABLE),
    ("The simulator", Reason.INVALID_TRACE),
)
"""The title of each group of the enum and its first member; a test holds them against the comments there."""


def groups() -> Iterator[tuple[str, tuple[Reason, ...]]]:
    """Each group's title and members, in the order of the enum."""
    members = list(Reason)
    starts = [*(members.index(first) for _title, first in GROUPS), len(members)]
    for (title, _first), (start, end) in zip(GROUPS, pairwise(starts), strict=True):
        yield title, tuple(members[start:end])


def as_markdown() -> str:
    """All reasons: one section a group, one row a reason."""
    parts = []
    for title, members in groups():
        lines = [f"## {title}", "", "| reason | what it means | what to do |", "|---|---|---|"]
        for reason in members:
            text = CATALOGUE[reason]
            lines.append(f"| `{reason}` | {_cell(text.sentence)} | {_cell(text.hint)} |")
        parts.append("\n".join(lines))
    return "\n\n".join(parts) + "\n"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
