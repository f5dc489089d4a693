"""The console script: loads each command only when it is used, and turns every end into an exit code.

Exit codes: 0 done; 1 refused or failed, the last line of stderr is `error: <Reason>: <message>`; 2 usage; 77 not
possible on this machine; 130 interrupted. No traceback reaches a user. A command with `--json` that fails prints the
problems on stdout as well, as one document, in the shape of the control socket's answers.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import sys
from typing import TYPE_CHECKING, Final

import attrs
import click

from statemachine.problem import Problem, ProblemError, Step, beyond
from statemachine.reasons import Reason
from supervisor.host.stdout import open_closed_streams, open_stdout

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

COMMANDS: Final = {
    "run": ("supervisor.cli.run", "Run the worker: PID 1 of the pod."),
    "submit": ("supervisor.cli.requests", "Hand in assignments."),
    "suspend": ("supervisor.cli.requests", "Suspend an actor into a snapshot."),
    "resume": ("supervisor.cli.requests", "Run a suspended or failed actor again."),
    "stop": ("supervisor.cli.requests", "Stop an actor for good."),
    "status": ("supervisor.cli.inspection", "Show the worker and its actors, or one actor."),
    "wait": ("supervisor.cli.inspection", "Wait until an actor is in a state."),
    "logs": ("supervisor.cli.logs", "Print what a container wrote."),
    "exec": ("supervisor.cli.executing", "Execute a command inside a container of a running actor."),
    "trace": ("supervisor.cli.trace", "Show an actor's life from its journal, or write it for Perfetto."),
    "validate": ("supervisor.cli.validate", "Check documents without a worker."),
    "plan": ("supervisor.cli.plan", "Show which GPUs an assignment would get and how; nothing is touched."),
    "doctor": ("supervisor.cli.doctor", "Say whether this pod can run GPU actors, and what is missing."),
    "cdi": ("supervisor.cli.cdi", "Look at, check and inject the CDI devices of a host, without a worker."),
    "snapshots": ("supervisor.cli.snapshots", "Look at snapshots, verify them, see whether one can be restored here."),
    "machine": ("supervisor.cli.machine", "Print the state machine."),
    "mock-node": ("sim.cli.mock_node", "Make a mock GPU node: nodes, a driver and NVML, but no GPU."),
    "demo": ("sim.cli.demo", "Run an actor through its life, for real, or in the simulated world."),
    "sim": ("sim.cli.simulator", "Replay fleets in virtual time, and look for faults."),
}
"""Command -> the module that holds it under its own name (`_` for `-`), and its line of help."""

PASSED_OVER: Final = {"run": "rich"}
"""Command -> a package that is not seen while it is imported.

structlog takes rich along where it finds it, for tracebacks in a form that no log of ours has: 52 modules, of which a
worker would keep 3 MB for ever, and a tenth of its start.
"""

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
        with _unseen(PASSED_OVER.get(cmd_name)), _kept_for_ever():
            command = getattr(importlib.import_module(COMMANDS[cmd_name][0]), cmd_name.replace("-", "_"))
        if not isinstance(command, click.Command):
            raise TypeError(f"{cmd_name} is no command")
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002  (click's signature)
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_module, line) in COMMANDS.items()])


@contextlib.contextmanager
def _unseen(package: str | None) -> Iterator[None]:
    """While the body imports, it is as if this package was not installed; one that is imported already stays.

    Source: the import system, "The module cache": what is None there cannot be found.
    """
    if package is None or package in sys.modules:
        yield
        return
    sys.modules[package] = None  # type: ignore[assignment]  # typeshed knows modules only, the import system also None
    try:
        yield
    finally:
        del sys.modules[package]


@contextlib.contextmanager
def _kept_for_ever() -> Iterator[None]:
    """What the body imports is kept for ever, if the process's `main` has begun: nobody looks for garbage in it.

    Else a start would spend a tenth of its time on that, and a worker look through all of it again and again.
    """
    try:
        yield
    finally:
        if not gc.isenabled():
            gc.freeze()
            gc.enable()


@click.group(cls=_Lazy, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="greenroom")
def cli() -> None:
    """Greenroom puts actors on stage in gVisor sandboxes, and suspends and resumes them without losing one."""


def main() -> None:
    """The console script's entry point."""
    gc.disable()  # until the command is imported
    open_closed_streams()
    sys.stdout = open_stdout()
    sys.exit(run(sys.argv[1:]))


def run(arguments: list[str]) -> int:
    """Run a command line; returns the exit code."""
    seen: dict[str, bool] = {}  # click's object of the call, in which `--json` leaves a note
    try:
        code = cli.main(args=arguments, prog_name="greenroom", standalone_mode=False, obj=seen)
    except click.Abort:
        return EXIT_INTERRUPTED
    except click.ClickException as error:
        error.show()
        return EXIT_USAGE
    except BaseException as error:  # noqa: BLE001  (the last place where an error can still become a reason)
        return _report(_only_leaf(error), tell=_tell_both if seen.get("as_json") else _tell)
    return code if isinstance(code, int) else 0


def _report(error: BaseException, *, tell: Callable[[tuple[Problem, ...]], None]) -> int:
    """Say what went wrong, and return the exit code."""
    match error:
        case SystemExit():
            raise error
        case KeyboardInterrupt():
            return EXIT_INTERRUPTED
        case BrokenPipeError():
            return EXIT_FAILED  # nobody reads it any more
        case ProblemError(problems=problems):
            tell(problems)
        case _:
            tell((_internal(error),))
    return EXIT_FAILED


def _tell(problems: tuple[Problem, ...]) -> None:
    """All problems on stderr, the first one on the last line."""
    for problem in reversed(problems):
        if more := beyond(problem.message, problem.detail):
            click.echo(more, err=True)
        if problem.hint:
            click.echo(f"hint: {problem.hint}", err=True)
        click.echo(f"error: {problem}", err=True)


def _tell_both(problems: tuple[Problem, ...]) -> None:
    """The same, and one document on stdout."""
    errors = [attrs.asdict(problem) for problem in problems]
    with contextlib.suppress(ProblemError, BrokenPipeError):  # stdout cannot be written: stderr says it too
        click.echo(json.dumps({"ok": False, "error": errors[0], "errors": errors}, ensure_ascii=False))
    _tell(problems)


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
