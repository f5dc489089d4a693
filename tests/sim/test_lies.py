"""What a faulty port tells that is not so: found out, or without effect."""

import pytest
import trio

from actors.ports import Cgroups, Files, GpuMonitor, Net, Processes, Signals, SnapshotStore, Wall, Watch
from sim.documents import counter
from sim.engine import run
from sim.faults import Fault, Lie, When
from sim.lies import LIES
from statemachine.reasons import Reason
from statemachine.states import State


def lie(what, **when):
    return Fault(id="f", when=When(**when), what=what)


async def to_running(here):
    await here.submit(counter())
    await here.wait(State.RUNNING)


def test_a_lie_about_a_digest_is_found_out_before_anything_is_restored():
    async def life(here):
        await to_running(here)
        await here.suspend()
        here.plant(lie(Lie(), method="digest"))
        await here.ask("resume", uid="a1")
        await here.until(State.SUSPENDED)
        await trio.sleep(1)
        assert (await here.status())["error"]["reason"] == Reason.SNAPSHOT_CORRUPT
        assert here.left() == []

    (report,) = run(life).faults
    assert report.fired


def test_a_write_that_only_says_so_is_a_lie_without_effect():
    async def life(here):
        here.plant(lie(Lie("notDone"), method="replace", argument="status.json", times_max=None))
        await to_running(here)
        with pytest.raises(FileNotFoundError):
            here.status_file()

    run(life)


def test_every_lie_is_about_a_method_that_is_there():
    ports = {"files": Files, "processes": Processes, "watch": Watch, "net": Net, "signals": Signals, "wall": Wall}
    ports |= {"gpus": GpuMonitor, "stores": SnapshotStore, "cgroups": Cgroups}
    beside = {("processes", "wait"), ("processes", "signal"), ("watch", "next")}
    assert [name for name in LIES if name not in beside and not hasattr(ports[name[0]], name[1])] == []


def test_a_lie_that_there_is_not_is_a_fault_of_the_plan():
    async def life(here):
        here.plant(lie(Lie("flipped"), method="stat"))
        with pytest.raises(ValueError, match="absent"):
            await here.worker.ports.files.stat(here.world.settings.runsc)

    run(life)
