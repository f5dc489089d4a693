"""One life of the supervisor in a world: its ports, its tasks, and its end."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import TYPE_CHECKING, Final

import trio

import supervisor.metrics.text  # noqa: F401 - a worker imports it at its first scrape, and in virtual time no file is opened
from actors.ports import Peer, Ports
from sim.hearing import SPEAKING, Speaker
from sim.world.beneath import SimBeneath
from sim.world.calls import FencedError, Gate, die_at_once
from sim.world.cgroups import SimCgroups
from sim.world.files import SimFiles
from sim.world.gated_cgroups import GatedCgroups
from sim.world.gated_files import GatedFiles
from sim.world.gated_gpus import GatedGpus
from sim.world.gated_outside import GatedNet, GatedSignals, GatedWall, GatedWatch
from sim.world.gated_processes import GatedProcesses
from sim.world.gated_stores import GatedStores
from sim.world.gpu_monitor import SimGpus
from sim.world.net import SimNet
from sim.world.processes import SimProcesses
from sim.world.signals import SimSignals
from sim.world.stores import SimStores
from sim.world.watch import SimWatch
from supervisor.running import run_worker

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sim.world.world import World
    from supervisor.settings import Settings

_ENDING: Final = frozenset(
    {signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2}
)
_UNCAUGHT: Final = 1
"""The exit code of a Python program that ends in an exception."""


class Incarnation:
    """A supervisor, from its start to its end or its kill.

    Attributes:
        number: which life in this world, from 1.
        ports: what it is given.
        error: what it ended with, if it ended by itself and not well.
        ended: set when its process is gone; nothing of it has an effect any more.
        unwound: set when none of its tasks is left either.
    """

    def __init__(self, world: World, settings: Settings, *, number: int) -> None:
        self.number = number
        self.settings = settings
        self.error: BaseException | None = None
        self.ended = trio.Event()
        self.unwound = trio.Event()
        self._world = world
        self._speaker = Speaker(number, world.hearing)
        self._scope = trio.CancelScope()
        self._gate = Gate(incarnation=number, ledger=world.ledger, plan=world.plan, kill=self.kill)
        self.processes = SimProcesses(world.execution, let_others_run=world.turns.let_others_run)
        self._files = SimFiles(
            world.disk,
            roots=_roots(settings),
            owner=self,
            let_others_run=world.turns.let_others_run,
            append_s=world.machine.append_s,
        )
        self._net = SimNet(world.sockets, peer=Peer(pid=self.pid, uid=0, gid=0))
        self._signals = SimSignals()
        self._stores = SimStores(
            world.objects,
            SimBeneath(world.disk, _roots(settings)),
            carry=world.machine.carry,
            let_others_run=world.turns.let_others_run,
        )
        self._gate.cut_with(self._files, self._stores, self.processes)
        self.processes.once_dead = self._net.once_dead = die_at_once
        self.ports = Ports(
            processes=GatedProcesses(self._gate, self.processes),
            files=GatedFiles(self._gate, self._files),
            watch=GatedWatch(self._gate, SimWatch(world.disk)),
            net=GatedNet(self._gate, self._net),
            signals=GatedSignals(self._gate, self._signals),
            wall=GatedWall(self._gate, world.wall),
            gpus=GatedGpus(
                self._gate,
                SimGpus(world.gpus, world.table, parent=self.pid, tells_for_s=world.machine.monitor_tells_for_s),
            ),
            stores=GatedStores(self._gate, self._stores),
            cgroups=GatedCgroups(self._gate, SimCgroups(world.cgroups, let_others_run=world.turns.let_others_run)),
        )

    @property
    def pid(self) -> int:
        """Its process id."""
        return self.processes.process.pid

    @property
    def lives(self) -> bool:
        """Whether its process is there."""
        return not self.ended.is_set()

    async def run(self) -> None:
        """Run the real supervisor to its end, whichever way that comes."""
        SPEAKING.set(self._speaker)
        error: BaseException | None = None
        try:
            with self._scope:
                await run_worker(self.ports, self.settings)
        except Exception as raised:  # noqa: BLE001 - what ends a process ends with it, and is told by `error`
            error = raised
        except BaseExceptionGroup as raised:
            if self.lives:
                raise
            # The dead raise whatever they like; only the cancellation of the whole run goes on.
            cancelled = raised.subgroup(trio.Cancelled)
            if cancelled is not None:
                raise cancelled from None
        except FencedError:
            pass  # the dead, again
        finally:
            if self.lives:
                self.error = error
                self._end(0 if error is None else _UNCAUGHT)
            self.unwound.set()

    def signal(self, signum: int) -> None:
        """Send it one; what it does not handle does what the kernel does by default."""
        if not self.lives:
            return
        if signum == signal.SIGKILL or (signum in _ENDING and not self._signals.deliver(signum)):
            self._end(-signum)

    def kill(self) -> None:
        """End it as SIGKILL does: from now on nothing of it has an effect, and none of its calls returns."""
        if self.lives:
            self._end(-signal.SIGKILL)

    def _end(self, code: int) -> None:
        """Its process ends: locks and sockets go with it, what it started lives on."""
        self.ended.set()
        self._speaker.is_dead = True
        self._files.fence()
        self._net.fence()
        self.processes.die(code)
        self._gate.close()
        self._scope.cancel()


def _roots(settings: Settings) -> Sequence[Path]:
    return (Path(settings.state_dir), Path(settings.run_dir))
