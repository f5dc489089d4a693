"""Waiting for something to become true that nobody announces, with a bound."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import anyio

from supervisor.host import procfs

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

_POLL_S: Final = 0.005


async def eventually(condition: Callable[[], object], *, within_s: float = 90) -> None:
    with anyio.fail_after(within_s):
        while not condition():
            await anyio.sleep(_POLL_S)


def is_gone(pid: int) -> bool:
    """Whether there is no process with this pid, not even a zombie."""
    return procfs.read_stat(pid) is None


def is_dead(pid: int) -> bool:
    stat = procfs.read_stat(pid)
    return stat is None or not stat.is_running


def is_stopped(pid: int) -> bool:
    found = procfs.read_stat(pid)
    return found is not None and found.state == "T"


def zombies() -> list[int]:
    """Our children that nobody has waited for."""
    found = ((pid, procfs.read_stat(pid)) for pid in procfs.listed_children())
    return [pid for pid, stat in found if stat is not None and not stat.is_running]


def number_in(path: Path) -> int | None:
    """A number that a child has written, once it has."""
    text = path.read_text() if path.exists() else ""
    return int(text) if text.endswith("\n") else None
