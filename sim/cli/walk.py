"""`python -m sim.cli.walk`: walk the crash points of lives, and say what is violated; `make walk` walks all of them."""

from __future__ import annotations

import sys

import click

from sim.lives import LIVES
from sim.walker import How, Share, Walked, WalkReport, between, every, walk

EXIT_VIOLATED = 3
"""Safety, as `greenroom sim chaos` will have it."""


@click.command()
@click.argument("names", nargs=-1, type=click.Choice(list(LIVES)), metavar="[LIFE]...")
@click.option("--seed", type=int, default=0, show_default=True)
@click.option("--point", type=click.IntRange(min=1), help="Only the point with this number.")
@click.option("--every", "nth", type=click.IntRange(min=1), default=1, show_default=True, help="Only every nth point.")
@click.option("--how", type=click.Choice([str(each) for each in How]), multiple=True, help="[default: all three]")
def main(names: tuple[str, ...], seed: int, point: int | None, nth: int, how: tuple[str, ...]) -> None:
    """Crash at the points of the LIVES (of all, when none is named), and look at what comes of it."""
    share = every(nth) if point is None else between(point, point)
    reports = [_walk(name, seed, share, tuple(map(How, how)) or tuple(How)) for name in names or LIVES]
    count = sum(len(each.walked) for each in reports)
    violations = sum(len(each.violations) for each in reports)
    click.echo(f"{count} crashes in {len(reports)} lives, {violations} violations")
    sys.exit(EXIT_VIOLATED if violations else 0)


def _walk(name: str, seed: int, share: Share, how: tuple[How, ...]) -> WalkReport:
    report = walk(LIVES[name], seed=seed, share=share, how=how, tell=_tell)
    click.echo(str(report))
    return report


def _tell(walked: Walked) -> None:
    """Say at once what was found: a whole walk takes minutes."""
    for violation in walked.violations:
        click.echo(f"{walked.place}: {violation}", err=True)


if __name__ == "__main__":
    main()
