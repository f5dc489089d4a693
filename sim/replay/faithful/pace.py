"""How long things take on the simulated workers: the distributions of a fleet's config, turned into those of a model.

The config says how long a *step* takes; a step is several commands of runsc, a look at the GPUs, a call of a store.
What a step is drawn to take goes to its longest command, less what its other commands take. A step without a command
of its own, or with those of another step, lasts until its answer is in the journal: that line waits for what is left.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sim.world.runsc.saving import INSIDE
from sim.world.runsc.settings import Latencies

if TYPE_CHECKING:
    import random  # noqa: TID251 - seeded: made by whoever makes a worker
    from collections.abc import Callable, Sequence

    from sim.fleet.config import FleetConfig

ENDINGS: Final = {
    "AssignmentRecorded": "assign",
    "GpusDetected": "detect",
    "SpecGenerated": "generate_cached",
    "GpusPartitioned": "partition",
    "EditsInjected": "inject",
    "ContainersVerified": "verify",
    "SandboxReleased": "release",
    "TornDown": "stop",
    "RolledBack": "rollback",
}
"""Answer -> latency, of the steps that take their time when their end is written down."""
_BESIDE: Final = frozenset({"assign", "detect", "partition", "inject"})
"""What these have taken by then is the time of something else: a snapshot was fetched, a GPU waited for."""
_COMMAND_S: Final = 0.010
"""Any command, and what it takes more for a sandbox's container to start or to be registered for a restore."""
_IMAGE: Final = "--image-path="
_MIB: Final = 1 << 20


class Pace:
    """The latencies of one worker's runsc.

    Args:
        config: the fleet's.
        chance: the worker's.
        size_of: how many bytes a snapshot of an actor has, by the actor's uid.
    """

    def __init__(self, config: FleetConfig, chance: random.Random, size_of: Callable[[str], float]) -> None:
        self._size_of = size_of
        self._per_mib = {name: each.per_mib for name, each in config.latency.items()}
        self._draw = {name: each.drawn_by(chance) for name, each in config.latency.items()}

    def draw(self, name: str, size_bytes: float = 0.0) -> float:
        """How long a step takes this time."""
        return self._draw[name]() + self._per_mib[name] * size_bytes / _MIB

    def of_ending(self, event: str, elapsed_s: float) -> float:
        """How long a step goes on that has an answer after so long; an event that is no such answer takes no time."""
        name = ENDINGS.get(event)
        if name is None:
            return 0.0
        takes_s = self.draw(name)
        return takes_s if name in _BESIDE else max(0.0, takes_s - elapsed_s)

    def of_command(self, argv: Sequence[str]) -> Latencies:
        """How long a command of runsc takes, by its words."""
        verb = next((word for word in argv[1:] if not word.startswith("-")), "")
        command_s, create_s, save_s, last_restore_s = _COMMAND_S, _COMMAND_S, 0.0, _COMMAND_S
        match verb:
            case "create":
                # And the root's start, and a second container's create and start.
                create_s = max(0.0, self.draw("create") - 5 * _COMMAND_S)
            case "restore":
                # The root's command, boot and registration, and the last container's command.
                last_restore_s = max(_COMMAND_S, self.draw("restore", self._size(argv)) - 4 * _COMMAND_S)
            case "checkpoint":
                # After a pause and a look. The sandbox's own part has the pace of the command that made it: none.
                save_s = max(0.0, self.draw("suspend", self._size(argv)) - 3 * _COMMAND_S) / (1 - INSIDE)
            case "resume":
                command_s = self.draw("thaw")
        return Latencies(
            command_s=command_s,
            create_root_s=create_s,
            start_s=_COMMAND_S,
            save_s=save_s,
            restore_s=_COMMAND_S,
            last_restore_s=last_restore_s,
        )

    def _size(self, argv: Sequence[str]) -> float:
        """Of the snapshot that a command writes or reads: `…/actors/<uid>/snapshots/<id>`."""
        path = next((word.removeprefix(_IMAGE) for word in argv if word.startswith(_IMAGE)), "")
        return self._size_of(path.split("/")[-3]) if path else 0.0
