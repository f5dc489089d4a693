"""Commands of a shell, through the real port."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from actors.ports import Output

if TYPE_CHECKING:
    from actors.ports import Child, Finished, Ports

SH: Final = "/bin/sh"
ENV: Final = {"PATH": "/usr/bin:/bin"}


async def sh(ports: Ports, script: str, *, deadline_s: float = 30, limit_bytes: int = 1 << 20) -> Finished:
    return await ports.processes.run([SH, "-c", script], deadline_s=deadline_s, env=ENV, stdout_limit_bytes=limit_bytes)


async def spawn(ports: Ports, script: str) -> Child:
    return await ports.processes.spawn([SH, "-c", script], env=ENV, stdout=Output.DISCARD, stderr=Output.DISCARD)
