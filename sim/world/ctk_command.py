"""One call of nvidia-ctk, being executed in virtual time; it hangs and crashes with the library that it loads."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import trio

from sim.world.nvidia_ctk import Ctk, Ended
from sim.world.nvml import NvmlCrashes, NvmlHangs

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sim.world.execution import OutputHandle
    from sim.world.gpu_node import GpuNode
    from sim.world.process_table import ProcessTable, SimProcess


class CtkCommand:
    """A call of nvidia-ctk.

    Args:
        table: the machine's processes.
        process: its own.
        gpus: the machine's GPUs.
        env: its whole environment.
    """

    def __init__(self, table: ProcessTable, process: SimProcess, gpus: GpuNode, env: Mapping[str, str]) -> None:
        self._table = table
        self._process = process
        self._gpus = gpus
        self._ctk = Ctk(gpus.disk, gpus, env)
        self._scope = trio.CancelScope()
        process.ended.append(self._scope.cancel)

    async def run(self, arguments: Sequence[str], stdout: OutputHandle, stderr: OutputHandle) -> None:
        """Execute it to its end, or until it is killed."""
        ended: Ended | None = None
        with self._scope:
            await trio.sleep(self._gpus.toolkit.command_s)
            try:
                ended = self._ctk.call(arguments)
            except NvmlCrashes:
                ended = Ended(code=-signal.SIGSEGV, stderr=self._ctk.log())
            except NvmlHangs:
                stderr.write(self._ctk.log())
                await trio.sleep_forever()
        if ended is not None:
            stdout.write(ended.stdout)
            stderr.write(ended.stderr)
            self._table.end(self._process, ended.code)
