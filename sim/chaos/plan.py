"""A plan: everything that is done and everything that goes wrong in one run, as values with a stable JSON form.

Nothing in it depends on anything else of it: whatever is taken out, the rest is a plan again, which is what shrinking
lives of.
"""

from __future__ import annotations

import enum
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, TypeAlias

import attrs
import cattrs
from cattrs.preconf.orjson import make_converter
from cattrs.strategies import configure_tagged_union

from sim.documents import COUNT, IDLE
from sim.faults import Fault, What
from sim.world.runsc.settings import Flavour

if TYPE_CHECKING:
    from collections.abc import Mapping


class Program(enum.StrEnum):
    """What a container runs."""

    IDLE = "idle"
    COUNT = "count"
    DEAF = "deaf"
    """It does not end at a TERM."""
    ENDS = "ends"
    """It ends by itself, and well."""
    FAILS = "fails"
    """It ends by itself, and with a failure."""
    MISSING = "missing"
    """There is no such command."""


COMMANDS: Final[Mapping[Program, tuple[str, ...]]] = MappingProxyType(
    {
        Program.IDLE: IDLE,
        Program.COUNT: COUNT,
        Program.DEAF: ("sh", "-c", "trap '' TERM; while :; do sleep 1; done"),
        Program.ENDS: ("sh", "-c", "sleep 3; exit 0"),
        Program.FAILS: ("sh", "-c", "sleep 2; exit 3"),
        Program.MISSING: ("/bin/no-such-thing",),
    }
)
LASTING: Final = frozenset({Program.IDLE, Program.COUNT, Program.DEAF})
"""What runs until it is ended."""


@attrs.frozen(kw_only=True)
class PlannedContainer:
    """One container of an actor."""

    program: Program = Program.IDLE
    gpus: int = 0


@attrs.frozen(kw_only=True)
class PlannedActor:
    """One actor.

    Attributes:
        uid: its name in deeds.
        containers: what it runs.
        restarts: whether what fails is started again.
        is_durable: whether it has a durable volume, and hooks.
        is_stored: whether its snapshots go to a store.
        by_file: whether its documents come through the followed directory, and not through the socket.
        grace_s: between TERM and KILL.
    """

    uid: str
    containers: tuple[PlannedContainer, ...] = (PlannedContainer(),)
    restarts: bool = False
    is_durable: bool = False
    is_stored: bool = False
    by_file: bool = False
    grace_s: int = 5

    @property
    def lasts(self) -> bool:
        """Whether it runs until it is ended."""
        return all(each.program in LASTING for each in self.containers)

    @property
    def gpus(self) -> int:
        """How many it claims."""
        return sum(each.gpus for each in self.containers)


# ---- what is asked for


@attrs.frozen(kw_only=True)
class Assign:
    """A document comes: its generation, and what is wanted."""

    at_s: float
    uid: str
    generation: int
    state: str
    cold: bool = False


@attrs.frozen(kw_only=True)
class Command:
    """Somebody asks for `suspend`, `resume` or `stop`."""

    at_s: float
    uid: str
    op: str


@attrs.frozen(kw_only=True)
class Vanish:
    """The document is taken out of the followed directory."""

    at_s: float
    uid: str


# ---- what goes wrong beside the ports


@attrs.frozen(kw_only=True)
class Duplicate:
    """The last document comes once more."""

    at_s: float
    uid: str


@attrs.frozen(kw_only=True)
class Stale:
    """An older generation comes, and wants something else."""

    at_s: float
    uid: str
    state: str


@attrs.frozen(kw_only=True)
class Reordered:
    """Two generations come at once, the newer one first."""

    at_s: float
    uid: str
    generation: int
    state: str


@attrs.frozen(kw_only=True)
class KillWorker:
    """SIGKILL; another one is started so much later."""

    at_s: float
    down_s: float


@attrs.frozen(kw_only=True)
class CutPower:
    """The machine boots anew; what was not on the platter may be lost."""

    at_s: float
    down_s: float


@attrs.frozen(kw_only=True)
class Evict:
    """SIGTERM, with so much time; another worker is started so much later."""

    at_s: float
    down_s: float
    is_repeated: bool = False


@attrs.frozen(kw_only=True)
class KillSandbox:
    """Somebody on the machine kills an actor's sandbox."""

    at_s: float
    uid: str


@attrs.frozen(kw_only=True)
class Xid:
    """A GPU (by its place) reports an error."""

    at_s: float
    gpu: int
    xid: int


@attrs.frozen(kw_only=True)
class LoseGpu:
    """A GPU (by its place) falls off the bus, and is back so much later."""

    at_s: float
    gpu: int
    for_s: float


@attrs.frozen(kw_only=True)
class UpgradeDriver:
    """Other libraries are installed, and the module that belongs to them is loaded so much later."""

    at_s: float
    version: str
    reload_s: float


@attrs.frozen(kw_only=True)
class SwapToolkit:
    """The container toolkit is exchanged by another one."""

    at_s: float


@attrs.frozen(kw_only=True)
class KillMonitor:
    """Whoever asks NVML is killed."""

    at_s: float


@attrs.frozen(kw_only=True)
class DenyDevices:
    """The device cgroup lets nobody in for so long."""

    at_s: float
    for_s: float


@attrs.frozen(kw_only=True)
class FillDisk:
    """No more than that fits on the disk, for so long."""

    at_s: float
    slack_bytes: int
    for_s: float


@attrs.frozen(kw_only=True)
class StoreOutage:
    """No store answers, for so long."""

    at_s: float
    for_s: float


@attrs.frozen(kw_only=True)
class TruncateStore:
    """An object of a store loses its end."""

    at_s: float
    place: int


@attrs.frozen(kw_only=True)
class JumpClock:
    """The calendar is set forward or back."""

    at_s: float
    by_s: float


Wish: TypeAlias = Assign | Command | Vanish
Mishap: TypeAlias = (
    Duplicate | Stale | Reordered | KillWorker | CutPower | Evict | KillSandbox | Xid | LoseGpu | UpgradeDriver
    | SwapToolkit | KillMonitor | DenyDevices | FillDisk | StoreOutage | TruncateStore | JumpClock
)  # fmt: skip
Deed: TypeAlias = (
    Assign | Command | Vanish
    | Duplicate | Stale | Reordered | KillWorker | CutPower | Evict | KillSandbox | Xid | LoseGpu | UpgradeDriver
    | SwapToolkit | KillMonitor | DenyDevices | FillDisk | StoreOutage | TruncateStore | JumpClock
)  # fmt: skip
MISHAPS: Final[tuple[type, ...]] = (
    Duplicate, Stale, Reordered, KillWorker, CutPower, Evict, KillSandbox, Xid, LoseGpu, UpgradeDriver,
    SwapToolkit, KillMonitor, DenyDevices, FillDisk, StoreOutage, TruncateStore, JumpClock,
)  # fmt: skip


@attrs.frozen(kw_only=True)
class Plan:
    """One run.

    Attributes:
        seed: of the world: in which order tasks go on, what ids are, what a power cut takes.
        gpus: how many the machine has.
        flavour: of its runsc.
        has_cgroups: whether the worker has one to divide.
        state_bytes: size of a snapshot's main file.
        lasts_s: virtual seconds of the part with faults.
        actors: who there is.
        deeds: what is done and what happens.
        faults: of ports.
    """

    seed: int
    gpus: int = 0
    flavour: Flavour = Flavour.R24
    has_cgroups: bool = True
    state_bytes: int = 0
    lasts_s: float = 30.0
    actors: tuple[PlannedActor, ...] = ()
    deeds: tuple[Deed, ...] = ()
    faults: tuple[Fault, ...] = ()

    def actor(self, uid: str) -> PlannedActor | None:
        """The actor of this name."""
        return next((each for each in self.actors if each.uid == uid), None)


def _make() -> cattrs.Converter:
    converter = make_converter(omit_if_default=True, forbid_extra_keys=True)
    configure_tagged_union(What, converter, tag_name="type")
    configure_tagged_union(Deed, converter, tag_name="deed")
    return converter


CONVERTER: Final = _make()
