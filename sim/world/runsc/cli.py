"""One call of runsc: a generator that yields what takes time and returns what it said and with which code.

Each subcommand is in a module of its theme: `creating` (create, start, run, restore), `ending` (kill, delete, wait),
`looking` (state, list, ps, events, help), `acting` (pause, resume, checkpoint, exec).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

import orjson

from . import acting, creating, ending, looking
from .command import Command
from .machine import Completion, Invocation, Machine, RunscError, Sleep, Steps
from .settings import RunscSettings
from .state_files import timestamp
from .words import UsageError, read_globals, read_verb

_SUBCOMMANDS: Final[Mapping[str, Callable[[Command], Steps[Completion]]]] = MappingProxyType(
    {
        "checkpoint": acting.checkpoint,
        "create": creating.create,
        "delete": ending.delete,
        "events": looking.events,
        "exec": acting.execute,
        "help": looking.help_on_verb,
        "kill": ending.kill,
        "list": looking.list_containers,
        "nvproxy": looking.nvproxy,
        "pause": acting.pause,
        "ps": looking.processes,
        "restore": creating.restore,
        "resume": acting.resume,
        "run": creating.run,
        "start": creating.start,
        "state": looking.state,
        "wait": ending.wait,
    }
)


def call(machine: Machine, settings: RunscSettings, invocation: Invocation) -> Steps[Completion]:
    """Run one command line to its end."""
    yield Sleep(settings.latencies.command_s)
    try:
        flags, rest = read_globals(invocation.argv, settings.flavour)
    except UsageError as error:
        return Completion(code=error.code, stderr=error.text.encode())
    if flags.get("version") == "true":
        return Completion(code=0, stdout=f"runsc version {settings.version}\nspec: 1.2.0\n".encode())
    log = flags.get("log")
    try:
        _log(machine, log)
        command = Command(
            machine=machine,
            settings=settings,
            invocation=invocation,
            words=read_verb(flags, rest, settings.flavour),
        )
        machine.make_directories(command.root)
        return (yield from _SUBCOMMANDS[command.words.verb](command))
    except RunscError as error:
        _log(machine, log, *error.earlier, error.text)
        return Completion(code=128, stderr=f"{error.text}\n".encode())
    except UsageError as error:
        _log(machine, log, *error.logged)
        return Completion(code=error.code, stderr=error.text.encode())
    except OSError as error:
        # What no subcommand has words for: a disk that is full or broken under runsc's own files.
        text = f"{error.filename or command_line(invocation)}: {(error.strerror or str(error)).lower()}"
        return Completion(code=128, stderr=f"{text}\n".encode())


def command_line(invocation: Invocation) -> str:
    """Return what was called, for a message."""
    return " ".join(("runsc", *invocation.argv))


def _log(machine: Machine, path: str | None, *texts: str) -> None:
    """Append to the log as runsc does: JSON objects whatever `--log-format` says, and nothing between them.

    Without a text the file is only made, which every command does.
    """
    if path is None:
        return
    at = timestamp(machine.now_s()) if texts else ""
    try:
        machine.append(path, b"".join(orjson.dumps({"msg": text, "level": "error", "time": at}) for text in texts))
    except OSError:
        # Go's logger passes over what cannot be written; a log that cannot even be made ends the command.
        if not texts:
            raise
