"""What-if: the same trace with more and fewer workers, and suspended sooner and later."""

import json
import math
import xml.etree.ElementTree as ET

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from greenroom import run
from sim.fleet.config import read_config
from sim.reports.what_if import GPUS, Cell, changed, cheapest, fleet, shapes_of, what_if
from sim.reports.what_if_page import answer, rows, what_if_page
from sim.reports.what_if_plot import picture
from sim.traces.records import FaultRecord, Header, Resume, Suspend, WorkerAdd, WorkerDrain, WorkerRemove
from tests.sim.replay.fast_runs import QUICK, actor, worker
from tests.sim.reports.test_page import text_of
from tests.sim.traces.any_records import TRACES

RECORDS = [
    worker("w1", gpus=2, model="L4"),
    *(actor(f"a{number}", at_s=1.0 + number) for number in range(6)),
    Suspend(at_s=20.0, actor="a1"),
    *(Resume(at_s=50.0 + number, actor=f"a{number % 6}") for number in range(30)),
]


def configured(idle_timeout_s):
    return read_config(None, {**QUICK, "suspension.idle_timeout_s": idle_timeout_s})


def table(workers=(1, 3), idle_timeouts_s=(5.0, math.inf), **more):
    return what_if(
        lambda: (Header(source="a test"), iter(RECORDS)),
        workers=workers,
        idle_timeouts_s=idle_timeouts_s,
        configured=configured,
        **more,
    )


def test_there_is_a_cell_for_each_pair_in_order():
    assert [(cell.workers, cell.idle_timeout_s) for cell in table().cells] == [
        (1, 5.0), (1, math.inf), (3, 5.0), (3, math.inf),
    ]  # fmt: skip


def test_more_workers_cost_more_have_fewer_actors_each_and_make_nobody_wait_longer():
    few, many = table(idle_timeouts_s=(5.0,)).cells
    assert few.cost < many.cost
    assert few.density > many.density
    assert few.p95_s > many.p95_s
    assert (few.gpus, many.gpus) == (2, 6)


def test_who_is_never_suspended_holds_more_and_is_activated_less():
    soon, never = table(workers=(3,)).cells
    assert soon.held < never.held
    assert soon.activations > never.activations


def test_the_same_seed_makes_the_same_table():
    assert table(seed=3).as_json() == table(seed=3).as_json()


USUAL = {"workers": 1, "idle_timeout_s": 1.0, "gpus": 1, "p50_s": 0.0, "max_s": 9.0, "activations": 1, "density": 1.0}


def cell(cost, p95_s, **more):
    usual = {**USUAL, "held": 0.5, "waiting": 0, "failed": 0, "failures": 0, "violated": 0, "cost": 2 * cost}
    return Cell(**{**usual, **more}, cost_per_hour=cost, p95_s=p95_s)


def test_the_cheapest_that_serves_everybody_in_time_is_chosen():
    slow, dear, good, quicker = cell(1.0, 2.0), cell(9.0, 0.1), cell(4.0, 0.9), cell(4.0, 0.5)
    waits, breaks = cell(0.5, 0.1, waiting=1), cell(0.5, 0.1, violated=1)
    assert cheapest([slow, dear, good, waits, breaks], 1.0) == good
    assert cheapest([good, quicker], 1.0) == quicker
    assert cheapest([slow, waits], 1.0) is None


def test_a_fleet_on_which_nobody_ever_ran_is_not_the_cheapest():
    assert cheapest([cell(1.0, 0.0, activations=0), cell(9.0, 0.5)], 1.0) == cell(9.0, 0.5)


def test_an_end_that_comes_later_makes_an_hour_no_dearer():
    soon, never = table(workers=(3,), idle_timeouts_s=(600.0, math.inf)).cells
    assert soon.cost > 2 * never.cost
    assert soon.cost_per_hour == never.cost_per_hour == 6.0  # six GPUs at the default price


def test_the_answer_is_told_in_a_sentence():
    found = table(p95_s=1e6)
    assert found.chosen is not None
    assert found.chosen.cost_per_hour == min(each.cost_per_hour for each in found.cells)
    assert answer(found).endswith(f"cost {found.chosen.cost_per_hour:.2f} an hour.")
    some_failed = attrs.evolve(found, chosen=attrs.evolve(found.chosen, failed=3))
    assert answer(some_failed).endswith(" an hour, 3 ended Failed.")
    assert answer(attrs.evolve(found, chosen=None)).startswith("None of these")


def test_workers_have_the_shapes_of_the_traces_own_in_turn():
    shapes = shapes_of([worker("w1", gpus=2, model="L4"), worker("w1", gpus=9), worker("w2", gpus=4), worker("more-3")])
    made = list(fleet(shapes, 5))
    assert [each.worker for each in made] == ["w1", "w2", "more-3", "more-4", "more-5"]
    assert [each.gpus for each in made] == [2, 4, 1, 2, 4]
    assert len({each.worker for each in fleet([worker("more-2")] * 1, 40)}) == 40
    assert [each.gpus for each in shapes_of([])] == [GPUS]


@given(TRACES, st.integers(1, 5))
def test_of_a_trace_all_stays_but_its_workers_its_suspends_and_who_must_be_where(records, count):
    workers = list(fleet(shapes_of(records), count))
    assert len({each.worker for each in workers}) == count
    made = list(changed(records, workers))
    assert made[:count] == workers
    left = [each for each in records if not isinstance(each, WorkerAdd | WorkerRemove | WorkerDrain | Suspend)]
    assert [(type(each), each.at_s) for each in made[count:]] == [(type(each), each.at_s) for each in left]
    # A fault may still name its worker.
    assert all(getattr(each, "worker", None) is None for each in made[count:] if not isinstance(each, FaultRecord))


def test_the_page_has_every_cell_and_marks_the_chosen_one():
    found = table(p95_s=1e6)
    text, elements = text_of(what_if_page(found))
    assert answer(found) in text
    kinds = [given.get("class") for _, given in elements]
    assert kinds.count("n chosen") == 1
    assert sum(name == "circle" and given["class"] != "chosen" for name, given in elements) == len(found.cells)
    assert sum(name == "circle" and given["class"] == "chosen" for name, given in elements) == 1
    assert what_if_page(found) == what_if_page(table(p95_s=1e6))


def test_a_page_can_be_made_of_nothing_that_happened():
    found = what_if(
        lambda: (Header(source="<empty>"), iter([])), workers=(1,), idle_timeouts_s=(0.0,), configured=configured
    )
    assert "What if: <empty>" in text_of(what_if_page(found))[0]
    # Nobody came to run: there is no figure of it, and no point.
    assert next(iter(rows(found)))[3:6] == ("-", "-", "-")
    assert not [name for name, _ in text_of(what_if_page(found))[1] if name == "circle"]


def test_each_number_of_workers_stands_once_above_the_plot_where_there_is_room():
    found = table(workers=(1, 2, 3, 6, 7))
    words = [each.text for each in ET.fromstring(picture(found)).findall(".//{*}text")]
    assert words[words.index("workers") + 1 :][:5] == ["1", "2", "3", "6", "7"]
    crowded = table(workers=tuple(range(1, 80)), idle_timeouts_s=(5.0,))
    words = [each.text for each in ET.fromstring(picture(crowded)).findall(".//{*}text")]
    assert len(words) < 60


def test_the_plot_alone_is_a_whole_picture(tmp_path):
    found = tmp_path / "plot.svg"
    assert run([*ASKED, "-o", str(found)]) == 0
    root = ET.fromstring(found.read_bytes())
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    # A point for each pair, and a key for each idle timeout.
    assert len(root.findall(".//{*}circle")) == 4
    assert sum("point" in each.get("class", "") for each in root.findall(".//{*}rect")) == 2


ASKED = ["sim", "what-if", "bursty-agents", "--workers", "1,2", "--idle-timeout", "10,never"]


def test_the_command_tells_a_line_for_each_pair_and_the_answer(tmp_path, capsys):
    page = tmp_path / "page.html"
    assert run([*ASKED, "--p95-under", "60", "-o", str(page)]) == 0
    head, *lines, last = capsys.readouterr().out.splitlines()
    assert head.split()[:6] == ["WORKERS", "GPUS", "IDLE", "TIMEOUT", "P50", "P95"]
    assert len(lines) == 4
    assert last.startswith("p95 of 1 min or less at the least cost: 1 worker, idle timeout ")
    assert last in text_of(page.read_bytes())[0]


def test_the_command_tells_one_document(capsys):
    assert run([*ASKED, "--json", "--gpus-per-worker", "3", "--model", "H100"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["v"], told["workers"], told["idle_timeouts_s"]) == (1, [1, 2], [10.0, None])
    assert [each["gpus"] for each in told["cells"]] == [3, 3, 6, 6]
    assert told["chosen"] is None


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--workers", "0"], "'0' is not from 1"),
        (["--workers", "2,x"], "'x' is no number"),
        (["--idle-timeout", "-1"], "'-1' is not from 0"),
        (["--idle-timeout", "nan"], "'nan' is not from 0"),
        (["--model", "L4"], "--model needs --gpus-per-worker"),
        (["--workers", ",".join(map(str, range(1, 1000)))], "over 1000 replays"),
    ],
)
def test_what_cannot_be_asked_is_refused(more, said, capsys):
    assert run([*ASKED, *more]) == 2
    assert said in capsys.readouterr().err


def test_a_trace_that_is_not_there_is_told(capsys):
    assert run(["sim", "what-if", "nowhere", "--workers", "1", "--idle-timeout", "1"]) == 1
    assert "error: UnreadableFile: " in capsys.readouterr().err
