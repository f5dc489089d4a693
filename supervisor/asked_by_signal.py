"""The signals that ask a running worker for something: SIGHUP to read its settings anew, SIGUSR1 to show what it does.

A terminal that is closed sends SIGHUP too, which therefore ends nobody's actors. What goes wrong with an answer costs
that answer alone.
"""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING, Final

import structlog

from statemachine.reasons import Reason
from supervisor.showing import show

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from supervisor.reloading import Reloading
    from supervisor.worker import Worker

REQUESTS: Final = (signal.SIGHUP, signal.SIGUSR1)

_log = structlog.get_logger("greenroom.run")


async def answer_signals(signals: AsyncIterator[int], worker: Worker, reloading: Reloading) -> None:
    """Answer one after the other, until this is cancelled."""
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
