"""The kernel inside a sandbox: a state machine with time handed in, that is asked, goes on by itself, tells effects.

What can be asked is in `questions`. A question is answered by a `Reply` effect, at once or when its time has come.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import attrs

from .contained import KILLED, LIMBO, RUNNING, STOPPED, Contained, Process
from .machine import Answer, CommandFiles, Handle
from .programs import Program, Run
from .refusals import PanicError, SandboxError
from .settings import RunscSettings
from .shell import NoSuchCommandError, recognise

if TYPE_CHECKING:
    from .restoring import Restore
    from .saving import Save

CONTAINER_NAME: Final = "io.kubernetes.cri.container-name"
PANICKED: Final = 2
"""The exit code of a Go program that panics."""
TERMINATED: Final = 143
_READ_AND_ENTER: Final = 0o005


@attrs.frozen
class Reply:
    """A question is answered."""

    call: int
    answer: Answer


@attrs.frozen
class Write:
    """A process writes."""

    handle: Handle
    data: bytes


@attrs.frozen
class GoferEnds:
    """A container's file server ends with its container."""

    pid: int


@attrs.frozen
class SandboxEnds:
    """The sandbox's process ends with this exit code; what was not answered by then never will be."""

    code: int


Effect = Reply | Write | GoferEnds | SandboxEnds
TryAgain = Callable[[], Any]
"""What a question is that cannot be answered yet: returns the result when it can, None until then."""


Question = Callable[["Sentry", Mapping[str, Any], Sequence[Handle], float], Any]
"""Returns the result (never None), or a `TryAgain`."""


@attrs.define(kw_only=True, eq=False)
class Sentry:
    """One sandbox's kernel.

    Attributes:
        settings: which runsc it belongs to.
        files: where it looks for programs, and writes and reads images.
        sandbox_id: the id of its root container.
        flags: the global flags it was booted with.
        containers: by id, in the order of their creation.
        pauses: how often it was paused without a resume.
        frozen_s: since when.
        restore: what is being restored; None when nothing is.
        orphans: file systems of deleted containers that are still in use, which spoils an image.
        saves: those that are under way, in order; only the first has begun.
        once_saved: what waits for the end of a save.
        save_fails: injected: what the next save fails with.
        is_over: whether its process has ended.
    """

    settings: RunscSettings
    files: CommandFiles
    sandbox_id: str
    flags: Mapping[str, str]
    questions: Mapping[str, Question]
    containers: dict[str, Contained] = attrs.field(factory=dict)
    pauses: int = 0
    frozen_s: float = 0.0
    restore: Restore | None = None
    orphans: list[str] = attrs.field(factory=list)
    saves: list[Save] = attrs.field(factory=list)
    once_saved: list[Callable[[float], None]] = attrs.field(factory=list)
    save_fails: str | None = None
    is_over: bool = False
    _effects: list[Effect] = attrs.field(factory=list)
    _waiting: dict[int, TryAgain] = attrs.field(factory=dict)
    _next_pid: int = 1

    # ---------------------------------------------------------------------------------------------------- from outside

    def ask(
        self, call: int, method: str, argument: Mapping[str, Any], stdio: Sequence[Handle], now_s: float
    ) -> tuple[Effect, ...]:
        """Take a question; its `Reply` may come now or later."""
        self._run_until(now_s)
        if self.is_over:
            return (*self._told(), Reply(call, Answer(eof=True)))
        try:
            result = self.questions[method](self, argument, stdio, now_s)
        except SandboxError as error:
            self._effects.append(Reply(call, Answer(error=str(error))))
        except PanicError:
            self._effects.append(Reply(call, Answer(eof=True)))
            self.die(PANICKED)
        else:
            if callable(result):
                self._waiting[call] = result
            else:
                self._effects.append(Reply(call, Answer(result=result)))
        self.settle()
        self._run_until(now_s)
        return self._told()

    def forget(self, call: int) -> None:
        """Whoever asked is gone; what was begun goes on."""
        self._waiting.pop(call, None)

    def advance(self, now_s: float) -> tuple[Effect, ...]:
        """Let everything happen that is due."""
        self._run_until(now_s)
        return self._told()

    def gofer_died(self, pid: int, now_s: float) -> tuple[Effect, ...]:
        """A file server was killed: its container is killed too, and with the root's the whole sandbox.

        Measured: of a container that was restored nobody misses it; one that is yet to be restored cannot be any more.
        """
        self._run_until(now_s)
        for each in self.containers.values():
            if each.gofer == pid and each.is_restored:
                each.gofer = 0
            elif each.gofer == pid and each.state in {RUNNING, LIMBO}:
                each.stop(KILLED)
        self.settle()
        return self._told()

    def terminate(self) -> tuple[Effect, ...]:
        """SIGTERM to its process, which it does not survive."""
        self.die(TERMINATED)
        return self._told()

    def next_s(self) -> float:
        """When `advance` is due next; infinity when only a question can change anything."""
        if self.is_over:
            return math.inf
        save_s = self.saves[0].due_s if self.saves else math.inf
        return save_s if self.pauses else min(save_s, *(each.next_s() for each in self.containers.values()))

    # -------------------------------------------------------------------------------------------------------- its time

    def _told(self) -> tuple[Effect, ...]:
        effects = tuple(self._effects)
        self._effects.clear()
        return effects

    def _run_until(self, now_s: float) -> None:
        # In the order in which things are due, so that output of several containers comes in the order of its times.
        while not self.is_over and (due_s := self.next_s()) <= now_s:
            if self.saves and self.saves[0].due_s <= due_s:
                self._end_save(due_s)
            else:
                for container in tuple(self.containers.values()):
                    self._advance(container, due_s)
            self.settle()

    def _advance(self, container: Contained, now_s: float) -> None:
        for process in tuple(container.processes.values()):
            if container.state == RUNNING and process.run.next_s() <= now_s:
                container.advance(process, now_s)
        self._effects.extend(Write(handle, data) for handle, data in container.written)
        container.written.clear()
        for parent, program, at_s in container.forked:
            self.start_process(container, program, at_s, (parent.stdout, parent.stderr), parent=parent)
        container.forked.clear()

    def settle(self) -> None:
        """Draw the consequences of what has happened: ends, answers, and the end of all when the root has ended."""
        if self.is_over:
            return
        root = self.containers[self.sandbox_id]
        for each in self.containers.values():
            if each.state == RUNNING:
                each.bury()
        is_last = root.state == STOPPED
        for each in self.containers.values():
            if is_last and each.state in {RUNNING, LIMBO}:
                each.stop(KILLED)
            if each.state == STOPPED and each.gofer and not each.leaks_gofer:
                self._effects.append(GoferEnds(each.gofer))
                each.gofer = 0
        self._answer()
        if is_last:
            self.die(root.status or 0)

    def _answer(self) -> None:
        for call, try_again in tuple(self._waiting.items()):
            try:
                result = try_again()
            except SandboxError as error:
                answer = Answer(error=str(error))
            else:
                if result is None:
                    continue
                answer = Answer(result=result)
            del self._waiting[call]
            self._effects.append(Reply(call, answer))

    def die(self, code: int) -> None:
        """End the process; what is unanswered gets EOF."""
        if self.is_over:
            return
        self.is_over = True
        self._effects.extend(Reply(call, Answer(eof=True)) for call in self._waiting)
        self._waiting.clear()
        self._effects.append(SandboxEnds(code))

    # ------------------------------------------------------------------------------------------------- frozen and saved

    def freeze(self, now_s: float) -> None:
        """Stop every process; that nests."""
        if not self.pauses:
            self.frozen_s = now_s
        self.pauses += 1

    def thaw(self, now_s: float) -> None:
        """Undo one freeze; after the last everything goes on where it stood, and what was signalled is delivered."""
        if not self.pauses:
            return
        self.pauses -= 1
        if self.pauses:
            return
        stood_s = now_s - self.frozen_s
        for container in self.containers.values():
            for process in container.processes.values():
                process.run.wake_s += stood_s
            signals, container.signals[:] = tuple(container.signals), ()
            for pid, number in signals:
                container.signal(pid, number, now_s)

    def save(self, save: Save, now_s: float) -> None:
        """Begin a save, or let it wait for those that came before."""
        self.saves.append(save)
        if len(self.saves) == 1:
            save.begin(self, now_s)

    def _end_save(self, now_s: float) -> None:
        self.saves.pop(0).finish(self, now_s)
        waiting, self.once_saved = self.once_saved, []
        for act in waiting:
            act(now_s)
        if self.saves:
            self.saves[0].begin(self, now_s)

    # ------------------------------------------------------------------------------------------------------ containers

    def add(self, container_id: str, spec: Mapping[str, Any], *, is_root: bool = False) -> Contained:
        """Take a container in."""
        # Without names they are numbered by order: restored in another order they silently swap.
        name = (spec.get("annotations") or {}).get(CONTAINER_NAME) or f"__no_name_{len(self.containers)}"
        container = Contained(id=container_id, name=name, spec=spec, is_root=is_root)
        self.containers[container_id] = container
        return container

    def program(self, container: Contained, argv: Sequence[str], user: int) -> Program:
        """Find what a command starts.

        Raises:
            NoSuchCommandError: nothing, or nothing that this user may start.
        """
        rootfs = str((container.spec.get("root") or {}).get("path", ""))
        program = recognise(
            argv,
            (container.spec.get("process") or {}).get("env") or (),
            self.settings.programs,
            rootfs_has_pause=self.files.holds_file(f"{rootfs}/pause"),
        )
        mode = self.files.directory_mode(rootfs)
        # Measured: a 0700 directory of root's ends so for a user that is not root.
        if user and mode is not None and mode & _READ_AND_ENTER != _READ_AND_ENTER:
            raise NoSuchCommandError(f"failed to load {argv[0]}: permission denied")
        return program

    def start_process(
        self,
        container: Contained,
        program: Program,
        now_s: float,
        stdio: tuple[Handle, Handle],
        *,
        parent: Process | None = None,
        is_foreign: bool = False,
        refused: frozenset[str] = frozenset(),
    ) -> Process:
        """Start a process in a container."""
        process = Process(
            pid=self.take_pid(),
            parent=0 if parent is None else parent.pid,
            run=Run(program, wake_s=now_s),
            stdout=stdio[0],
            stderr=stdio[1],
            is_foreign=is_foreign or (parent is not None and parent.is_foreign),
            refused=refused if parent is None else parent.refused,
        )
        container.processes[process.pid] = process
        return process

    @property
    def is_executing(self) -> bool:
        """Whether an exec, or what it left behind, lives in any container."""
        return any(each.is_foreign for container in self.containers.values() for each in container.processes.values())

    def reserve_pid(self, pid: int) -> None:
        """A process from an image has this one."""
        self._next_pid = max(self._next_pid, pid + 1)

    def take_pid(self) -> int:
        """A pid inside the sandbox; none comes twice."""
        self._next_pid += 1
        return self._next_pid - 1
