"""Commands of a shell, through the real port."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from actors.ports import DeadlineExceededError, Output
from supervisor.host import procfs
from tests.host.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Callable

    from actors.ports import Child, Finished, Ports

SH: Final = "/bin/sh"
ENV: Final = {"PATH": "/usr/bin:/bin"}
_DEADLINES_S: Final = (0.3, 3.0, 30.0, 90.0)


async def sh(ports: Ports, script: str, *, deadline_s: float = 90, limit_bytes: int = 1 << 20) -> Finished:
    return await ports.processes.run([SH, "-c", script], deadline_s=deadline_s, env=ENV, stdout_limit_bytes=limit_bytes)


async def spawn(ports: Ports, script: str) -> Child:
    return await ports.processes.spawn([SH, "-c", script], env=ENV, stdout=Output.DISCARD, stderr=Output.DISCARD)


async def cut_off(ports: Ports, script: str, has_come_so_far: Callable[[DeadlineExceededError], object]) -> None:
    """Run a script that never ends until its deadline, one that has left it the time to come so far.

    How long that takes is the machine's: it is tried with ever longer ones, and nothing of a try is left to the next.
    """
    for deadline_s in _DEADLINES_S:
        try:
            finished = await sh(ports, script, deadline_s=deadline_s)
        except DeadlineExceededError as error:
            if has_come_so_far(error):
                return
        else:
            raise AssertionError(finished)
        for pid in procfs.listed_children():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        await eventually(lambda: not procfs.listed_children())
    raise AssertionError("it never came so far")
