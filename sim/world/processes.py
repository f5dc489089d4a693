"""The simulated `Processes`: the rules of the real one, on a simulated machine, in virtual time."""

from __future__ import annotations

import errno
import math
import posixpath
import signal
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

import trio

from actors.ports import (
    AppendTo,
    DeadlineExceededError,
    Exit,
    Finished,
    OpenFile,
    Output,
    OwnUsage,
    ProcessIdentity,
)
from sim.world.execution import Captured, Discarded, Scissors
from sim.world.process_table import INIT_PID
from supervisor.owned import Owned

if TYPE_CHECKING:
    from pathlib import Path

    from actors.ports import Child
    from sim.world.execution import Execution, OutputHandle
    from sim.world.process_table import SimProcess

_STDERR_TAIL_BYTES: Final = 16 << 10
_LOG_MODE: Final = 0o600


class SimChild(Owned):
    """The simulated `Child`: a process that one life of the supervisor owns."""

    def __init__(self, owner: SimProcesses, execution: Execution, process: SimProcess) -> None:
        super().__init__(process.identity)
        self._owner = owner
        self._execution = execution
        self._process = process
        self._is_given_up = False
        process.is_owned = True
        owner.children[self] = None
        process.ended.append(self._collect)
        if not process.is_running:
            self._collect()

    async def wait(self) -> Exit:
        """Wait until it has ended and return how.

        Raises:
            ClosedResourceError: it was given up by `close` before its end.
        """
        try:
            return await super().wait()
        finally:
            await self._owner.stay_dead()

    def signal(self, signum: int) -> None:
        """Send a signal; does nothing when it has already ended or was given up."""
        if not self._is_given_up:
            self._execution.table.signal(self._process, signum)

    def close(self) -> None:
        """Give up ownership: the process lives on, and the reaper takes its zombie."""
        if self._exit is None and not self._is_given_up:
            self._execution.table.release(self._process)
        self._is_given_up = True
        self.settle()

    async def settled(self) -> None:
        """Wait until it has ended or was let go."""
        await self._is_settled.wait()

    def settle(self) -> None:
        """Nothing more will be known of it here: let go who waits."""
        self._owner.children.pop(self, None)
        self._is_settled.set()

    def _collect(self) -> None:
        """Take its status at once, as the real one does: an owned process is no zombie for long."""
        if self._is_given_up or not self._process.is_owned:
            return
        self._exit = Exit(code=self._process.exit_code)
        self.settle()
        self._execution.table.reap(self._process)


class SimStranger(SimChild):
    """A process that is owned by one life of the supervisor and the child of somebody else, who reaps it."""

    def __init__(self, owner: SimProcesses, execution: Execution, process: SimProcess) -> None:
        super().__init__(owner, execution, process)
        process.is_owned = False  # its parent waits for it as for any other

    def _collect(self) -> None:
        """That it has ended is all that there is to see."""
        if not self._is_given_up:
            self._exit = Exit(code=None)
            self.settle()


class SimProcesses:
    """The simulated `Processes` of one life of the supervisor, which is a process and a subreaper itself.

    When that process is killed (`die`), its commands are reparented and go on, sandboxes live on, and no call of this
    object, begun or to come, ever returns or changes anything.

    Args:
        execution: the machine.
        argv: its own command line.
        parent: whose child it is.
        let_others_run: one turn of the event loop, at every call.
    """

    def __init__(
        self,
        execution: Execution,
        *,
        argv: Sequence[str] = ("greenroom", "run"),
        parent: int = INIT_PID,
        let_others_run: Callable[[], Awaitable[None]] = trio.lowlevel.checkpoint,
    ) -> None:
        self._execution = execution
        self._one_turn = let_others_run
        self._is_fenced = False
        self.children: dict[SimChild, None] = {}
        # What ends the command of a call in the middle, by the task that calls.
        self.scissors: dict[trio.lowlevel.Task, Scissors] = {}
        # What a call of the dead does instead of returning.
        self.once_dead: Callable[[], Awaitable[object]] = trio.sleep_forever
        self.process = execution.table.spawn(argv, parent=parent, is_subreaper=True)

    def fence(self) -> None:
        """The process is dead: its calls never return and change nothing any more."""
        self._is_fenced = True
        for child in tuple(self.children):
            child.settle()

    def die(self, code: int = -signal.SIGKILL) -> None:
        """End this life of the supervisor: fenced, its children reparented."""
        self.fence()
        self._execution.table.end(self.process, code)

    async def run(
        self,
        argv: Sequence[str],
        *,
        deadline_s: float,
        env: Mapping[str, str],
        stdin: Path | None = None,
        stdout: AppendTo | Output = Output.CAPTURE,
        stderr: AppendTo | Output = Output.CAPTURE,
        stdout_limit_bytes: int = 1 << 20,
    ) -> Finished:
        """Run a command to its end; its stdin is this regular file where one is named.

        When the deadline passes or the caller is cancelled, the command gets SIGKILL. What it daemonized lives on.

        Raises:
            FileNotFoundError: argv[0] cannot be executed, or there is no such stdin.
            DeadlineExceededError: the deadline passed.
            OSError: the file of an AppendTo cannot be opened.
            ValueError: argv[0] is not absolute.
        """
        _check(argv)
        await self._let_others_run()
        given = b"" if stdin is None else self._execution.files.read(str(stdin))
        out, err = self._open(stdout), self._open(stderr)
        started_s = trio.current_time()
        child = self._start(argv, env, out, err, stdin=given)
        # It is let go at the deadline, which costs less than a scope.
        patience = None if deadline_s == math.inf else self._execution.agenda.at(started_s + deadline_s, child.settle)
        try:
            await child.settled()
        finally:
            if patience is not None:
                patience.call_off()
            end = child.exit
            if end is None and not self._is_fenced:
                child.signal(signal.SIGKILL)
        await self.stay_dead()
        said = bytes(err.data[-_STDERR_TAIL_BYTES:]) if isinstance(err, Captured) else b""
        if end is None:
            raise DeadlineExceededError(f"{argv[0]} did not end within {deadline_s:g} s", stderr=said)
        return Finished(
            exit=end,
            elapsed_s=trio.current_time() - started_s,
            stdout=bytes(out.data[:stdout_limit_bytes]) if isinstance(out, Captured) else b"",
            stderr=said,
        )

    async def spawn(
        self,
        argv: Sequence[str],
        *,
        env: Mapping[str, str],
        stdout: AppendTo | Output,
        stderr: AppendTo | Output,
    ) -> Child:
        """Start a long-lived command and own it.

        Raises:
            FileNotFoundError: argv[0] cannot be executed.
            OSError: the file of an AppendTo cannot be opened.
            ValueError: argv[0] is not absolute, or output is to be captured, which nobody would read.
        """
        _check(argv)
        if Output.CAPTURE in {stdout, stderr}:
            raise ValueError("the output of a long-lived command goes to a file or nowhere")
        await self._let_others_run()
        return self._start(argv, env, self._open(stdout), self._open(stderr))

    async def adopt(self, pid: int) -> Child:
        """Own a process that became a child of ours.

        Raises:
            ProcessLookupError: there is no such process, or it is no child of ours.
            OSError: EBUSY, it is owned already.
        """
        await self._let_others_run()
        process = self._execution.table.get(pid)
        if process is None or process.parent != self.process.pid:
            raise ProcessLookupError(errno.ESRCH, f"process {pid} is no child of ours")
        if process.is_owned:
            raise OSError(errno.EBUSY, "it is owned already")
        return SimChild(self, self._execution, process)

    async def reclaim(self, identity: ProcessIdentity) -> Child:
        """Own exactly this process again, whosever child it is by now.

        Raises:
            ProcessLookupError: it has ended.
            OSError: EBUSY, it is owned already.
        """
        await self._let_others_run()
        process = self._execution.table.exactly(identity)
        if process is None or not process.is_running:
            raise ProcessLookupError(errno.ESRCH, f"process {identity.pid} has ended")
        if any(child.identity == identity for child in self.children):
            raise OSError(errno.EBUSY, "it is owned already")
        if process.parent == self.process.pid:
            return SimChild(self, self._execution, process)
        return SimStranger(self, self._execution, process)

    async def find(self, *, argument: str) -> tuple[ProcessIdentity, ...]:
        """The running processes that have this exact string as one argument, by pid."""
        await self._let_others_run()
        return tuple(
            process.identity
            for process in self._execution.table
            if argument in process.arguments and process.is_running
        )

    async def find_arguments(self, *, prefix: str) -> tuple[tuple[ProcessIdentity, str], ...]:
        """The running processes with an argument that begins with this, and that argument, by pid."""
        await self._let_others_run()
        found = []
        for process in self._execution.table:
            argument = next((each for each in process.arguments if each.startswith(prefix)), None)
            if argument is not None and process.is_running:
                found.append((process.identity, argument))
        return tuple(found)

    async def is_alive(self, identity: ProcessIdentity) -> bool:
        """Whether exactly this process exists and is not a zombie."""
        await self._let_others_run()
        process = self._execution.table.exactly(identity)
        return process is not None and process.is_running

    async def holds_output(self, identity: ProcessIdentity) -> bool:
        """Whether exactly this process has the captured output of a command open: here only a sandbox can."""
        await self._let_others_run()
        process = self._execution.table.exactly(identity)
        sandbox = self._execution.sandboxes.get(identity.pid)
        return process is not None and process.is_running and sandbox is not None and sandbox.sentry.is_executing

    async def open_files(self, identity: ProcessIdentity) -> tuple[OpenFile, ...]:
        """What exactly this process has open: here only a sandbox has anything."""
        await self._let_others_run()
        process = self._execution.table.exactly(identity)
        sandbox = self._execution.sandboxes.get(identity.pid)
        return () if process is None or not process.is_running or sandbox is None else sandbox.open_files()

    async def own_usage(self) -> OwnUsage:
        """What we ourselves use: in the model that is nothing."""
        await self._let_others_run()
        return OwnUsage(
            cpu_s=0.0,
            resident_bytes=0,
            proportional_bytes=None,
            open_files=0,
            open_files_max=0,
            threads=1,
            reaped=0,
        )

    async def kill_and_wait(self, identity: ProcessIdentity, *, deadline_s: float) -> None:
        """SIGKILL exactly this process, ours or not, and wait until it is gone (and reaped where it is our child).

        Raises:
            DeadlineExceededError: it is still there.
            ValueError: it is this process.
        """
        if identity.pid == self.process.pid:
            raise ValueError("that would end this process")
        await self._let_others_run()
        process = self._execution.table.exactly(identity)
        if process is None:
            return
        is_ours = process.parent == self.process.pid
        gone = trio.Event()
        process.reaped.append(gone.set)
        if not is_ours:
            process.ended.append(gone.set)
        self._execution.table.signal(process, signal.SIGKILL)
        if process.is_reaped or (not is_ours and not process.is_running):
            return
        with trio.move_on_after(deadline_s):
            await gone.wait()
            await self.stay_dead()
            return
        await self.stay_dead()
        raise DeadlineExceededError(f"process {identity.pid} did not end within {deadline_s:g} s of SIGKILL")

    # ----------------------------------------------------------------------------------------------------------- parts

    def _start(
        self, argv: Sequence[str], env: Mapping[str, str], out: OutputHandle, err: OutputHandle, *, stdin: bytes = b""
    ) -> SimChild:
        process = self._execution.start(
            argv,
            parent=self.process.pid,
            env=env,
            stdin=stdin,
            stdout=out,
            stderr=err,
            scissors=self.scissors.get(trio.lowlevel.current_task()) if self.scissors else None,
        )
        return SimChild(self, self._execution, process)

    def _open(self, output: AppendTo | Output) -> OutputHandle:
        match output:
            case AppendTo(path=path):
                return self._execution.files.open_append(path, mode=_LOG_MODE)
            case Output.CAPTURE:
                return Captured()
            case _:
                return Discarded()

    async def _let_others_run(self) -> None:
        if not self._is_fenced:
            await self._one_turn()
        await self.stay_dead()

    async def stay_dead(self) -> None:
        """The dead do not go on."""
        if self._is_fenced:
            await self.once_dead()


def _check(argv: Sequence[str]) -> None:
    if not argv or not posixpath.isabs(argv[0]):
        raise ValueError(f"a command is a list with an absolute path first, not {list(argv)!r}")
