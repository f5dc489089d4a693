"""Keeps one GPU monitor running, and what its facts come to.

No monitor runs before somebody asks: a worker without GPUs starts no process and has no timer. From then on there is
one until the worker ends. One that ended, says nothing or says what it cannot have said is replaced, ever more rarely
while that goes on; until the next one has spoken, NVML does not answer.
"""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Final

import anyio
import attrs
import structlog

from actors.gpu.facts import FactError, MemoryFact, XidFact, decode_lines, is_of_nvml
from actors.gpu.quarantine import Quarantine
from actors.gpu.view import SILENT, NvmlAnswers, NvmlFails, after, after_monitor_ended
from actors.gpu.xids import XidPolicy, class_of
from supervisor.settings import GPU_SILENCE_S
from supervisor.xid_reports import XidReports

if TYPE_CHECKING:
    from actors.gpu.facts import Fact
    from actors.gpu.view import View
    from actors.ports import DriverPlaces, GpuMonitor, Gpus

FIRST_WORD_S: Final = 60.0
"""How long a monitor may take for its first word: without persistence mode NVML initialises each GPU, which takes
seconds."""
SILENCE_S: Final = GPU_SILENCE_S
"""How long it may be silent afterwards."""
_DELAY_MIN_S: Final = 1.0
_DELAY_MAX_S: Final = 30.0
# A monitor that lived that long was a good one: what ended it is new.
_GOOD_LIFE_S: Final = 120.0

_log = structlog.get_logger("greenroom.gpus")


def _telling(view: View) -> set[str]:
    """The GPUs that are there and answer."""
    inventory = view.inventory.gpus if isinstance(view, NvmlAnswers) else ()
    return {gpu.uuid for gpu in inventory if gpu.lost is None}


class GpuWatch:
    """NVML's word, as it comes.

    Args:
        gpus: starts monitors.
        places: where the driver is.
        first_word_s: how long a monitor may take for its first word.
        silence_s: how long it may be silent afterwards.

    Attributes:
        xids: the XIDs that came.
        replaced: how many monitors were replaced.
    """

    def __init__(
        self,
        gpus: Gpus,
        places: DriverPlaces,
        *,
        first_word_s: float = FIRST_WORD_S,
        silence_s: float = SILENCE_S,
    ) -> None:
        self._gpus = gpus
        self._places = places
        self._first_word_s = first_word_s
        self._silence_s = silence_s
        self.xids = XidReports()
        self.replaced = 0
        self.used_bytes: dict[str, int] = {}
        self._view: View = SILENT
        self._quarantine = Quarantine()
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
            self.replaced += 1
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
        if isinstance(fact, MemoryFact):
            if fact.gpu in _telling(self._view):  # as many as there are GPUs, whatever a monitor says
                self.used_bytes[fact.gpu] = fact.used_bytes  # changes all the time, and is news to nobody
            return
        if isinstance(fact, XidFact):
            self._tell_xid(fact)
        view = self._withheld(after(self._view, fact), fact)
        self._forget_memory(view)
        is_word = is_of_nvml(fact)
        if is_word:
            self._has_failed = isinstance(view, NvmlFails)
        self._replace(view, has_spoken=self._has_spoken or is_word)

    def _tell_xid(self, fact: XidFact) -> None:
        count = self.xids.add(fact, anyio.current_time())
        if count:
            row = class_of(fact.xid)
            _log.warning("xid", gpu=fact.gpu, xid=fact.xid, policy=str(row.policy), count=count, message=row.what)

    def _withheld(self, view: View, fact: Fact) -> View:
        """The view in which nobody new is granted what was ill not long ago."""
        now_s = anyio.current_time()
        if isinstance(view, NvmlFails):
            self._quarantine = self._quarantine.after_silence(now_s)
            return view
        if isinstance(fact, XidFact) and class_of(fact.xid).policy is XidPolicy.WITHHOLD:
            known = None if fact.gpu is None else view.inventory.gpu(fact.gpu)
            if known is not None:
                self._quarantine = self._quarantine.after_doubt(known.uuid, f"XID {fact.xid}", now_s)
        self._quarantine = self._quarantine.after_look(view.inventory, now_s)
        inventory = view.inventory.withholding(self._quarantine.withheld(now_s))
        return view if inventory is view.inventory else attrs.evolve(view, inventory=inventory)

    def _forget_memory(self, view: View) -> None:
        """Of a GPU that tells nothing any more."""
        telling = _telling(view)
        self.used_bytes = {uuid: used for uuid, used in self.used_bytes.items() if uuid in telling}

    def _end_of_one(self, why: str) -> None:
        # A monitor that said why NVML fails and then ended did so for another one to try: that is still why.
        view = self._view if self._has_failed else after_monitor_ended(self._view, why)
        self._has_failed = False
        self._forget_memory(view)
        self._replace(view, has_spoken=False)

    def _replace(self, view: View, *, has_spoken: bool) -> None:
        if view == self._view and has_spoken == self._has_spoken:
            return
        if isinstance(view, NvmlFails) and view != self._view:
            _log.warning("nvml_fails", why=view.why)
        self._view, self._has_spoken = view, has_spoken
        self._stir.set()
        self._stir = anyio.Event()
