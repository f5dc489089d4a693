"""What the real port says of our own process: as /proc has it, and what was reaped."""

from __future__ import annotations

import gc
import os
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from supervisor.host import own_usage as module
from supervisor.host.own_usage import own_usage
from tests.host.waiting import eventually, is_gone

if TYPE_CHECKING:
    from actors.ports import Ports

pytestmark = pytest.mark.anyio

ENV = {"PATH": "/usr/bin:/bin"}


def test_it_is_what_the_kernel_says():
    gc.collect()  # else it might close files of other tests in between
    before = own_usage(reaped=3)
    with ExitStack() as stack:
        for _ in range(5):
            stack.enter_context(Path("/dev/null").open("rb"))
        after = own_usage(reaped=4)
    assert after.open_files == before.open_files + 5
    assert before.open_files < before.open_files_max
    assert after.cpu_s >= before.cpu_s > 0
    assert after.resident_bytes > 1 << 20
    assert after.proportional_bytes is None or after.proportional_bytes > 1 << 20
    assert after.threads >= 1
    assert (before.reaped, after.reaped) == (3, 4)


def test_without_the_kernels_word_on_it_the_proportional_memory_is_not_known(monkeypatch, tmp_path):
    real = open

    def none_of_that(path, mode):
        return real(tmp_path / "absent" if path == "/proc/self/smaps_rollup" else path, mode)

    monkeypatch.setattr(module, "open", none_of_that, raising=False)
    assert own_usage(reaped=0).proportional_bytes is None


def a_stranger() -> int:
    """A child of another session, which nobody waits for."""
    return os.posix_spawn("/bin/sh", ["sh", "-c", "exit 0"], ENV, setsid=True)


async def test_zombies_of_strangers_that_were_taken_are_counted(ports: Ports):
    before = (await ports.processes.own_usage()).reaped
    for pid in [a_stranger() for _ in range(3)]:
        await eventually(partial(is_gone, pid))
    assert (await ports.processes.own_usage()).reaped >= before + 3  # other orphans may end
