"""The renderers, and the pages that are generated with them."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from statemachine import reason_table, rendering
from statemachine.catalogue import CATALOGUE
from statemachine.cells import Go, Ignore, Refuse
from statemachine.events import EVENTS
from statemachine.problem import Step
from statemachine.reasons import Reason
from statemachine.states import DEADLINE_S, STARTING, State
from statemachine.table import TABLE
from tests.needs import ROOT


def test_the_text_table_has_every_transition_and_says_why_of_every_other_cell():
    lines = rendering.as_table().splitlines()
    assert lines[0].split() == ["state", "event", "when", "then", "commands", "remembered"]
    assert set(lines[1]) == {"-", " "}
    cells = [cell for rows in TABLE.values() for cell in rows]
    refused = [line for line in lines if " refused: " in line]
    ignored = [line for line in lines if " ignored: " in line]
    assert len(refused) == sum(isinstance(cell, Refuse) for cell in cells)
    assert len(lines) - 2 - len(refused) - len(ignored) == sum(isinstance(cell, Go) for cell in cells)
    assert {cell.why for cell in cells if isinstance(cell, Ignore)} == {line.split("ignored: ")[1] for line in ignored}


def test_the_text_table_is_aligned_and_names_every_event_or_counts_it_among_the_late_answers():
    lines = rendering.as_table().splitlines()
    starts = [match.start() for match in re.finditer(r"-+", lines[1])]
    for line in lines[2:]:
        assert all(line[start - 1] == " " for start in starts[1:] if start <= len(line))
    for state in State:
        mine = [line.split()[1] for line in lines[2:] if line.split()[0] == state]
        assert mine[-1] == "(every"
        assert set(mine[:-1]) <= {kind.__name__ for kind in EVENTS}


def test_edges_are_all_ways_between_different_states_once():
    pairs = [(edge.source, edge.target) for edge in rendering.edges()]
    assert len(set(pairs)) == len(pairs)
    assert set(pairs) == {
        (state, cell.target)
        for (state, _kind), rows in TABLE.items()
        for cell in rows
        if isinstance(cell, Go) and cell.target is not state
    }


def drawn(text: str) -> set[tuple[str, str]]:
    """The arrows of a Mermaid diagram between named states; one from the way up is one from each of its states."""
    found = set()
    for source, target in re.findall(r"^ *(\w+) --> (\w+)", text, flags=re.MULTILINE):
        sources = STARTING if source == "WayUp" else (source,)
        found |= {(str(each), target) for each in sources}
    return found


def test_the_mermaid_diagram_draws_every_edge_with_all_its_events():
    text = rendering.as_mermaid()
    assert text.startswith("stateDiagram-v2\n")
    assert drawn(text) == {(str(edge.source), str(edge.target)) for edge in rendering.edges()}
    for edge in rendering.edges():
        for event in edge.events:
            sources = {str(edge.source), "WayUp"} if edge.source in STARTING else {str(edge.source)}
            lines = [line.strip() for line in text.splitlines() if f" --> {edge.target}:" in line]
            assert any(line.split(" ")[0] in sources and event in re.split(r": |<br/>", line) for line in lines)


def test_the_mermaid_diagram_is_balanced_marks_the_resting_states_and_has_no_self_loop():
    text = rendering.as_mermaid()
    assert text.count("{") == text.count("}") == 1
    assert "class Running,Suspended,Failed resting" in text
    assert "Terminated --> [*]" in text
    assert all(source != target for source, target in drawn(text))
    assert all(re.fullmatch(r"[\w<>/ ]+", label) for label in re.findall(r"\w+ --> \w+: (.*)", text))


def test_the_overview_draws_only_ways_that_the_table_has():
    known = {(edge.source, edge.target) for edge in rendering.edges()}
    assert set(rendering.overview_edges()) <= known
    assert len(rendering.overview_edges()) == len(set(rendering.overview_edges())) > 15
    assert drawn(rendering.overview()) == {(str(one), str(other)) for one, other in rendering.overview_edges()}


def test_the_dot_diagram_has_every_state_and_every_edge():
    text = rendering.as_dot()
    assert text.startswith("digraph greenroom {\n")
    assert text.endswith("}\n")
    assert set(re.findall(r"^    (\w+) \[style", text, flags=re.MULTILINE)) == set(State)
    arrows = re.findall(r'^    (\w+) -> (\w+) \[label="([^"]+)"\];$', text, flags=re.MULTILINE)
    assert [(source, target, tuple(label.split("\\n"))) for source, target, label in arrows] == [
        (str(edge.source), str(edge.target), edge.events) for edge in rendering.edges()
    ]


def test_the_deadline_table_has_every_state_with_its_seconds():
    rows = [line.split(" | ") for line in rendering.as_deadline_table().splitlines()[2:]]
    assert [row[0].strip("| *") for row in rows] == [str(state) for state in State]
    for state, row in zip(State, rows, strict=True):
        assert row[2].startswith(f"{DEADLINE_S[state]:g} s" if state in DEADLINE_S else "none")


def test_markdown_tables_have_as_many_columns_as_their_headings():
    for text in (rendering.as_markdown(), rendering.as_deadline_table(), reason_table.as_markdown()):
        width = None
        for line in text.splitlines():
            if not line.startswith("|"):
                width = None
                continue
            columns = len(re.findall(r"(?<!\\)\|", line))
            assert columns == (width or columns), line
            width = columns


def test_the_reason_pages_groups_are_those_of_the_enum():
    source = (ROOT / "statemachine" / "reasons.py").read_text()
    body = source[source.index("class Reason(") : source.index("R = Reason")]
    comments = re.findall(r'^    # (.+)\n    (\w+) = "', body, flags=re.MULTILINE)
    assert [(title.lower(), first.name) for title, first in reason_table.GROUPS] == [
        (title.lower(), name) for title, name in comments
    ]
    assert [reason for _title, members in reason_table.groups() for reason in members] == list(Reason)


@pytest.mark.parametrize("reason", Reason)
def test_the_reason_page_has_the_sentence_and_the_hint_of_every_reason(reason):
    (line,) = [line for line in reason_table.as_markdown().splitlines() if line.startswith(f"| `{reason}` |")]
    plain = line.replace("\\|", "|")
    assert CATALOGUE[reason].sentence in plain
    assert CATALOGUE[reason].hint in plain


def render(*arguments: str) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, str(ROOT / "scripts" / "render-docs"), *arguments]
    return subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)


def test_the_pages_are_those_that_the_tables_give():
    result = render("--check")
    assert (result.stdout, result.stderr, result.returncode) == ("", "", 0)


def test_the_pages_have_their_generated_parts():
    for name, parts in {
        "docs/machine.md": {"overview", "deadlines", "diagram", "table"},
        "docs/reasons.md": {"reasons"},
        "docs/metrics.md": {"metrics"},
        "docs/operating.md": {"who_acts"},
    }.items():
        text = (ROOT / name).read_text()
        assert (
            set(re.findall(r"<!-- generated: (\w+) ", text)) == set(re.findall(r"<!-- end: (\w+) -->", text)) == parts
        )


def test_render_docs_knows_no_other_argument():
    assert render("--help-me").returncode == 2


def test_the_glossary_has_the_step_words_and_names_only_code_that_is_there():
    text = (ROOT / "docs" / "glossary.md").read_text()
    for step in set(Step) - {Step.ADMISSION, Step.SUPERVISE}:
        assert re.search(rf"\b{step}\b", text)
    for path in re.findall(r"`(\w+/\w+\.py)`", text):
        assert (ROOT / path).exists(), path
    for name in re.findall(r"`((?:statemachine|actors)\.[\w.]+)`", text):
        module, *rest = name.split(".")[1:]
        source = (ROOT / name.split(".")[0] / f"{module}.py").read_text()
        assert all(re.search(rf"\b{part}\b", source) for part in rest), name
