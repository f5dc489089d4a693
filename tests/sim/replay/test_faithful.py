"""The faithful engine: many machines in one virtual time, the same run for the same seed, and what it tells of it."""

import subprocess
import sys
import time
from itertools import pairwise
from types import SimpleNamespace
from typing import Any, ClassVar

import orjson
import pytest

from actors.gpu.quarantine import WELL_MAX_S
from sim.engine import JumpingClock, run_in_virtual_time
from sim.fleet.config import read_config
from sim.fleet.dispatch import Fleet
from sim.guard import RealWorldError
from sim.replay.faithful import judging
from sim.replay.faithful.conducting import Conductor
from sim.replay.faithful.engine import replay
from sim.replay.faithful.papers import document_of, uid_of
from sim.replay.faithful.worker import MONITOR_TELLS_FOR_S
from sim.replay.results import Verdict
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
from statemachine.problem import Problem, ProblemError, Step
from statemachine.reasons import Reason
from tests.needs import ROOT

HEADER = Header(source="a test")
CALM = {
    f"latency.{name}": {"kind": "constant", "value": 0.5, "source": "a test"} for name in ("create", "worker_start")
}


def claiming(name, at_s, gpus=1, **more):
    return Assignment(at_s=at_s, actor=name, containers=(Container(name="main", gpus=gpus),), **more)


def a_crowd():
    """Four workers, and eight actors that take turns on them."""
    yield from (WorkerAdd(at_s=0.0, worker=f"w{number}", gpus=1, model="T4") for number in range(4))
    yield from (claiming(f"a{number}", 5.0 + number) for number in range(8))
    yield from (Resume(at_s=60.0 + 7 * number, actor=f"a{number}", busy_s=2.0) for number in range(8))
    yield WorkerRemove(at_s=200.0, worker="w0")


def replayed(records, seed=1, sink=None, **overrides):
    result = replay(HEADER, iter(records), config=read_config(overrides=overrides), seed=seed, sink=sink)
    assert result.violations == ()
    assert result.verdict is Verdict.HELD
    return result


def without_cpu(result):
    document = result.document()
    del document["cpu_s"]
    return orjson.dumps(document)


class Moves(list[tuple[Any, ...]]):
    def moved(self, *what):
        self.append(what)


CHILD = """
from tests.sim.replay.test_faithful import a_crowd, replayed, without_cpu
print(without_cpu(replayed(a_crowd(), seed=7)).decode())
"""


@pytest.mark.parametrize("hash_seed", [pytest.param("0", marks=pytest.mark.long), "4711"])
def test_the_same_seed_is_the_same_document_to_the_byte_under_every_hash_seed(hash_seed):
    env = {"PYTHONHASHSEED": hash_seed, "PATH": "/usr/bin:/bin"}
    command = [sys.executable, "-c", CHILD]
    child = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=True, timeout=300)
    assert child.stdout.strip().encode() == without_cpu(replayed(a_crowd(), seed=7))


def test_another_seed_takes_other_times():
    records = [WorkerAdd(at_s=0.0, worker="w1"), claiming("a1", 10.0, gpus=0)]
    assert without_cpu(replayed(records, seed=1)) != without_cpu(replayed(records, seed=2))


def test_whoever_waits_gets_the_room_of_somebody_idle_and_every_activation_is_counted():
    result = replayed(a_crowd())
    assert result.lifecycles >= 16
    assert result.ways["cold"] == 8
    assert result.ways["local"] + result.ways["store"] == result.lifecycles - 8
    assert result.steps["restore"]["count"] == result.lifecycles - 8
    assert sum(result.gpu_seconds.values()) == pytest.approx(4 * 200 + 3 * (result.virtual_s - 200), rel=0.02)


def test_steps_take_as_long_as_the_config_says():
    result = replayed([WorkerAdd(at_s=0.0, worker="w1"), claiming("a1", 10.0, gpus=0)], **CALM)
    assert result.steps["create"]["max"] == pytest.approx(0.5, abs=0.001)


STEPS = {
    "Assigned": "assign", "Detecting": "detect", "Generating": "generate_cached", "Partitioning": "partition",
    "Injecting": "inject", "Creating": "create", "Restoring": "restore", "Verifying": "verify",
    "Suspending": "suspend", "Releasing": "release", "Stopping": "stop", "RollingBack": "rollback",
}  # fmt: skip


def test_every_step_takes_as_long_as_the_config_says():
    records = [
        WorkerAdd(at_s=0.0, worker="w1", gpus=1), claiming("a1", 10.0), Suspend(at_s=50.0, actor="a1"),
        Resume(at_s=80.0, actor="a1"), FaultRecord(at_s=120.0, fault="kill-sandbox", actor="a1"),
        Terminate(at_s=200.0, actor="a1"),
    ]  # fmt: skip
    seconds = {state: 0.2 + 0.1 * number for number, state in enumerate(STEPS)}
    constant = {
        f"latency.{STEPS[state]}": {"kind": "constant", "value": value, "source": "a test"}
        for state, value in seconds.items()
    }
    moves = Moves()
    replayed(records, sink=moves, **constant)
    entered = [(at_s, str(after)) for at_s, _, _, before, _, after, _ in moves if before is not after]
    for (at_s, state), (left_s, _) in pairwise(entered):
        if state in seconds:
            assert left_s - at_s == pytest.approx(seconds[state], abs=0.02), state
    assert seconds.keys() <= {state for _, state in entered}


@pytest.mark.parametrize(
    ("overrides", "setting"),
    [
        ({"failure.x": {"step": "stop", "probability": 0.1, "reason": "RuntimeFailed", "source": "-"}}, "failure.x"),
        ({"retention.worker_bytes_max": 5.0}, "retention.worker_bytes_max"),
        ({"store.retry_s": 5.0}, "store.retry_s"),
        ({"actors.probe_s": 5.0}, "actors.probe_s"),
    ],
)
def test_a_setting_that_would_do_nothing_here_is_refused(overrides, setting):
    with pytest.raises(ProblemError) as caught:
        replay(HEADER, iter([]), config=read_config(overrides=overrides))
    problem = caught.value.problem
    assert problem.reason is Reason.CONFIG_REFUSED
    assert problem.subject == setting
    assert "--engine fast" in (problem.hint or "")


def test_a_failure_that_never_happens_is_not_refused():
    never = {"failure.x": {"step": "stop", "probability": 0.0, "reason": "RuntimeFailed", "source": "a test"}}
    assert replayed([WorkerAdd(at_s=0.0, worker="w1")], **never).workers == 1


def test_a_replay_ends_with_the_last_thing_that_happens():
    records = [WorkerAdd(at_s=0.0, worker="w1"), claiming("a1", 10.0, gpus=0), WorkerDrain(at_s=50.0, worker="w1")]
    assert replayed(records).virtual_s < 60  # a drain may take half an hour


def test_a_worker_takes_nobody_before_it_has_started():
    moves = Moves()
    replayed([WorkerAdd(at_s=0.0, worker="w1"), claiming("a1", 0.1, gpus=0)], sink=moves, **CALM)
    assert moves[0][0] >= 0.5


def test_a_snapshot_takes_its_bytes_over_the_way_to_the_store():
    records = [WorkerAdd(at_s=0.0, worker="w1"), claiming("a1", 10.0, gpus=0), Suspend(at_s=50.0, actor="a1")]
    mib = {"snapshots.mib": {"kind": "constant", "value": 100.0, "source": "a test"}}
    moves = Moves()
    replayed(records, sink=moves, **mib, **{"store.worker_bytes_per_s": float(1 << 20)})
    proven, uploaded = (
        next(each[0] for each in moves if each[4] == event) for event in ("SandboxReleased", "SnapshotUploaded")
    )
    assert 100 <= uploaded - proven <= 110


def test_a_month_in_which_nothing_happens_is_not_looked_at_every_three_seconds():
    month_s = 30 * 24 * 3600.0
    records = [WorkerAdd(at_s=0.0, worker="w1", gpus=8), claiming("a1", 10.0, for_s=month_s)]
    result = replayed(records)
    assert result.virtual_s >= month_s
    assert result.events < 100
    assert result.cpu_s < 60  # 860,000 looks would take a quarter of an hour


def test_a_gpu_that_is_lost_a_day_after_the_last_look_is_seen_at_once_and_not_granted_again():
    day_s = 24 * 3600.0
    records = [
        WorkerAdd(at_s=0.0, worker="w1", gpus=2),
        claiming("a1", 10.0, gpus=2),
        FaultRecord(at_s=day_s, fault="lose-gpu", worker="w1", args={"gpu": 1, "for_s": 100.0}),
    ]
    moves = Moves()
    result = replayed(records, sink=moves)
    (lost,) = [each for each in moves if each[4] == "GpuLost"]
    assert lost[0] == pytest.approx(day_s, abs=10)
    assert result.faults["lose-gpu"].fired == 1
    assert result.failures["GpuLost"] >= 1


def test_a_replay_ends_when_a_gpu_is_well_again_that_was_lost_when_its_supervisor_started():
    records = [
        WorkerAdd(at_s=0.0, worker="w1", gpus=2),
        claiming("a1", 10.0),
        FaultRecord(at_s=100.0, fault="lose-gpu", worker="w1", args={"for_s": 300.0}),
        FaultRecord(at_s=120.0, fault="kill-worker", worker="w1"),
        claiming("a2", 450.0),
    ]
    moves = Moves()
    result = replayed(records, sink=moves)
    assert result.virtual_s < 500
    assert moves[-1][2:6] == ("a2", "Verifying", "ContainersVerified", "Running")


def test_a_gpu_is_looked_at_for_longer_than_any_has_to_be_well():
    assert MONITOR_TELLS_FOR_S > WELL_MAX_S


FULL: dict[str, list[Any]] = {
    "a suspend": [Suspend(at_s=50.0, actor="a1"), Suspend(at_s=300.0, actor="a1")],
    "an end": [FaultRecord(at_s=50.0, fault="kill-sandbox", actor="a1")],
    "a life": [Suspend(at_s=41.0, actor="a1"), FaultRecord(at_s=42.0, fault="kill-worker", worker="w1")],
}


@pytest.mark.parametrize("what", FULL)
def test_what_a_full_disk_keeps_from_being_written_is_held_against_nobody(what):
    disk = FaultRecord(at_s=40.0, fault="fill-disk", worker="w1")
    result = replayed([WorkerAdd(at_s=0.0, worker="w1", gpus=2), claiming("a1", 10.0), disk, *FULL[what]])
    assert result.faults["fill-disk"].fired == 1


@pytest.mark.parametrize(
    ("name", "subject", "is_excused"),
    [("GpusHaveOneHolder", "a1", True), ("GpusHaveOneHolder", "/dev/nvidia0", False), ("NothingLeft", "a1", False)],
)
def test_what_was_not_written_excuses_what_is_read_of_it_alone(name, subject, is_excused):
    worker: Any = SimpleNamespace(unwritten={"a1"})
    assert judging._is_excused(worker, name, subject) == is_excused


def test_who_is_refused_again_and_again_begins_when_there_is_room():
    disk = FaultRecord(at_s=9.0, fault="fill-disk", worker="w1", args={"for_s": 12.0})
    end = Terminate(at_s=90.0, actor="a1")
    moves = Moves()
    result = replayed([WorkerAdd(at_s=0.0, worker="w1"), disk, claiming("a1", 10.0, gpus=0), end], sink=moves)
    assert result.failures.keys() == {"StateUnwritable"}
    assert [*dict.fromkeys(str(each[5]) for each in moves)][-3:] == ["Running", "Stopping", "Terminated"]


@pytest.mark.parametrize("name", ["upgrade-driver", "deny-devices"])
def test_nothing_befalls_the_driver_of_a_worker_that_has_none(name):
    result = replayed([WorkerAdd(at_s=0.0, worker="w1"), FaultRecord(at_s=5.0, fault=name, worker="w1")])
    assert (result.faults[name].planned, result.faults[name].fired) == (1, 0)


def test_a_fault_that_nobody_knows_has_not_fired():
    records = [WorkerAdd(at_s=0.0, worker="w1"), FaultRecord(at_s=5.0, fault="no-such", worker="w1")]
    assert replayed(records).faults["no-such"].fired == 0


def test_a_trace_that_cannot_be_read_to_its_end_is_refused_as_it_is():
    problem = Problem(step=Step.ADMISSION, reason=Reason.UNREADABLE_FILE, subject="t", message="line 2 is none")

    def broken():
        yield WorkerAdd(at_s=0.0, worker="w1")
        raise ProblemError(problem)

    with pytest.raises(ProblemError) as caught:
        replay(HEADER, broken(), config=read_config())
    assert caught.value.problem is problem


def test_whoever_reads_the_trace_and_hears_of_moves_may_look_at_the_real_clock(tmp_path):
    path = tmp_path / "trace"
    path.write_text("5")

    class Watch:
        seen: ClassVar[list[float]] = []

        def moved(self, *_what):
            self.seen.append(time.monotonic())

    def read():
        yield WorkerAdd(at_s=0.0, worker="w1")
        yield claiming("a1", float(path.read_text()), gpus=0)

    replayed(read(), sink=Watch())
    assert Watch.seen == sorted(Watch.seen)


def test_a_fault_of_ours_on_a_worker_is_a_violation():
    class Broken(dict[str, float]):
        def __getitem__(self, name):
            raise ZeroDivisionError

    conductor = Conductor(Fleet(read_config()), config=read_config(), seed=1, sink=None)
    conductor._sizes = Broken()
    records = [WorkerAdd(at_s=0.0, worker="w1"), claiming("a1", 1.0, gpus=0), Suspend(at_s=9.0, actor="a1")]
    run_in_virtual_time(lambda: conductor.conduct(iter(records)), seed=1, clock=JumpingClock(conductor.when_quiet))
    assert conductor.account._violated["NoFaultOfOurs"] == 1


def test_what_a_sink_raises_ends_the_replay_as_it_is():
    class Broken:
        def moved(self, *_what):
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        replayed([WorkerAdd(at_s=0.0, worker="w1"), claiming("a1", 1.0, gpus=0)], sink=Broken())


def test_a_worker_may_not():
    class Chance(dict[str, float]):
        def __getitem__(self, name):
            return time.monotonic()

    conductor = Conductor(Fleet(read_config()), config=read_config(), seed=1, sink=None)
    conductor._sizes = Chance()
    records = [WorkerAdd(at_s=0.0, worker="w1"), claiming("a1", 1.0, gpus=0), Suspend(at_s=9.0, actor="a1")]
    with pytest.raises(RealWorldError):
        run_in_virtual_time(lambda: conductor.conduct(iter(records)), seed=1, clock=JumpingClock(conductor.when_quiet))


@pytest.mark.parametrize("name", ["a1", "openb-pod-0000", "A.b_c", "x" * 63, "a.b" * 21])
def test_every_name_of_a_trace_becomes_a_uid_that_a_worker_takes(name):
    moves = Moves()
    replayed([WorkerAdd(at_s=0.0, worker="w.1"), claiming(name, 10.0, gpus=0, for_s=5.0)], sink=moves)
    assert {each[2] for each in moves} == {name}
    assert moves[-1][5] == "Terminated"


def test_two_names_are_two_uids():
    assert uid_of("a.b") != uid_of("a_b") != uid_of("a-b")


def test_containers_get_names_that_can_be_theirs():
    assignment = Assignment(at_s=0.0, actor="a1", containers=(Container(name="pause"), Container(name="B", gpus=2)))
    document = document_of(assignment, read_config(), generation=3, snapshot_uri="s3://b/a1/s1")
    assert [each["name"] for each in document["spec"]["containers"]] == ["c0", "c1"]
    assert document["spec"]["containers"][1]["resources"]["limits"] == {"nvidia.com/gpu": 2}
    assert document["spec"]["snapshot"] == {"uri": "s3://b/a1/s1"}
