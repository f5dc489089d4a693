"""One look at a directory for all who ask for one at the same time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio
import attrs

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable


@attrs.define
class SharedScans:
    """Scans that all who ask for one at the same time share.

    When half of a thousand files go at once, a scan for each of them would keep the worker busy for minutes.
    """

    _turn: anyio.Lock = attrs.field(factory=anyio.Lock, init=False)
    _begun: int = attrs.field(default=0, init=False)
    _ended: int = attrs.field(default=0, init=False)
    _succeeded: bool = attrs.field(default=False, init=False)

    async def one(self, scan: Callable[[], Awaitable[bool]]) -> bool:
        """What a scan that begins from now on says."""
        wanted = self._begun + 1
        async with self._turn:
            if self._ended < wanted:
                self._begun += 1
                self._succeeded = await scan()
                self._ended = self._begun
            return self._succeeded
