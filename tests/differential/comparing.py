"""Plays lives on both sides at once, and tells how they differ."""

from __future__ import annotations

import traceback
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import count, zip_longest
from pathlib import Path

import attrs

from tests.differential.lives import Life
from tests.differential.sides import Side
from tests.differential.sights import Sight


@attrs.define
class Both:
    """The fake and the real side."""

    fake: Side
    real: Side
    _numbers: Iterator[int] = attrs.field(factory=lambda: count(1), init=False)

    def differences(self, lives: Iterable[Life]) -> list[str]:
        """A text for each life that does not come to the same; it holds the life as a value."""
        return [text for life in lives if (text := self.difference(life))]

    def difference(self, life: Life) -> str:
        uid = f"life{next(self._numbers)}"
        with ThreadPoolExecutor(2) as pool:
            fake, real = pool.map(lambda side: _played(side, uid, life), (self.fake, self.real))
        found = list(_told(fake, real))
        return "\n  ".join((repr(life), *found)) if found else ""


def _played(side: Side, uid: str, life: Life) -> list[Sight] | str:
    """What was seen; or how it broke, and then the side begins anew."""
    try:
        return side.play(uid, life)
    except Exception:  # noqa: BLE001 - whatever it is, it is told with the life that it came of
        text = traceback.format_exc()
        side.give_up()
        side.begin()
        return text


def _told(fake: list[Sight] | str, real: list[Sight] | str) -> Iterator[str]:
    for side, seen in (("fake", fake), ("real", real)):
        if isinstance(seen, str):
            yield f"the {side} one broke: {seen}"
    if isinstance(fake, str) or isinstance(real, str):
        return
    for one, another in zip_longest(fake, real):
        if found := list(one.differences(another)):
            # What comes after it follows from it.
            yield "\n  ".join((f"after {one.deed}", *found))
            return


@contextmanager
def open_both(directory: Path, *, fake: Path, real: Path, rootfs: Path) -> Iterator[Both]:
    """Run a worker on each of these two runscs while the context is open."""
    sides = [
        Side.below(directory / name, runsc=runsc, rootfs=str(rootfs))
        for name, runsc in (("fake", fake), ("real", real))
    ]
    try:
        for side in sides:
            side.begin()
        yield Both(*sides)
        for side in sides:
            assert side.worker.end() == 0
    finally:
        for side in sides:
            side.give_up()
