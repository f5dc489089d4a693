"""A process that is owned, and how it ended, for all who want to know: of a real one and of a simulated one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio

if TYPE_CHECKING:
    from actors.ports import Exit, ProcessIdentity


class Owned:
    """The part of a `Child` that only tells.

    The subclass keeps `_exit`, and sets `_is_settled` when it has ended or was given up. It does not matter how many
    wait, and which of them are cancelled.
    """

    def __init__(self, identity: ProcessIdentity) -> None:
        self._identity = identity
        self._exit: Exit | None = None
        self._is_settled = anyio.Event()

    @property
    def identity(self) -> ProcessIdentity:
        """Pid and start time."""
        return self._identity

    @property
    def exit(self) -> Exit | None:
        """How it ended; None while it lives, and for ever when it was given up before its end."""
        return self._exit

    async def wait(self) -> Exit:
        """Wait until it has ended and return how.

        Raises:
            ClosedResourceError: it was given up by `close` before its end.
        """
        await self._is_settled.wait()
        if self._exit is None:
            raise anyio.ClosedResourceError
        return self._exit
