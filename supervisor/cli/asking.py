"""What every command that asks a worker shares: where the worker is, and one round of question and answer."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import anyio
import click

from actors.layout import CONTROL_SOCKET
from supervisor.client import call
from supervisor.host.net import HostNet

if TYPE_CHECKING:
    from collections.abc import Callable

SECONDS_MAX: Final = 86_400

run_dir_option: Callable[[Any], Any] = click.option(
    "--run-dir",
    type=click.Path(path_type=Path),
    default="/run/greenroom",
    show_default=True,
    envvar="GREENROOM_RUN_DIR",
    help="The worker's run directory.",
)


class Seconds(click.ParamType[float]):
    """A number of seconds from 0 to a day: no `nan`, no `inf`."""

    name = "seconds"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Read it, or say what is wrong."""
        try:
            seconds = float(value)
        except (TypeError, ValueError):
            self.fail(f"{value!r} is not a number of seconds", param, ctx)
        if not 0 <= seconds <= SECONDS_MAX:
            self.fail(f"{value!r} is not from 0 to {SECONDS_MAX}", param, ctx)
        return seconds


def _leave_note(ctx: click.Context, _param: click.Parameter, value: bool) -> bool:
    ctx.ensure_object(dict)["as_json"] = value
    return value


json_option: Callable[[Any], Any] = click.option(
    "--json", "as_json", is_flag=True, callback=_leave_note, help="One JSON document on stdout, of a failure too."
)
"""With a note in click's object of the call, so that a failure is told as one document as well."""

own_json_option: Callable[[Any], Any] = click.option(
    "--json", "as_json", is_flag=True, help="One JSON document on stdout, with the problems of each file."
)
"""Of a command whose own document tells what failed."""


def ask(run_dir: Path, op: str, *, bound_s: float = 60.0, **arguments: Any) -> Any:
    """Ask the worker and return its result.

    Raises:
        ProblemError: its refusal, or WorkerUnreachable.
    """

    async def asked() -> Any:
        return await call(HostNet(), run_dir / CONTROL_SOCKET, op, bound_s=bound_s, **arguments)

    return anyio.run(asked)
