"""One runsc and one of its roots: a method for each command, each with a log of its own, a deadline and a reason.

What a container writes goes only where its own stdio is taken: the root's at `create`, a sub-container's at `start` or
`restore`. Everything else is captured in memory or discarded. Measured on runsc 20240729: exit code 0 is success, any
error of runsc's is 128.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

import anyio
import attrs

from actors.ports import AppendTo, DeadlineExceededError, Files, Output, Processes
from statemachine.problem import Problem, ProblemError, Step
from statemachine.reasons import Reason
from statemachine.secrecy import secrets_of

from . import answers, argv
from .beginning import not_begun
from .errors import Call, classify, detail_of
from .flags import GlobalFlags
from .log import LOG_BYTES_MAX, parse_log, words
from .version import ENVIRONMENT

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from actors.ports import Finished

    from .answers import ContainerState

_OF_A_COMMAND: Final = re.compile(r"[0-9]{6,}-[a-z]+\.(log|pid)")
_PID_FILE_BYTES_MAX: Final = 32
_EXEC_ROUNDS_MAX: Final = 3
"""How often is looked for what a killed command left; a process that forks while it is killed shows up once more."""
_T = TypeVar("_T")


@attrs.frozen(kw_only=True)
class Target:
    """A container that commands are about.

    Attributes:
        name: its name in its actor, by which problems call it.
        id: runsc's id.
        secrets: values of its environment, which no text may carry.
        path: the directories of its PATH.
        enter: the words before each command that starts a process of its (`actors.enter_elf`); none without cgroups.
        cover: the words before each command that starts its gofer (`Cover`); none where nothing is made in its rootfs.
    """

    name: str
    id: str
    secrets: tuple[str, ...] = attrs.field(default=(), repr=False)
    path: tuple[str, ...] = ()
    enter: tuple[str, ...] = ()
    cover: tuple[str, ...] = ()

    @classmethod
    def of(cls, name: str, container_id: str, *, env: Sequence[str] = ()) -> Target:
        """Make a target from a container's environment (`NAME=value`)."""
        path = next((each.removeprefix("PATH=") for each in env if each.startswith("PATH=")), "")
        directories = tuple(each for each in path.split(":") if each)
        return cls(name=name, id=container_id, secrets=secrets_of(env), path=directories)

    @property
    def begun_by(self) -> tuple[str, ...]:
        """The words before each command that starts a process of its: cgroup first, so that all is charged to it."""
        return (*self.enter, *self.cover)


@attrs.frozen(kw_only=True)
class Deadlines:
    """Seconds that a command may take; far above what was measured, so that only what hangs is ended."""

    create_s: float = 30.0
    start_s: float = 30.0
    restore_s: float = 600.0
    checkpoint_s: float = 600.0
    freeze_s: float = 30.0
    query_s: float = 15.0
    kill_s: float = 15.0
    delete_s: float = 30.0


@attrs.frozen(kw_only=True, eq=False)
class Runsc:
    """The driver of one activation.

    Attributes:
        path: the runsc.
        flags: global flags, the same for every command.
        root: runsc's root, `sandboxes/<activation>/runsc`; logs of commands come and go beside it.
        confine: the program by way of which commands are run inside a container; None runs them as they are.
        nvidia_driver: the version of the driver that calls are passed on to; None where they are not.
        activation: the activation's directory.
    """

    path: Path
    flags: GlobalFlags
    processes: Processes
    files: Files
    root: Path
    deadlines: Deadlines = attrs.field(factory=Deadlines)
    confine: Path | None = None
    nvidia_driver: str | None = None
    activation: Path = attrs.field(init=False, repr=False)
    _numbers: Iterator[int] = attrs.field(factory=lambda: itertools.count(1), init=False, repr=False)

    @activation.default
    def _its_activation(self) -> Path:
        return self.root.parent

    # --------------------------------------------------------------------------------------------- life of a container

    async def create_root(self, target: Target, *, bundle: Path, output: AppendTo) -> int:
        """Make the sandbox and its root container, which writes to `output`, and return the sandbox's pid.

        Raises:
            ProblemError: see `run`; RuntimeFailed when there is no pid.
        """
        call = _call(Step.CREATE, "create", target, nvidia_driver=self.nvidia_driver)
        pid_file = self._pid_file(target)
        words_ = argv.create(target.id, bundle=bundle, pid_file=pid_file)
        await self.run(call, words_, deadline_s=self.deadlines.create_s, output=output, before=target.begun_by)
        return await self._read_pid(call, pid_file)

    async def create_sub(self, target: Target, *, bundle: Path) -> None:
        """Make a container in the sandbox that its bundle's annotations name."""
        words_ = argv.create(target.id, bundle=bundle, pid_file=self._pid_file(target))
        call = _call(Step.CREATE, "create", target)
        await self.run(call, words_, deadline_s=self.deadlines.create_s, output=Output.DISCARD)

    async def start_root(self, target: Target) -> None:
        """Start the sandbox's root, before any other container: the other way round kills the sandbox."""
        call = _call(Step.CREATE, "start", target)
        await self.run(call, argv.start(target.id), deadline_s=self.deadlines.start_s, output=Output.DISCARD)

    async def start_sub(self, target: Target, *, output: AppendTo) -> None:
        """Start a created container, which writes to `output`. Its gofer begins here, too."""
        call, words_ = _call(Step.CREATE, "start", target), argv.start(target.id)
        await self.run(call, words_, deadline_s=self.deadlines.start_s, output=output, before=target.begun_by)

    async def restore_root(self, target: Target, *, bundle: Path, image: Path, output: AppendTo) -> int:
        """Make a sandbox from a snapshot's files and return its pid.

        Nothing runs before the last container is restored.
        """
        call = _call(Step.RESTORE, "restore", target, nvidia_driver=self.nvidia_driver)
        pid_file = self._pid_file(target)
        words_ = argv.restore(target.id, bundle=bundle, image=image, pid_file=pid_file)
        await self.run(call, words_, deadline_s=self.deadlines.restore_s, output=output, before=target.begun_by)
        return await self._read_pid(call, pid_file)

    async def restore_sub(self, target: Target, *, bundle: Path, image: Path, output: AppendTo) -> None:
        """Restore one more container, after the root.

        The one that comes last restores them all, and meets all errors.
        """
        words_ = argv.restore(target.id, bundle=bundle, image=image, pid_file=self._pid_file(target))
        call = _call(Step.RESTORE, "restore", target)
        await self.run(call, words_, deadline_s=self.deadlines.restore_s, output=output, before=target.begun_by)

    async def delete_sub(self, target: Target) -> None:
        """Remove a stopped sub-container of a living, unfrozen sandbox whose gofer has been waited for."""
        call = _call(Step.TEARDOWN, "delete", target)
        await self.run(call, argv.delete(target.id), deadline_s=self.deadlines.delete_s)

    async def kill(self, target: Target, signal: str) -> None:
        """Send a signal, named without SIG, to a container's first process."""
        call = _call(Step.TEARDOWN, "kill", target)
        await self.run(call, argv.kill(target.id, signal), deadline_s=self.deadlines.kill_s)

    # ----------------------------------------------------------------------------------------------- the whole sandbox

    async def pause(self, target: Target) -> None:
        """Freeze the whole sandbox; name the root. A second time is refused."""
        await self.run(_call(Step.SUSPEND, "pause", target), argv.pause(target.id), deadline_s=self.deadlines.freeze_s)

    async def resume(self, target: Target, *, deadline_s: float) -> None:
        """Let the sandbox go on, naming the same container as at `pause`. Waits for a save that still goes on."""
        await self.run(_call(Step.THAW, "resume", target), argv.resume(target.id), deadline_s=deadline_s)

    async def checkpoint(self, target: Target, *, image: Path, cuda_checkpoint: str | None = None) -> None:
        """Save the whole sandbox into a fresh directory and let it live on, frozen if it was frozen."""
        call = _call(Step.SUSPEND, "checkpoint", target)
        words_ = argv.checkpoint(target.id, image=image, cuda_checkpoint=cuda_checkpoint)
        await self.run(call, words_, deadline_s=self.deadlines.checkpoint_s)

    # ------------------------------------------------------------------------------------------------------- questions

    async def state(self, target: Target) -> ContainerState:
        """Ask for a container's state; answers while frozen."""
        call = _call(Step.SUPERVISE, "state", target)
        return await self._ask(call, argv.state(target.id), answers.parse_state)

    async def list_containers(self, target: Target) -> tuple[ContainerState, ...]:
        """Ask for all containers of this root; the target only names the sandbox in problems."""
        return await self._ask(_call(Step.SUPERVISE, "list", target), argv.list_containers(), answers.parse_list)

    async def ps(self, target: Target) -> dict[int, int]:
        """Ask for the parent of each process in a container, by pids inside the sandbox; answers while frozen."""
        return await self._ask(_call(Step.SUPERVISE, "ps", target), argv.ps(target.id), answers.parse_processes)

    async def wait(self, target: Target, *, deadline_s: float) -> int:
        """Wait for a container's end and return its status, a signal as 128 plus its number.

        Any number of times until it is deleted. Blocks while the sandbox is frozen, also when the container has ended:
        wait for its gofer first, and only while thawed.
        """
        call = _call(Step.SUPERVISE, "wait", target)
        finished = await self.run(call, argv.wait(target.id), deadline_s=deadline_s)
        return self._answer(call, finished, answers.parse_exit_status)

    async def exec_in(
        self, target: Target, command: Sequence[str], *, deadline_s: float, user: str | None = None
    ) -> Finished:
        """Run a command inside a container and return how it ended, whatever its exit code. Blocks while frozen.

        Measured on runsc 20240729: a command that lives at a checkpoint, or a child that it left behind, makes the
        image one that cannot be restored; and it lives on when its `runsc exec` is killed. So never beside a
        checkpoint, and whatever of it is left at the deadline, or when the caller is cancelled, is killed. Confined, it
        ends with 127 when there is no such command.

        Raises:
            ProblemError: as `run`, when the command could not be started; StepDeadlineExceeded.
        """
        call = _call(Step.SUPERVISE, "exec", target)
        pid_file = self.activation / f"{next(self._numbers):06d}-exec.pid"
        if self.confine is None:
            words_ = argv.execute(target.id, command, pid_file=pid_file, user=user)
        else:
            words_ = argv.execute_confined(target.id, command, path=target.path, pid_file=pid_file, user=user)
        is_over = False
        try:
            finished, log = await self._run_to_end(
                call, words_, deadline_s=deadline_s, output=Output.CAPTURE, stdin=self.confine
            )
            is_over = True
        finally:
            with anyio.CancelScope(shield=True):
                if not is_over:
                    await self.end_exec(call, target, pid_file)
                with suppress(OSError):  # what stays goes with the activation
                    await self.files.remove_file(pid_file)
        # 128 may be the command's own code: an error of runsc's stands in its log.
        if finished.exit.code is None or parse_log(log):
            raise ProblemError(classify(call, words(log, finished.stderr), status=_status(finished)))
        return finished

    async def end_exec(self, call: Call, target: Target, pid_file: Path) -> None:
        """Kill a command inside a container and all below it, as far as it can be found."""
        # Whatever fails here, the reason is that of the command; a hung or dead sandbox fails everything.
        with anyio.move_on_after(self.deadlines.kill_s), suppress(ProblemError):
            pid = await self._read_pid(call, pid_file)
            for _ in range(_EXEC_ROUNDS_MAX):
                found = answers.descendants(await self.ps(target), pid)
                if not found:
                    return
                # Children first: an orphan would belong to the container's init, like any process of the application.
                for each in reversed(found):
                    with suppress(ProblemError):  # gone meanwhile
                        await self.run(call, argv.kill_process(target.id, each), deadline_s=self.deadlines.kill_s)

    # --------------------------------------------------------------------------------------------------------- calling

    async def run(
        self,
        call: Call,
        arguments: argv.Argv,
        *,
        deadline_s: float,
        output: AppendTo | Output = Output.CAPTURE,
        before: tuple[str, ...] = (),
    ) -> Finished:
        """Run one command, which must succeed.

        Args:
            call: what it is, for problems.
            arguments: what stands after the global flags.
            deadline_s: how long it may take.
            output: where what it says goes.
            before: the words before all of it, of the program that becomes runsc.

        Raises:
            ProblemError: RuntimeUnavailable when runsc cannot be run, StepDeadlineExceeded, or the reason that
                `errors.classify` finds in its words.
        """
        finished, log = await self._run_to_end(call, arguments, deadline_s=deadline_s, output=output, before=before)
        if finished.exit.code == 0:
            return finished
        if before and (problem := not_begun(call, finished.exit.code)) is not None:
            raise ProblemError(problem)
        raise ProblemError(classify(call, words(log, finished.stderr), status=_status(finished)))

    async def _run_to_end(
        self,
        call: Call,
        arguments: argv.Argv,
        *,
        deadline_s: float,
        output: AppendTo | Output,
        stdin: Path | None = None,
        before: tuple[str, ...] = (),
    ) -> tuple[Finished, bytes]:
        """Run one command and return how it ended and its log, which is empty when it ended with 0."""
        number = next(self._numbers)
        log = self.activation / f"{number:06d}-{call.verb}.log"
        command = (*before, str(self.path), *self.flags.as_argv(root=self.root, log=log), *arguments)
        try:
            if number == 1:
                await self._sweep()
        except OSError as error:
            message = f"the logs in {self.activation} cannot be removed: {error.strerror or error}"
            raise ProblemError(_problem(call, Reason.STATE_UNWRITABLE, message)) from error
        # runsc's errors stand in the log too, so a discarded stderr loses nothing.
        try:
            finished = await self.processes.run(
                command, deadline_s=deadline_s, env=ENVIRONMENT, stdin=stdin, stdout=output, stderr=output
            )
        except DeadlineExceededError as error:
            message = f"runsc {call.verb} of {call.subject!r} did not end within {deadline_s:g} s"
            detail = detail_of(call, words(await self._read_log(log), error.stderr))
            problem = attrs.evolve(_problem(call, Reason.STEP_DEADLINE_EXCEEDED, message), detail=detail)
            raise ProblemError(problem) from error
        except OSError as error:  # no such program, no process or descriptor to be had, no file for its output
            message = f"{self.path} cannot be run: {error.strerror or error}"
            raise ProblemError(_problem(call, Reason.RUNTIME_UNAVAILABLE, message)) from error
        said = b"" if finished.exit.code == 0 else await self._read_log(log)
        # The sandbox and its gofers may hold it open; they do not miss its name. What stays goes with the activation.
        with suppress(OSError):
            await self.files.remove_file(log)
        return finished, said

    async def _sweep(self) -> None:
        """Remove what an earlier life left, which counted from 1 as well: it would pass for our own commands' words.

        Before the first command, which is alone: nothing can be asked for before there is a root.

        Raises:
            OSError: something of it stays.
        """
        with suppress(FileNotFoundError):
            for name in await self.files.list_directory(self.activation):
                if _OF_A_COMMAND.fullmatch(name):
                    await self.files.remove_file(self.activation / name)

    async def _read_log(self, log: Path) -> bytes:
        try:
            return await self.files.read_from(log, offset_bytes=0, limit_bytes=LOG_BYTES_MAX)
        except OSError:  # most likely it ended before it opened its log: a bad flag
            return b""

    async def _ask(self, call: Call, arguments: argv.Argv, parse: Callable[[bytes], _T]) -> _T:
        finished = await self.run(call, arguments, deadline_s=self.deadlines.query_s)
        return self._answer(call, finished, parse)

    def _answer(self, call: Call, finished: Finished, parse: Callable[[bytes], _T]) -> _T:
        try:
            return parse(finished.stdout)
        except ValueError as error:
            message = f"runsc {call.verb} gave an answer that cannot be read: {error}"
            raise ProblemError(_problem(call, Reason.RUNTIME_FAILED, message)) from error

    def _pid_file(self, target: Target) -> Path:
        return self.activation / f"{target.id}.pid"

    async def _read_pid(self, call: Call, pid_file: Path) -> int:
        try:
            return answers.parse_pid_file(await self.files.read(pid_file, limit_bytes=_PID_FILE_BYTES_MAX))
        except (OSError, ValueError) as error:
            message = f"runsc {call.verb} left no pid: {error}"
            raise ProblemError(_problem(call, Reason.RUNTIME_FAILED, message)) from error


def _call(step: Step, verb: str, target: Target, *, nvidia_driver: str | None = None) -> Call:
    return Call(step=step, verb=verb, subject=target.name, secrets=target.secrets, nvidia_driver=nvidia_driver)


def _problem(call: Call, reason: Reason, message: str) -> Problem:
    return Problem(step=call.step, reason=reason, subject=call.subject, message=message)


def _status(finished: Finished) -> str:
    code = finished.exit.code
    if code is None:
        return "a status that somebody else took"
    return f"exit code {code}" if code >= 0 else f"signal {-code}"
