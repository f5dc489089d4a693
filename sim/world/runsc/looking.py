"""state, list, ps, events: what is asked and changes nothing. Texts and forms measured on runsc 20240729."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import orjson

from .command import CREATED, PAUSED, RUNNING, STOPPED, Command, says
from .machine import Completion, RunscError, Steps
from .state_files import all_ids
from .words import VERBS, UsageError, help_on

if TYPE_CHECKING:
    from .state_files import State

_COLUMNS: Final = "{:<12}{:<12}{:<12}{:<20}{:<33}{}"


def state(command: Command) -> Steps[Completion]:
    """Tell a container's state as pretty JSON."""
    found = yield from command.load(command.words.arguments[0])
    return Completion(code=0, stdout=orjson.dumps(found.as_oci(), option=orjson.OPT_INDENT_2) + b"\n")


def list_containers(command: Command) -> Steps[Completion]:
    """Tell of all containers of this root; of none, JSON says `null`. What cannot be read is passed over."""
    ids = [each for each in all_ids(command.names()) if each.is_root or not command.words.has("sandbox")]
    if command.words.has("quiet"):
        return Completion(code=0, stdout="".join(f"{each.container}\n" for each in ids).encode())
    found: list[State] = []
    for each in ids:
        try:
            found.append((yield from command.load_exactly(each)))
        except RunscError:
            continue
    if command.words.options.get("format") == "json":
        return says([each.as_oci() for each in found] or None)
    lines = [_COLUMNS.format("ID", "PID", "STATUS", "BUNDLE", "CREATED", "OWNER")]
    for known in found:
        pid = known.pid if known.is_alive else -1
        lines.append(_COLUMNS.format(known.id.container, pid, known.status, known.bundle, known.created_at, ""))
    return Completion(code=0, stdout="".join(f"{line}\n" for line in lines).encode())


def processes(command: Command) -> Steps[Completion]:
    """Tell a container's processes, by pids inside the sandbox; answers while frozen, and of a stopped one."""
    found = yield from command.load(command.words.arguments[0], doing="loading sandbox")
    failing = "getting processes for container"
    command.require(found, f"{failing}: cannot get processes of", RUNNING, PAUSED, STOPPED)
    rows = yield from command.ask(found, "Processes", f"{failing}: retrieving process data from sandbox")
    if command.words.options.get("format") == "json":
        return says([pid for pid, _, _ in rows])
    form = "{:<10}{:<10}{:<10}{:<10}{:<10}{:<10}{:<10}{}\n"
    table = form.format("UID", "PID", "PPID", "C", "TTY", "STIME", "TIME", "CMD")
    table += "".join(form.format(0, pid, parent, 0, "?", "00:00", "0s", name) for pid, parent, name in rows)
    return Completion(code=0, stdout=table.encode())


def nvproxy(command: Command) -> Steps[Completion]:
    """Tell which drivers it knows; a runsc that cannot tell has no such command."""
    known = command.settings.known_drivers
    if known is None or command.words.arguments != ("list-supported-drivers",):
        raise UsageError(VERBS["nvproxy"].usage, 128)
    yield from ()
    # Measured: in no order, each time in another one.
    return Completion(code=0, stdout="".join(f"{each}\n" for each in reversed(known)).encode())


def help_on_verb(command: Command) -> Steps[Completion]:
    """Tell how a subcommand is called."""
    yield from ()
    verb = command.words.arguments[0] if command.words.arguments else "help"
    return Completion(code=0, stdout=help_on(verb, command.settings.flavour).encode())


def events(command: Command) -> Steps[Completion]:
    """Tell one sample of statistics; a failure says nothing at all, not even in the log."""
    found = yield from command.load(command.words.arguments[0], doing="loading sandbox")
    try:
        command.require(found, "", CREATED, RUNNING, PAUSED)
        sample = yield from command.ask(found, "Event", "")
    except RunscError:
        return Completion(code=128)
    memory = {"usage": {"limit": 0, "usage": sample["bytes"], "failcnt": 0}}
    data = {"cpu": {"usage": {}}, "memory": memory, "pids": {"current": sample["processes"]}}
    return says({"type": "stats", "id": found.id.container, "data": data})
