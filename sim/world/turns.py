"""Who goes on at a call that takes no time: who makes it, or another one first."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from trio import lowlevel

if TYPE_CHECKING:
    from collections.abc import Callable

SHARE: Final = 0.125
"""How often others go first. Any share is a machine that there can be: the scheduler may choose the same task again."""


class Turns:
    """Lets others run, or not, at random: a turn of the loop costs as much as many a call.

    Args:
        draw: a number of 0 <= x < 1, from the seed.
        share: how often others go first; 1.0 is always.
    """

    def __init__(self, draw: Callable[[], float], share: float = SHARE) -> None:
        self._draw = draw
        self._share = share

    async def let_others_run(self) -> None:
        """Who is cancelled learns it here in any case."""
        if self._draw() < self._share:
            await lowlevel.checkpoint()
        else:
            await lowlevel.checkpoint_if_cancelled()
