"""`python -m sim.cli.walk`: walk the points of lives, with crashes and SIGTERMs; `make walk` walks all of them."""

from __future__ import annotations

import sys
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

import click

from sim.lives import LIVES
from sim.terminations import Asked
from sim.walker import How, Walked, between, every, walk

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sim.walker import Kind

KINDS: Final[Mapping[str, Kind]] = MappingProxyType({str(each): each for each in (*How, *Asked)})
EXIT_VIOLATED = 3
"""Safety, as `greenroom sim chaos` will have it."""


@click.command()
@click.argument("names", nargs=-1, type=click.Choice(list(LIVES)), metavar="[LIFE]...")
@click.option("--seed", type=int, default=0, show_default=True)
@click.option("--point", type=click.IntRange(min=1), help="Only the point with this number.")
@click.option("--every", "nth", type=click.IntRange(min=1), default=1, show_default=True, help="Only every nth point.")
@click.option(
    "--how",
    type=click.Choice(list(KINDS)),
    multiple=True,
    help="A crash (before, after, power) or a SIGTERM (term, term-twice, term-short, term-kill)  [default: all]",
)
def main(names: tuple[str, ...], seed: int, point: int | None, nth: int, how: tuple[str, ...]) -> None:
    """Crash, or send SIGTERM, at the points of the LIVES (of all, when none is named); look at what comes of it."""
    share = every(nth) if point is None else between(point, point)
    wanted = [KINDS[each] for each in how or KINDS]
    reports = []
    for name in names or LIVES:
        reports.append(walk(LIVES[name], seed=seed, share=share, how=wanted, tell=_tell))
        click.echo(str(reports[-1]))
    count = sum(len(each.walked) for each in reports)
    violations = sum(len(each.violations) for each in reports)
    click.echo(f"{count} runs of {len(reports)} lives, {violations} violations")
    sys.exit(EXIT_VIOLATED if violations else 0)


def _tell(walked: Walked) -> None:
    """Say at once what was found: a whole walk takes minutes."""
    for violation in walked.violations:
        click.echo(f"{walked.place}: {violation}", err=True)


if __name__ == "__main__":
    main()
