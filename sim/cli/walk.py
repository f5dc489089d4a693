"""`python -m sim.cli.walk`: walk the points of lives, with crashes and SIGTERMs; `make walk` walks all of them."""

from __future__ import annotations

import enum
import sys
from typing import TYPE_CHECKING, TypeVar

import click

from sim.lives import LIVES
from sim.terminations import TERMINATED, Asked, walk_terminations
from sim.walker import How, Share, Walked, WalkReport, between, every, walk

if TYPE_CHECKING:
    from collections.abc import Iterator

_Kind = TypeVar("_Kind", bound=enum.StrEnum)

EXIT_VIOLATED = 3
"""Safety, as `greenroom sim chaos` will have it."""


@click.command()
@click.argument("names", nargs=-1, type=click.Choice(list(TERMINATED)), metavar="[LIFE]...")
@click.option("--seed", type=int, default=0, show_default=True)
@click.option("--point", type=click.IntRange(min=1), help="Only the point with this number.")
@click.option("--every", "nth", type=click.IntRange(min=1), default=1, show_default=True, help="Only every nth point.")
@click.option(
    "--how",
    type=click.Choice([str(each) for each in (*How, *Asked)]),
    multiple=True,
    help="A crash (before, after, power) or a SIGTERM (term, term-twice, term-short)  [default: all of them]",
)
def main(names: tuple[str, ...], seed: int, point: int | None, nth: int, how: tuple[str, ...]) -> None:
    """Crash, or send SIGTERM, at the points of the LIVES (of all, when none is named); look at what comes of it."""
    share = every(nth) if point is None else between(point, point)
    wanted = how or tuple(str(each) for each in (*How, *Asked))
    reports = []
    for name in names or TERMINATED:
        for report in _walk(name, seed, share, wanted):
            click.echo(str(report))
            reports.append(report)
    count = sum(len(each.walked) for each in reports)
    violations = sum(len(each.violations) for each in reports)
    click.echo(f"{count} ends in {len(reports)} walks, {violations} violations")
    sys.exit(EXIT_VIOLATED if violations else 0)


def _walk(name: str, seed: int, share: Share, wanted: tuple[str, ...]) -> Iterator[WalkReport]:
    crashes, terminations = _of(How, wanted), _of(Asked, wanted)
    if crashes and name in LIVES:
        yield walk(LIVES[name], seed=seed, share=share, how=crashes, tell=_tell)
    if terminations:
        yield walk_terminations(TERMINATED[name], seed=seed, share=share, how=terminations, tell=_tell)


def _of(kind: type[_Kind], wanted: tuple[str, ...]) -> tuple[_Kind, ...]:
    return tuple(each for each in kind if str(each) in wanted)


def _tell(walked: Walked) -> None:
    """Say at once what was found: a whole walk takes minutes."""
    for violation in walked.violations:
        click.echo(f"{walked.place}: {violation}", err=True)


if __name__ == "__main__":
    main()
