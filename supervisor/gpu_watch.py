"""Keeps one GPU monitor running, and what its facts come to.

No monitor runs before somebody asks: a worker without GPUs starts no process and has no timer. From then on there is
one until the worker ends. One that ended, says nothing or says what it cannot have said is replaced, ever more rarely
while that goes on; until the next one has spoken, NVML does not answer.
"""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Final

import anyio
import structlog

from actors.gpu.facts import FactError, XidFact, decode_lines, is_of_nvml
from actors.gpu.view import SILENT, NvmlFails, after, after_monitor_ended

if TYPE_CHECKING:
    from collections.abc import Callable

    from actors.gpu.facts import Fact
    from actors.gpu.view import View
    from actors.ports import DriverPlaces, GpuMonitor, Gpus

FIRST_WORD_S: Final = 60.0
"""How long a monitor may take for its first word: without persistence mode NVML initialises each GPU, which takes
seconds."""
SILENCE_S: Final = 20.0
"""How long it may be silent afterwards: it tells something every 3 s, and may have to initialise anew in between."""
_DELAY_MIN_S: Final = 1.0
_DELAY_MAX_S: Final = 30.0
# A monitor that lived that long was a good one: what ended it is new.
_GOOD_LIFE_S: Final = 120.0

_log = structlog.get_logger("greenroom.gpus")


def _ignore(_fact: XidFact) -> None:
    """Nobody wants to know."""


class GpuWatch:
    """NVML's word, as it comes.

    Args:
        gpus: starts monitors.
        places: where the driver is.
        on_xid: is called with each XID, once the view is what comes of it.
        first_word_s: how long a monitor may take for its first word.
        silence_s: how long it may be silent afterwards.
    """

    def __init__(
        self,
        gpus: Gpus,
        places: DriverPlaces,
        *,
        on_xid: Callable[[XidFact], None] = _ignore,
        first_word_s: float = FIRST_WORD_S,
        silence_s: float = SILENCE_S,
    ) -> None:
        self._gpus = gpus
        self._places = places
        self._on_xid = on_xid
        self._first_word_s = first_word_s
        self._silence_s = silence_s
        self._view: View = SILENT
        self._asked = anyio.Event()
        # Whether the monitor that runs now has spoken on NVML as a whole, and whether its last such word was an error.
        self._has_spoken = False
        self._has_failed = False
        self._stir = anyio.Event()

    @property
    def view(self) -> View:
        """What everything that was said comes to."""
        return self._view

    def ask_for_facts(self) -> None:
        """From now on a monitor is wanted; any number of times."""
        self._asked.set()

    async def first_word(self, limit_s: float) -> View:
        """Ask, and wait until the present monitor has spoken on NVML, no longer than so; returns the view.

        One that is being replaced is waited for: what its predecessor said, or how it ended, is no answer of NVML.
        """
        self.ask_for_facts()
        with anyio.move_on_after(limit_s):
            while not self._has_spoken:
                await self._stir.wait()
        return self._view

    async def changed(self, since: View | None = None) -> None:
        """Wait until the view is another one than this; than that of now, when none is given."""
        before = self._view if since is None else since
        while self._view == before:
            await self._stir.wait()

    async def run(self) -> None:
        """Keep a monitor running from when the first one is asked for until this is cancelled."""
        await self._asked.wait()
        delay_s = _DELAY_MIN_S
        while True:
            began_s = anyio.current_time()
            why = await self._listen_to_one()
            if anyio.current_time() - began_s >= _GOOD_LIFE_S:
                delay_s = _DELAY_MIN_S
            _log.warning("gpu_monitor_replaced", why=why, in_s=delay_s)
            self._end_of_one(why)
            await anyio.sleep(delay_s)
            delay_s = min(2 * delay_s, _DELAY_MAX_S)

    # ---- one monitor

    async def _listen_to_one(self) -> str:
        """Listen to a monitor to its end; returns why it is to be replaced."""
        try:
            async with AsyncExitStack() as stack:
                with anyio.move_on_after(self._first_word_s) as start:
                    monitor = await stack.enter_async_context(self._gpus.monitor(self._places))
                if start.cancelled_caught:
                    return f"the monitor did not start within {self._first_word_s:g} s"
                return await self._listen_to(monitor)
        except OSError as error:
            return f"the monitor cannot be run: {error.strerror or error}"

    async def _listen_to(self, monitor: GpuMonitor) -> str:
        limit_s, heard_s = self._first_word_s, anyio.current_time()
        rest = b""
        while True:
            with anyio.CancelScope(deadline=heard_s + limit_s) as patience:
                data = await monitor.receive()
            if patience.cancelled_caught:
                return f"the monitor said nothing for {limit_s:g} s"
            if not data:
                return "the monitor ended"
            try:
                facts, rest = decode_lines(rest + data)
            except FactError as error:
                return f"the monitor said what it cannot have said: {error}"
            for fact in facts:
                self._take(fact)
            if facts:
                limit_s, heard_s = self._silence_s, anyio.current_time()

    def _take(self, fact: Fact) -> None:
        if isinstance(fact, XidFact):
            _log.warning("xid", gpu=fact.gpu, xid=fact.xid)
        view = after(self._view, fact)
        is_word = is_of_nvml(fact)
        if is_word:
            self._has_failed = isinstance(view, NvmlFails)
        self._replace(view, has_spoken=self._has_spoken or is_word)
        if isinstance(fact, XidFact):
            self._on_xid(fact)

    def _end_of_one(self, why: str) -> None:
        # A monitor that said why NVML fails and then ended did so for another one to try: that is still why.
        view = self._view if self._has_failed else after_monitor_ended(self._view, why)
        self._has_failed = False
        self._replace(view, has_spoken=False)

    def _replace(self, view: View, *, has_spoken: bool) -> None:
        if view == self._view and has_spoken == self._has_spoken:
            return
        if isinstance(view, NvmlFails) and view != self._view:
            _log.warning("nvml_fails", why=view.why)
        self._view, self._has_spoken = view, has_spoken
        self._stir.set()
        self._stir = anyio.Event()
