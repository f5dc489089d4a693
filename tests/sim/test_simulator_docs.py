"""docs/simulator.md: every snippet runs as it stands there, and the tables name what there is."""

import re
from typing import Any

import pytest
import trio

from sim.documents import counter
from sim.engine import record_of, run
from sim.faults import Fail, Fault, What, When
from sim.invariants.registry import INVARIANTS, check
from sim.lives import LIVES
from sim.walker import points_of
from statemachine.states import State
from tests.needs import ROOT

TEXT = (ROOT / "docs" / "simulator.md").read_text()
SNIPPETS = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
NAMES = (counter, record_of, Fail, Fault, When, State, check, trio)


@pytest.mark.parametrize("snippet", SNIPPETS, ids=range(len(SNIPPETS)))
def test_a_snippet_runs_as_it_stands_there(snippet):
    known: dict[str, Any] = {each.__name__: each for each in NAMES}
    exec(snippet, known)
    record = run(known["scenario"])
    assert record.moves
    assert all(report.fired for report in record.faults)


def test_a_state_takes_three_lines_and_a_fault_four():
    assert [len(snippet.splitlines()) for snippet in SNIPPETS[:2]] == [3, 4]


def test_the_tables_name_every_invariant_fault_and_life():
    for name in (*INVARIANTS, *LIVES):
        assert f"| `{name}` |" in TEXT
    for kind in What.__args__:
        assert f"| `{kind.__name__}(" in TEXT


@pytest.mark.parametrize("name", LIVES)
def test_the_points_of_a_life_are_as_many_as_the_table_says(name):
    (told,) = re.findall(rf"\| `{name}` \| (\d+) \|", TEXT)
    assert len(points_of(LIVES[name])[0]) == int(told)
