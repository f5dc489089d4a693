"""Journals that are imported: of a worker in the simulated world, and of lines that were made by hand."""

import datetime as dt
import json
from pathlib import Path
from typing import Any

import pytest
import trio

from sim.documents import IDLE, actor, container
from sim.engine import run
from sim.traces.importing.journals import Journals, import_journals, journals_below
from sim.traces.importing.rows import BadRows
from sim.traces.reading import read_trace
from sim.traces.records import Assignment, Container, FaultRecord, Resume, Suspend, Terminate, WorkerAdd, WorkerDrain
from sim.traces.writing import write_trace
from sim.world.gpus import Driver, some_gpus
from sim.world.world import Machine
from statemachine.problem import ProblemError
from statemachine.reasons import Reason
from statemachine.states import State
from tests.formats.recording import DIRECTORY

BEGAN = dt.datetime(2026, 11, 30, 8, tzinfo=dt.UTC)
BASE = {"claims": "Nothing", "containers": [{"name": "main"}]}


def imported(*paths, bad=None, **how):
    """The records of these journals, and the notes."""
    files = [each for path in paths for each in journals_below(path)]
    header, records = import_journals(files, Journals(**how), bad or BadRows())
    return list(records), header.notes


def journal(directory, uid, *lines, worker="w1"):
    """A journal by hand: `(seconds, from, event, to)`, and the first one `(seconds, state)`."""
    path = directory / worker / "actors" / uid / "journal.jsonl"
    path.parent.mkdir(parents=True)
    texts = []
    for seq, (at_s, *rest) in enumerate(lines, 1):
        at = (BEGAN + dt.timedelta(seconds=at_s)).isoformat().replace("+00:00", "Z")
        line: dict[str, Any] = {"v": 1, "seq": seq, "at": at, "mono_s": at_s, "bootId": "b", "generation": 1}
        if len(rest) == 1:
            line |= {"base": {"state": rest[0], **BASE}, "since": at}
        else:
            line |= {"from": rest[0], "event": {"type": rest[1]}, "to": rest[2], "commands": []}
        texts.append(json.dumps(line) + "\n")
    path.write_text("".join(texts))
    return path


STARTED = [
    (0, "Assigned"),
    (1, "Assigned", "AssignmentRecorded", "Creating"),
    (2, "Creating", "ContainersVerified", "Running"),
]


# ---------------------------------------------------------------------------------------------------- of a real worker


@pytest.fixture(scope="module")
def day(tmp_path_factory):
    """The state directory of a worker after a busy day."""
    state_dir = tmp_path_factory.mktemp("day") / "worker-7"
    files: dict[Path, bytes] = {}

    def trainer(uid, *command, gpus=1, **spec):
        main = container("trainer", command or IDLE, resources={"limits": {"nvidia.com/gpu": gpus, "memory": "1Gi"}})
        return actor(uid, main, container("sidecar", command or IDLE), **spec)

    async def scenario(here):
        await here.submit(trainer("a1", gpus=2))
        await here.wait(State.RUNNING)
        await here.submit(trainer("a2", "sh", "-c", "sleep 3; exit 0"))
        await here.wait(State.TERMINATED, "a2")
        await trio.sleep(10)
        await here.suspend("a1")
        await trio.sleep(20)
        await here.resume("a1")
        await trio.sleep(5)
        await here.drain()
        await trio.sleep(30)
        await here.start()
        await here.resume("a1")
        await trio.sleep(5)
        await here.stop("a1")
        for uid in ("a1", "a2"):
            there = here.world.state.actor(uid)
            for path in (there.journal, there.assignment):
                files[state_dir / "actors" / uid / path.name] = here.world.read(path)

    run(scenario, seed=3, machine=Machine(gpus=some_gpus(3), driver=Driver(version="550.90.07")))
    for path, data in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return state_dir


def test_a_day_of_a_worker_becomes_what_was_asked_of_it(day):
    records, notes = imported(day)
    assert [type(record) for record in records] == [
        *(WorkerAdd, Assignment, Assignment, Suspend, Resume),
        *(WorkerDrain, WorkerAdd, Resume, Terminate),
    ]
    assert [getattr(record, "actor", "-") for record in records] == ["-", "a1", "a2", "a1", "a1", "-", "-", "a1", "a1"]
    assert {record.worker for record in records if isinstance(record, (WorkerAdd, WorkerDrain))} == {"worker-7"}
    assert (notes["journals"], notes["workers"], notes["gpusAssumed"]) == (2, 1, 0)


def test_what_actors_claim_is_in_their_assignments_and_a_worker_has_what_was_held_at_once(day):
    records, _ = imported(day)
    added, first, second = records[:3]
    assert added == WorkerAdd(at_s=0, worker="worker-7", gpus=3)
    assert first.containers == (Container(name="trainer", gpus=2), Container(name="sidecar"))
    assert (first.memory_bytes, first.worker, second.gpus) == (1 << 30, "worker-7", 1)


def test_times_are_those_of_the_day_and_work_that_was_done_took_its_time(day):
    records, _ = imported(day)
    suspend, resume, drain, again = (records[index].at_s for index in (3, 4, 5, 6))
    assert resume - suspend == pytest.approx(20, abs=1)
    assert drain - resume == pytest.approx(6, abs=1)
    assert again - drain == pytest.approx(31, abs=2)
    assert [record.for_s for record in records if isinstance(record, Assignment)] == [None, pytest.approx(3, abs=0.3)]


def test_the_trace_of_a_day_is_written_and_read_again(day, tmp_path):
    records, _ = imported(day.parent)
    header, _ = import_journals(journals_below(day), Journals(), BadRows())
    write_trace(tmp_path / "day.jsonl.zst", header, records)
    assert list(read_trace(tmp_path / "day.jsonl.zst")[1]) == records


def test_actors_may_be_placed_anew_on_workers_with_more_gpus(day):
    records, _ = imported(day, is_pinned=False, gpus=8, model="H100")
    assert records[0] == WorkerAdd(at_s=0, worker="worker-7", gpus=8, model="H100")
    assert {record.worker for record in records if isinstance(record, Assignment)} == {None}


@pytest.mark.parametrize("release", ["0.1.0", "current"])
def test_journals_of_every_release_can_be_imported(release):
    records, _ = imported(DIRECTORY / release / "journal.jsonl")
    assert {WorkerAdd, Assignment, Suspend, Resume} == {type(record) for record in records}


# ------------------------------------------------------------------------------------------------------------ by hand


def test_the_journals_of_many_workers_become_one_trace_in_order(tmp_path):
    journal(tmp_path, "a1", *STARTED, (9, "Running", "SuspendRequested", "Suspending"), worker="w1")
    journal(tmp_path, "a2", (5, "Assigned"), (6, "Assigned", "StopRequested", "Terminated"), worker="w2")
    records, notes = imported(tmp_path)
    assert [(record.at_s, type(record)) for record in records] == [
        *((0, WorkerAdd), (0, Assignment), (5, WorkerAdd), (5, Assignment), (6, Terminate), (9, Suspend)),
    ]
    assert notes["workers"] == 2


def test_a_drain_of_many_actors_is_one_and_the_worker_is_back_when_it_takes_on_again(tmp_path):
    drained = [
        *STARTED,
        (10, "Running", "DrainRequested", "Suspending"),
        (11, "Suspending", "SandboxReleased", "Suspended"),
    ]
    journal(tmp_path, "a1", *drained, (50, "Suspended", "Activate", "Assigned"))
    journal(tmp_path, "a2", *drained)
    records, _ = imported(tmp_path)
    assert [(record.at_s, type(record)) for record in records[3:]] == [(10, WorkerDrain), (50, WorkerAdd), (50, Resume)]


def test_an_actor_that_goes_on_elsewhere_is_resumed_and_one_that_has_ended_is_assigned_anew(tmp_path):
    journal(tmp_path, "a1", *STARTED, worker="w1")
    journal(tmp_path, "a1", (20, "Assigned"), (30, "Running", "StopRequested", "Stopping"), worker="w2")
    journal(tmp_path, "a1", (40, "Assigned"), worker="w3")
    records, _ = imported(tmp_path)
    assert [type(record) for record in records if not isinstance(record, WorkerAdd)] == [
        *(Assignment, Resume, Terminate, Assignment)
    ]


@pytest.mark.parametrize(
    ("event", "end", "for_s"),
    [
        ("ContainerExited", "Terminated", 30),
        ("ContainerExited", "Failed", 30),
        ("SandboxDied", "Failed", None),
        ("StopRequested", "Terminated", None),
        ("DrainRequested", "Failed", None),
    ],
)
def test_only_who_ended_by_itself_has_a_time_to_run(tmp_path, event, end, for_s):
    path = journal(
        tmp_path, "a1", *STARTED, (32, "Running", event, "RollingBack"), (33, "RollingBack", "RolledBack", end)
    )
    (assignment,) = (record for record in imported(path)[0] if isinstance(record, Assignment))
    assert assignment.for_s == for_s


@pytest.mark.parametrize(("event", "fault"), [("SandboxDied", "kill-sandbox"), ("GpuLost", "lose-gpu")])
def test_what_hit_an_actor_is_a_fault(tmp_path, event, fault):
    path = journal(
        tmp_path, "a1", *STARTED, (32, "Running", event, "RollingBack"), (33, "RollingBack", "RolledBack", "Failed")
    )
    records, notes = imported(path)
    assert records[-1] == FaultRecord(at_s=32, fault=fault, actor="a1")
    assert notes["failures"] == 1


def test_the_time_to_run_leaves_out_when_it_was_suspended(tmp_path):
    path = journal(
        tmp_path,
        "a1",
        *STARTED,
        (12, "Running", "SuspendRequested", "Suspended"),
        (100, "Suspended", "Activate", "Assigned"),
        (101, "Assigned", "ContainersVerified", "Running"),
        (106, "Running", "ContainerExited", "Stopping"),
        (107, "Stopping", "TornDown", "Terminated"),
    )
    (assignment,) = (record for record in imported(path)[0] if isinstance(record, Assignment))
    assert assignment.for_s == 15


@pytest.mark.parametrize(
    ("state", "made"),
    [("Suspended", [Assignment, Suspend]), ("Running", [Assignment]), ("Failed", []), ("Terminated", [])],
)
def test_a_journal_that_begins_in_the_middle_begins_with_where_the_actor_was(tmp_path, state, made):
    records, _ = imported(journal(tmp_path, "a1", (0, state)))
    assert [type(record) for record in records if not isinstance(record, WorkerAdd)] == made


def test_workers_with_the_same_name_are_told_apart_and_any_name_will_do(tmp_path):
    for parent in ("x", "y"):
        journal(tmp_path / parent, "a1", *STARTED, worker="state dir")
    lone = tmp_path / "-a b.journal"
    lone.write_bytes((tmp_path / "x/state dir/actors/a1/journal.jsonl").read_bytes())
    records, _ = imported(tmp_path / "x", tmp_path / "y", lone)
    assert sorted(record.worker for record in records if isinstance(record, WorkerAdd)) == [
        *("state-dir", "state-dir-2", "worker")
    ]
    assert {record.actor for record in records if isinstance(record, Assignment)} == {"a1", "a-b"}


def test_without_its_assignment_an_actor_that_claims_gpus_counts_as_one(tmp_path):
    path = journal(tmp_path, "a1", *STARTED)
    path.write_text(path.read_text().replace('"Nothing"', '"Gpus"'))
    records, notes = imported(path)
    assert (records[0], records[1].gpus, notes["gpusAssumed"]) == (WorkerAdd(at_s=0, worker="w1", gpus=1), 1, 1)


@pytest.mark.parametrize(
    ("spoil", "row"),
    [
        (lambda text: text.replace('"Creating"', '"Nowhere"'), 2),
        (lambda text: text + "{}\n", 4),
        (lambda text: text + '{"v":99}\n', 4),
        (lambda text: text.replace('"containers"', '"others"'), 1),
        (lambda text: text.replace('"base"', '"other"'), 1),
        (lambda _: "", 1),
    ],
)
def test_a_journal_that_cannot_be_used_is_one_bad_row_with_its_number(tmp_path, spoil, row):
    path = journal(tmp_path, "a1", *STARTED)
    good = journal(tmp_path, "a2", *STARTED)
    path.write_text(spoil(path.read_text()))
    with pytest.raises(ProblemError) as refused:
        imported(path, good)
    (problem,) = refused.value.problems
    assert (problem.reason, problem.subject) == (Reason.INVALID_ROW, f"{path}:{row}")
    records, notes = imported(path, good, bad=BadRows(are_skipped=True))
    assert [record.actor for record in records if isinstance(record, Assignment)] == ["a2"]
    assert notes["badRowsSkipped"] == 1


def test_times_that_no_trace_can_hold_are_one_bad_row(tmp_path):
    path = journal(tmp_path, "a1", *STARTED)
    first, *rest = path.read_text().splitlines(keepends=True)
    far = [line.replace('"at": "2026', '"at": "9999') for line in rest]
    path.write_text("".join([first, *(far[0], rest[0]) * 6]))
    with pytest.raises(ProblemError) as refused:
        imported(path)
    assert "longer than a trace can be" in refused.value.problem.message


@pytest.mark.parametrize("text", ["", "{}", '{"v":1,"assignment":{}}', '{"v":1,"assignment":7}'])
def test_an_assignment_that_cannot_be_used_is_one_bad_row(tmp_path, text):
    path = journal(tmp_path, "a1", *STARTED)
    path.with_name("assignment.json").write_text(text)
    with pytest.raises(ProblemError) as refused:
        imported(path)
    assert "says what the actor needs" in refused.value.problem.message


def test_a_torn_last_line_is_left_out(tmp_path):
    path = journal(tmp_path, "a1", *STARTED)
    whole, _ = imported(path)
    with path.open("a") as file:
        file.write('{"v":1,"se')
    assert imported(path)[0] == whole
