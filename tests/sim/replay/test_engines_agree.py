"""Both engines replay the same traces: every actor comes through the same states on the same workers."""

import attrs
import msgspec
import pytest

from sim.cli.replay import shown
from sim.fleet.config import LATENCIES, read_config
from sim.replay.faithful import engine as faithful
from sim.replay.fast import engine as fast
from sim.traces.generating.registry import WORKLOADS
from sim.traces.reading import read_trace
from sim.traces.records import (
    Assignment,
    Container,
    FaultRecord,
    Header,
    Resume,
    Suspend,
    Terminate,
    WorkerAdd,
    WorkerDrain,
    WorkerRemove,
)
from sim.traces.shipped import shipped

HEADER = Header(source="a test")


@attrs.define
class Lives:
    """The states that each actor came through, worker by worker, as a sink of moves hears of them."""

    moves: dict[str, dict[str, list[str]]] = attrs.field(factory=dict)

    def moved(self, at_s, worker, actor, before, event, after, reason):  # noqa: PLR0917 - a MoveSink's
        states = self.moves.setdefault(actor, {}).setdefault(worker, [])
        if before is not after:
            states.append(str(after))

    def told(self):
        """Without the end of what is left on a worker that an actor has left: the worker may go first."""
        for on in self.moves.values():
            for states in list(on.values())[:-1]:
                while states and states[-1] in {"Stopping", "Terminated"}:
                    del states[-1]
        return self.moves


def workers(*names, gpus=2):
    return [WorkerAdd(at_s=0.0, worker=name, gpus=gpus, model="T4") for name in names]


def actor(name, at_s, *, gpus=1, **more):
    return Assignment(at_s=at_s, actor=name, containers=(Container(name="main", gpus=gpus),), **more)


def fault(name, at_s, **more):
    return FaultRecord(at_s=at_s, fault=name, **more)


TWO = (Container(name="one", gpus=1), Container(name="two"))
TRACES = {
    "ends by itself": [*workers("w1"), actor("a1", 10.0, for_s=30.0)],
    "without a GPU": [*workers("w1", gpus=0), actor("a1", 10.0, gpus=0), Terminate(at_s=50.0, actor="a1")],
    "suspended, resumed, ended": [
        *workers("w1"), actor("a1", 10.0), Suspend(at_s=50.0, actor="a1"), Resume(at_s=100.0, actor="a1"),
        Suspend(at_s=150.0, actor="a1"), Resume(at_s=200.0, actor="a1"), Terminate(at_s=250.0, actor="a1"),
    ],
    "two containers": [
        *workers("w1"), Assignment(at_s=10.0, actor="a1", containers=TWO), Suspend(at_s=50.0, actor="a1"),
        Resume(at_s=100.0, actor="a1"), Terminate(at_s=150.0, actor="a1"),
    ],
    "ended while suspended": [
        *workers("w1"), actor("a1", 10.0), Suspend(at_s=50.0, actor="a1"), Terminate(at_s=100.0, actor="a1"),
    ],
    "work goes on after a resume": [
        *workers("w1"), actor("a1", 10.0, for_s=100.0), Suspend(at_s=50.0, actor="a1"), Resume(at_s=500.0, actor="a1"),
    ],
    "waits for a worker, and for room": [
        actor("a1", 1.0, gpus=2, for_s=100.0), actor("a2", 2.0, gpus=2, for_s=50.0),
        WorkerAdd(at_s=10.0, worker="w1", gpus=2, model="T4"),
    ],
    "suspended for somebody else": [
        *workers("w1"), actor("a1", 10.0, gpus=2), actor("a2", 60.0, for_s=20.0), Resume(at_s=120.0, actor="a1"),
    ],
    "drained": [
        *workers("w1"), actor("a1", 10.0), actor("a2", 11.0, for_s=300.0),
        WorkerAdd(at_s=50.0, worker="w2", gpus=2, model="T4"), WorkerDrain(at_s=100.0, worker="w1"),
    ],
    "lost, and brought back from the store": [
        *workers("w1"), actor("a1", 10.0), Suspend(at_s=50.0, actor="a1"), Resume(at_s=100.0, actor="a1"),
        WorkerAdd(at_s=150.0, worker="w2", gpus=2, model="T4"), WorkerRemove(at_s=200.0, worker="w1"),
        Terminate(at_s=300.0, actor="a1"),
    ],
    "moved only to a worker with GPUs of the model of its snapshot": [
        *workers("w1"), actor("a1", 10.0), WorkerAdd(at_s=20.0, worker="other", gpus=8, model="A10"),
        WorkerDrain(at_s=100.0, worker="w1"), WorkerAdd(at_s=200.0, worker="w2", gpus=2, model="T4"),
    ],
    "lost for good": [*workers("w1", "w2"), actor("a1", 10.0), WorkerRemove(at_s=100.0, worker="w1")],
    "its sandbox dies": [
        *workers("w1"), actor("a1", 10.0), Suspend(at_s=50.0, actor="a1"), Resume(at_s=100.0, actor="a1"),
        fault("kill-sandbox", 150.0, actor="a1"),
    ],
    "its sandbox dies, and nothing was saved": [
        *workers("w1"), actor("a1", 10.0), fault("kill-sandbox", 100.0, actor="a1"),
    ],
    "its GPU is lost": [*workers("w1"), actor("a1", 10.0), fault("lose-gpu", 100.0, actor="a1")],
    "its supervisor is killed": [
        *workers("w1"), actor("a1", 10.0), fault("kill-worker", 100.0, worker="w1"), Suspend(at_s=200.0, actor="a1"),
    ],
    "a store that is out of reach": [
        *workers("w1"), actor("a1", 10.0), fault("store-outage", 40.0, args={"for_s": 100.0}),
        Suspend(at_s=50.0, actor="a1"), WorkerAdd(at_s=60.0, worker="w2", gpus=2, model="T4"),
        WorkerDrain(at_s=70.0, worker="w1"), Resume(at_s=80.0, actor="a1"),
    ],
    "a store that is out of reach when a snapshot is wanted from it": [
        *workers("w1"), actor("a1", 10.0), Suspend(at_s=50.0, actor="a1"), WorkerRemove(at_s=60.0, worker="w1"),
        WorkerAdd(at_s=70.0, worker="w2", gpus=2, model="T4"), fault("store-outage", 79.0, args={"for_s": 5.0}),
        Resume(at_s=80.0, actor="a1"),
    ],
    "refused by a worker, and ended before it is tried again": [
        *workers("w1"), actor("a1", 10.0), Suspend(at_s=50.0, actor="a1"), WorkerRemove(at_s=60.0, worker="w1"),
        WorkerAdd(at_s=70.0, worker="w2", gpus=2, model="T4"), fault("store-outage", 79.0, args={"for_s": 50.0}),
        Resume(at_s=80.0, actor="a1"), Terminate(at_s=82.0, actor="a1"),
    ],
    "more are drained than are suspended side by side": [
        *workers("w1", gpus=7), *(actor(f"a{number}", 10.0) for number in range(7)),
        WorkerAdd(at_s=50.0, worker="w2", gpus=7, model="T4"), WorkerDrain(at_s=100.0, worker="w1"),
    ],
    "a GPU is lost for a while, and somebody waits for it": [
        *workers("w1"), actor("a1", 10.0), fault("lose-gpu", 100.0, actor="a1", args={"for_s": 200.0}),
        actor("a2", 150.0, gpus=2), actor("a3", 160.0, for_s=2.0),
    ],
    "a GPU is lost that nobody holds": [
        *workers("w1"), actor("a1", 10.0), fault("lose-gpu", 100.0, worker="w1", args={"gpu": 1}), actor("a2", 120.0),
    ],
    "an XID after which the GPU is of no use": [
        *workers("w1"), actor("a1", 10.0), fault("xid", 100.0, actor="a1", args={"xid": 48}), actor("a2", 150.0),
    ],
    "an XID that keeps others from a GPU": [
        *workers("w1"), fault("xid", 100.0, worker="w1", args={"xid": 74}), actor("a1", 150.0, gpus=2),
    ],
    "an XID that is only told": [
        *workers("w1"), actor("a1", 10.0), fault("xid", 100.0, actor="a1", args={"xid": 13}), actor("a2", 150.0),
    ],
    "a fault that neither knows": [*workers("w1"), actor("a1", 10.0), fault("no-such", 100.0, worker="w1")],
}  # fmt: skip


def always(seconds):
    return {"kind": "constant", "value": seconds, "source": "a test"}


ALIKE = {
    **{f"latency.{name}": always(0.01 + 0.007 * index) for index, name in enumerate(LATENCIES)},
    "snapshots.mib": always(58.0),
    "snapshots.per_gpu_mib": always(301.0),
}
"""Nothing is left to chance, which the engines do not share: all takes as long in both."""
SAME = ("rows", "skipped", "lifecycles", "states", "ways", "workers", "gpus", "faults", "failures")
QUICK = ("mixed", "training-with-sidecars")
SLOW = [name if name in QUICK else pytest.param(name, marks=pytest.mark.long) for name in WORKLOADS]


def once_workers_are_ready(records):
    """The same a little later: which of those that begin at one instant is ready first is chance in one engine."""
    return [
        each if isinstance(each, WorkerAdd) else msgspec.structs.replace(each, at_s=each.at_s + 1.0) for each in records
    ]


def lives(engine, records, seed, config=None):
    told = Lives()
    result = engine.replay(HEADER, iter(records), config=config or read_config(), seed=seed, sink=told)
    assert result.violations == ()
    return told.told(), result


@pytest.mark.parametrize("name", SLOW)
def test_both_engines_take_the_same_ways_at_the_same_times_through_the_traces_that_are_shipped(name):
    path = shipped(name)
    assert path is not None
    _, records = read_trace(path)
    kept, config = once_workers_are_ready(records), read_config(overrides=ALIKE)
    told, quick = lives(fast, kept, 1, config)
    found, true = lives(faithful, kept, 1, config)
    assert found == told
    for same in SAME:
        assert getattr(true, same) == getattr(quick, same), same
    # What is left on a worker that is drained ends there, or goes with it.
    assert true.transitions == pytest.approx(quick.transitions, rel=0.005)
    assert true.virtual_s == pytest.approx(quick.virtual_s, abs=1.0)
    assert true.cost == pytest.approx(quick.cost, rel=0.001)
    assert dict(true.gpu_seconds) == pytest.approx(dict(quick.gpu_seconds), rel=0.001)
    # Who of a drained worker is suspended first is not the same in both.
    assert true.activation_s["mean"] == pytest.approx(quick.activation_s["mean"], rel=0.025)
    assert true.suspend_s["mean"] == pytest.approx(quick.suspend_s["mean"], rel=0.05)


@pytest.mark.parametrize("name", TRACES)
def test_both_engines_take_every_actor_through_the_same_states_on_the_same_workers(name):
    records = TRACES[name]
    told, quick = lives(fast, records, 1)
    found, true = lives(faithful, records, 1)
    assert found == told
    for same in SAME:
        assert getattr(true, same) == getattr(quick, same), same


def test_both_say_which_faults_they_do_not_know():
    records = [*workers("w1"), fault("no-such", 10.0, worker="w1"), fault("no-such", 20.0), fault("fill-disk", 30.0)]
    _, quick = lives(fast, records, 1)
    _, true = lives(faithful, records, 1)
    assert quick.notes == (
        "the fast engine has no fault fill-disk: none of 1 has happened",
        "the fast engine has no fault no-such: none of 2 has happened",
    )
    assert f"note: {quick.notes[0]}" in list(shown(quick))
    assert true.notes == ("the faithful engine has no fault no-such: none of 2 has happened",)
