"""What goes wrong beside the ports, drawn: how long it lasts, whom it meets."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from sim.chaos import plan as p

if TYPE_CHECKING:
    import random  # noqa: TID251 - the type of what is handed in, seeded
    from collections.abc import Callable, Mapping

Draw = "Callable[[random.Random, float, str, int], p.Deed]"

XIDS: Final = (13, 31, 43, 45, 48, 63, 74, 79, 94, 95, 119)
"""Of every class that docs/gpu.md tells of."""
OTHER_DRIVERS: Final = ("550.54.15", "535.129.03", "580.65.06", "550.90.07")
REORDERED_FROM: Final = 100
"""Generations above those of the ordinary documents."""


def _down_s(chance: random.Random) -> float:
    return round(chance.choice((0.0, 0.2, 1.0, 5.0)), 3)


def _for_s(chance: random.Random) -> float:
    return round(chance.uniform(0.5, 15.0), 3)


_DRAWN: Final[Mapping[str, Callable[[random.Random, float, str, int], p.Deed]]] = MappingProxyType(
    {
        "duplicate": lambda _chance, at_s, uid, _gpu: p.Duplicate(at_s=at_s, uid=uid),
        "stale": lambda chance, at_s, uid, _gpu: p.Stale(
            at_s=at_s, uid=uid, state=chance.choice(("Running", "Suspended", "Terminated"))
        ),
        "reordered": lambda chance, at_s, uid, _gpu: p.Reordered(
            at_s=at_s,
            uid=uid,
            generation=REORDERED_FROM + 2 * int(at_s * 1000),
            state=chance.choice(("Running", "Suspended")),
        ),
        "kill-worker": lambda chance, at_s, _uid, _gpu: p.KillWorker(at_s=at_s, down_s=_down_s(chance)),
        "cut-power": lambda chance, at_s, _uid, _gpu: p.CutPower(at_s=at_s, down_s=_down_s(chance)),
        "evict": lambda chance, at_s, _uid, _gpu: p.Evict(
            at_s=at_s, down_s=_down_s(chance), is_repeated=chance.choice((False, False, True))
        ),
        "kill-sandbox": lambda _chance, at_s, uid, _gpu: p.KillSandbox(at_s=at_s, uid=uid),
        "xid": lambda chance, at_s, _uid, gpu: p.Xid(at_s=at_s, gpu=gpu, xid=chance.choice(XIDS)),
        "lose-gpu": lambda chance, at_s, _uid, gpu: p.LoseGpu(at_s=at_s, gpu=gpu, for_s=_for_s(chance)),
        "upgrade-driver": lambda chance, at_s, _uid, _gpu: p.UpgradeDriver(
            at_s=at_s, version=chance.choice(OTHER_DRIVERS), reload_s=_for_s(chance)
        ),
        "swap-toolkit": lambda _chance, at_s, _uid, _gpu: p.SwapToolkit(at_s=at_s),
        "kill-monitor": lambda _chance, at_s, _uid, _gpu: p.KillMonitor(at_s=at_s),
        "deny-devices": lambda chance, at_s, _uid, _gpu: p.DenyDevices(at_s=at_s, for_s=_for_s(chance)),
        "fill-disk": lambda chance, at_s, _uid, _gpu: p.FillDisk(
            at_s=at_s, slack_bytes=chance.choice((0, 1 << 12, 1 << 16, 1 << 20)), for_s=_for_s(chance)
        ),
        "store-outage": lambda chance, at_s, _uid, _gpu: p.StoreOutage(at_s=at_s, for_s=_for_s(chance)),
        "truncate-store": lambda chance, at_s, _uid, _gpu: p.TruncateStore(at_s=at_s, place=chance.randrange(8)),
        "jump-clock": lambda chance, at_s, _uid, _gpu: p.JumpClock(
            at_s=at_s, by_s=float(chance.choice((-7200, -3600, -1, 1, 3600, 7200)))
        ),
    }
)
_NEEDS_GPUS: Final = frozenset({"xid", "lose-gpu", "upgrade-driver", "swap-toolkit", "kill-monitor", "deny-devices"})


def draw_mishap(
    chance: random.Random, kind: str, *, at_s: float, actors: tuple[p.PlannedActor, ...], gpus: int
) -> p.Deed | None:
    """A mishap of a kind; None where the machine has not what it is about."""
    if kind in _NEEDS_GPUS and not gpus:
        return None
    return _DRAWN[kind](chance, at_s, chance.choice(actors).uid, chance.randrange(gpus) if gpus else 0)
