"""`greenroom sim`: traces of fleets, made, imported and replayed, and the search for faults."""

from __future__ import annotations

import importlib
from typing import Final

import click

COMMANDS: Final = {
    "replay": ("sim.cli.replay", "replay", "Replay a trace against a fleet, in virtual time."),
    "report": ("sim.cli.report", "report", "Make a page of a replay, or compare two."),
    "what-if": ("sim.cli.what_if", "what_if", "Replay a trace with more and fewer workers and idle timeouts."),
    "import": ("sim.cli.import_trace", "import_trace", "Make a trace from somebody else's, or from journals."),
    "chaos": ("sim.cli.chaos", "chaos", "Break everything around the real worker, seed by seed."),
    "sweep": ("sim.cli.grid", "sweep", "Replay or break, over seeds and settings, here or on a cluster."),
    "generate": ("sim.cli.generate", "generate", "Make up a trace of a workload, by a seed."),
}
"""Command -> the module that holds it, under which name, and its line of help."""


class _Lazy(click.Group):
    """As the whole program's group: a command is imported when it is used."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002  (click's signature)
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002  (click's signature)
        if cmd_name not in COMMANDS:
            return None
        module, name, _line = COMMANDS[cmd_name]
        command = getattr(importlib.import_module(module), name)
        if not isinstance(command, click.Command):
            raise TypeError(f"{cmd_name} is no command")
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002  (click's signature)
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_module, _name, line) in COMMANDS.items()])


@click.group(cls=_Lazy)
def sim() -> None:
    """Replay fleets in virtual time, and look for faults. No worker is asked, and no GPU is needed."""
