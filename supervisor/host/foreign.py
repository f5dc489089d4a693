"""Starting a command inside a process that is not ours: there the Processes port, which owns signals, has no place."""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


def run_to_its_end(argv: Sequence[str], *, env: Mapping[str, str], deadline_s: float) -> tuple[int, bytes, bytes]:
    """Run a command, from any thread; returns its exit code (minus a signal's number), its stdout and its stderr.

    When the deadline passes it gets SIGKILL and is waited for.

    Raises:
        OSError: it cannot be started.
        TimeoutError: the deadline passed.
    """
    try:
        done = subprocess.run(
            argv, env=env, stdin=subprocess.DEVNULL, capture_output=True, timeout=deadline_s, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise TimeoutError(f"it has not ended within {deadline_s:g} s") from error
    return done.returncode, done.stdout, done.stderr


def parent() -> int:
    """The process that has started us; another one as soon as that has gone."""
    return os.getppid()
