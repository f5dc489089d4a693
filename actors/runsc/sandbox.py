"""A running sandbox that we own: its processes, and what may be asked of its containers by their names."""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import anyio
import attrs

from actors.bundle.config import PAUSE_ARGV
from actors.ports import Child
from statemachine.problem import Problem, ProblemError, Step
from statemachine.reasons import Reason
from statemachine.secrecy import without_secrets

from .answers import Status
from .driver import Runsc, Target
from .log import LOG_BYTES_MAX, condensed, parse_stderr
from .record import ROOT_CONTAINER, SandboxRecord, write_record

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from actors.ports import Exit, Finished, OpenFile

    from .answers import ContainerState

SANDBOX_LOG: Final = "sandbox.log"
"""What the root container and a crash of the sandbox itself write, in the activation's directory."""

MEMORY_FILE: Final = "/memfd:runsc-memory"
"""Where a sandbox has the memory of its containers, as the kernel names it. Measured on runsc 20240729 and 20260905: an
image's pages are just as large as what is stored of it."""

_WAIT_AGAIN_S: Final = 1.0
"""Between two commands that wait for a container's end; another one is only needed when somebody killed the first."""

_LOOK_MIN_S: Final = 0.5
_LOOK_MAX_S: Final = 30.0
"""Between two looks at a container that lives without its file server; a look takes runsc some 20 ms."""

_EXIT_AT_ONCE: Final = (*PAUSE_ARGV, "exit")
"""The one program that is in every sandbox, told to end: see `actors.pause_elf`."""
_STANDS_STILL_AFTER_S: Final = 5.0
"""Executing takes 30 ms where nothing is frozen."""


@attrs.frozen(kw_only=True, eq=False)
class Sandbox:
    """One activation, alive.

    Attributes:
        runsc: its driver.
        record: what is written down of it.
        process: the sandbox's process; its end is the sandbox's death.
        gofers: by container name, `pause` included; without those of containers that had ended before they could be
            owned.
        targets: by container name, `pause` included.
        doubted: containers whose gofer is no sign of their end.
    """

    runsc: Runsc
    record: SandboxRecord
    process: Child
    gofers: Mapping[str, Child]
    targets: Mapping[str, Target]
    _doubted: set[str] = attrs.field(factory=set, repr=False)
    _trusting: dict[anyio.CancelScope, str] = attrs.field(factory=dict, init=False, repr=False)
    """Who waits for nothing but the end of a container's gofer."""
    _stopped: dict[str, anyio.Event] = attrs.field(factory=dict, init=False, repr=False)
    """By container name, what somebody has seen: that it has stopped, by runsc's own word. There is no way back."""
    _cut_off: set[Path] = attrs.field(factory=set, init=False, repr=False)
    """Directories of saves that may still go on inside, because their command was cut off."""
    _writing: anyio.Lock = attrs.field(factory=anyio.Lock, init=False, repr=False)

    @property
    def owned(self) -> tuple[Child, ...]:
        """Every process, the sandbox first, as `teardown.end_activation` takes them."""
        return (self.process, *self.gofers.values())

    @property
    def containers(self) -> tuple[str, ...]:
        """The names of its application containers."""
        return tuple(name for name in self.targets if name != ROOT_CONTAINER)

    async def died(self) -> Exit:
        """Wait until the sandbox's process has ended, and return how."""
        return await self.process.wait()

    async def ended(self, name: str) -> None:
        """Wait for the sign that a container has ended; at once when it had ended before we could watch it.

        `exit_code` then tells how. The death of the sandbox ends every container too: look at that first.

        Normally this costs nothing but a pidfd. Measured on runsc 20240729: once a command could not be started inside
        a container, its gofer outlives it; from then on a `runsc wait` watches beside the pidfd. And nobody misses the
        gofer of a container that was restored: killed, it leaves a container that lives, and this is no proof then.
        `until_stopped` gives that.
        """
        gofer = self.gofers.get(name)
        if gofer is None:
            return
        if name not in self._doubted:
            with anyio.CancelScope() as until_doubted:
                self._trusting[until_doubted] = name
                try:
                    await gofer.wait()
                    return
                finally:
                    del self._trusting[until_doubted]

        async def watch_gofer() -> None:
            await gofer.wait()
            group.cancel_scope.cancel()

        async with anyio.create_task_group() as group:
            group.start_soon(watch_gofer)
            await self._wait_by_command(name)
            group.cancel_scope.cancel()

    async def lives_on(self, name: str) -> bool | None:
        """Whether a container lives although the sign of its end was given; None when nobody can tell now."""
        try:
            state = await self.inspect(name)
        except ProblemError:
            return None
        return state.status is not Status.STOPPED

    async def until_stopped(self, name: str) -> None:
        """Wait until a container has stopped by runsc's own word, looked at ever more rarely.

        For one that lives without its gofer, so that no process of ours need stand beside it. What one who waits sees,
        all who wait know: a stop that looks for the first time does not wait for the next look of the watch, nor end a
        sandbox before the watch has asked it for the exit code.
        """
        stopped = self._stopped.setdefault(name, anyio.Event())
        pause_s = _LOOK_MIN_S
        while not stopped.is_set():
            if await self.lives_on(name) is False:
                stopped.set()
                return
            with anyio.move_on_after(pause_s):
                await stopped.wait()
            pause_s = min(2 * pause_s, _LOOK_MAX_S)

    async def _wait_by_command(self, name: str) -> None:
        while True:
            try:
                await self.exit_code(name, deadline_s=math.inf)
            except ProblemError:
                # The command failed, which says nothing about the container. When the sandbox died, its gofer tells.
                await anyio.sleep(_WAIT_AGAIN_S)
            else:
                return

    async def doubt(self, name: str) -> None:
        """From now on a container's gofer is no sign of its end any more, for a later life of the worker neither."""
        is_new = name not in self._doubted
        self._doubted.add(name)
        for scope, trusted in self._trusting.items():
            if trusted == name:
                scope.cancel()
        if not is_new or self.record.belongings is None:
            return
        async with self._writing:
            belongings = attrs.evolve(self.record.belongings, doubted=tuple(sorted(self._doubted)))
            record = attrs.evolve(self.record, belongings=belongings)
            with suppress(ProblemError):  # a disk that is full costs nobody anything before a crash
                await write_record(self.runsc.files, self.runsc.activation, record)

    async def exit_code(self, name: str, *, deadline_s: float = 15.0) -> int:
        """Return the exit code of a container that has ended, a signal as 128 plus its number. Not while frozen."""
        return await self.runsc.wait(self.targets[name], deadline_s=deadline_s)

    async def inspect(self, name: str) -> ContainerState:
        """Return a container's state; answers while frozen too.

        After `start_restored` has succeeded and the sandbox lives, `stopped` is to be believed, and `running` only as
        long as its gofer lives: measured on runsc 20240729, a container that was never restored is `running`.
        """
        return await self.runsc.state(self.targets[name])

    async def freeze(self) -> None:
        """Stop every container at once."""
        await self.runsc.pause(self.targets[ROOT_CONTAINER])

    async def thaw(self) -> None:
        """Let every container go on.

        Measured on runsc 20240729: a save whose command was cut off goes on inside to its end, and the sandbox takes no
        `resume` before. Such a sandbox does not hang, and is given the time of a whole save.
        """
        deadlines = self.runsc.deadlines
        deadline_s = deadlines.checkpoint_s if self._cut_off else deadlines.freeze_s
        await self.runsc.resume(self.targets[ROOT_CONTAINER], deadline_s=deadline_s)
        self._cut_off.clear()

    async def is_frozen(self) -> bool:
        """Whether the containers stand still, asked of the sandbox itself.

        runsc's own state does not tell: a `pause` that was killed in between has frozen and not written it down. What
        is executed in a frozen sandbox waits (measured on runsc 20240729). An `exec` that was killed while it waited
        has said nothing.
        """
        try:
            finished = await self.execute(ROOT_CONTAINER, _EXIT_AT_ONCE, deadline_s=_STANDS_STILL_AFTER_S)
        except ProblemError:
            return True
        code = finished.exit.code
        return code is None or code < 0

    async def is_executing(self) -> bool:
        """Whether a command that was executed inside, or what it left running, still has its stdio open.

        Measured on runsc 20240729: what is saved then can never be restored, and nothing says so before.
        """
        return await self.runsc.processes.holds_output(self.process.identity)

    async def open_files(self) -> tuple[OpenFile, ...]:
        """What the sandbox's processes have open.

        Raises:
            OSError: one of them cannot be looked at.
        """
        return tuple([each for child in self.owned for each in await self.runsc.processes.open_files(child.identity)])

    async def memory_bytes(self) -> int:
        """How much memory its containers take, which is as much as an image of them has pages, at most.

        Raises:
            OSError: its process cannot be looked at.
        """
        held = await self.runsc.processes.open_files(self.process.identity)
        return sum(each.stored_bytes for each in held if each.path.startswith(MEMORY_FILE))

    async def checkpoint_into(self, directory: Path, *, cuda_checkpoint: str | None = None) -> None:
        """Save all containers into a fresh directory, and live on: frozen when frozen.

        With `cuda_checkpoint`, the path of that program inside the containers, CUDA contexts are saved too. The sandbox
        then unfreezes itself for a moment to run it: whatever was looked at before is to be looked at again.

        On failure the sandbox lives on as it was; what is left in the directory is the caller's to remove. Containers
        that have exited must have been taken out with `delete_exited` first, or the image can never be restored.
        """
        await self.runsc.files.make_directory(directory)
        # Until runsc says that it is over: who is cancelled, or whose runsc is killed, does not know.
        self._cut_off.add(directory)
        await self.runsc.checkpoint(self.targets[ROOT_CONTAINER], image=directory, cuda_checkpoint=cuda_checkpoint)
        self._cut_off.discard(directory)

    def can_leave_out(self, name: str) -> bool:
        """Whether the sandbox can be restored once this container, which has exited, was taken out of it.

        Measured on runsc 20240729: not after a command could not be started inside that container. Of one that lived on
        without its file server nobody knows.
        """
        return name not in self._doubted

    def distrust_saves(self, directory: Path) -> None:
        """A save into somewhere below a directory may go on inside: nobody knows whether its command was cut off."""
        self._cut_off.add(directory)

    async def delete_exited(self, name: str) -> None:
        """Take a container that has exited out of the sandbox. Not while frozen: it would block until the thaw.

        Raises:
            ProblemError: as `Runsc.run`; ContainerExited when the sandbox could never be restored afterwards.
        """
        if not self.can_leave_out(name):
            message = (
                f"container {name!r} has exited and cannot be left out: a command once failed to start in it, or it "
                "lived on without its file server"
            )
            raise ProblemError(
                Problem(step=Step.SUSPEND, reason=Reason.CONTAINER_EXITED, subject=name, message=message)
            )
        await self.ended(name)
        await self.runsc.delete_sub(self.targets[name])

    async def signal(self, name: str, signal: str) -> None:
        """Send a signal, named without SIG, to a container's first process."""
        await self.runsc.kill(self.targets[name], signal)

    async def execute(
        self, name: str, command: Sequence[str], *, deadline_s: float, user: str | None = None
    ) -> Finished:
        """Run a command inside a container. Never beside a checkpoint: see `Runsc.exec_in`."""
        try:
            return await self.runsc.exec_in(self.targets[name], command, deadline_s=deadline_s, user=user)
        except BaseException:
            # Also when cancelled: whether the command was about to fail is not known then.
            with anyio.CancelScope(shield=True):
                await self.doubt(name)
            raise

    def last_words(self, name: str, finished: Finished) -> str:
        """The last lines that a command inside a container wrote, without the values of its environment."""
        text = (finished.stdout + finished.stderr).decode("utf-8", "replace")
        return condensed(without_secrets(text, self.targets[name].secrets)).detail

    async def last_log(self) -> str:
        """The last lines that the sandbox itself has written, without secrets; empty when there are none to be had.

        Of a panic its reason: goroutines are cut away.
        """
        path = self.runsc.activation / SANDBOX_LOG
        try:
            found = await self.runsc.files.stat(path)
            offset_bytes = max(found.size_bytes - LOG_BYTES_MAX, 0) if found is not None else 0
            data = await self.runsc.files.read_from(path, offset_bytes=offset_bytes, limit_bytes=LOG_BYTES_MAX)
        except OSError:
            return ""
        secrets = {secret for target in self.targets.values() for secret in target.secrets}
        text = "\n".join(parse_stderr(data))
        return condensed(without_secrets(text, sorted(secrets, key=len, reverse=True))).detail

    def close(self) -> None:
        """Give up every process; they live on."""
        for child in self.owned:
            child.close()
