"""The whole simulated world around a supervisor: one machine, what is on it, one life of the supervisor after another.

    async with World(seed=1).open() as world:
        worker = world.start()

Everything outside the supervisor lives here and survives it; everything that may be different from run to run comes
from the seed.
"""

from __future__ import annotations

import math
import random  # noqa: TID251 - seeded: this is where the randomness of a simulated world comes from
import signal
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import attrs
import orjson
import trio

from actors.layout import StateDir
from actors.ports import Peer
from sim.hearing import Hearing
from sim.planting import Plan
from sim.world import scenery
from sim.world.activation_records import records_in
from sim.world.agenda import Agenda
from sim.world.calls import Ledger
from sim.world.cgroups import SimHierarchy
from sim.world.command_files import DiskFiles
from sim.world.disk import SimDisk
from sim.world.execution import Execution, open_execution
from sim.world.gpu_node import GpuNode
from sim.world.gpus import Driver, Toolkit
from sim.world.incarnation import Incarnation
from sim.world.net import SimNet, SimSockets
from sim.world.process_table import ProcessTable
from sim.world.runsc.settings import Flavour, Latencies, RunscSettings
from sim.world.stores import SimObjects
from sim.world.turns import SHARE, Turns
from sim.world.wall import SimWall
from supervisor.settings import Settings

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence

    from sim.faults import Fault
    from sim.world.gpus import Gpu
    from sim.world.process_table import SimProcess
    from sim.world.runsc.programs import Program
    from sim.world.stores import Carry

RUNSC: Final = Path("/usr/bin/runsc")
ROOTFS: Final = Path("/images/rootfs")
"""A root file system with the few commands that containers run."""
ASSIGNMENTS: Final = Path("/etc/greenroom/assignments")
CLIENT: Final = Peer(pid=50, uid=0, gid=0)
UNWIND_S: Final = 600.0
"""Virtual seconds in which the tasks of a dead life must be gone; their own shielded waits are shorter."""


@attrs.frozen(kw_only=True)
class Machine:
    """What the simulated machine is like.

    Attributes:
        flavour, latencies: of its runsc.
        pace: tells the latencies of each command of it, by its words, instead; None has them always the same.
        carry: what every request to a store waits for. append_s: tells how long adding to a file takes; None: no time.
        programs: applications by their argv, beside the built-in ones.
        capacity_bytes: of its disk.
        state_bytes: size of a snapshot's main file; a real one has a megabyte.
        calls_max: how many port calls a run may make.
        keeps_calls: whether they are kept, or only counted.
        keeps_history: whether what was said, and what runsc was given, is kept; else it is only told as it happens.
        turns_share: how often others go first at a call that takes no time; see `Turns`.
        gpus: in the order of NVML's index; without any there is no driver or toolkit. driver, toolkit: NVIDIA's.
        no_cgroups: why no cgroup is the worker's; None where one is.
        monitor_tells_for_s: how long after something has happened to its GPUs their monitor tells of them every 3 s;
            then it is silent until something happens, which a supervisor must bear: `Settings.gpu_silence_s`.
    """

    flavour: Flavour = Flavour.R24
    latencies: Latencies = attrs.field(factory=Latencies)
    pace: Callable[[Sequence[str]], Latencies] | None = None
    carry: Carry | None = None
    append_s: Callable[[Path, bytes], float] | None = None
    programs: Mapping[tuple[str, ...], Program] = attrs.field(factory=dict)
    capacity_bytes: int = 1 << 36
    state_bytes: int = 0
    calls_max: int = 2_000_000
    keeps_calls: bool = True
    keeps_history: bool = True
    turns_share: float = SHARE
    gpus: tuple[Gpu, ...] = ()
    driver: Driver = attrs.field(factory=Driver)
    toolkit: Toolkit = attrs.field(factory=Toolkit)
    no_cgroups: str | None = None
    monitor_tells_for_s: float = math.inf


class World:
    """One world.

    Attributes:
        random: where everything comes from that is different from seed to seed.
        turns: in which order tasks go on at calls that take no time.
        wall: the calendar and the boot.
        disk: every file.
        objects: what lies in every snapshot store; other machines may have the same ones.
        gpus: the GPUs, their nodes, driver and toolkit, and what happens to them.
        table: every process.
        cgroups: those of the worker's actors.
        sockets: who listens where.
        ledger: every port call.
        plan: the planned faults.
        hearing: what was said.
        incarnations: every life of the supervisor, in order.
    """

    def __init__(
        self,
        *,
        seed: int = 0,
        faults: Iterable[Fault] = (),
        machine: Machine | None = None,
        settings: Settings | None = None,
        objects: SimObjects | None = None,
    ) -> None:
        self.seed = seed
        self._clock: trio.abc.Clock | None = None
        self.machine = machine or Machine()
        self.settings = settings or default_settings()
        self.random = random.Random(seed)  # noqa: S311 - a simulation wants to be repeated
        # Of its own: what is drawn for every call leaves alone what is drawn for a power cut.
        self._order = random.Random(f"{seed}: order")  # noqa: S311 - as above
        self.turns = Turns(self._order.random, self.machine.turns_share)
        self.wall = SimWall(self.random, clock=self.now_s)
        self.disk = SimDisk(now_ns=self.wall.now_ns, capacity_bytes=self.machine.capacity_bytes)
        self.objects = SimObjects() if objects is None else objects
        self.hearing = Hearing(keeps=self.machine.keeps_history)
        self.ledger = Ledger(calls_max=self.machine.calls_max, keeps=self.machine.keeps_calls, now_s=self.now_s)
        self.plan = Plan(self.random, faults)
        self.incarnations: list[Incarnation] = []
        self._execution: Execution | None = None
        self._tasks: trio.Nursery | None = None
        self._boots: list[trio.CancelScope] = []
        self._furnish()
        self.gpus = GpuNode(self.disk, self.machine.gpus, driver=self.machine.driver, toolkit=self.machine.toolkit)
        self._boot()

    def now_s(self) -> float:
        """Virtual seconds; 0 before anything runs."""
        return 0.0 if self._clock is None else self._clock.current_time()

    @property
    def state(self) -> StateDir:
        """The supervisor's state directory."""
        return StateDir(self.settings.state_dir)

    @property
    def execution(self) -> Execution:
        """The programs of the present boot.

        Raises:
            RuntimeError: the world is not open.
        """
        if self._execution is None:
            raise RuntimeError("the world is not open")
        return self._execution

    @property
    def worker(self) -> Incarnation:
        """The newest life of the supervisor.

        Raises:
            RuntimeError: there was none yet.
        """
        if not self.incarnations:
            raise RuntimeError("no supervisor was started yet")
        return self.incarnations[-1]

    @property
    def client(self) -> SimNet:
        """The net of somebody else on the machine, whom no fault meets."""
        return SimNet(self.sockets, peer=CLIENT)

    @asynccontextmanager
    async def open(self) -> AsyncIterator[World]:
        """Let time pass in it, the only one. On leaving, the supervisor is killed, and all of it must be gone soon.

        Raises:
            RuntimeError: tasks of a dead life do not end.
        """
        with self.hearing.open():
            async with self.passing():
                yield self

    @asynccontextmanager
    async def passing(self) -> AsyncIterator[World]:
        """Let time pass in it as `open` does, beside other worlds: somebody's hearing is open around all of them."""
        failure: BaseException | None = None
        self._clock = trio.lowlevel.current_clock()
        # Whoever asks at every call asks it directly.
        self.ledger.now_s = self.wall.clock = self._clock.current_time
        try:
            async with trio.open_nursery() as tasks:
                self._tasks = tasks
                await tasks.start(self._run_machine)
                try:
                    yield self
                except Exception as error:  # noqa: BLE001 - raised again below, where no nursery puts it into a group
                    failure = error
                finally:
                    await self._close()
                    tasks.cancel_scope.cancel()
        finally:
            if self.ledger.overrun is not None:
                raise self.ledger.overrun
        if failure is not None:
            raise failure

    def start(self, **changes: Any) -> Incarnation:
        """Start a supervisor, with changed settings if there are any.

        Raises:
            RuntimeError: the world is not open.
        """
        if self._tasks is None:
            raise RuntimeError("the world is not open")
        settings = attrs.evolve(self.settings, **changes)
        incarnation = Incarnation(self, settings, number=len(self.incarnations) + 1)
        self.incarnations.append(incarnation)
        self._tasks.start_soon(incarnation.run, name=f"incarnation:{incarnation.number}")
        return incarnation

    def beside(self, act: Callable[..., Awaitable[object]], *args: Any) -> None:
        """Let something go on by itself, until the world is closed.

        Raises:
            RuntimeError: the world is not open.
        """
        if self._tasks is None:
            raise RuntimeError("the world is not open")
        self._tasks.start_soon(act, *args)

    def kill(self) -> None:
        """SIGKILL the supervisor; everything else goes on."""
        self.worker.kill()

    async def reboot(self, *, synced: bool = False) -> None:
        """Cut the power and boot anew: every process is gone, and of files what was not on the platter.

        Args:
            synced: everything was on the platter, as after an orderly shutdown.
        """
        for incarnation in self.incarnations:
            incarnation.kill()
        if synced:
            self.disk.sync_all()
        self._boots[-1].cancel()
        self.disk.lose_power(self.random.randrange)
        self.wall.reboot()
        self._boot()
        if self._tasks is not None:
            await self._tasks.start(self._run_machine)

    # ---- furniture

    def put_rootfs(self, path: Path = ROOTFS) -> Path:
        """A root file system at a path."""
        for name in ("bin", "dev", "proc", "sys", "tmp"):
            scenery.put_directory(self.disk, path / name)
        scenery.put_file(self.disk, path / "bin" / "busybox", b"\x7fELF busybox", mode=0o755)
        for name in ("sh", "sleep", "true", "false", "echo"):
            scenery.put_symlink(self.disk, path / "bin" / name, "busybox")
        return path

    def put_assignment(self, name: str, document: Mapping[str, Any] | bytes) -> None:
        """A document in the assignments directory, there all at once, as renamed into it."""
        data = document if isinstance(document, bytes) else orjson.dumps(document)
        hidden = ASSIGNMENTS / f".{name}"
        scenery.put_file(self.disk, hidden, data)
        directory = self.disk.find_directory(ASSIGNMENTS)
        self.disk.rename(directory, hidden.name, directory, name)
        self.disk.sync(directory)

    def remove_assignment(self, name: str) -> None:
        """Remove a document from the assignments directory."""
        directory = self.disk.find_directory(ASSIGNMENTS)
        self.disk.remove(directory, name)
        self.disk.sync(directory)

    def read(self, path: Path) -> bytes:
        """The content of a file as everybody sees it now.

        Raises:
            OSError: there is none.
        """
        return self.disk.read(self.disk.find_regular(path))

    def files_below(self, path: Path) -> dict[str, str | bytes | None]:
        """Everything below a directory by relative path; nothing when it is absent."""
        try:
            return scenery.snapshot(self.disk, path)
        except FileNotFoundError:
            return {}

    def fill_disk(self, *, slack_bytes: int = 0) -> None:
        """Let no more than that fit on the disk of the state directory, as it is now."""
        volume = self.disk.find(self.settings.state_dir).volume
        volume.capacity_bytes = volume.used_bytes + slack_bytes

    def make_room(self) -> None:
        """End what `fill_disk` did."""
        self.disk.find(self.settings.state_dir).volume.capacity_bytes = self.machine.capacity_bytes

    def sandboxes_of(self, uid: str) -> list[SimProcess]:
        """The running sandboxes of an actor, as the records of activations tell."""
        records = records_in(self.files_below(self.state.sandboxes))
        pids = [each["sandbox"]["pid"] for each in records if each["actor"] == uid and each["sandbox"] is not None]
        found = (self.table.get(pid) for pid in pids)
        return [process for process in found if process is not None and process.is_running]

    def kill_sandbox(self, uid: str) -> None:
        """SIGKILL the sandbox of an actor, as somebody else on the machine may.

        Raises:
            LookupError: it has none.
        """
        sandboxes = self.sandboxes_of(uid)
        if not sandboxes:
            raise LookupError(f"actor {uid} has no sandbox")
        for sandbox in sandboxes:
            self.table.signal(sandbox, signal.SIGKILL)

    def sandbox_processes(self) -> list[str]:
        """Command lines of whatever runs with a runsc root below the state directory."""
        prefix = f"--root={self.state.sandboxes}/"
        return [
            " ".join(process.arguments)
            for process in self.table
            if process.is_running and any(each.startswith(prefix) for each in process.arguments)
        ]

    def _furnish(self) -> None:
        for path in (Path("/run"), Path("/var/lib"), Path("/etc")):
            scenery.put_directory(self.disk, path)
        self.disk.mount(Path("/run"), is_volatile=True)
        scenery.put_directory(self.disk, ASSIGNMENTS)
        scenery.put_file(self.disk, RUNSC, f"runsc {self.machine.flavour}".encode(), mode=0o755)
        self.put_rootfs()

    def _boot(self) -> None:
        self.table = ProcessTable(now_s=self.now_s)
        self.cgroups = SimHierarchy(self.table, now_s=self.now_s, unavailable=self.machine.no_cgroups)
        self.sockets = SimSockets(self.disk, let_others_run=self.turns.let_others_run)
        self.gpus.boot()

    async def _run_machine(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Run the programs of one boot until the power goes."""
        like = self.machine
        runsc = RunscSettings(
            flavour=like.flavour, latencies=like.latencies, programs=like.programs, state_bytes=like.state_bytes
        )
        with trio.CancelScope() as boot:
            self._boots.append(boot)
            async with open_execution(
                table=self.table,
                files=DiskFiles(self.disk),
                runscs={str(RUNSC): runsc},
                gpus=self.gpus,
                cgroups=self.cgroups,
                agenda=Agenda(self._order.random),
                keeps_given=like.keeps_history,
                pace=like.pace,
            ) as execution:
                self._execution = execution
                task_status.started()
                await trio.sleep_forever()

    async def _close(self) -> None:
        with trio.CancelScope(shield=True):
            for incarnation in self.incarnations:
                incarnation.kill()
            with trio.move_on_after(UNWIND_S):
                for incarnation in self.incarnations:
                    await incarnation.unwound.wait()
                return
        raise RuntimeError("tasks of a dead supervisor do not end")


def default_settings() -> Settings:
    """How a supervisor is started here."""
    return Settings(
        state_dir=Path("/var/lib/greenroom"), run_dir=Path("/run/greenroom"), assignments=ASSIGNMENTS, runsc=RUNSC
    )
