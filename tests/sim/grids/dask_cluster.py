"""A real Dask cluster on this machine: a scheduler and workers, each a process, as somebody would start it."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Final

import attrs

from tests.needs import ROOT

PATIENCE_S: Final = 120.0
_QUIET: Final = ("--no-dashboard",)


@attrs.frozen
class DaskCluster:
    """Its address, and its processes."""

    address: str
    scheduler: subprocess.Popen[bytes]
    workers: list[subprocess.Popen[bytes]]


def until(holds: Callable[[], object], process: subprocess.Popen[bytes] | subprocess.Popen[str]) -> None:
    """Wait for something that other processes do, which nobody tells us, unless this one has ended."""
    until_s = time.monotonic() + PATIENCE_S
    while not holds():
        if process.poll() is not None:
            raise ChildProcessError(process.communicate()[0])
        if time.monotonic() > until_s:
            raise TimeoutError
        time.sleep(0.02)


def is_busy(process: subprocess.Popen[bytes]) -> bool:
    """Whether a worker has a process under way."""
    threads = Path(f"/proc/{process.pid}/task").iterdir()
    return any((thread / "children").read_text().split() for thread in threads)


def kill(process: subprocess.Popen[bytes]) -> None:
    """At once, with nothing said to anybody."""
    process.send_signal(signal.SIGKILL)
    process.wait()


def _is_begun(folder: Path) -> bool:
    """Whether a worker has made its own folder."""
    return any(folder.glob("dask-scratch-space/worker-*"))


@contextmanager
def dask_cluster(folder: Path, *, workers: int) -> Iterator[DaskCluster]:
    """One that is up, with workers of one thread; killed at the end."""
    told = folder / "scheduler.json"
    started: list[subprocess.Popen[bytes]] = []

    def start(role: str, *words: str) -> subprocess.Popen[bytes]:
        argv = [sys.executable, "-m", f"distributed.cli.dask_{role}", "--scheduler-file", str(told), *_QUIET, *words]
        with (folder / f"{role}-{len(started)}.log").open("wb") as log:
            env = {**os.environ, "PYTHONPATH": str(ROOT)}
            started.append(subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=env))
        return started[-1]

    try:
        scheduler = start("scheduler", "--host", "127.0.0.1", "--port", "0")
        until(lambda: told.exists() and b"tcp://" in told.read_bytes(), scheduler)
        address = next(word for word in told.read_text().split('"') if word.startswith("tcp://"))
        local = [folder / f"worker-{number}" for number in range(workers)]
        those = [start("worker", "--no-nanny", "--nthreads", "1", "--local-directory", str(each)) for each in local]
        for each, process in zip(local, those, strict=True):
            until(partial(_is_begun, each), process)
        yield DaskCluster(address, scheduler, those)
    finally:
        for process in reversed(started):
            kill(process)
