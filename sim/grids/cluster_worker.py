"""What goes on inside a worker of Dask. The only module that needs `distributed` to be imported at all."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from distributed import WorkerPlugin, get_worker

from sim.beside import PartLostError, command, how_it_ended
from supervisor.host.folders import make_folder, remove_folder
from supervisor.host.foreign import run_to_its_end
from supervisor.host.surroundings import write_whole

from .answers import PART, RUN_S

if TYPE_CHECKING:
    from collections.abc import Mapping

    from distributed import Worker


class KeepTraces(WorkerPlugin):
    """Keeps traces as files of a worker while a sweep goes on.

    Args:
        folder: the name of their folder, below the worker's own one.
        traces: their bytes, by name.
    """

    def __init__(self, folder: str, traces: Mapping[str, bytes]) -> None:
        self.folder, self.traces = folder, traces

    def setup(self, worker: Worker) -> None:
        """Write them."""
        folder = Path(worker.local_directory, self.folder)
        make_folder(folder)
        for name, data in self.traces.items():
            write_whole(folder / name, data)

    def teardown(self, worker: Worker) -> None:
        """Drop them."""
        remove_folder(Path(worker.local_directory, self.folder))


def run_on_worker(chunk: str, runs: int, folder: str) -> bytes:
    """Run a chunk in a process of its own, with the traces that `KeepTraces` has put there; returns what it tells.

    Raises:
        PartLostError: the process has not come to its end.
    """
    argv, env = command(PART, chunk, str(Path(get_worker().local_directory, folder)))
    try:
        code, stdout, stderr = run_to_its_end(argv, env=env, deadline_s=RUN_S * runs)
    except (OSError, TimeoutError) as error:
        raise PartLostError(repr(error)) from error
    if code:
        raise PartLostError(how_it_ended(code, stderr))
    return stdout
