"""`greenroom submit`, `suspend`, `resume`, `stop`: what changes an actor."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import orjson

from actors.codec import camel
from actors.document import unreadable
from statemachine.actor import OnDifference
from statemachine.problem import Problem, ProblemError, Step
from statemachine.reasons import Reason
from statemachine.wording import file_label
from supervisor.cli.asking import Seconds, ask, json_option, own_json_option, run_dir_option
from supervisor.cli.given import READ_LIMIT_BYTES, in_file
from supervisor.host.surroundings import read_small, working_directory
from supervisor.status import problem_json

if TYPE_CHECKING:
    from collections.abc import Callable

timeout_option: Callable[[Any], Any] = click.option(
    "--timeout", "timeout_s", type=Seconds(), default=300.0, show_default=True, help="Seconds."
)
no_wait_option: Callable[[Any], Any] = click.option(
    "--no-wait", is_flag=True, help="Return when the worker has taken the request."
)


@click.command()
@click.argument("files", nargs=-1, required=True, metavar="FILE…|-")
@click.option("--wait", "wait", is_flag=True, help="Return when each actor is in its desired state.")
@timeout_option
@run_dir_option
@own_json_option
def submit(files: tuple[str, ...], wait: bool, timeout_s: float, run_dir: Path, as_json: bool) -> None:
    """Hand in assignments; returns at admission. `-` reads stdin."""
    results: list[dict[str, Any]] = []
    problems: list[Problem] = []
    for name in files:
        try:
            data, base = _read(name)
            result = ask(run_dir, "submit", document=data, base=str(base))
            if wait:
                _await_desired(run_dir, result["uid"], timeout_s)
        except ProblemError as error:
            problems += [in_file(problem, name) for problem in error.problems]
            errors = [problem_json(problem) for problem in error.problems]
            results.append({"file": file_label(name), "error": errors[0], "errors": errors})
            continue
        results.append({"file": file_label(name), **result})
        if not as_json:
            click.echo(f"{result['uid']}: generation {result['generation']} {result['effect']}")
    if as_json:
        click.echo(orjson.dumps(results))
    if problems:
        raise ProblemError(*problems)


def _read(name: str) -> tuple[str, Path]:
    """A document's text and the directory that its paths are below."""
    try:
        data = read_small(Path(name), limit_bytes=READ_LIMIT_BYTES)
        base = working_directory() if name == "-" else Path(name).absolute().parent
        return data.decode("utf-8"), base
    except OSError as error:
        raise ProblemError(unreadable(error)) from error
    except UnicodeDecodeError as error:
        raise ProblemError(_not_utf8(error)) from error


def _not_utf8(error: UnicodeDecodeError) -> Problem:
    message = f"byte {error.start} is not UTF-8"
    return Problem(step=Step.ADMISSION, reason=Reason.NOT_UTF8, subject="document", message=message)


def _await_desired(run_dir: Path, uid: str, timeout_s: float) -> None:
    wanted = ask(run_dir, "status", uid=uid)["desiredState"]
    try:
        ask(run_dir, "wait", uid=uid, state=wanted, timeout_s=timeout_s, bound_s=timeout_s)
    except ProblemError as error:
        # It ran and has done all that it had to do before anybody could look.
        if error.problem.reason is not Reason.COMPLETED:
            raise


def _change(op: str, *, wanted: str, says: str) -> click.Command:
    """The command that asks for one change of an actor and returns when the actor is in the wanted state."""

    @click.command(op, help=says)
    @click.argument("uid")
    @no_wait_option
    @timeout_option
    @run_dir_option
    @json_option
    def request(uid: str, no_wait: bool, timeout_s: float, run_dir: Path, as_json: bool, **more: Any) -> None:
        arguments: dict[str, Any] = {camel(name): str(value) for name, value in more.items()}
        result = ask(run_dir, op, uid=uid, **arguments)
        if not no_wait:
            result |= ask(run_dir, "wait", uid=uid, state=wanted, timeout_s=timeout_s, bound_s=timeout_s)
        anew = " (started anew: there is no snapshot)" if result.get("startsAnew") else ""
        click.echo(orjson.dumps(result) if as_json else f"{uid}: {result['state']}{anew}")

    return request


suspend = _change(
    "suspend", wanted="Suspended", says="Suspend an actor; returns at Suspended, at once when it is already."
)
resume = click.option(
    "--force",
    "on_difference",
    flag_value=OnDifference.FORCE,
    default=OnDifference.REFUSE,
    type=OnDifference,
    help="Restore it although the snapshot does not match this place, as `snapshots check` tells.",
)(
    _change(
        "resume",
        wanted="Running",
        says="Resume an actor from its last good snapshot; returns at Running, at once when it is already.",
    )
)
stop = _change("stop", wanted="Terminated", says="Stop an actor for good; its snapshots stay. Returns at Terminated.")
