"""Chunks on a Dask cluster: a worker's thread starts a process for each, as it is done here.

A process, since a run seeds what is one for a whole process, and forbids it threads and sockets, of which a worker of
Dask is full. Traces travel: each worker, also one that comes later, gets them once, and drops them afterwards.

Source: distributed 2026.8, "Worker plugins", "Resilience"; it begins tasks of a worker that has died on another one.
"""

from __future__ import annotations

import importlib
import time  # noqa: TID251 - how long there has been no worker; nothing else is decided by it
from collections import deque
from concurrent.futures import CancelledError
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final

import attrs

from statemachine.problem import Problem, ProblemError, Step
from statemachine.reasons import Reason

from .answers import Losses, rows_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from .answers import Take
    from .work import Chunk

DASK: Final = "distributed"
WORKER: Final = "sim.grids.cluster_worker"
"""Both are imported only for those who have the extra, and ask for a cluster."""
CONNECT_S: Final = 15.0
NO_WORKERS_S: Final = 60.0
"""So long a cluster may have no worker at all."""
LOOK_S: Final = 2.0
AHEAD: Final = 3
"""So many chunks for each thread of the cluster are handed out at once: one runs, and the next ones are near."""


@attrs.frozen
class Cluster:
    """A Runner.

    Attributes:
        address: of the scheduler.
        traces: those that the chunks are of, by the name that they are kept under.
    """

    address: str
    traces: Mapping[str, bytes]

    def __call__(self, chunks: Iterable[Chunk], take: Take) -> None:
        """Run all of them."""
        with _connected(self.address) as client:
            losses, waiting = Losses(), deque(chunks)
            with _sent(client, self.traces) as folder:
                try:
                    _run(client, folder, waiting, take, losses)
                except _dask_errors() as error:
                    raise unavailable(self.address, f"the scheduler is gone: {error}") from error
        losses.tell()


def threads_of(address: str) -> int:
    """How many chunks a cluster can run beside each other, at least 1.

    Raises:
        ProblemError: SweepUnavailable: the extra is missing, nobody answers, or there is no worker.
    """
    with _connected(address) as client:
        try:
            client.wait_for_workers(1, timeout=NO_WORKERS_S)
        except TimeoutError as error:
            raise unavailable(address, f"it had no worker for {NO_WORKERS_S:g} s") from error
        threads: int = sum(client.nthreads().values())
        return max(1, threads)


def unavailable(address: str, why: str) -> ProblemError:
    """The cluster cannot do it."""
    message = f"the cluster of {address} cannot make the sweep: {why}"
    return ProblemError(Problem(step=Step.SUPERVISE, reason=Reason.SWEEP_UNAVAILABLE, subject=address, message=message))


@contextmanager
def _connected(address: str) -> Iterator[Any]:
    try:
        distributed = importlib.import_module(DASK)
    except ImportError as error:
        raise unavailable(address, "greenroom was installed without its extra `sweep`") from error
    try:
        client = distributed.Client(address, timeout=CONNECT_S, set_as_default=False)
    except (OSError, TimeoutError, ValueError) as error:
        raise unavailable(address, f"its scheduler does not answer: {error}") from error
    with client, client.as_current():
        yield client


def _dask_errors() -> tuple[type[Exception], ...]:
    """What its calls raise when the scheduler is gone."""
    closed: type[Exception] = importlib.import_module(f"{DASK}.comm.core").CommClosedError
    return closed, CancelledError, OSError  # a TimeoutError is one of these


@contextmanager
def _sent(client: Any, traces: Mapping[str, bytes]) -> Iterator[str]:
    """Every worker has the traces while the body runs; gives the name of their folder."""
    keep = importlib.import_module(WORKER).KeepTraces
    name = f"greenroom-{client.id}"
    client.register_plugin(keep(name, dict(traces)), name=name)
    try:
        yield name
    finally:
        with suppress(*_dask_errors()):
            client.unregister_worker_plugin(name)


def _run(client: Any, folder: str, waiting: deque[Chunk], take: Take, losses: Losses) -> None:
    wait = importlib.import_module(DASK).wait
    under_way: dict[Any, Chunk] = {}
    seen_s = time.monotonic()
    while waiting or under_way:
        threads = sum(client.nthreads().values())
        if threads:
            seen_s = time.monotonic()
        elif time.monotonic() - seen_s > NO_WORKERS_S:
            raise unavailable(client.scheduler.address, f"all its workers are gone for {NO_WORKERS_S:g} s")
        while waiting and len(under_way) < max(1, threads) * AHEAD:
            chunk = waiting.popleft()
            under_way[_submitted(client, folder, chunk)] = chunk
        try:
            done = wait(list(under_way), timeout=LOOK_S, return_when="FIRST_COMPLETED").done
        except TimeoutError:
            continue
        for future in done:
            chunk = under_way.pop(future)
            rows, how = _answer(future, chunk)
            if rows is not None:
                take(rows)
            elif losses.may_be_tried_again(chunk, how):
                waiting.append(chunk)


def _submitted(client: Any, folder: str, chunk: Chunk) -> Any:
    run = importlib.import_module(WORKER).run_on_worker
    return client.submit(run, chunk.packed(), len(chunk.runs), folder, pure=False)


def _answer(future: Any, chunk: Chunk) -> tuple[Any, str]:
    """The rows of a chunk; None and why there are none."""
    if future.status == "cancelled":  # the scheduler has forgotten it
        future.result()
    error = future.exception()
    if error is not None:
        return None, f"{type(error).__name__}: {error}"
    return rows_of(chunk, future.result()), "it told other rows than it was asked for"
