"""`greenroom machine`: the state machine, printed from the table that runs."""

from __future__ import annotations

import click

from statemachine.rendering import as_dot, as_mermaid, as_table


@click.command()
@click.option("--format", "form", type=click.Choice(["table", "mermaid", "dot"]), default="table", show_default=True)
def machine(form: str) -> None:
    """Print the state machine: every state, event and guard, and what follows."""
    click.echo({"table": as_table, "mermaid": as_mermaid, "dot": as_dot}[form]())
