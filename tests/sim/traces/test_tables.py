"""Tables that are imported: each bad row is told with its number, and what is made of the rest is asked for."""

import csv
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sim.traces.importing.azure_llm import COLUMNS, AzureLlm, import_azure_llm
from sim.traces.importing.openb import NODE_COLUMNS, POD_COLUMNS, Fractions, OpenB, import_openb
from sim.traces.importing.rows import TOLD_MAX, BadRows, rows
from sim.traces.reading import read_trace
from sim.traces.records import Assignment, Container, Header, Resume, Suspend, Terminate, WorkerAdd
from sim.traces.streams import LINE_BYTES_MAX
from sim.traces.writing import write_trace
from statemachine.problem import ProblemError
from statemachine.reasons import Reason
from tests.sim.traces.any_records import table

SAMPLES = Path(__file__).resolve().parents[4] / "shared" / "data" / "traces"
needs_samples = pytest.mark.skipif(not SAMPLES.is_dir(), reason="the published traces lie beside this checkout")
POD = "p1,12000,16384,1,1000,,LS,Running,100,250,110"
NODE = "n1,64000,262144,2,P100"
REQUEST = "2023-11-16 18:17:03.9799600,4808,10"


def pods(directory, *given, **how):
    """What is made of these pods, with the notes."""
    header, records = import_openb([table(directory / "pods.csv", POD_COLUMNS, *given)], OpenB(**how), BadRows())
    return list(records), header.notes


def requests(directory, *given, **how):
    path = table(directory / "requests.csv", COLUMNS, *given)
    return list(import_azure_llm([path], AzureLlm(**how), BadRows())[1])


def who(record):
    return record.actor


def problems(made):
    with pytest.raises(ProblemError) as refused:
        list(made[1])
    assert {problem.reason for problem in refused.value.problems} == {Reason.INVALID_ROW}
    return [problem.message for problem in refused.value.problems]


# --------------------------------------------------------------------------------------------------------------- OpenB


def test_a_pod_is_assigned_when_it_was_created_and_runs_as_long_as_it_did(tmp_path):
    (assignment,), notes = pods(tmp_path, POD)
    assert assignment == Assignment(
        at_s=0,
        actor="p1",
        containers=(Container(name="main", gpus=1),),
        cpu_milli=12000,
        memory_bytes=16 << 30,
        for_s=140,
        class_="LS",
    )
    assert notes["beganAt_s"] == 100


def test_a_pod_that_was_never_scheduled_gives_up_when_it_was_deleted(tmp_path):
    records, notes = pods(tmp_path, POD, "p2,1,1,1,1000,,BE,Pending,120,130,", "p3,1,1,0,0,,BE,Pending,140,,")
    assert [(record.at_s, type(record), who(record)) for record in records] == [
        (0, Assignment, "p1"),
        (20, Assignment, "p2"),
        (30, Terminate, "p2"),
        (40, Assignment, "p3"),
    ]
    assert notes["neverScheduled"] == 1
    assert [record.for_s for record in records if isinstance(record, Assignment)] == [140, None, None]


def test_pods_without_gpus_and_with_a_choice_of_models_are_what_they_say(tmp_path):
    (first, second), notes = pods(
        tmp_path, "p1,1,1,0,0,nan,LS,Succeeded,1,2,1", "p2,1,1,8,1000,V100M16|V100M32,,Failed,1,2,1"
    )
    assert (first.gpus, first.models, first.class_) == (0, (), "LS")
    assert (second.gpus, second.models, second.class_) == (8, ("V100M16", "V100M32"), None)
    assert (notes["withoutGpus"], notes["failed"]) == (1, 1)


@pytest.mark.parametrize(
    ("fractions", "made", "rounded_up", "skipped"),
    [(Fractions.ROUND_UP, ["p1", "p2"], 1, 0), (Fractions.SKIP, ["p1"], 0, 1)],
)
def test_a_part_of_a_gpu_is_rounded_up_or_skipped_and_counted(tmp_path, fractions, made, rounded_up, skipped):
    records, notes = pods(tmp_path, POD, "p2,1,1,1,460,,LS,Running,1,2,1", fractions=fractions)
    assert sorted(who(record) for record in records) == made
    assert all(record.gpus == 1 for record in records)
    assert (notes["fractionsRoundedUp"], notes["fractionsSkipped"], notes["pods"]) == (rounded_up, skipped, len(made))
    assert notes["fractions"] == fractions


def test_nodes_are_workers_that_are_there_from_the_beginning(tmp_path):
    nodes = table(tmp_path / "nodes.csv", NODE_COLUMNS, NODE, "n2,1,1,0,nan")
    records, notes = pods(tmp_path, POD, nodes=nodes)
    assert records[:2] == [
        WorkerAdd(at_s=0, worker="n1", gpus=2, model="P100", cpu_milli=64000, memory_bytes=256 << 30),
        WorkerAdd(at_s=0, worker="n2", gpus=0, cpu_milli=1, memory_bytes=1 << 20),
    ]
    assert (len(records), notes["workers"]) == (3, 2)


def test_pods_may_stand_in_any_order_and_in_several_files(tmp_path):
    late = table(tmp_path / "late.csv", POD_COLUMNS, POD.replace("p1", "p9").replace("100,250,110", "300,400,300"), POD)
    early = table(tmp_path / "early.csv", POD_COLUMNS, POD.replace("p1", "p0").replace("100,250,110", "50,60,50"))
    header, records = import_openb([late, early], OpenB(), BadRows())
    assert [(record.at_s, who(record)) for record in records] == [(0, "p0"), (50, "p1"), (250, "p9")]
    assert header.source == "OpenB: late.csv, early.csv"


@pytest.mark.parametrize(
    ("row", "why"),
    [
        ("p2,12000,16384,1,1000,,LS,Running,100,250", "it has 10 cells, and there are 11 columns"),
        ("p2,12000,16384,1,1000,,LS,Running,100,250,110,1", "it has 12 cells, and there are 11 columns"),
        ("p1,12000,16384,1,1000,,LS,Running,100,250,110", "the name p1 stands there a second time"),
        (",12000,16384,1,1000,,LS,Running,100,250,110", "name is ''"),
        ("a b,12000,16384,1,1000,,LS,Running,100,250,110", "name is 'a b'"),
        (f"{'p' * 64},12000,16384,1,1000,,LS,Running,100,250,110", "1 to 63 letters"),
        ("p2,x,16384,1,1000,,LS,Running,100,250,110", "cpu_milli is 'x'"),
        ("p2,-1,16384,1,1000,,LS,Running,100,250,110", "cpu_milli is '-1'"),
        ("p2,1.5,16384,1,1000,,LS,Running,100,250,110", "cpu_milli is '1.5'"),
        ("p2,1,9999999999,1,1000,,LS,Running,100,250,110", "memory_mib is '9999999999'"),
        ("p2,1,1,1,0,,LS,Running,100,250,110", "num_gpu 1 and gpu_milli 0 do not go together"),
        ("p2,1,1,0,460,,LS,Running,100,250,110", "num_gpu 0 and gpu_milli 460 do not go together"),
        ("p2,1,1,2,460,,LS,Running,100,250,110", "num_gpu 2 and gpu_milli 460 do not go together"),
        ("p2,1,1,1,1001,,LS,Running,100,250,110", "gpu_milli is '1001'"),
        ("p2,1,1,1,1000,V\x07,LS,Running,100,250,110", "gpu_spec is 'V\\x07'"),
        ("p2,1,1,1,1000,,LS,Lost,100,250,110", "pod_phase is 'Lost'"),
        ("p2,1,1,1,1000,,LS,Running,,250,110", "creation_time is empty"),
        ("p2,1,1,1,1000,,LS,Running,1e3,250,110", "creation_time is '1e3'"),
        ("p2,1,1,1,1000,,LS,Running,100,250,99", "scheduled_time 99 is before creation_time 100"),
        ("p2,1,1,1,1000,,LS,Running,100,109,110", "deletion_time 109 is before scheduled_time 110"),
        ("p2,1,1,1,1000,,LS,Pending,100,99,", "deletion_time 99 is before creation_time 100"),
        ('p2,1,1,1,1000,"LS,Running,100,250,110', "unexpected end of data"),
    ],
)
def test_a_bad_pod_is_told_with_its_number(tmp_path, row, why):
    path = table(tmp_path / "pods.csv", POD_COLUMNS, POD, row)
    (message,) = problems(import_openb([path], OpenB(), BadRows()))
    assert message.startswith(f"{path}: row 3: ")
    assert why in message


@pytest.mark.parametrize(
    ("row", "why"),
    [("n1,1,1,1,T4", "second time"), ("n2,1,1,2000,T4", "gpu is '2000'"), ("n2,1,1,1", "it has 4 cells")],
)
def test_a_bad_node_is_told_with_its_number_beside_bad_pods(tmp_path, row, why):
    nodes = table(tmp_path / "nodes.csv", NODE_COLUMNS, NODE, row)
    path = table(tmp_path / "pods.csv", POD_COLUMNS, POD, POD)
    first, second = problems(import_openb([path], OpenB(nodes=nodes), BadRows()))
    assert first.startswith(f"{nodes}: row 3: ")
    assert why in first
    assert second.startswith(f"{path}: row 3: ")


def test_bad_rows_are_skipped_when_that_is_asked_for_and_counted(tmp_path):
    path = table(tmp_path / "pods.csv", POD_COLUMNS, POD, "oh", "p2,1,1,1,1000,,LS,Running,100,250,110", "no")
    bad = BadRows(are_skipped=True)
    header, records = import_openb([path], OpenB(), bad)
    assert [who(record) for record in records] == ["p1", "p2"]
    assert header.notes["badRowsSkipped"] == bad.count == 2
    assert [problem.subject for problem in bad.told] == [f"{path}:3", f"{path}:5"]


def test_bad_rows_are_told_up_to_a_bound_and_the_rest_counted(tmp_path):
    path = table(tmp_path / "pods.csv", POD_COLUMNS, *["oh"] * (TOLD_MAX + 5))
    messages = problems(import_openb([path], OpenB(), BadRows()))
    assert len(messages) == TOLD_MAX + 1
    assert messages[-1] == "there are more bad rows than the 100 that are told; the rest was not read"
    bad = BadRows(are_skipped=True)
    assert list(import_openb([path], OpenB(), bad)[1]) == []
    assert (bad.count, len(bad.told)) == (TOLD_MAX + 5, TOLD_MAX)


def test_a_quote_that_is_not_closed_is_told_where_it_begins_and_how_far_it_reaches(tmp_path):
    path = table(tmp_path / "pods.csv", POD_COLUMNS, POD, f'"{POD}', POD, POD)
    (message,) = problems(import_openb([path], OpenB(), BadRows()))
    assert message == f"{path}: row 3: unexpected end of data, with all up to line 5"


def test_a_column_that_stands_twice_is_refused(tmp_path):
    path = table(tmp_path / "pods.csv", ("name", *POD_COLUMNS), f"p2,{POD}")
    (message,) = problems(import_openb([path], OpenB(), BadRows(are_skipped=True)))
    assert message == f"{path}: row 1: the columns name stand there twice"


# --------------------------------------------------------------------------------------------------------------- Azure


def test_an_actor_is_assigned_at_its_first_request_and_suspended_after_its_last(tmp_path):
    made = requests(
        tmp_path, "2023-11-16 18:17:03.9799600,800,6", "2023-11-16 18:17:13.9799600,8000,60", actors=1, gpus=2
    )
    assert made == [
        Assignment(at_s=0, actor="llm-1", containers=(Container(name="server", gpus=2),), class_="llm"),
        Resume(at_s=0, actor="llm-1", busy_s=0.2),
        Resume(at_s=10, actor="llm-1", busy_s=2),
        Suspend(at_s=72, actor="llm-1"),
    ]


def test_the_idle_timeout_may_be_left_to_the_fleet(tmp_path):
    made = requests(tmp_path, REQUEST, REQUEST, idle_timeout_s=None)
    assert {type(record) for record in made} == {Assignment, Resume}


def test_how_long_a_request_takes_is_by_its_tokens_and_the_rates(tmp_path):
    made = requests(tmp_path, REQUEST, prompt_tokens_per_s=4808.0, generated_tokens_per_s=5.0)
    assert [record.busy_s for record in made if isinstance(record, Resume)] == [3]


@pytest.mark.parametrize(
    "text", ["2024-05-10 00:00:00.009930+00:00", "2024-05-10T00:00:00.00993Z", "2024-05-10 02:00:00.0099309+02:00"]
)
def test_times_of_both_years_are_read(tmp_path, text):
    path = table(tmp_path / "requests.csv", COLUMNS, f"{text},1,1")
    header, records = import_azure_llm([path], AzureLlm(), BadRows())
    assert len(list(records)) == 3
    assert header.notes["beganAt_s"] == 1715299200.00993


def test_a_trace_may_reach_from_the_first_year_to_the_last(tmp_path):
    made = requests(tmp_path, "1970-01-01 00:00:00,1,1", "9999-12-31 23:59:59,1,1", actors=1)
    assert write_trace(tmp_path / "t.jsonl", Header(source="x"), made) == 5
    assert list(read_trace(tmp_path / "t.jsonl")[1]) == made


@pytest.mark.parametrize(
    ("row", "why"),
    [
        ("yesterday,1,1", "TIMESTAMP is 'yesterday'"),
        (",1,1", "TIMESTAMP is ''"),
        ("1960-01-01 00:00:00,1,1", "TIMESTAMP is '1960-01-01 00:00:00'"),
        ("2023-11-16 18:17:03,,1", "ContextTokens is ''"),
        ("2023-11-16 18:17:03,1,-1", "GeneratedTokens is '-1'"),
        ("2023-11-16 18:17:03,1,10000001", "GeneratedTokens is '10000001'"),
        ("2023-11-16 18:17:03,1", "it has 2 cells"),
    ],
)
def test_a_bad_request_is_told_with_its_number(tmp_path, row, why):
    path = table(tmp_path / "requests.csv", COLUMNS, REQUEST, REQUEST, row)
    (message,) = problems(import_azure_llm([path], AzureLlm(), BadRows()))
    assert message.startswith(f"{path}: row 4: ")
    assert why in message


def test_the_first_actors_are_asked_most_unless_all_are_alike(tmp_path):
    def asked(skew):
        made = requests(tmp_path, *[REQUEST] * 2000, actors=10, skew=skew)
        return [
            sum(getattr(record, "busy_s", None) is not None and record.actor == f"llm-{n:02}" for record in made)
            for n in (1, 10)
        ]

    first, last = asked(1.0)
    assert 500 < first < 860  # 2000 / (1 + 1/2 + … + 1/10) is 683
    assert 30 < last < 110  # and a tenth of that
    first, last = asked(0.0)
    assert all(140 < count < 260 for count in (first, last))


def test_another_seed_draws_other_actors_and_the_same_one_the_same(tmp_path):
    made = [requests(tmp_path, *[REQUEST] * 50, seed=seed) for seed in (1, 1, 2)]
    assert made[0] == made[1] != made[2]


# -------------------------------------------------------------------------------------------------------------- tables


def told(path, *columns):
    """What is wrong with a table."""
    bad = BadRows()
    try:
        list(rows(path, columns, bad))
    except ProblemError as error:
        return error.problems
    return bad.told


@pytest.mark.parametrize(
    ("data", "number", "why"),
    [
        (b"", 1, "the columns a, b are not there"),
        (b"a,c\n1,2\n", 1, "the columns b are not there"),
        (b"a,b\n1,\xff\n", 2, "it is not UTF-8"),
        (b"a,b\n1,2\n1,\x00\n", 3, "it has a NUL in it"),
        (b'a,b\n1,"2"3\n', 2, "expected after"),
        (b"a,b\n" + b"1" * (LINE_BYTES_MAX + 1) + b",2\n", 2, "bytes long"),
        (b"a,b\n" + b"1" * 200_000 + b",2\n", 2, "larger than field limit"),
    ],
)
def test_what_is_no_table_is_told_with_its_row(tmp_path, data, number, why):
    path = tmp_path / "t.csv"
    path.write_bytes(data)
    (problem,) = told(path, "a", "b")
    assert problem.subject == f"{path}:{number}"
    assert why in problem.message


@settings(deadline=None)
@given(
    cells=st.lists(
        st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\0\r"), max_size=8), min_size=2, max_size=2),
        min_size=1,
        max_size=6,
    ).filter(lambda rows: all(any(row) for row in rows))
)
def test_what_others_write_as_a_table_is_read_cell_by_cell(tmp_path_factory, cells):
    path = tmp_path_factory.mktemp("any") / "t.csv"
    with path.open("w", newline="", encoding="utf-8-sig") as file:
        csv.writer(file).writerows([["a", "b"], *cells])
    assert [list(row.cells.values()) for row in rows(path, ("b", "a"), BadRows())] == cells


def test_an_empty_line_is_nothing_and_a_column_more_is_not_looked_at(tmp_path):
    path = table(tmp_path / "t.csv", ("x", "b", "a"), "0,1,2", "", "0,3,4", "", "")
    assert [(row.number, row.cells["a"]) for row in rows(path, ("a", "b"), BadRows())] == [(2, "2"), (4, "4")]


# --------------------------------------------------------------------------------------------------- what was published


@needs_samples
@pytest.mark.parametrize(
    ("fractions", "counts", "assignments"),
    [
        (
            Fractions.ROUND_UP,
            {"fractionsRoundedUp": 3078, "fractionsSkipped": 0, "neverScheduled": 897, "failed": 1870},
            8152,
        ),
        (
            Fractions.SKIP,
            {"fractionsRoundedUp": 0, "fractionsSkipped": 3078, "neverScheduled": 392, "failed": 709},
            5074,
        ),
    ],
)
def test_all_of_openb_is_imported_and_counted(fractions, counts, assignments):
    how = OpenB(nodes=SAMPLES / "openb_node_list_gpu_node.csv", fractions=fractions)
    header, records = import_openb([SAMPLES / "openb_pod_list_default.csv"], how, BadRows())
    made = list(records)
    kinds = [sum(isinstance(record, kind) for record in made) for kind in (WorkerAdd, Assignment, Terminate)]
    assert kinds == [1213, assignments, counts["neverScheduled"]]
    assert counts.items() <= header.notes.items()
    assert header.notes["withoutGpus"] == 1088
    assert sum(record.gpus for record in made if isinstance(record, WorkerAdd)) == 6212
    assert sum(record.for_s is None for record in made if isinstance(record, Assignment)) == counts["neverScheduled"]


@needs_samples
def test_all_of_azures_code_trace_is_imported():
    header, records = import_azure_llm([SAMPLES / "AzureLLMInferenceTrace_code.csv"], AzureLlm(), BadRows())
    made = list(records)
    assert [sum(isinstance(record, kind) for record in made) for kind in (Assignment, Resume, Suspend)] == [
        100,
        8819,
        1465,
    ]
    assert header.notes["requests"] == 8819
    # The last request, as the file says: 3,435.948056 s after the first.
    assert max(record.at_s for record in made if isinstance(record, Resume)) == 3435.948056
