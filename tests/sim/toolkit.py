"""Calls of nvidia-ctk in the simulated world, and what it wrote."""

from __future__ import annotations

from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

import orjson
import yaml

from sim.world.gpus import some_gpus
from sim.world.world import Machine

if TYPE_CHECKING:
    from collections.abc import Mapping

    from actors.ports import Finished
    from sim.scenario import Stage

OUT: Final = Path("/run/ctk/spec.json")
TWO: Final = Machine(gpus=some_gpus(2, minors=(3, 2)))
UUIDS: Final = [gpu.uuid for gpu in TWO.gpus]
INTO_OUT: Final = f"--output={OUT}"


async def call(
    here: Stage, *words: str, deadline_s: float = 30, env: Mapping[str, str] = MappingProxyType({})
) -> Finished:
    argv = [str(here.world.gpus.toolkit.program), *words]
    finished: Finished = await here.worker.ports.processes.run(argv, deadline_s=deadline_s, env=env)
    return finished


async def generate(here: Stage, *flags: str, **env: str) -> Finished:
    return await call(here, "cdi", "generate", *flags, env=env)


def error_of(finished: Finished) -> str:
    """The only error among what was logged."""
    (line,) = [line for line in finished.stderr.decode().splitlines() if " level=error " in line]
    return str(orjson.loads(line.partition("msg=")[2]))


def spec_at(here: Stage, path: Path = OUT) -> Any:
    return yaml.safe_load(here.world.read(path))


def minors_of(spec: Any) -> dict[str, list[str]]:
    return {
        device["name"]: [node["path"] for node in device["containerEdits"]["deviceNodes"]] for device in spec["devices"]
    }
