"""The fast engine: the real machine, its steps as long as a config says, and what must hold in every replay."""

import pytest

from sim.replay.fast.faults import FAULTS
from sim.replay.results import Verdict
from sim.traces.records import FaultRecord, Resume, Suspend, Terminate, WorkerDrain, WorkerRemove
from tests.sim.replay.fast_runs import Heard, actor, replayed, without_cpu, worker

UP = ["Assigned", "Detecting", "Generating", "Partitioning", "Injecting"]


def failing(step, probability=1.0, reason="RuntimeFailed", outcome="failed"):
    return {
        f"failure.{step}": {
            "step": step, "probability": probability, "reason": reason, "outcome": outcome, "source": "a test",
        }
    }  # fmt: skip


def test_an_actor_takes_every_step_each_as_long_as_the_config_says():
    heard = Heard()
    result = replayed(worker(), actor(for_s=100.0), sink=heard)
    assert heard.states("a") == [*UP, "Creating", "Verifying", "Running", "Stopping", "Terminated"]
    assert result.activation_s["max"] == pytest.approx(0.7)
    assert result.virtual_s == pytest.approx(1 + 0.7 + 100 + 0.1)
    assert result.gpu_seconds["held"] == pytest.approx(0.4 + 100 + 0.1)
    assert result.verdict is Verdict.HELD


def test_an_actor_without_gpus_takes_no_step_of_gpus():
    heard = Heard()
    replayed(worker(), actor(gpus=0), sink=heard)
    assert heard.states("a") == ["Assigned", "Creating", "Verifying", "Running"]


def test_a_suspended_actor_is_restored_from_the_snapshot_that_its_worker_has():
    heard = Heard()
    records = (worker(), actor(), Suspend(at_s=5.0, actor="a"), Resume(at_s=9.0, actor="a"))
    result = replayed(*records, sink=heard)
    down, up = ["Suspending", "Releasing", "Suspended"], [*UP, "Restoring", "Verifying", "Running"]
    assert heard.states("a")[-11:] == [*down, *up]
    assert result.ways == {"cold": 1, "local": 1}
    assert result.suspend_s["max"] == pytest.approx(0.2)


def test_work_that_is_suspended_ends_as_much_later():
    records = (worker(), actor(for_s=50.0), Suspend(at_s=11.0, actor="a"), Resume(at_s=1011.0, actor="a"))
    ended_at_s = replayed(*records).virtual_s
    worked_before_s = 11.0 - 1.7
    assert ended_at_s == pytest.approx(1011.0 + 0.7 + (50 - worked_before_s) + 0.1, abs=0.01)


def test_it_is_restored_elsewhere_from_the_store_when_its_worker_is_lost():
    heard = Heard()
    records = (
        worker(), actor(), worker("w2", at_s=2.0), Suspend(at_s=5.0, actor="a"),
        WorkerRemove(at_s=60.0, worker="w1"), Resume(at_s=61.0, actor="a"),
    )  # fmt: skip
    result = replayed(*records, sink=heard)
    assert heard.states("a", "w2") == [*UP, "Restoring", "Verifying", "Running"]
    assert result.ways == {"cold": 1, "store": 1}
    assert result.steps["inject"]["max"] > 0.2  # a request, and the snapshot's bytes, before the step itself
    assert result.verdict is Verdict.HELD


def test_an_actor_that_runs_on_a_worker_that_is_lost_and_has_no_snapshot_is_lost_with_it_and_told():
    result = replayed(worker(), actor(), WorkerRemove(at_s=60.0, worker="w1"))
    assert result.failures == {"WorkerUnreachable": 1}
    assert sum(result.states.values()) == 0


def test_a_drained_worker_suspends_its_actors_which_go_on_elsewhere():
    heard = Heard()
    result = replayed(worker(), actor(), worker("w2", at_s=2.0), WorkerDrain(at_s=10.0, worker="w1"), sink=heard)
    # What is left of it there is to be ended, but its worker does not wait for that.
    assert heard.states("a", "w1")[-5:] == ["Running", "Suspending", "Releasing", "Suspended", "Stopping"]
    assert heard.states("a", "w2")[-1] == "Running"
    assert result.states["Running"] == 1


@pytest.mark.parametrize(
    ("step", "outcome", "states"),
    [
        ("create", "failed", ["Creating", "RollingBack", "Failed"]),
        ("create", "hangs", ["Creating", "RollingBack", "Failed"]),
        ("verify", "sandbox-died", ["Verifying", "RollingBack", "Failed"]),
        ("suspend", "refused", ["Suspending", "Thawing", "Running"]),
        ("suspend", "hangs", ["Suspending", "Thawing", "Running"]),
        ("suspend", "sandbox-died", ["Suspending", "RollingBack", "Failed"]),
    ],
)
def test_a_step_that_does_not_end_well_leads_where_the_machine_says(step, outcome, states):
    heard = Heard()
    overrides = failing(step, outcome=outcome) | {"retry.times_max": 0}
    result = replayed(worker(), actor(), Suspend(at_s=500.0, actor="a"), sink=heard, overrides=overrides)
    assert heard.states("a")[-3:] == states
    reason = "StepDeadlineExceeded" if outcome == "hangs" else "RuntimeFailed"
    assert result.failures == {reason: 1}
    assert result.verdict is Verdict.HELD


def test_a_step_that_hangs_is_cut_at_its_deadline():
    result = replayed(worker(), actor(), overrides=failing("create", outcome="hangs") | {"retry.times_max": 0})
    assert result.steps["create"]["max"] == 60.0


def test_a_restore_that_is_refused_leaves_the_actor_suspended():
    heard = Heard()
    records = (worker(), actor(), Suspend(at_s=5.0, actor="a"), Resume(at_s=9.0, actor="a"))
    overrides = failing("restore", reason="SnapshotIncompatible", outcome="refused") | {"retry.times_max": 1}
    result = replayed(*records, sink=heard, overrides=overrides)
    assert heard.states("a")[-3:] == ["Restoring", "RollingBack", "Suspended"]
    assert result.failures == {"SnapshotIncompatible": 2}


def test_gpus_that_a_cleanup_could_not_give_back_are_given_to_nobody_until_it_could():
    overrides = failing("create") | failing("rollback", probability=0.7) | {"retry.times_max": 0}
    result = replayed(worker(), actor(), actor("b", at_s=2.0), actor("c", at_s=3.0), overrides=overrides, seed=3)
    assert result.invariants["GpusWithinWorker"].checked == 3
    assert result.verdict is Verdict.HELD


def test_an_upload_that_fails_is_tried_again():
    overrides = failing("store", probability=0.6, reason="StoreUnreachable")
    records = (worker(), actor(), worker("w2", at_s=2.0), Suspend(at_s=5.0, actor="a"))
    result = replayed(*records, WorkerRemove(at_s=9000.0, worker="w1"), overrides=overrides, seed=4)
    assert result.failures["StoreUnreachable"] > 0
    assert result.states["Suspended"] + result.states.get("Apart", 0) == 1


def test_an_upload_that_always_fails_is_given_up_and_the_store_has_nothing():
    overrides = failing("store", reason="StoreUnreachable")
    records = (worker(), actor(), worker("w2", at_s=2.0), Suspend(at_s=5.0, actor="a"))
    result = replayed(*records, WorkerRemove(at_s=90_000.0, worker="w1"), overrides=overrides)
    assert result.failures["WorkerUnreachable"] == 1
    assert sum(result.states.values()) == 0


def test_a_suspend_is_counted_once_from_its_beginning_whenever_and_however_often_it_is_asked_for():
    records = (worker(), actor(), *(Suspend(at_s=at_s, actor="a") for at_s in (1.3, 1.85)))
    result = replayed(*records)
    assert result.suspend_s["count"] == 1
    assert result.suspend_s["max"] == pytest.approx(0.2)


def test_what_a_worker_that_came_back_larger_has_held_is_never_more_than_it_has():
    records = (worker(), actor("a", for_s=3.0), WorkerRemove(at_s=9.0, worker="w1"), worker(gpus=4, at_s=10.0))
    (shares,) = replayed(*records, actor("b", gpus=4, at_s=20.0, for_s=9.0)).occupancy.held
    assert max(shares) == 1.0


def test_it_is_told_when_a_worker_was_there_and_with_how_many_gpus():
    records = (worker(), actor("a", for_s=3.0), WorkerRemove(at_s=9.5, worker="w1"), worker(gpus=4, at_s=12.0))
    result = replayed(*records, actor("b", gpus=4, at_s=20.0, for_s=9.0))
    (there,) = result.occupancy.up
    assert there[:14] == [*[1.0] * 9, 0.5, 0.0, 0.0, 1.0, 1.0]
    gpus = worker().gpus
    assert result.timeline.gpus[:14] == [*[gpus] * 9, gpus / 2, 0.0, 0.0, 4.0, 4.0]
    assert all(held <= up for held, up in zip(result.timeline.held_gpus, result.timeline.gpus, strict=True))


def test_a_config_in_which_nothing_ever_works_ends_all_the_same():
    overrides = failing("create") | failing("rollback") | failing("stop")
    result = replayed(worker(), actor(), Terminate(at_s=50.0, actor="a"), overrides=overrides)
    assert result.states["Failed"] == 1
    assert result.failures["RuntimeFailed"] == 2
    assert 5000 < result.virtual_s < 7000  # a hundred cleanups, a minute apart


@pytest.mark.parametrize(
    ("fault", "where", "states"),
    [
        ("kill-sandbox", {"actor": "a"}, ["Running", "RollingBack", "Failed"]),
        ("lose-gpu", {"worker": "w1"}, ["Running", "RollingBack", "Failed"]),
        ("xid", {"actor": "a"}, ["Running", "RollingBack", "Failed"]),
        ("kill-worker", {"worker": "w1"}, ["Verifying", "Running"]),
    ],
)
def test_a_fault_of_the_trace_meets_whom_it_names(fault, where, states):
    heard = Heard()
    record = FaultRecord(at_s=50.0, fault=fault, **where)
    result = replayed(worker(), actor(), record, sink=heard, overrides={"retry.times_max": 0})
    assert heard.states("a")[-len(states) :] == states
    assert result.document()["faults"] == {fault: {"planned": 1, "fired": 1}}


def test_a_killed_supervisor_undoes_what_was_on_its_way():
    heard = Heard()
    record = FaultRecord(at_s=1.55, fault="kill-worker", worker="w1")
    replayed(worker(), actor(), record, sink=heard)
    assert heard.states("a")[5:8] == ["Creating", "RollingBack", "Failed"]
    assert heard.states("a")[-1] == "Running"


@pytest.mark.parametrize(("goes", "workers"), [(None, 2), (WorkerDrain, 1), (WorkerRemove, 1)])
def test_a_worker_that_comes_back_before_its_drain_is_over_does_so_unless_it_goes_again(goes, workers):
    records = (worker(), actor(worker="w1"), WorkerDrain(at_s=50.0, worker="w1"), worker(at_s=50.05))
    result = replayed(*records, *([] if goes is None else [goes(at_s=50.1, worker="w1")]))
    assert result.workers == workers
    assert (result.states["Running"] == 1) == (goes is None)


def test_nothing_reaches_the_store_while_it_is_away():
    outage = FaultRecord(at_s=5.0, fault="store-outage", args={"for_s": 100.0})
    records = (worker(), actor(), worker("w2", at_s=2.0), outage, Suspend(at_s=6.0, actor="a"))
    result = replayed(*records, WorkerRemove(at_s=90.0, worker="w1"))
    assert result.failures == {"SnapshotNotUploaded": 1, "WorkerUnreachable": 1}
    assert "store-outage" in FAULTS


def test_a_fault_that_the_engine_does_not_know_is_told_as_one_that_has_not_fired():
    result = replayed(worker(), actor(), FaultRecord(at_s=50.0, fault="fill-disk", worker="w1"))
    assert result.document()["faults"] == {"fill-disk": {"planned": 1, "fired": 0}}


def test_that_a_trace_has_no_workers_is_told():
    result = replayed(actor())
    assert result.states["Waiting"] == 1
    assert result.notes == ("the trace adds no worker, so nobody could run; `greenroom sim what-if` adds some",)
    assert replayed(worker(), actor()).notes == ()


def test_the_phases_of_the_slowest_activation_sum_to_the_whole():
    records = (worker(), actor(for_s=30.0), actor("b", at_s=2.0), actor("c", at_s=3.0))
    slowest = replayed(*records, overrides={"suspension.oversubscribe": False}).slowest
    assert [each.actor for each in slowest] == ["b", "a"]
    for each in slowest:
        assert sum(each.steps.values()) == pytest.approx(each.activation_s, abs=1e-4)


def test_old_copies_leave_a_worker_that_has_too_many_and_their_actors_come_from_the_store():
    suspends = [Suspend(at_s=50.0 + index, actor=name) for index, name in enumerate("ab")]
    records = (worker(gpus=2), actor("a"), actor("b"), *suspends, Resume(at_s=200.0, actor="a"))
    result = replayed(*records, overrides={"retention.worker_bytes_max": 1.0})
    assert result.ways == {"cold": 2, "store": 1}


def test_what_the_machine_said_once_is_kept_and_changes_nothing():
    records = [worker(gpus=2), worker("w2", gpus=1)]
    records += [actor(f"a{index}", at_s=1.0 + index) for index in range(12)]
    records += [Resume(at_s=20.0 + index, actor=f"a{index % 12}") for index in range(60)]
    kept, asked = (replayed(*records, config="troubled", seed=5, kept_max=most) for most in (50_000, 0))
    assert without_cpu(kept) == without_cpu(asked)
    assert kept.transitions > 400
