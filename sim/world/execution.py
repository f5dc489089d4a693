"""The programs of a simulated machine, executed in virtual time: runsc, its sandboxes, and a few small commands.

What runs here belongs to the machine and not to who started it: a supervisor that is killed leaves its commands behind,
and sandboxes live on.
"""

from __future__ import annotations

import errno
import posixpath
import signal
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol

import attrs
import trio

from actors.enter_elf import CANNOT_ENTER
from actors.enter_elf import WORDS as ENTER_WORDS
from sim.world.agenda import Agenda
from sim.world.ctk_command import CtkCommand
from sim.world.errors import kernel_error
from sim.world.process_table import ProcessTable, SimProcess
from sim.world.runsc.cli import call
from sim.world.runsc.machine import Answer, Ask, Completion, Invocation, Lock, Sleep, Unlock
from sim.world.sandboxes import SimMachine, SimSandbox

if TYPE_CHECKING:
    from sim.world.agenda import Appointment
    from sim.world.cgroups import SimHierarchy
    from sim.world.command_files import DiskFiles
    from sim.world.given import Given
    from sim.world.gpu_node import GpuNode
    from sim.world.runsc.machine import Steps, Wish
    from sim.world.runsc.settings import Latencies, RunscSettings

_LOCK_MODE: Final = 0o644
_SMALL: Final = frozenset({"true", "false", "sleep"})
_FOLDERS: Final = frozenset({"/bin", "/usr/bin"})

_ENTER: Final = "/enter/enter"
_COVER: Final = "/cover/cover"
_COVER_WORDS: Final = 6
"""Of `actors.cover_elf`, before the command that it becomes. No rootfs is written to here, with or without it."""


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


@attrs.define(eq=False)
class Scissors:
    """What ends a command of runsc in the middle.

    Attributes:
        nth: when it waits for the nth time.
        waits: how often it has waited.
        has_cut: whether it was ended so.
    """

    nth: int
    waits: int = 0
    has_cut: bool = False


class Execution:
    """Executes what is started on a simulated machine. Made by `open_execution`.

    Attributes:
        table: its processes.
        files: its disk, as programs reach it.
        runscs: the runsc at each path.
        gpus: its GPUs, their driver and their toolkit, if it can have any.
        cgroups: its cgroups, if it can have any.
        agenda: what will happen on it.
        sandboxes: by pid.
        given: every container's document that a runsc has read, in order, where they are kept.
        keeps_given: whether they are.
    """

    def __init__(
        self,
        *,
        table: ProcessTable,
        files: DiskFiles,
        runscs: Mapping[str, RunscSettings],
        gpus: GpuNode | None,
        cgroups: SimHierarchy | None,
        tasks: trio.Nursery,
        agenda: Agenda,
        keeps_given: bool,
        pace: Callable[[Sequence[str]], Latencies] | None,
    ) -> None:
        self.table = table
        self.files = files
        self.runscs = dict(runscs)
        self.gpus = gpus
        self.cgroups = cgroups
        self.agenda = agenda
        self.sandboxes: dict[int, SimSandbox] = {}
        self.given: list[Given] = []
        self.keeps_given = keeps_given
        self._pace = pace
        self._tasks = tasks
        self._locks: dict[str, SimProcess] = {}
        self._wanting: dict[str, dict[SimProcess, Callable[[], None]]] = {}

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
        stdin: bytes = b"",
        scissors: Scissors | None = None,
    ) -> SimProcess:
        """Start a program in a session of its own, and return its process; scissors are for runsc only.

        Raises:
            FileNotFoundError: there is no such program.
            PermissionError: it is no executable file.
        """
        file, argv = _enter(argv)
        argv = _become(argv)
        self.require(argv[0])
        process = self.table.spawn(argv, parent=parent)
        if file is not None and not (self.cgroups is not None and self.cgroups.enter(process, file)):
            self.table.end(process, CANNOT_ENTER)
        elif argv[0] in self.runscs:
            invocation = Invocation(argv=argv[1:], stdin=stdin, stdout=stdout, stderr=stderr)
            RunscCommand(self, process, self._settings_of(argv), invocation, scissors).go_on()
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
        sandbox.begin()

    def _settings_of(self, argv: Sequence[str]) -> RunscSettings:
        """A runsc as it finds the machine now: nodes and drivers come and go, and it is as fast as it happens to be."""
        settings = self.runscs[argv[0]]
        if self._pace is not None:
            settings = attrs.evolve(settings, latencies=self._pace(argv))
        if self.gpus is not None and self.gpus.has_driver:
            return attrs.evolve(settings, has_nvidia_driver=True, nvidia_driver=self.gpus.loaded_version or "")
        return settings

    async def _run_small(self, process: SimProcess, argv: tuple[str, ...]) -> None:
        gone = trio.Event()
        process.ended.append(gone.set)
        seconds = float(argv[1]) if posixpath.basename(argv[0]) == "sleep" else 0.0
        with trio.move_on_after(seconds):
            await gone.wait()
        self.table.end(process, 1 if posixpath.basename(argv[0]) == "false" else 0)

    # ------------------------------------------------------------------------------------------------- locks of runsc

    def lock(self, path: str, owner: SimProcess, try_again: Callable[[], None]) -> bool:
        """Take a lock; its file is made when absent, as flock(2) needs one.

        Returns: False when somebody has it; when he gives it back, `try_again` is called.
        """
        if self._locks.setdefault(path, owner) is not owner:
            self._wanting.setdefault(path, {})[owner] = try_again
            return False
        if not self.files.holds_file(path):
            self.files.create(path, _LOCK_MODE)
        return True

    def unlock(self, path: str, owner: SimProcess) -> None:
        """Give a lock back."""
        if self._locks.get(path) is owner:
            del self._locks[path]
            for try_again in self._wanting.pop(path, {}).values():
                try_again()

    def give_up(self, owner: SimProcess) -> None:
        """Give back whatever a process has, and let it want nothing."""
        for wanting in self._wanting.values():
            wanting.pop(owner, None)
        for path in [path for path, holder in self._locks.items() if holder is owner]:
            self.unlock(path, owner)


class RunscCommand:
    """One call of runsc, being executed to its end, or until it is killed.

    Args:
        execution: the machine.
        process: its process.
        settings: which runsc it is.
        invocation: how it was called.
        scissors: what ends it in the middle.
    """

    def __init__(
        self,
        execution: Execution,
        process: SimProcess,
        settings: RunscSettings,
        invocation: Invocation,
        scissors: Scissors | None = None,
    ) -> None:
        self._execution = execution
        self._process = process
        self._invocation = invocation
        self._machine = SimMachine(execution, process, settings)
        self._steps: Steps[Completion] = call(self._machine, settings, invocation)
        self._is_going_on = False
        self._answer: Answer | None = None
        self._wanted = ""
        self._scissors = scissors
        # What it waits for.
        self._appointment: Appointment | None = None
        self._question: tuple[SimSandbox, int] | None = None
        process.ended.append(self._ended)

    def go_on(self, result: Answer | None = None) -> None:
        """Give it what it has wished for, and what it wishes for next, until that takes time or it has ended."""
        self._is_going_on = True
        try:
            wish = self._steps.send(result)
            while self._fulfil(wish):
                result, self._answer = self._answer, None
                wish = self._steps.send(result)
            self._cut()
        except StopIteration as end:
            self._complete(end.value)
        finally:
            self._is_going_on = False

    def _cut(self) -> None:
        """It waits now; see whether that is where it is to end."""
        if self._scissors is None:
            return
        self._scissors.waits += 1
        if self._scissors.waits == self._scissors.nth:
            self._scissors.has_cut = True
            self._execution.agenda.soon(partial(self._execution.table.signal, self._process, signal.SIGKILL))

    def _fulfil(self, wish: Wish) -> bool:
        """Whether it can go on at once; where it cannot, it will when its time has come."""
        match wish:
            case Sleep(seconds):
                if seconds <= 0:
                    return True
                self._appointment = self._execution.agenda.at(trio.current_time() + seconds, self.go_on)
                return False
            case Lock(path):
                return self._lock(path)
            case Unlock(path):
                self._execution.unlock(path, self._process)
                return True
            case Ask():
                return self._ask(wish)

    def _lock(self, path: str) -> bool:
        if self._execution.lock(path, self._process, self._try_again):
            return True
        self._wanted = path
        return False

    def _try_again(self) -> None:
        """Somebody has given the lock back that is wanted."""
        self._appointment = self._execution.agenda.soon(self._lock_and_go_on)

    def _lock_and_go_on(self) -> None:
        if self._lock(self._wanted):
            self.go_on()

    def _ask(self, wish: Ask) -> bool:
        sandbox = self._execution.sandboxes.get(wish.pid)
        if sandbox is None:
            self._answer = Answer(refused=True)
            return True
        number = sandbox.ask(wish.method, wish.argument, wish.stdio, self._answered)
        if self._answer is None:
            self._question = sandbox, number
        return self._answer is not None

    def _answered(self, answer: Answer) -> None:
        self._question = None
        if self._is_going_on:
            self._answer = answer
        else:
            self._appointment = self._execution.agenda.soon(partial(self.go_on, answer))

    def _complete(self, completion: Completion) -> None:
        if completion.stdout:
            self._invocation.stdout.write(completion.stdout)
        if completion.stderr:
            self._invocation.stderr.write(completion.stderr)
        self._execution.table.end(self._process, completion.code)

    def _ended(self) -> None:
        """Its process is gone, by itself or killed: it waits for nothing, and holds nothing."""
        if self._appointment is not None:
            self._appointment.call_off()
        if self._question is not None:
            sandbox, number = self._question
            sandbox.forget(number)
        self._steps.close()
        self._execution.give_up(self._process)
        self._machine.command_ended()


@asynccontextmanager
async def open_execution(
    *,
    table: ProcessTable,
    files: DiskFiles,
    runscs: Mapping[str, RunscSettings],
    gpus: GpuNode | None = None,
    cgroups: SimHierarchy | None = None,
    agenda: Agenda | None = None,
    keeps_given: bool = True,
    pace: Callable[[Sequence[str]], Latencies] | None = None,
) -> AsyncIterator[Execution]:
    """Execute programs while the context is open; on leaving, whatever still runs is dropped.

    `pace` tells how fast a command of a runsc is, by its words; without it each is as its settings say.
    """
    agenda = agenda or Agenda()
    async with trio.open_nursery() as tasks:
        tasks.start_soon(agenda.keep)
        yield Execution(
            table=table,
            files=files,
            runscs=runscs,
            gpus=gpus,
            cgroups=cgroups,
            tasks=tasks,
            agenda=agenda,
            keeps_given=keeps_given,
            pace=pace,
        )
        tasks.cancel_scope.cancel()


def _enter(argv: Sequence[str]) -> tuple[str | None, Sequence[str]]:
    """The file by which a command moves itself into a cgroup, and what it then becomes."""
    is_begun_by_it = argv[0].endswith(_ENTER) and len(argv) > ENTER_WORDS
    return (argv[1], argv[ENTER_WORDS:]) if is_begun_by_it else (None, argv)


def _become(argv: Sequence[str]) -> Sequence[str]:
    return argv[_COVER_WORDS:] if argv[0].endswith(_COVER) and len(argv) > _COVER_WORDS else argv
