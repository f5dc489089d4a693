"""`greenroom mock-node`: a mock GPU node in a directory, and what happens to it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import anyio
import attrs
import cattrs
import click
import orjson
import yaml

import sim
from sim.mock.fake_ctk import PROGRAM
from sim.mock.layout import CONTROL_MINOR, MONITOR, STATE_FILE, TOOLKIT, MockNode
from sim.mock.making import NotPossibleError, Workshop, change, choose_uvm_major, current, make
from sim.mock.scripting import DRIVER_VERSION, WORDS, WordError, apply
from sim.mock.shared_library import MACHINES
from sim.mock.state import NodeState, cuda_version
from sim.world.gpus import Driver, some_gpus
from supervisor.host.composition import open_host_ports
from supervisor.host.surroundings import find_compiler, folders_of, read_small

if TYPE_CHECKING:
    from collections.abc import Sequence

    from actors.ports import Ports

EXIT_NOT_POSSIBLE: Final = 77
GPUS_MAX: Final = 64


class Minors(click.ParamType[tuple[int, ...]]):
    """Numbers of device nodes, with commas between them."""

    name = "minors"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[int, ...]:
        """Read them, or say what is wrong."""
        if isinstance(value, tuple):
            return value
        words = str(value).split(",")
        if not all(word.isascii() and word.isdecimal() and int(word) < CONTROL_MINOR for word in words):
            self.fail(f"{value!r} is not a list of numbers below {CONTROL_MINOR}, such as 2,3,5,7", param, ctx)
        minors = tuple(map(int, words))
        if len(set(minors)) < len(minors):
            self.fail(f"{value!r} has a number twice", param, ctx)
        return minors


@click.command()
@click.option("--dir", "directory", type=click.Path(path_type=Path), required=True, help="Where it is.")
@click.option("--gpus", type=click.IntRange(0, GPUS_MAX), help="Make it, with so many GPUs, or make it anew.")
@click.option(
    "--minors", type=Minors(), metavar="N,N…", help="Of the device nodes, by index.  [default: downwards to 0]"
)
@click.option("--driver", default=Driver().version, show_default=True, metavar="VERSION", help="Of the driver.")
@click.option("--mig", type=Minors(), default=(), metavar="N,N…", help="The minors of GPUs in MIG mode.")
@click.option("--set", "words", multiple=True, metavar="WORD", help=f"What happens to it; may be repeated. {WORDS}")
def mock_node(
    *,
    directory: Path,
    gpus: int | None,
    minors: tuple[int, ...] | None,
    driver: str,
    mig: tuple[int, ...],
    words: tuple[str, ...],
) -> int:
    """Make a mock GPU node: device nodes, a driver and an NVML that says what a state file scripts, but no GPU.

    Its libraries and what /proc shows are there as well. Without --gpus, change the one that is there (--set). 77
    where no device nodes can be made. Without a C compiler nobody can load its NVML: a monitor of its own tells the
    same facts, and an nvidia-ctk of its own writes the spec.
    """
    directory = directory.absolute()
    if ".." in directory.parts:
        raise click.BadParameter("must not have `..` in it", param_hint="--dir")
    if gpus is None and not words:
        raise click.UsageError("give --gpus to make a node, or --set to change one")
    described = None if gpus is None else described_node(gpus, minors, driver, mig)
    try:
        state, why_empty = anyio.run(perform, directory, described, words)
    except NotPossibleError as error:
        click.echo(f"greenroom mock-node: not possible on this machine: {error}", err=True)
        return EXIT_NOT_POSSIBLE
    except WordError as error:
        raise click.BadParameter(str(error), param_hint="--set") from None
    for line in _shown(directory, state):
        click.echo(line)
    if why_empty is not None:
        click.echo(f"its NVML answers nothing, as it is not compiled: {why_empty}")
        click.echo("so neither a monitor without --gpu-monitor nor the real nvidia-ctk works with this node")
    return 0


def described_node(gpus: int, minors: tuple[int, ...] | None, driver: str, mig: Sequence[int]) -> NodeState:
    """The state of a node as the options describe it."""
    if minors is not None and len(minors) != gpus:
        raise click.BadParameter(f"names {len(minors)} GPUs, and --gpus {gpus}", param_hint="--minors")
    if not DRIVER_VERSION.fullmatch(driver):
        raise click.BadParameter(f"{driver!r} is no version of a driver, such as 580.65.06", param_hint="--driver")
    made = some_gpus(gpus, minors=minors)
    if unknown := set(mig) - {gpu.minor for gpu in made}:
        raise click.BadParameter(f"no GPU has the minor {min(unknown)}", param_hint="--mig")
    return NodeState(
        loaded_version=driver,
        cuda_version=cuda_version(driver),
        gpus=tuple(attrs.evolve(gpu, is_in_mig_mode=gpu.minor in mig) for gpu in made),
    )


async def perform(directory: Path, described: NodeState | None, words: Sequence[str]) -> tuple[NodeState, str | None]:
    """Make the node when one is described, then let happen what the words say; how it is then, and what `make` says."""
    refused: NotPossibleError | WordError
    async with open_host_ports(roots=(directory,)) as ports:
        try:
            why_empty = None if described is None else await _make(directory, described, ports)
            state = await current(directory, ports.files)
            changed = state
            for word in words:
                changed = apply(changed, word)
            if changed != state:
                await change(directory, ports.files, changed)
        except (NotPossibleError, WordError) as error:
            refused = error  # raised outside, where no task group makes a group of it
        else:
            return changed, why_empty
    raise refused


async def _make(directory: Path, described: NodeState, ports: Ports) -> str | None:
    """Make a node with what this machine has; returns why its NVML answers nothing, if so.

    Raises:
        NotPossibleError, ProblemError: as `make`.
    """
    machine = ports.wall.machine()
    if machine not in MACHINES:
        raise NotPossibleError(f"its libraries can be written for {' and '.join(MACHINES)}, and this is {machine}")
    node = MockNode(
        directory=directory,
        version=str(described.loaded_version),
        machine=machine,
        uvm_major=choose_uvm_major(read_small(Path("/proc/devices")).decode()),
        state=described,
    )
    workshop = Workshop(
        files=ports.files,
        processes=ports.processes,
        compiler=find_compiler(),
        interpreter=sys.executable,
        folders=folders_of(attrs, cattrs, orjson, sim, yaml),
    )
    return await make(node, workshop)


def _shown(directory: Path, state: NodeState) -> list[str]:
    """How it is, for a person."""
    rows = [
        f"{index:<7}{gpu.minor:<7}{gpu.pci_bus_id:<18}{gpu.uuid}  {gpu.health}{', MIG mode' * gpu.is_in_mig_mode}"
        for index, gpu in enumerate(state.gpus)
    ]
    return [
        f"mock GPU node of {len(state.gpus)} GPUs, driver {state.loaded_version or 'not loaded'}",
        f"state file: {directory / STATE_FILE}",
        *(["index  minor  bus               uuid", *rows] if rows else []),
        f"nvidia-ctk cdi generate --dev-root {directory} --driver-root {directory / 'driver'}",
        f"without one: {directory / TOOLKIT / PROGRAM}",
        f"without NVML: greenroom run --gpu-monitor {directory / MONITOR} …",
    ]
