"""Which flags a runsc's `checkpoint` takes, as it says itself: a version says little of what a build has.

Measured: 20240729 and 20260905 answer `help checkpoint` on stdout with 0, a flag a line; of the two only the later one
has `-cuda-checkpoint-path` and `-cuda-checkpoint-sequential`.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import anyio

from actors.ports import DeadlineExceededError

from . import argv
from .version import ENVIRONMENT

if TYPE_CHECKING:
    from pathlib import Path

    from actors.ports import Processes

CUDA_FLAGS: Final = frozenset({"cuda-checkpoint-path", "cuda-checkpoint-sequential"})

_ASK_S: Final = 10.0
_FLAG: Final = re.compile(r"^ {2}-{1,2}([a-z][a-z0-9-]*)", re.ASCII | re.MULTILINE)


class CheckpointFlags:
    """The flags of one runsc's `checkpoint`: asked when they are wanted, and once, unless it cannot be asked.

    Args:
        processes: runs it.
        path: the runsc.
    """

    def __init__(self, processes: Processes, path: Path) -> None:
        self._processes, self._path = processes, path
        self._known: frozenset[str] | None = None
        self._lock = anyio.Lock()

    async def known(self) -> frozenset[str] | None:
        """The names of its flags; None when it does not say."""
        async with self._lock:
            if self._known is None:
                self._known = await self._ask()
            return self._known

    async def _ask(self) -> frozenset[str] | None:
        try:
            finished = await self._processes.run(
                (str(self._path), *argv.help_of("checkpoint")), deadline_s=_ASK_S, env=ENVIRONMENT
            )
        except (DeadlineExceededError, OSError):
            return None
        return parse_flags(finished.stdout) if finished.exit.code == 0 else None


def parse_flags(answer: bytes) -> frozenset[str] | None:
    """Read the answer to `help` of a subcommand; None when it names no flag."""
    return frozenset(_FLAG.findall(answer.decode("utf-8", "replace"))) or None
