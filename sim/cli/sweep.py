"""`python -m sim.cli.sweep`: let every call of a life meet every fault, and say what is violated."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from sim.cli.walk import EXIT_VIOLATED
from sim.spots import SWEPT
from sim.sweep import sweep

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sim.spots import Spot
    from sim.sweep import Swept


@click.command()
@click.argument("name", type=click.Choice(list(SWEPT)), default="local", metavar="[ACTOR]")
@click.option("--seed", type=int, default=0, show_default=True)
@click.option("--call", "number", type=click.IntRange(min=1), help="Only the call with this number.")
@click.option("--fault", help="Only faults whose names begin so, as `fail:EIO` or `half`.")
@click.option("--every", "nth", type=click.IntRange(min=1), default=1, show_default=True, help="Only every nth.")
def main(name: str, seed: int, number: int | None, fault: str | None, nth: int) -> None:
    """Run, suspend, resume and stop ACTOR, each time with one fault of one call.

    ACTOR is local; or stored, whose snapshots go to a store; or durable, which has a volume and hooks.
    """

    def share(spots: Sequence[Spot]) -> Sequence[Spot]:
        found = [each for each in spots if number is None or each.number == number]
        return [each for each in found if fault is None or each.fault.startswith(fault)][::nth]

    report = sweep(name, seed=seed, share=share, tell=_tell)
    click.echo(str(report))
    sys.exit(EXIT_VIOLATED if report.violations else 0)


def _tell(swept: Swept) -> None:
    """Say at once what was found: a whole sweep takes minutes."""
    for violation in swept.violations:
        click.echo(f"{swept.spot}: {violation}", err=True)


if __name__ == "__main__":
    main()
