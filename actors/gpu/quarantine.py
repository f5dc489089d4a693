"""GPUs that nobody new is granted for a while: those that were lost and answer again, and those with a doubtful XID.

A GPU that comes and goes would else be granted in each of its good moments, and every actor that gets it would fail.
So one that was lost has to be well for WELL_S, and twice as long each time that it falls ill again, up to WELL_MAX_S.
Who holds it already is not asked: a lost one has ended its holder, a doubtful one lets it work on.

Pure: time comes with what is looked at, and a monitor tells an inventory every few seconds, so no timer is needed.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Final

import attrs

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .inventory import Inventory

WELL_S: Final = 30.0
"""How long a GPU that was lost has to be well before somebody is granted it again."""
WELL_MAX_S: Final = 960.0
"""The longest that is asked of one that falls ill again and again."""
DOUBTFUL_S: Final = 300.0
"""How long a GPU with an XID that withholds it has to be well; as long as the monitor asks of one with a fatal XID."""
FORGET_S: Final = 3600.0
"""A GPU that was well for so long has never been ill."""


@attrs.frozen(kw_only=True)
class Illness:
    """One GPU.

    Attributes:
        cause: what it had last.
        spells: how often it fell ill, without an hour between two of them.
        well_since_s: since when it is well; None while it is lost.
        needs_s: how long it has to be.
    """

    cause: str
    spells: int = 1
    well_since_s: float | None = None
    needs_s: float = WELL_S

    def is_over(self, now_s: float) -> bool:
        """Whether it has been well for long enough."""
        return self.well_since_s is not None and now_s - self.well_since_s >= self.needs_s

    def is_forgotten(self, now_s: float) -> bool:
        """Whether it counts no more when the GPU falls ill again."""
        return self.is_over(now_s) and now_s - (self.well_since_s or 0.0) >= FORGET_S


def _unchangeable(illnesses: Mapping[str, Illness]) -> Mapping[str, Illness]:
    return MappingProxyType(dict(illnesses))


@attrs.frozen
class Quarantine:
    """The illnesses of all GPUs, by UUID; at most one of each GPU that is known."""

    illnesses: Mapping[str, Illness] = attrs.field(factory=dict, converter=_unchangeable, hash=False)

    def after_look(self, inventory: Inventory, now_s: float) -> Quarantine:
        """After the GPUs were looked at; one that is not known any more is forgotten."""
        after = {gpu.uuid: _after(self.illnesses.get(gpu.uuid), gpu.lost, now_s) for gpu in inventory.gpus}
        return Quarantine({uuid: illness for uuid, illness in after.items() if illness is not None})

    def after_silence(self, now_s: float) -> Quarantine:
        """While NVML does not answer nobody says that a GPU is well: whoever had not been so for long begins anew."""
        return Quarantine(
            {
                uuid: illness if illness.is_over(now_s) else attrs.evolve(illness, well_since_s=None)
                for uuid, illness in self.illnesses.items()
            }
        )

    def after_doubt(self, uuid: str, cause: str, now_s: float) -> Quarantine:
        """After a GPU that goes on working has become doubtful."""
        known = self.illnesses.get(uuid)
        if known is not None and known.well_since_s is None:
            return self  # it is lost: that is more
        needs_s = max(DOUBTFUL_S, 0.0 if known is None or known.is_over(now_s) else known.needs_s)
        spells = known.spells if known is not None else 1
        ill = Illness(cause=cause, spells=spells, well_since_s=now_s, needs_s=needs_s)
        return Quarantine({**self.illnesses, uuid: ill})

    def withheld(self, now_s: float) -> Mapping[str, str]:
        """The GPUs that nobody new is granted now although they answer, each with why."""
        return {
            uuid: f"{illness.cause}; it has to be well for {illness.needs_s:g} s"
            for uuid, illness in self.illnesses.items()
            if illness.well_since_s is not None and not illness.is_over(now_s)
        }


def _after(illness: Illness | None, lost: str | None, now_s: float) -> Illness | None:
    if lost is not None:
        if illness is None:
            return Illness(cause=lost)
        if illness.well_since_s is None:
            return illness if illness.cause == lost else attrs.evolve(illness, cause=lost)
        spells = illness.spells + 1
        return Illness(cause=lost, spells=spells, needs_s=min(WELL_S * 2 ** (spells - 1), WELL_MAX_S))
    if illness is None or illness.is_forgotten(now_s):
        return None
    return illness if illness.well_since_s is not None else attrs.evolve(illness, well_since_s=now_s)
