"""The signals that ask a running worker for something: SIGHUP to read its settings anew, SIGUSR1 to show what it does.

A terminal that is closed sends SIGHUP too, which therefore ends nobody's actors. What goes wrong with an answer costs
that answer alone, and what hangs in one (a file of settings on a disk that does not answer) keeps the other kind not
waiting: it is just then that somebody wants to be shown what the worker does.
"""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING, Final

import anyio
import structlog

from statemachine.reasons import Reason
from supervisor.inbox import SignalInbox
from supervisor.showing import show

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from supervisor.reloading import Reloading
    from supervisor.worker import Worker

REQUESTS: Final = (signal.SIGHUP, signal.SIGUSR1)

_log = structlog.get_logger("greenroom.run")


async def answer_signals(signals: AsyncIterator[int], worker: Worker, reloading: Reloading) -> None:
    """Answer those of a kind one after the other, until this is cancelled."""
    inboxes = {signum: SignalInbox() for signum in REQUESTS}
    async with anyio.create_task_group() as group:
        for kind, inbox in inboxes.items():
            group.start_soon(_answer, inbox, worker, reloading, name=kind.name)
        async for signum in signals:
            inboxes[signal.Signals(signum)].put(signum)


async def _answer(signals: AsyncIterator[int], worker: Worker, reloading: Reloading) -> None:
    async for signum in signals:
        name = signal.Signals(signum).name
        try:
            if signum == signal.SIGHUP:
                _log.info("signal", signal=name)
                await reloading.reload()
            else:
                await show(worker)
        except Exception:  # noqa: BLE001 - see above
            _log.exception("fault", signal=name, reason=str(Reason.INTERNAL))
