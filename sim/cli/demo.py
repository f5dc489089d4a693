"""`greenroom demo`: the main job in two stories, for real; on request, or where gVisor cannot run, simulated."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final

import anyio
import attrs
import click
import orjson

from actors.gpu.identity_file import IDENTITY_PATH
from actors.ports import DriverPlaces
from actors.runsc.nvproxy import Nvproxy
from actors.runsc.record import RECORD_NAME
from sim.cli.mock_node import described_node, perform
from sim.engine import run
from sim.mock.layout import MONITOR, TOOLKIT
from sim.mock.making import NotPossibleError
from sim.world.files import SimFiles
from sim.world.gpus import Driver, some_gpus
from sim.world.runsc.programs import runs_forever
from sim.world.world import ROOTFS, Machine, default_settings
from supervisor.cli.demo import GpuNode, play_for_real
from supervisor.cli.gpu_story import COMMAND, UID, GpuStory, seen
from supervisor.cli.story import RUNSC, Story
from supervisor.cli.telling import Telling, require

if TYPE_CHECKING:
    from sim.scenario import Stage
    from sim.world.world import World
    from supervisor.cli.gpu_story import Seen

EXIT_NOT_POSSIBLE: Final = 77
SIMULATED: Final = f"simulated, a model of {RUNSC}: no process or file of this machine is used, seconds are virtual"
MINORS: Final = (7, 2, 5, 3)
"""Of the node's GPUs, by index: neither is the other, nor are they dense."""
_NODE: Final = f"{len(MINORS)} GPUs with the minors {', '.join(map(str, sorted(MINORS)))}"


@click.command()
@click.option("--simulated", is_flag=True, help="Play it in the simulated world, on any machine.")
@click.option("--or-simulated", is_flag=True, help="Play it there when gVisor cannot run on this machine.")
@click.option("--seed", type=int, default=0, show_default=True, help="Of the simulated world.")
def demo(*, simulated: bool, or_simulated: bool, seed: int) -> int:
    """Run actors through their whole life in real gVisor, in a scratch directory; 77 where gVisor cannot run."""
    if simulated:
        play_simulated(SIMULATED, seed=seed)
        return 0
    obstacle = play_for_real(make_gpu_node)
    if obstacle is None:
        return 0
    if or_simulated:
        play_simulated(f"{SIMULATED}; the real one is not possible here: {obstacle}", seed=seed)
        return 0
    click.echo(f"greenroom demo: not possible on this machine: {obstacle}", err=True)
    click.echo("hint: `greenroom demo --simulated` plays it in the simulated world.", err=True)
    return EXIT_NOT_POSSIBLE


def make_gpu_node(directory: Path) -> GpuNode | str:
    """Make a mock GPU node for the second story, or say why that cannot be."""
    described = described_node(len(MINORS), MINORS, Driver().version, ())
    try:
        _, why_empty = anyio.run(perform, directory, described, ())
    except NotPossibleError as error:
        return str(error)
    monitor = None if why_empty is None else directory / MONITOR
    tells = "its NVML" if monitor is None else f"its own monitor ({why_empty})"
    return GpuNode(
        places=DriverPlaces(dev_root=directory, proc_root=directory / "proc", driver_root=directory / "driver"),
        toolkit_dir=directory / TOOLKIT,
        gpu_monitor=monitor,
        where=f"a mock node, {_NODE}; {tells} tells of them, and nothing is behind their nodes",
    )


def play_simulated(where: str, *, seed: int) -> None:
    """Play the stories with the real worker in a simulated world.

    Raises:
        ProblemError: something is not as it must be.
    """
    lines: list[str] = []
    verdict = "seen in the simulation"

    async def scenario(here: Stage) -> None:
        world = here.world
        telling = Telling(
            net=world.client,
            files=SimFiles(world.disk, roots=(), owner=here),
            settings=world.settings,
            say=lines.append,
        )
        await Story(telling=telling, base=ROOTFS.parent, where=where, verdict=verdict).play()
        eyes = ModelEyes(world)
        node = f"simulated, {_NODE}"
        await GpuStory(telling=telling, base=ROOTFS.parent, eyes=eyes, where=node, verdict=verdict).play()
        require(not here.left(), f"sandboxes are left: {here.left()}")

    # A pause between two looks at a log costs nothing here; a whole life is some thousand calls.
    machine = Machine(keeps_calls=False, gpus=some_gpus(len(MINORS), minors=MINORS), programs={COMMAND: runs_forever()})
    try:
        run(scenario, seed=seed, machine=machine, settings=attrs.evolve(default_settings(), nvproxy=Nvproxy.OFF))
    finally:
        for line in lines:
            click.echo(line)


@attrs.frozen
class ModelEyes:
    """What the model of runsc was told that a container has: its programs open nothing by themselves."""

    world: World

    remark: ClassVar[str] = "Names in /dev are those of config.json; the real gVisor keeps the ones that it saved."

    async def look(self, container: str) -> Seen:
        """What is in its config.json, and in the file that is mounted as gpus.json."""
        config = self._config(container)
        env = dict(each.split("=", 1) for each in config["process"]["env"])
        sources = [each["source"] for each in config["mounts"] if each["destination"] == IDENTITY_PATH]
        identity = "".join(self.world.read(Path(each)).decode() for each in sources)
        paths = [each["path"] for each in config.get("linux", {}).get("devices", ())]
        nodes = sorted(path for path in paths if path.startswith("/dev/nvidia"))
        return seen(nodes, env.get("NVIDIA_VISIBLE_DEVICES", ""), identity)

    def _config(self, container: str) -> Any:
        files = self.world.files_below(self.world.state.sandboxes)
        (activation,) = [
            name.removesuffix(RECORD_NAME)
            for name, content in files.items()
            if name.endswith(f"/{RECORD_NAME}") and orjson.loads(content or b"{}")["actor"] == UID
        ]
        (config,) = [
            content
            for name, content in files.items()
            if name.startswith(activation) and name.endswith(f"/{container}/config.json")
        ]
        return orjson.loads(config or b"{}")
