"""Parts of a long run, each in a process of its own: those of a campaign and those of a sweep."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final, TypeVar

import anyio

import sim
from supervisor.host.composition import open_host_ports
from supervisor.host.surroundings import folders_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from actors.ports import Processes

ANSWER_BYTES_MAX: Final = 4 << 20
_TAIL_LINES: Final = 5
Part = TypeVar("Part")


class PartLostError(Exception):
    """A process that has not come to its end; its text says how."""


def command(module: str, *words: str) -> tuple[list[str], dict[str, str]]:
    """How a part is started: `python -m MODULE WORDS`, with the code that this process has; argv and environment."""
    env = {"PYTHONPATH": ":".join(folders_of(sim)), "PYTHONDONTWRITEBYTECODE": "1"}
    return [sys.executable, "-m", module, *words], env


async def run_part(port: Processes, module: str, *words: str, deadline_s: float) -> bytes:
    """Run a part; returns what it has written to stdout.

    Raises:
        PartLostError: it did not end, or not with 0.
    """
    argv, env = command(module, *words)
    try:
        done = await port.run(argv, deadline_s=deadline_s, env=env, stdout_limit_bytes=ANSWER_BYTES_MAX)
    except (OSError, TimeoutError) as error:
        raise PartLostError(repr(error)) from error
    if done.exit.code != 0:
        raise PartLostError(how_it_ended(done.exit.code, done.stderr))
    return done.stdout


def how_it_ended(code: int | None, stderr: bytes) -> str:
    """An end that is none, in one line."""
    tail = stderr.decode("utf-8", "replace").splitlines()[-_TAIL_LINES:]
    return f"its process ended with {code}: {' | '.join(tail)}"


async def beside(parts: Iterator[Part], processes: int, perform: Callable[[Processes, Part], Awaitable[None]]) -> None:
    """Perform parts, so many beside each other; each is taken when there is room for it.

    What one of them raises ends the others, and is raised as it is.
    """

    async def work(port: Processes) -> None:
        for part in parts:
            await perform(port, part)

    try:
        async with open_host_ports(roots=()) as ports, anyio.create_task_group() as workers:
            for _ in range(processes):
                workers.start_soon(work, ports.processes)
    except BaseExceptionGroup as group:
        raise _first(group) from group


def _first(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
