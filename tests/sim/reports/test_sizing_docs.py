"""docs/simulator.md sizes a fleet from the Azure trace: its table and its plot say what the code says today."""

import math
import re
from pathlib import Path

import pytest

from greenroom import run
from sim.fleet.config import read_config
from sim.reports import wording
from sim.reports.what_if import what_if
from sim.reports.what_if_plot import idle
from sim.traces.reading import read_trace
from sim.traces.records import WorkerAdd
from tests.needs import ROOT

pytestmark = pytest.mark.long

TRACE = Path(__file__).resolve().parents[4] / "shared" / "data" / "traces" / "AzureLLMInferenceTrace_code.csv"
needs_azure = pytest.mark.skipif(not TRACE.is_file(), reason="the Azure trace is not beside this checkout")
WORKERS = (6, 12, 13)
IDLE_S = (10.0, 300.0, math.inf)
COLUMNS = (1, 4, 5)
"""Of the table, those of these idle timeouts."""
TEXT = (ROOT / "docs" / "simulator.md").read_text()


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    """Some cells of the table, and the one that is chosen of them."""
    trace = tmp_path_factory.mktemp("azure") / "azure.jsonl.zst"
    assert run(["sim", "import", "--from", "azure-llm", str(TRACE), "--idle-timeout", "none", "-o", str(trace)]) == 0
    return what_if(
        lambda: read_trace(trace),
        workers=WORKERS,
        idle_timeouts_s=IDLE_S,
        configured=lambda idle_s: read_config(None, {"suspension.idle_timeout_s": idle_s}),
        shape=WorkerAdd(at_s=0.0, worker="worker-1", gpus=8),
        p95_s=1.0,
    )


@needs_azure
def test_the_table_has_the_figures_of_today(table):
    for workers in WORKERS:
        (row,) = re.findall(rf"^\| {workers} \|.*\|$", TEXT, re.MULTILINE)
        told = [cell.strip().strip("*") for cell in row.strip("|").split("|")]
        cells = [cell for cell in table.cells if cell.workers == workers]
        assert [told[column] for column in COLUMNS] == [wording.seconds(cell.p95_s) for cell in cells]
        most, *_, fewest = cells
        assert told[6:8] == [
            wording.amount(fewest.density),
            f"{wording.count(most.activations)} to {wording.count(fewest.activations)}",
        ]
        assert float(told[8]) == fewest.cost_per_hour


@needs_azure
def test_the_chosen_one_is_the_one_that_the_text_names(table):
    chosen = table.chosen
    assert f"is {chosen.workers} workers with an idle timeout of {chosen.idle_timeout_s / 60:g} minutes" in TEXT
    assert f": {chosen.cost_per_hour:g} an hour" in TEXT


@needs_azure
def test_the_plot_has_the_figures_of_today(table):
    picture = (ROOT / "docs" / "what-if-azure.svg").read_text()
    for cell in table.cells:
        said = f"{cell.workers} workers, idle {idle(cell.idle_timeout_s)}: p95 {wording.seconds(cell.p95_s)}, "
        assert said in picture
