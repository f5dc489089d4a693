"""`greenroom submit`, `suspend`, `resume`, `stop`: what changes an actor."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
import click
import orjson

from statemachine.problem import Problem, ProblemError, Step
from statemachine.reasons import Reason
from supervisor.cli.asking import Seconds, ask, json_option, run_dir_option
from supervisor.host.surroundings import read_small, working_directory

if TYPE_CHECKING:
    from collections.abc import Callable

READ_LIMIT_BYTES = (1 << 20) + 1
"""One byte more than a document may have: enough for the worker to refuse it by its own rule."""

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
@json_option
def submit(files: tuple[str, ...], wait: bool, timeout_s: float, run_dir: Path, as_json: bool) -> None:
    """Hand in assignments; returns at admission. `-` reads stdin."""
    results, problems = [], []
    for name in files:
        try:
            data, base = _read(name)
            result = ask(run_dir, "submit", document=data, base=str(base))
            if wait:
                _await_desired(run_dir, result["uid"], timeout_s)
        except ProblemError as error:
            problems += [_in_file(problem, name) for problem in error.problems]
            continue
        results.append({"file": name, **result})
        if not as_json:
            click.echo(f"{result['uid']}: generation {result['generation']} {result['effect']}")
    if as_json:
        click.echo(orjson.dumps(results))
    if problems:
        raise ProblemError(*problems)


def _in_file(problem: Problem, name: str) -> Problem:
    return attrs.evolve(problem, message=f"{name}: {problem.subject}: {problem.message}")


def _read(name: str) -> tuple[str, Path]:
    """A document's text and the directory that its paths are below."""
    try:
        data = read_small(Path(name), limit_bytes=READ_LIMIT_BYTES)
        base = working_directory() if name == "-" else Path(name).absolute().parent
        return data.decode("utf-8"), base
    except OSError as error:
        raise ProblemError(_problem(Reason.UNREADABLE_FILE, name, error.strerror or str(error))) from error
    except UnicodeDecodeError as error:
        raise ProblemError(_problem(Reason.NOT_UTF8, name, f"byte {error.start} is not UTF-8")) from error


def _problem(reason: Reason, name: str, message: str) -> Problem:
    return Problem(step=Step.ADMISSION, reason=reason, subject=name, message=message)


def _await_desired(run_dir: Path, uid: str, timeout_s: float) -> None:
    wanted = ask(run_dir, "status", uid=uid)["desiredState"]
    try:
        ask(run_dir, "wait", uid=uid, state=wanted, timeout_s=timeout_s, bound_s=timeout_s)
    except ProblemError as error:
        # It ran and has done all that it had to do before anybody could look.
        if error.problem.reason is not Reason.COMPLETED:
            raise


def _request(op: str, uid: str, *, wanted: str, run_dir: Path, timeout_s: float, no_wait: bool, as_json: bool) -> None:
    result = ask(run_dir, op, uid=uid)
    if not no_wait:
        result = ask(run_dir, "wait", uid=uid, state=wanted, timeout_s=timeout_s, bound_s=timeout_s)
    click.echo(orjson.dumps(result) if as_json else f"{uid}: {result['state']}")


@click.command()
@click.argument("uid")
@no_wait_option
@timeout_option
@run_dir_option
@json_option
def suspend(uid: str, no_wait: bool, timeout_s: float, run_dir: Path, as_json: bool) -> None:
    """Suspend an actor; returns at Suspended, at once when it is already."""
    _request("suspend", uid, wanted="Suspended", run_dir=run_dir, timeout_s=timeout_s, no_wait=no_wait, as_json=as_json)


@click.command()
@click.argument("uid")
@no_wait_option
@timeout_option
@run_dir_option
@json_option
def resume(uid: str, no_wait: bool, timeout_s: float, run_dir: Path, as_json: bool) -> None:
    """Resume an actor from its last good snapshot; returns at Running, at once when it is already."""
    _request("resume", uid, wanted="Running", run_dir=run_dir, timeout_s=timeout_s, no_wait=no_wait, as_json=as_json)


@click.command()
@click.argument("uid")
@no_wait_option
@timeout_option
@run_dir_option
@json_option
def stop(uid: str, no_wait: bool, timeout_s: float, run_dir: Path, as_json: bool) -> None:
    """Stop an actor for good; its snapshots stay. Returns at Terminated."""
    _request("stop", uid, wanted="Terminated", run_dir=run_dir, timeout_s=timeout_s, no_wait=no_wait, as_json=as_json)
