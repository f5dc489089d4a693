"""Records what a worker writes down: of one life in the simulated world in which as much as possible happens.

`python -m tests.formats.recording NAME` writes `tests/formats/NAME/`. Done once for each release, and for `current`
whenever a format changes; what is there of a release stays as it is for ever.
"""

import sys
from pathlib import Path
from typing import Any, Final

import orjson
import trio

from actors.codec import plain
from actors.journal import replay
from sim.documents import IDLE, actor, container
from sim.engine import run
from sim.scenario import Stage
from sim.world.gpus import Driver, some_gpus
from sim.world.world import Machine
from statemachine.states import State

DIRECTORY: Final = Path(__file__).parent
MEMORY: Final = "memory.json"
"""What the journal comes to, as the version that wrote it had it in mind."""
ONCE_ENDS_S: Final = 0.5
"""Virtual seconds after which one of the containers has exited."""
_MACHINE: Final = Machine(gpus=some_gpus(3, minors=(5, 2, 3)), driver=Driver(version="550.90.07"))


def _document(generation: int, state: str) -> dict[str, Any]:
    return actor(
        "a1",
        container("trainer", IDLE, resources={"limits": {"nvidia.com/gpu": 1}}),
        container("once", command=("sh", "-c", "sleep 0.3; exit 0")),
        container("probed", IDLE, wakeupProbe={"exec": ["true"], "timeoutSeconds": 5}),
        generation=generation,
        state=state,
        restartPolicy="OnFailure",
    )


def record() -> dict[str, bytes]:
    """Everything of one actor in the middle of its second life on stage, by file name."""
    files: dict[str, bytes] = {}

    async def scenario(here: Stage) -> None:
        await here.submit(_document(1, "Running"))
        await here.wait(State.RUNNING)
        await trio.sleep(ONCE_ENDS_S)
        await here.suspend()
        await here.resume()
        await here.submit(_document(2, "Suspended"))
        await here.wait(State.SUSPENDED)
        await here.submit(_document(3, "Running"))
        await here.wait(State.RUNNING)
        world, directory = here.world, here.world.state.actor("a1")
        for path in (directory.journal, directory.assignment, directory.status):
            files[path.name] = world.read(path)
        for above, name in ((world.state.sandboxes, "sandbox.json"), (directory.snapshots, "manifest.json")):
            found = sorted(each for each in world.files_below(above) if each.endswith(f"/{name}"))
            files[name] = world.read(above / found[-1])

    run(scenario, seed=1, machine=_MACHINE)
    memory = replay(files["journal.jsonl"], subject="journal.jsonl").actor
    files[MEMORY] = orjson.dumps(plain(memory), option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)
    return files


if __name__ == "__main__":
    for name, data in record().items():
        path = DIRECTORY / sys.argv[1] / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(data)
