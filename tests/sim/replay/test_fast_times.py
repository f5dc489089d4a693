"""When the fast engine's replays end, and what waits for its turn in them."""

import pytest

from sim.traces.records import FaultRecord, Resume, Suspend, Terminate, WorkerDrain, WorkerRemove
from supervisor.draining import SUSPENDS_MAX
from supervisor.uploading import UPLOADS_MAX
from tests.sim.replay.fast_runs import Heard, actor, replayed, worker


def slow(step, seconds):
    return {f"latency.{step}": {"kind": "constant", "value": seconds, "source": "a test"}}


def test_a_replay_ends_with_the_last_thing_that_happens_and_not_with_a_deadline_that_nobody_waits_for():
    records = (
        worker(), actor(), worker("w2", at_s=2.0), Suspend(at_s=5.0, actor="a"),
        WorkerRemove(at_s=60.0, worker="w1"), Resume(at_s=61.0, actor="a"),
    )  # fmt: skip
    result = replayed(*records)
    assert result.ways == {"cold": 1, "store": 1}
    assert 61 < result.virtual_s < 64  # a fetch may take a minute and more
    assert sum(result.gpu_seconds.values()) == pytest.approx(60 + result.virtual_s - 2, rel=0.01)


def test_a_drain_that_is_over_early_does_not_make_the_replay_as_long_as_a_drain_may_take():
    result = replayed(worker(), actor(for_s=20.0), WorkerDrain(at_s=50.0, worker="w1"))
    assert result.virtual_s == 50.0


def test_an_actor_that_waits_longer_than_for_its_own_worker_adds_nothing_after_the_end():
    result = replayed(worker(), actor(), Suspend(at_s=5.0, actor="a"), Terminate(at_s=9.0, actor="a"))
    assert result.virtual_s == pytest.approx(9.1)


def test_of_a_worker_that_is_drained_so_many_are_suspended_at_a_time():
    heard, count = Heard(), 2 * SUSPENDS_MAX + 1
    records = (worker(gpus=count), *(actor(f"a{number}") for number in range(count)))
    overrides = slow("suspend", 10.0) | {"store.upload": False}
    result = replayed(*records, WorkerDrain(at_s=50.0, worker="w1"), sink=heard, overrides=overrides)
    began_s = [at_s for at_s, *_, after, _ in heard.moves if str(after) == "Suspending"]
    assert began_s == [50.0] * SUSPENDS_MAX + [60.1] * SUSPENDS_MAX + [70.2]
    assert result.suspend_s["max"] == pytest.approx(10.1)


def test_of_a_worker_so_many_snapshots_are_uploaded_at_a_time():
    heard, count = Heard(), 2 * UPLOADS_MAX
    records = (worker(gpus=count), *(actor(f"a{number}") for number in range(count)))
    suspends = (Suspend(at_s=50.0, actor=f"a{number}") for number in range(count))
    replayed(*records, *suspends, sink=heard, overrides=slow("store", 30.0))
    ended_s = [at_s for at_s, *_, event, _, _ in heard.moves if event == "SnapshotUploaded"]
    assert ended_s == pytest.approx([81.0] * UPLOADS_MAX + [112.0] * UPLOADS_MAX, abs=2.0)


def test_who_comes_before_the_spec_is_made_waits_for_it_and_later_ones_do_not():
    result = replayed(worker(), actor(at_s=0.0, for_s=1.0), actor("b", at_s=50.0), overrides=slow("generate", 20.0))
    assert result.steps["generate"]["max"] == pytest.approx(19.8)
    assert result.steps["generate"]["p50"] == pytest.approx(0.1, rel=0.01)


def test_a_gpu_that_is_lost_is_granted_to_nobody_until_it_is_back_and_has_been_well():
    heard = Heard()
    lost = FaultRecord(at_s=50.0, fault="lose-gpu", worker="w1", args={"gpu": 1, "for_s": 100.0})
    result = replayed(worker(gpus=2), actor(), lost, actor("b", at_s=60.0, for_s=5.0), sink=heard)
    begins = next(each for each in heard.moves if each[2] == "b")
    assert heard.states("a")[-1] == "Suspended"  # there is one GPU for both, and it was idle
    assert begins[0] < 70
    assert result.document()["faults"] == {"lose-gpu": {"planned": 1, "fired": 1}}
    assert result.violations == ()


def test_who_is_on_its_way_to_a_gpu_that_is_lost_fails_for_that_and_breaks_no_promise():
    lost = FaultRecord(at_s=1.2, fault="lose-gpu", worker="w1", args={"for_s": 5.0})
    result = replayed(worker(), actor(), lost)
    assert result.failures == {"InsufficientGpus": 1}
    assert result.violations == ()
    assert result.states["Running"] == 1


def test_who_needs_the_gpu_that_is_lost_waits_for_it():
    heard = Heard()
    lost = FaultRecord(at_s=50.0, fault="lose-gpu", worker="w1", args={"for_s": 100.0})
    replayed(worker(gpus=2), lost, actor("b", gpus=2, at_s=60.0), sink=heard)
    assert heard.moves[0][0] == 180.0


def test_a_gpu_that_is_lost_again_is_away_until_the_later_of_both():
    heard = Heard()
    lost = [FaultRecord(at_s=at_s, fault="lose-gpu", worker="w1", args={"for_s": 100.0}) for at_s in (50.0, 90.0)]
    replayed(worker(), *lost, actor(at_s=100.0), sink=heard)
    assert heard.moves[0][0] == 220.0
