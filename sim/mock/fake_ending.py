"""How a fake program of a mock node ends when its NVML, which is only a model, hangs or crashes: along with it."""

from __future__ import annotations

import os
import signal
from contextlib import contextmanager
from typing import TYPE_CHECKING

from sim.world.nvml import NvmlCrashes, NvmlHangs

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def ending_with_nvml() -> Iterator[None]:
    """Let this process die of SIGSEGV, or stand still for ever, when NVML does inside."""
    try:
        yield
    except NvmlCrashes:
        os.kill(os.getpid(), signal.SIGSEGV)
        raise
    except NvmlHangs:
        while True:
            signal.pause()
