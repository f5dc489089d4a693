"""The console script: loads each command only when it is used, and turns every end into an exit code.

Exit codes: 0 done; 1 refused or failed, the last line of stderr is `error: <Reason>: <message>`; 2 usage; 77 not
possible on this machine; 130 interrupted. No traceback reaches a user.
"""

from __future__ import annotations

import importlib
import sys
from typing import Final

import click

from statemachine.problem import Problem, ProblemError, Step
from statemachine.reasons import Reason

COMMANDS: Final = {
    "run": ("supervisor.cli.run", "Run the worker: PID 1 of the pod."),
    "submit": ("supervisor.cli.requests", "Hand in assignments."),
    "suspend": ("supervisor.cli.requests", "Suspend an actor into a snapshot."),
    "resume": ("supervisor.cli.requests", "Run a suspended or failed actor again."),
    "stop": ("supervisor.cli.requests", "Stop an actor for good."),
    "status": ("supervisor.cli.inspection", "Show the worker and its actors, or one actor."),
    "wait": ("supervisor.cli.inspection", "Wait until an actor is in a state."),
    "logs": ("supervisor.cli.inspection", "Print what a container wrote."),
    "validate": ("supervisor.cli.validate", "Check documents without a worker."),
    "machine": ("supervisor.cli.machine", "Print the state machine."),
    "demo": ("sim.cli.demo", "Run an actor through its life, for real, or in the simulated world."),
}
"""Command -> the module that holds it under its own name, and its line of help."""

EXIT_FAILED: Final = 1
EXIT_USAGE: Final = 2
EXIT_INTERRUPTED: Final = 130


class _Lazy(click.Group):
    """A group whose commands are imported when they are used: `--help` reads the table above and nothing else."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002  (click's signature)
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002  (click's signature)
        if cmd_name not in COMMANDS:
            return None
        command = getattr(importlib.import_module(COMMANDS[cmd_name][0]), cmd_name)
        if not isinstance(command, click.Command):
            raise TypeError(f"{cmd_name} is no command")
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002  (click's signature)
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_module, line) in COMMANDS.items()])


@click.group(cls=_Lazy, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="greenroom")
def cli() -> None:
    """Greenroom puts actors on stage in gVisor sandboxes, and suspends and resumes them without losing one."""


def main() -> None:
    """The console script's entry point."""
    sys.exit(run(sys.argv[1:]))


def run(arguments: list[str]) -> int:
    """Run a command line; returns the exit code."""
    try:
        code = cli.main(args=arguments, prog_name="greenroom", standalone_mode=False)
    except click.Abort:
        return EXIT_INTERRUPTED
    except click.ClickException as error:
        error.show()
        return EXIT_USAGE
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except BaseException as error:  # noqa: BLE001  (the last place where an error can still become a reason)
        return _report(error)
    return code if isinstance(code, int) else 0


def _report(error: BaseException) -> int:
    """Say what went wrong: all problems, the first one on the last line."""
    if isinstance(error, SystemExit):
        raise error
    if isinstance(error, BrokenPipeError):
        return EXIT_FAILED
    if (leaf := _only_leaf(error)) is not error:
        return _report(leaf)
    if isinstance(error, KeyboardInterrupt):
        return EXIT_INTERRUPTED
    problems = error.problems if isinstance(error, ProblemError) else (_internal(error),)
    for problem in reversed(problems):
        if problem.detail and problem.detail.strip() != problem.message:
            click.echo(problem.detail, err=True)
        if problem.hint:
            click.echo(f"hint: {problem.hint}", err=True)
        click.echo(f"error: {problem}", err=True)
    return EXIT_FAILED


def _only_leaf(error: BaseException) -> BaseException:
    """The first cause inside groups that task groups made."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def _internal(error: BaseException) -> Problem:
    return Problem(
        step=Step.SUPERVISE,
        reason=Reason.INTERNAL,
        subject=type(error).__name__,
        message=f"{type(error).__name__}: {error}",
    )


if __name__ == "__main__":
    main()
