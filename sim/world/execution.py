"""The programs of a simulated machine, executed in virtual time: runsc, its sandboxes, and a few small commands.

What runs here belongs to the machine and not to who started it: a supervisor that is killed leaves its commands behind,
and sandboxes live on.
"""

from __future__ import annotations

import errno
import posixpath
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final, Protocol

import attrs
import trio

from sim.world.ctk_command import CtkCommand
from sim.world.errors import kernel_error
from sim.world.process_table import ProcessTable, SimProcess
from sim.world.runsc.cli import call
from sim.world.runsc.machine import Answer, Ask, Completion, Invocation, Lock, Sleep, Unlock
from sim.world.sandboxes import SimMachine, SimSandbox

if TYPE_CHECKING:
    from sim.world.command_files import DiskFiles
    from sim.world.gpu_node import GpuNode
    from sim.world.runsc.machine import Steps
    from sim.world.runsc.settings import RunscSettings

_LOCK_MODE: Final = 0o644
_SMALL: Final = frozenset({"true", "false", "sleep"})
_FOLDERS: Final = frozenset({"/bin", "/usr/bin"})


class OutputHandle(Protocol):
    """Where a program writes."""

    def write(self, data: bytes) -> None:
        """Take it; errors are nobody's."""
        ...


@attrs.define(eq=False)
class Captured:
    """Output that is kept."""

    data: bytearray = attrs.field(factory=bytearray)

    def write(self, data: bytes) -> None:
        """Keep it."""
        self.data += data


class Discarded:
    """/dev/null."""

    def write(self, data: bytes) -> None:
        """Drop it."""


class Execution:
    """Executes what is started on a simulated machine. Made by `open_execution`.

    Attributes:
        table: its processes.
        files: its disk, as programs reach it.
        runscs: the runsc at each path.
        gpus: its GPUs, their driver and their toolkit, if it can have any.
        sandboxes: by pid.
    """

    def __init__(
        self,
        table: ProcessTable,
        files: DiskFiles,
        runscs: Mapping[str, RunscSettings],
        gpus: GpuNode | None,
        tasks: trio.Nursery,
    ) -> None:
        self.table = table
        self.files = files
        self.runscs = dict(runscs)
        self.gpus = gpus
        self.sandboxes: dict[int, SimSandbox] = {}
        self._tasks = tasks
        self._locks: dict[str, SimProcess] = {}
        self._unlocked = trio.Event()

    def require(self, path: str) -> None:
        """Look whether something can be executed.

        Raises:
            FileNotFoundError: there is no such program.
            PermissionError: it is no executable file.
        """
        directory, name = posixpath.split(path)
        if self.gpus is not None and self.gpus.offers(path):
            return
        if path not in self.runscs and not (name in _SMALL and directory in _FOLDERS):
            raise kernel_error(errno.ENOENT, path)

    def start(
        self,
        argv: Sequence[str],
        *,
        parent: int,
        env: Mapping[str, str],
        stdout: OutputHandle,
        stderr: OutputHandle,
    ) -> SimProcess:
        """Start a program in a session of its own, and return its process.

        Raises:
            FileNotFoundError: there is no such program.
            PermissionError: it is no executable file.
        """
        self.require(argv[0])
        process = self.table.spawn(argv, parent=parent)
        if argv[0] in self.runscs:
            command = RunscCommand(self, process, self._settings_of(argv[0]))
            self._tasks.start_soon(command.run, Invocation(argv=argv[1:], stdout=stdout, stderr=stderr))
        elif self.gpus is not None and self.gpus.offers(argv[0]):
            tool = CtkCommand(self.table, process, self.gpus, env)
            self._tasks.start_soon(tool.run, argv[1:], stdout, stderr)
        else:
            self._tasks.start_soon(self._run_small, process, tuple(argv))
        return process

    def start_sandbox(self, sandbox: SimSandbox) -> None:
        """Let a sandbox go on by itself."""
        pid = sandbox.process.pid
        self.sandboxes[pid] = sandbox

        def forget() -> None:
            del self.sandboxes[pid]

        sandbox.process.ended.append(forget)
        self._tasks.start_soon(sandbox.run)

    def _settings_of(self, runsc: str) -> RunscSettings:
        """A runsc as it finds the machine now: nodes and drivers come and go."""
        settings = self.runscs[runsc]
        if self.gpus is not None and self.gpus.has_driver:
            return attrs.evolve(settings, has_nvidia_driver=True)
        return settings

    async def _run_small(self, process: SimProcess, argv: tuple[str, ...]) -> None:
        gone = trio.Event()
        process.ended.append(gone.set)
        seconds = float(argv[1]) if posixpath.basename(argv[0]) == "sleep" else 0.0
        with trio.move_on_after(seconds):
            await gone.wait()
        self.table.end(process, 1 if posixpath.basename(argv[0]) == "false" else 0)

    # ------------------------------------------------------------------------------------------------- locks of runsc

    async def lock(self, path: str, owner: SimProcess) -> None:
        """Take a lock, waiting for whoever has it; its file is made when absent, as flock(2) needs one."""
        while self._locks.setdefault(path, owner) is not owner:
            await self._unlocked.wait()
        if not self.files.holds_file(path):
            self.files.create(path, _LOCK_MODE)

    def unlock(self, path: str, owner: SimProcess) -> None:
        """Give a lock back."""
        if self._locks.get(path) is owner:
            del self._locks[path]
            self._unlocked.set()
            self._unlocked = trio.Event()

    def unlock_all(self, owner: SimProcess) -> None:
        """Give back whatever a process has."""
        for path in [path for path, holder in self._locks.items() if holder is owner]:
            self.unlock(path, owner)


class RunscCommand:
    """One call of runsc, being executed.

    Args:
        execution: the machine.
        process: its process.
        settings: which runsc it is.
    """

    def __init__(self, execution: Execution, process: SimProcess, settings: RunscSettings) -> None:
        self._execution = execution
        self._process = process
        self._settings = settings
        self._machine = SimMachine(execution, process, settings)
        self._scope = trio.CancelScope()
        process.ended.append(self._killed)

    async def run(self, invocation: Invocation) -> None:
        """Execute it to its end, or until it is killed."""
        steps = call(self._machine, self._settings, invocation)
        completion: Completion | None = None
        try:
            with self._scope:
                completion = await self._perform(steps)
        finally:
            steps.close()
            self._execution.unlock_all(self._process)
        if completion is not None:
            for handle, data in ((invocation.stdout, completion.stdout), (invocation.stderr, completion.stderr)):
                if data:
                    handle.write(data)
            self._execution.table.end(self._process, completion.code)

    async def _perform(self, steps: Steps[Completion]) -> Completion:
        """Give a command what it wishes for until it has what it needs."""
        result: Any = None
        while True:
            try:
                wish = steps.send(result)
            except StopIteration as end:
                completion: Completion = end.value
                return completion
            result = None
            match wish:
                case Sleep(seconds):
                    if seconds > 0:
                        await trio.sleep(seconds)
                case Lock(path):
                    await self._execution.lock(path, self._process)
                case Unlock(path):
                    self._execution.unlock(path, self._process)
                case Ask(pid, _, method, argument, stdio):
                    sandbox = self._execution.sandboxes.get(pid)
                    result = Answer(refused=True) if sandbox is None else await sandbox.ask(method, argument, stdio)

    def _killed(self) -> None:
        self._scope.cancel()
        self._machine.command_ended()


@asynccontextmanager
async def open_execution(
    *, table: ProcessTable, files: DiskFiles, runscs: Mapping[str, RunscSettings], gpus: GpuNode | None = None
) -> AsyncIterator[Execution]:
    """Execute programs while the context is open; on leaving, whatever still runs is dropped."""
    async with trio.open_nursery() as tasks:
        yield Execution(table, files, runscs, gpus, tasks)
        tasks.cancel_scope.cancel()
