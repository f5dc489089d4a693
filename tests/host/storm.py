"""A program for test_storm.py: children, orphans and a library's forks end all at once, beside the reaper.

Prints what came of it as one JSON object. A process of its own, so that no child of a test session is among its own.

    python -m tests.host.storm asyncio|trio CHILDREN FORKS ORPHANS
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import warnings
from typing import TYPE_CHECKING, Any, Final

import anyio
from anyio import to_thread

from actors.ports import Exit, Output
from supervisor.host import procfs
from supervisor.host import reaper as reaper_module
from supervisor.host.composition import open_host_ports
from tests.host.waiting import zombies

if TYPE_CHECKING:
    from actors.ports import Ports

SH: Final = "/bin/sh"
ENV: Final = {"PATH": "/usr/bin:/bin"}
SIGNALS: Final = (signal.SIGKILL, signal.SIGTERM, signal.SIGUSR1, signal.SIGABRT)
# How long the library takes until it waits for its fork: long enough for a careless reaper, shorter than our grace,
# also where the machine lets its thread wait.
LIBRARY_TAKES_S: Final = 0.02
GRACE_S: Final = 60.0
POLL_S: Final = 0.005
AT_ONCE: Final = 32
GONE_WITHIN_S: Final = 60
"""However busy the machine is."""


def open_descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - counted, not used as paths


def fork_as_a_library_does(code: int) -> bool:
    """Whether the status of our own fork came through."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # forking beside threads: just what libraries do
        pid = os.fork()
    if pid == 0:
        os._exit(code)
    threading.Event().wait(LIBRARY_TAKES_S)
    try:
        _, status = os.waitpid(pid, 0)
    except ChildProcessError:
        return False
    return os.waitstatus_to_exitcode(status) == code


def parent_of(orphans: int, number: int, end: str) -> str:
    """A script whose double forks leave so many orphans to us: one lives a little longer, the others end at once."""
    at_once = f"i=1; while [ $i -lt {orphans} ]; do (exit 0 &); i=$((i+1)); done"
    return f"(setsid sleep 0.0{number % 10} & exit 0); {at_once}; {end}"


async def storm(ports: Ports, children: int, forks: int, orphans: int) -> dict[str, Any]:
    wrong: list[str] = []
    kept: list[bool] = []
    limit = anyio.CapacityLimiter(AT_ONCE)

    async def own(number: int) -> None:
        signum = SIGNALS[number % len(SIGNALS)]
        expected = -signum if number % 3 == 0 else number % 64
        end = f"kill -{int(signum)} $$" if number % 3 == 0 else f"exit {number % 64}"
        script = parent_of(orphans // children, number, end)
        async with limit:
            finished = await ports.processes.run([SH, "-c", script], deadline_s=300, env=ENV)
        if finished.exit != Exit(code=expected):
            wrong.append(f"{number}: {finished.exit} instead of {expected}")

    async def library() -> None:
        for number in range(forks):
            is_kept = await to_thread.run_sync(fork_as_a_library_does, number % 64)
            kept.append(is_kept)

    before = open_descriptors()
    # A child that is waited for all the time, and one that is stopped, hold nothing up.
    argv = [SH, "-c", "kill -STOP $$"]
    stopped = await ports.processes.spawn(argv, env=ENV, stdout=Output.DISCARD, stderr=Output.DISCARD)
    async with anyio.create_task_group() as waiting:
        waiting.start_soon(stopped.wait)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(library)
            for number in range(children):
                tasks.start_soon(own, number)
        quiet_s = anyio.current_time()
        with anyio.move_on_after(GONE_WITHIN_S):
            while set(procfs.listed_children()) - {stopped.identity.pid}:
                await anyio.sleep(POLL_S)
        orphans_gone_s = anyio.current_time() - quiet_s
        left = len(zombies())
        stopped.signal(signal.SIGKILL)
    stopped_by = (await stopped.wait()).code
    return {
        "wrong": wrong,
        "libraryKept": kept.count(True),
        "zombies": left,
        "orphansGone_s": orphans_gone_s,
        "reaped": (await ports.processes.own_usage()).reaped,
        "stopped": stopped_by,
        "leakedDescriptors": open_descriptors() - before,
    }


async def main(children: int, forks: int, orphans: int) -> None:
    setattr(reaper_module, "_GRACE_S", GRACE_S)  # noqa: B010 - it is Final for everybody else
    async with open_host_ports(roots=[]) as ports:
        result = await storm(ports, children, forks, orphans)
    sys.stdout.write(json.dumps(result))


if __name__ == "__main__":
    anyio.run(main, int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]), backend=sys.argv[1])
