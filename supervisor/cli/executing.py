"""`greenroom exec`: a command inside a container of a running actor."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
import attrs
import click

from actors.confine_elf import confine_at_terminal_elf
from actors.layout import CONTROL_SOCKET
from actors.runsc.answers import parse_pid_file
from actors.runsc.argv import EXEC_FD_AT_TERMINAL
from actors.runsc.errors import Call, classify
from actors.runsc.log import LOG_BYTES_MAX, parse_log, words
from statemachine.problem import Problem, ProblemError, Step
from statemachine.reasons import Reason
from supervisor.cli.asking import ask, run_dir_option
from supervisor.client import holding
from supervisor.host.foreground import run_in_foreground, spawn_quietly
from supervisor.host.net import HostNet
from supervisor.host.surroundings import read_small
from supervisor.host.terminal import has_terminal, kind_of_terminal, run_at_terminal
from supervisor.host.wall import HostWall

if TYPE_CHECKING:
    from supervisor.host.foreground import Ended

PID_BYTES_MAX = 32


@click.command("exec")
@click.argument("uid")
@click.option("-c", "--container", help="The container; may be left out when there is one.")
@click.option("-t", "--tty", "at_terminal", is_flag=True, help="At a terminal of its own, of which ours is the window.")
@click.option("-i", "--stdin", is_flag=True, expose_value=False, help="As without it: stdin is passed on in any case.")
@run_dir_option
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
def execute(uid: str, *, container: str | None, at_terminal: bool, run_dir: Path, command: tuple[str, ...]) -> int:
    """Execute a command inside a container of a running actor, as its user; ends with its exit code.

    Its stdin, stdout and stderr are passed on, and so are signals. While it runs, the actor is not suspended.
    """
    if at_terminal and not has_terminal():
        hint = "Leave -t out; in a pod: `kubectl exec -it POD -- greenroom exec -t …`."
        problem = _problem(Reason.INVALID_REQUEST, "stdin", "-t wants a terminal, and stdin is none")
        raise ProblemError(attrs.evolve(problem, hint=hint))
    name = container or _only_container(run_dir, uid)
    return anyio.run(_execute, run_dir, uid, name, list(command), kind_of_terminal() if at_terminal else None)


exec = execute  # noqa: A001 - greenroom.py finds a command by its name


async def _execute(run_dir: Path, uid: str, name: str, command: list[str], term: str | None) -> int:
    arguments: dict[str, Any] = {"uid": uid, "container": name, "command": command}
    if term is not None:
        arguments["term"] = term
    async with holding(HostNet(), run_dir / CONTROL_SOCKET, "exec", **arguments) as plan:
        ended = _run(plan, is_at_terminal=term is not None)
        # Asked for while the connection stands: then the file is there.
        _raise_for_runsc(plan, name, ended)
    if ended.has_left_something:
        click.echo(
            f"{name}: something that the command left running has its output still open; "
            "the actor cannot be suspended before that has ended",
            err=True,
        )
    if ended.unwritten is not None:
        why = ended.unwritten.strerror or ended.unwritten
        message = f"not all that the command wrote could be written: {why}; it ended with exit code {ended.code}"
        raise ProblemError(_problem(Reason.OUTPUT_UNWRITABLE, "stdout", message))
    return ended.code


def _run(plan: dict[str, Any], *, is_at_terminal: bool) -> Ended:
    def pass_on(signum: int) -> None:
        try:
            pid = parse_pid_file(read_small(Path(plan["pidFile"]), limit_bytes=PID_BYTES_MAX))
        except (OSError, ValueError):  # it has not begun yet, or has ended
            return
        spawn_quietly([*plan["kill"], f"--pid={pid}", plan["container"], str(signum)], plan["env"])

    try:
        if is_at_terminal:
            program = (
                (confine_at_terminal_elf(HostWall().machine()), EXEC_FD_AT_TERMINAL) if plan["isConfined"] else None
            )
            return run_at_terminal(plan["argv"], plan["env"], program=program, pass_on=pass_on)
        return run_in_foreground(
            plan["argv"],
            plan["env"],
            stdin=None if plan["stdin"] is None else Path(plan["stdin"]),
            streams=Path(plan["streams"]),
            pass_on=pass_on,
        )
    except OSError as error:
        where = error.filename or plan["argv"][0]
        message = f"{where} cannot be used from here: {error.strerror or error}"
        hint = "Run it where the worker runs, as root: in a pod by `kubectl exec POD -- greenroom exec …`."
        problem = _problem(Reason.RUNTIME_UNAVAILABLE, str(where), message)
        raise ProblemError(attrs.evolve(problem, hint=hint)) from error


def _raise_for_runsc(plan: dict[str, Any], name: str, ended: Ended) -> None:
    """Tell a failure of runsc's own, which its log tells from a command that ended with the same code.

    Raises:
        ProblemError: the reason that its words tell.
    """
    try:
        log = read_small(Path(plan["log"]), limit_bytes=LOG_BYTES_MAX)
    except OSError:
        return
    if ended.code and parse_log(log):
        call = Call(step=Step.SUPERVISE, verb="exec", subject=name)
        raise ProblemError(classify(call, words(log, b""), status=f"exit code {ended.code}"))


def _only_container(run_dir: Path, uid: str) -> str:
    names = [each["name"] for each in ask(run_dir, "status", uid=uid)["containers"]]
    if len(names) != 1:
        message = f"actor {uid} has {len(names)} containers: say which with -c: {', '.join(names)}"
        hint = f"`greenroom exec {uid} -c NAME -- COMMAND…`, and NAME is one of {', '.join(names)}."
        raise ProblemError(attrs.evolve(_problem(Reason.INVALID_REQUEST, uid, message), hint=hint))
    return str(names[0])


def _problem(reason: Reason, subject: str, message: str) -> Problem:
    return Problem(step=Step.SUPERVISE, reason=reason, subject=subject, message=message)
