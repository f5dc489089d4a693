"""`greenroom demo`: the main job in one story, for real; on request, or where gVisor cannot run, simulated."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import click

from sim.engine import run
from sim.world.files import SimFiles
from sim.world.world import ROOTFS, Machine
from supervisor.cli.demo import play_for_real
from supervisor.cli.story import RUNSC, Story, require

if TYPE_CHECKING:
    from sim.scenario import Stage

EXIT_NOT_POSSIBLE: Final = 77
SIMULATED: Final = f"simulated, a model of {RUNSC}: no process or file of this machine is used, seconds are virtual"


@click.command()
@click.option("--simulated", is_flag=True, help="Play it in the simulated world, on any machine.")
@click.option("--or-simulated", is_flag=True, help="Play it there when gVisor cannot run on this machine.")
@click.option("--seed", type=int, default=0, show_default=True, help="Of the simulated world.")
def demo(*, simulated: bool, or_simulated: bool, seed: int) -> int:
    """Run an actor through its whole life in real gVisor, in a scratch directory; 77 where gVisor cannot run."""
    if simulated:
        play_simulated(SIMULATED, seed=seed)
        return 0
    obstacle = play_for_real()
    if obstacle is None:
        return 0
    if or_simulated:
        play_simulated(f"{SIMULATED}; the real one is not possible here: {obstacle}", seed=seed)
        return 0
    click.echo(f"greenroom demo: not possible on this machine: {obstacle}", err=True)
    click.echo("hint: `greenroom demo --simulated` plays it in the simulated world.", err=True)
    return EXIT_NOT_POSSIBLE


def play_simulated(where: str, *, seed: int) -> None:
    """Play the story with the real worker in a simulated world.

    Raises:
        ProblemError: something is not as it must be.
    """
    lines: list[str] = []

    async def scenario(here: Stage) -> None:
        world = here.world
        await Story(
            net=world.client,
            files=SimFiles(world.disk, roots=(), owner=here),
            settings=world.settings,
            base=ROOTFS.parent,
            say=lines.append,
            where=where,
            verdict="seen in the simulation",
        ).play()
        require(not here.left(), f"sandboxes are left: {here.left()}")

    try:
        # A pause between two looks at a log costs nothing here; a whole life is some thousand calls.
        run(scenario, seed=seed, machine=Machine(keeps_calls=False))
    finally:
        for line in lines:
            click.echo(line)
