"""Sandboxes of a simulated machine: the kernel of `sim.world.runsc`, in a process, in virtual time."""

from __future__ import annotations

import math
import signal
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import trio

from actors.ports import OpenFile
from actors.runsc.sandbox import MEMORY_FILE
from sim.world.given import given
from sim.world.runsc.machine import Answer, Handle
from sim.world.runsc.questions import boot
from sim.world.runsc.sentry import Effect, GoferEnds, Reply, SandboxEnds, Sentry, Write

if TYPE_CHECKING:
    from sim.world.agenda import Appointment
    from sim.world.execution import Execution
    from sim.world.process_table import SimProcess
    from sim.world.runsc.settings import RunscSettings


_ANY_GPU: Final = (195, 0)


class SimSandbox:
    """One sandbox's process.

    Args:
        execution: the machine.
        process: of the sandbox.
        sentry: what runs in it.
    """

    def __init__(self, execution: Execution, process: SimProcess, sentry: Sentry) -> None:
        self.process = process
        self.sentry = sentry
        self._execution = execution
        self._askers: dict[int, Callable[[Answer], None]] = {}
        self._held: dict[int, tuple[str, Mapping[str, Any], Sequence[Handle]]] = {}
        self._calls = 0
        self._alarm: Appointment | None = None
        self._due_s = math.inf
        self._gofers: set[int] = set()
        process.handlers[signal.SIGTERM] = lambda: self._perform(sentry.terminate())
        process.ended.append(self._ended)
        process.continued.append(self._continued)

    def ask(
        self, method: str, argument: Mapping[str, Any], stdio: Sequence[Handle], tell: Callable[[Answer], None]
    ) -> int:
        """Ask what runs in it; `tell` is called with the answer, at once or later.

        A stopped process takes no question before it goes on.

        Returns: the question's number, by which it can be forgotten.
        """
        self._calls += 1
        self._askers[self._calls] = tell
        if self.process.is_stopped:
            self._held[self._calls] = method, argument, stdio
        else:
            self._put(self._calls, method, argument, stdio)
        return self._calls

    def forget(self, call: int) -> None:
        """Whoever asked is gone."""
        del self._askers[call]
        self._held.pop(call, None)
        self.sentry.forget(call)

    def open_files(self) -> tuple[OpenFile, ...]:
        """What its process has open: the memory of its containers, and the devices that they hold."""
        containers = self.sentry.containers.values()
        memory = OpenFile(path=f"{MEMORY_FILE} (deleted)", stored_bytes=sum(each.memory_bytes for each in containers))
        held = sorted({path for each in containers for path in each.held})
        return (memory, *(OpenFile(path=path, device=_ANY_GPU) for path in held))

    def begin(self) -> None:
        """Let its programs run until it ends."""
        self._set_alarm()

    def _put(self, call: int, method: str, argument: Mapping[str, Any], stdio: Sequence[Handle]) -> None:
        if not self.process.is_running:
            self._tell(call, Answer(refused=True))
            return
        if "gofer" in argument:
            self.watch_gofer(argument["gofer"])
        self._perform(self.sentry.ask(call, method, argument, stdio, trio.current_time()))
        self._set_alarm()

    def _tell(self, call: int, answer: Answer) -> None:
        tell = self._askers.pop(call, None)
        if tell is not None:
            tell(answer)

    def _set_alarm(self) -> None:
        """Be woken when something is due inside."""
        is_going_on = self.process.is_running and not self.process.is_stopped
        due_s = self.sentry.next_s() if is_going_on else math.inf
        if due_s == self._due_s:
            return
        self._due_s = due_s
        if self._alarm is not None:
            self._alarm.call_off()
        self._alarm = None if due_s == math.inf else self._execution.agenda.at(due_s, self._wake)

    def _wake(self) -> None:
        self._due_s = math.inf
        if self.process.is_running and not self.process.is_stopped and not self.sentry.is_over:
            self._perform(self.sentry.advance(trio.current_time()))
        self._set_alarm()

    def _continued(self) -> None:
        held, self._held = self._held, {}
        for call, question in held.items():
            self._put(call, *question)
        self._set_alarm()

    def watch_gofer(self, pid: int) -> None:
        """Be told when a file server ends, and take it along when this ends."""
        gofer = self._execution.table.get(pid)
        if gofer is not None:
            self._gofers.add(pid)
            gofer.ended.append(lambda: self._gofer_ended(pid))

    def _gofer_ended(self, pid: int) -> None:
        self._gofers.discard(pid)
        if self.process.is_running:
            self._perform(self.sentry.gofer_died(pid, trio.current_time()))
            self._set_alarm()

    def _perform(self, effects: Sequence[Effect]) -> None:
        for effect in effects:
            match effect:
                case Write(handle, data):
                    handle.write(data)
                case Reply(call, answer):
                    self._tell(call, answer)
                case GoferEnds(pid):
                    self._end_gofer(pid)
                case SandboxEnds(code):
                    self._execution.table.end(self.process, code)

    def _end_gofer(self, pid: int) -> None:
        self._gofers.discard(pid)
        gofer = self._execution.table.get(pid)
        if gofer is not None:
            self._execution.table.end(gofer, 0)

    def _ended(self) -> None:
        """Its process is gone: nothing is answered any more, and its file servers have nobody to serve."""
        self.sentry.is_over = True
        for call in tuple(self._askers):
            self._tell(call, Answer(refused=True) if call in self._held else Answer(eof=True))
        self._held.clear()
        for pid in tuple(self._gofers):
            self._end_gofer(pid)
        self._set_alarm()


class SimMachine:
    """The `Machine` of one runsc command on a simulated machine.

    Args:
        execution: the machine.
        process: the command's.
        settings: of this runsc.
    """

    def __init__(self, execution: Execution, process: SimProcess, settings: RunscSettings) -> None:
        self._execution = execution
        self._process = process
        self._settings = settings
        self._tied: list[SimProcess] = []
        files = execution.files
        self.replace, self.create, self.append = files.replace, files.create, files.append
        self.remove, self.names, self.make_directories = files.remove, files.names, files.make_directories
        self.directory_mode, self.holds_file = files.directory_mode, files.holds_file

    def read(self, path: str) -> bytes:
        """Read a whole file."""
        data = self._execution.files.read(path)
        if self._execution.keeps_given and (document := given(self._execution.files, path, data)) is not None:
            self._execution.given.append(document)
        return data

    def now_s(self) -> float:
        """The virtual clock."""
        return trio.current_time()

    def write(self, handle: Handle, data: bytes) -> None:
        """Write to an output."""
        handle.write(data)

    def create_socket(self, path: str) -> None:
        """Put a file where the socket would be: nothing here connects to it."""
        self._execution.files.replace(path, b"")

    def spawn_gofer(self, root: str) -> int:
        """Start a file server: a process that does nothing but live."""
        arguments = ("runsc-gofer", f"--root={root}", "gofer")
        return self._execution.table.spawn(arguments, parent=self._process.pid).pid

    def spawn_sandbox(self, root: str, facts: Mapping[str, Any], stdio: Sequence[Handle]) -> int:
        """Start a sandbox, which dies with this command until `let_go`."""
        arguments = ("runsc-sandbox", f"--root={root}", "boot", facts["id"])
        process = self._execution.table.spawn(arguments, parent=self._process.pid)
        sandbox = SimSandbox(self._execution, process, boot(self._settings, self, facts, stdio))
        sandbox.watch_gofer(facts["gofer"])
        self._tied.append(process)
        self._execution.start_sandbox(sandbox)
        return process.pid

    def let_go(self, pid: int) -> None:
        """From now on that sandbox outlives the command."""
        self._tied = [each for each in self._tied if each.pid != pid]

    def kill(self, pid: int) -> None:
        """SIGKILL a process."""
        found = self._execution.table.get(pid)
        if found is not None:
            self._execution.table.signal(found, signal.SIGKILL)

    def is_there(self, pid: int) -> bool:
        """Whether it is there, if only as a zombie; a zombie of the command's own is waited for on the way."""
        found = self._execution.table.get(pid)
        if found is not None and not found.is_running and found.parent == self._process.pid:
            self._execution.table.reap(found)
            return False
        return found is not None

    def is_running(self, pid: int) -> bool:
        """Whether it is there and no zombie."""
        found = self._execution.table.get(pid)
        return found is not None and found.is_running

    def command_ended(self) -> None:
        """The command is over: what was still tied to it dies with it."""
        for process in self._tied:
            self._execution.table.signal(process, signal.SIGKILL)
