"""`greenroom status --watch`: on a terminal a table that lives, elsewhere a line for each change.

Nothing is polled: the worker answers when something has happened, and at the latest after some seconds.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Final

import anyio
import click
import orjson
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from actors.layout import CONTROL_SOCKET
from supervisor.cli.status_rows import COLUMNS, row_of
from supervisor.client import call
from supervisor.host.net import HostNet

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator
    from pathlib import Path

WAIT_S: Final = 30.0
"""The worker's longest silence; what changes without anything happening, as usage does, is that old at most."""
PACE_S: Final = 0.2
"""Between two looks: a person sees no more, and a thousand actors that start together cost no thousand tables."""


def watch_status(run_dir: Path, uid: str | None, *, as_json: bool) -> None:
    """Show every change until interrupted.

    Raises:
        ProblemError: ActorNotFound; WorkerUnreachable, also when the worker has left.
    """
    if as_json:
        anyio.run(_show_each, run_dir, uid, lambda status: click.echo(orjson.dumps(status)))
    elif sys.stdout.isatty():
        anyio.run(_show_live, run_dir, uid)
    else:
        anyio.run(_show_each, run_dir, uid, _Lines().show)


async def _show_each(run_dir: Path, uid: str | None, show: Callable[[dict[str, Any]], None]) -> None:
    async for status in _statuses(run_dir, uid):
        show(status)


async def _show_live(run_dir: Path, uid: str | None) -> None:
    with Live(console=Console(file=sys.stdout), auto_refresh=False) as live:
        async for status in _statuses(run_dir, uid):
            live.update(as_table(status), refresh=True)


async def _statuses(run_dir: Path, uid: str | None) -> AsyncIterator[dict[str, Any]]:
    """The status at once, and after each change."""
    net, after = HostNet(), dict[str, int]()
    while True:
        answer = await call(net, run_dir / CONTROL_SOCKET, "watch", bound_s=WAIT_S, uid=uid, wait_s=WAIT_S, **after)
        after = {"after": answer["change"]}
        yield answer["status"]
        await anyio.sleep(PACE_S)


def as_table(status: dict[str, Any]) -> Group:
    """A status document, or that of one actor, for a terminal."""
    table = Table(*COLUMNS, box=None, pad_edge=False)
    for actor in _actors_in(status):
        # As text: what a document says is no markup.
        table.add_row(*(Text(cell) for cell in row_of(actor)))
    return Group(*(Text(line) for line in _heads(status)), table)


def _heads(status: dict[str, Any]) -> Iterator[str]:
    if "worker" not in status:
        return
    worker = status["worker"]
    free = sum(gpu["state"] == "Free" for gpu in worker["gpus"])
    gpus = f"  GPUs {free} free of {len(worker['gpus'])}" if worker["gpus"] else ""
    yield f"worker  {worker['state']}  actors {len(status['actors'])}{gpus}"
    for problem in worker["problems"]:
        file = f"{problem['file']}: " if problem["file"] else ""
        yield f"{file}{problem['subject']}: {problem['reason']}: {problem['message']}"


def _actors_in(status: dict[str, Any]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = status.get("actors", [status])
    return found


class _Lines:
    """A line for what is not as it was when it was last told."""

    def __init__(self) -> None:
        self._told: dict[str, tuple[str, ...]] = {}

    def show(self, status: dict[str, Any]) -> None:
        now = {actor["uid"]: row_of(actor) for actor in _actors_in(status)}
        if "worker" in status:
            now[""] = tuple(_heads(status))
        for key, cells in now.items():
            if self._told.get(key) != cells:
                click.echo("\n".join(cells) if key == "" else "  ".join(cells))
        for gone in self._told.keys() - now.keys():
            click.echo(f"{gone}  is forgotten")
        self._told = now
        sys.stdout.flush()
