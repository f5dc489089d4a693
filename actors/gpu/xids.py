"""What follows from an XID, the number by which the NVIDIA driver reports an error of a GPU. Pure; one row a class.

NVML tells the number and the GPU and nothing else. The catalogue names for each number what is to be done at once: an
application is restarted (or nothing is done), or the GPU is reset. What needs a reset and stops the GPU's work loses
the GPU for whoever holds it; what needs one and lets the present work go on is only withheld from others.

A number that stands in no row is told, and nothing is done: it must neither end an actor nor take a GPU out of the pool
for no known reason, and a GPU that is really of no use fails NVML's own calls, which loses it within one look.

Source: NVIDIA, "Xid Catalog" (docs.nvidia.com/deploy/xid-errors), immediate actions for Ampere and newer; that 13, 31,
43, 45 and 68 are an application's own errors is also what NVIDIA's k8s-device-plugin holds (internal/rm/health.go).
"""

from __future__ import annotations

import enum
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

import attrs

if TYPE_CHECKING:
    from collections.abc import Mapping


class XidPolicy(enum.StrEnum):
    """What follows."""

    TELL = "Tell"
    """The holder's actor and the log are told; it runs on, and the GPU stays."""
    WITHHOLD = "Withhold"
    """As TELL, and nobody else is granted the GPU until it has been well for long, or was reset."""
    LOSE = "Lose"
    """The GPU is lost: its holder ends with GpuLost, and nobody is granted it until it was reset, or well for long."""


@attrs.frozen(kw_only=True)
class XidClass:
    """One row: numbers of which the same follows.

    Attributes:
        policy: what follows.
        xids: the numbers.
        what: what has happened, for a person.
        action: the catalogue's immediate action.
    """

    policy: XidPolicy
    xids: tuple[int, ...]
    what: str
    action: str


CLASSES: Final = (
    XidClass(
        policy=XidPolicy.TELL,
        xids=(8, 11, 13, 25, 31, 32, 39, 40, 41, 60, 68, 69, 70, 71, 72, 75, 76, 77, 80, 82, 83, 84, 85, 86, 88, 89,
              96, 97, 98, 99, 100, 101, 102, 103, 104, 105, *range(126, 136), 139),
        what="an application's own fault, or that of one engine that works for it",
        action="RESTART_APP",
    ),
    XidClass(
        policy=XidPolicy.TELL,
        xids=(43, 45),
        what="an application's work was given up, after a fault of its own or because it ended",
        action="IGNORE; 45 follows another XID",
    ),
    XidClass(
        policy=XidPolicy.TELL,
        xids=(94,),
        what="a memory error that was contained to one application, which the driver ends itself",
        action="RESTART_APP; a reset when convenient",
    ),
    XidClass(
        policy=XidPolicy.TELL,
        xids=(14, 37, 38, 44, 63, 66, 67, 92, 93, 106, 107, 108, 121, 137, 141, 152, 153, 157, 160, 161),
        what="a note of the driver's: memory rows were remapped, errors were corrected",
        action="IGNORE",
    ),
    XidClass(
        policy=XidPolicy.WITHHOLD,
        xids=(74, 136, *range(144, 151), 155),
        what="a link to another GPU failed: who needs no link works on",
        action="RESET_GPU, or a workflow that ends with it",
    ),
    XidClass(
        policy=XidPolicy.WITHHOLD,
        xids=(54, 151, 154, 156),
        what="the GPU is to be reset, powered or drained, and the present work goes on",
        action="RESET_GPU (156), CHECK_MECHANICALS (54), RESTART_VM (151); 154 says it in words that NVML lacks",
    ),
    XidClass(
        policy=XidPolicy.LOSE,
        xids=(48, 64, 95, 140),
        what="a memory error that was not contained, or could not be repaired",
        action="RESET_GPU",
    ),
    XidClass(
        policy=XidPolicy.LOSE,
        xids=(46, 62, 109, 110, 119, 120, 143, 158),
        what="the GPU or one of its controllers stopped, or did not start",
        action="RESET_GPU",
    ),
    XidClass(policy=XidPolicy.LOSE, xids=(79,), what="the GPU fell off the bus", action="RESTART_BM"),
)  # fmt: skip

UNKNOWN: Final = XidClass(
    policy=XidPolicy.TELL, xids=(), what="an error that is not in Greenroom's table of XIDs", action=""
)
"""Any other number."""


def _by_number() -> Mapping[int, XidClass]:
    rows: dict[int, XidClass] = {}
    for row in CLASSES:
        for xid in row.xids:
            if xid in rows:
                message = f"XID {xid} stands in two rows"
                raise ValueError(message)
            rows[xid] = row
    return MappingProxyType(rows)


_ROWS: Final = _by_number()
LOSING: Final = frozenset(xid for xid, row in _ROWS.items() if row.policy is XidPolicy.LOSE)
"""The numbers after which the GPU itself is of no use until it is reset."""


def class_of(xid: int) -> XidClass:
    """The row of a number; UNKNOWN for one that has none."""
    return _ROWS.get(xid, UNKNOWN)


def as_markdown() -> str:
    """The table, for docs/gpu.md."""
    lines = ["| what follows | XIDs | what has happened | NVIDIA's immediate action |", "|---|---|---|---|"]
    lines += [f"| {row.policy} | {_spans(row.xids)} | {row.what} | {row.action} |" for row in CLASSES]
    lines.append(f"| {UNKNOWN.policy} | any other | {UNKNOWN.what} | |")
    return "\n".join(lines) + "\n"


def _spans(xids: tuple[int, ...]) -> str:
    """Ascending, those that follow one another as `126-135`."""
    spans: list[list[int]] = []
    for xid in sorted(xids):
        if spans and spans[-1][-1] == xid - 1:
            spans[-1].append(xid)
        else:
            spans.append([xid])
    return ", ".join(str(each[0]) if len(each) == 1 else f"{each[0]}-{each[-1]}" for each in spans)
