"""The processes of one life of the supervisor, each call through its gate."""

from __future__ import annotations

from typing import TYPE_CHECKING

from actors.ports import AppendTo, Output

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from actors.ports import Child, Exit, Finished, OpenFile, OwnUsage, Processes, ProcessIdentity
    from sim.world.calls import Gate


class GatedProcesses:
    """`Processes` through a gate."""

    def __init__(self, gate: Gate, inner: Processes) -> None:
        self._gate = gate
        self._inner = inner

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
        """Run a command to its end."""
        return await self._gate.cross(
            "processes",
            "run",
            " ".join(argv),
            self._inner.run,
            argv,
            deadline_s=deadline_s,
            env=env,
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            stdout_limit_bytes=stdout_limit_bytes,
        )

    async def spawn(
        self, argv: Sequence[str], *, env: Mapping[str, str], stdout: AppendTo | Output, stderr: AppendTo | Output
    ) -> Child:
        """Start a long-lived command and own it."""
        child = await self._gate.cross(
            "processes", "spawn", " ".join(argv), self._inner.spawn, argv, env=env, stdout=stdout, stderr=stderr
        )
        return GatedChild(self._gate, child)

    async def adopt(self, pid: int) -> Child:
        """Own a process that became a child of ours."""
        child = await self._gate.cross("processes", "adopt", str(pid), self._inner.adopt, pid)
        return GatedChild(self._gate, child)

    async def reclaim(self, identity: ProcessIdentity) -> Child:
        """Own exactly this process again."""
        name = str(identity.pid)
        child = await self._gate.cross("processes", "reclaim", name, self._inner.reclaim, identity)
        return GatedChild(self._gate, child)

    async def find(self, *, argument: str) -> tuple[ProcessIdentity, ...]:
        """The processes with this argument."""
        return await self._gate.cross("processes", "find", argument, self._inner.find, argument=argument)

    async def find_arguments(self, *, prefix: str) -> tuple[tuple[ProcessIdentity, str], ...]:
        """The processes with an argument that begins so."""
        return await self._gate.cross("processes", "find_arguments", prefix, self._inner.find_arguments, prefix=prefix)

    async def is_alive(self, identity: ProcessIdentity) -> bool:
        """Whether exactly this process lives."""
        return await self._gate.cross("processes", "is_alive", str(identity.pid), self._inner.is_alive, identity)

    async def holds_output(self, identity: ProcessIdentity) -> bool:
        """Whether exactly this process has captured output open."""
        name = str(identity.pid)
        return await self._gate.cross("processes", "holds_output", name, self._inner.holds_output, identity)

    async def open_files(self, identity: ProcessIdentity) -> tuple[OpenFile, ...]:
        """What exactly this process has open."""
        return await self._gate.cross("processes", "open_files", str(identity.pid), self._inner.open_files, identity)

    async def own_usage(self) -> OwnUsage:
        """What we ourselves use."""
        return await self._gate.cross("processes", "own_usage", "", self._inner.own_usage)

    async def kill_and_wait(self, identity: ProcessIdentity, *, deadline_s: float) -> None:
        """SIGKILL exactly this process and wait until it is gone."""
        await self._gate.cross(
            "processes",
            "kill_and_wait",
            str(identity.pid),
            self._inner.kill_and_wait,
            identity,
            deadline_s=deadline_s,
        )


class GatedChild:
    """`Child` through a gate."""

    def __init__(self, gate: Gate, inner: Child) -> None:
        self._gate = gate
        self._inner = inner
        self.identity = inner.identity

    async def wait(self) -> Exit:
        """Wait until it has ended and return how."""
        return await self._gate.cross("processes", "wait", str(self.identity.pid), self._inner.wait)

    def signal(self, signum: int) -> None:
        """Send a signal."""
        argument = f"{self.identity.pid} {int(signum)}"
        self._gate.cross_now("processes", "signal", argument, self._inner.signal, signum)

    def close(self) -> None:
        """Give up ownership."""
        self._gate.cross_now("processes", "close", str(self.identity.pid), self._inner.close)
