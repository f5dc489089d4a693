"""docs/metrics.md names what there is; that its table is the catalogue's is held with the other generated parts."""

import re

import pytest

from statemachine.reasons import Reason
from supervisor.metrics.catalogue import METRICS, Kind
from tests.needs import ROOT

PAGE = (ROOT / "docs" / "metrics.md").read_text()
SERIES = {
    name
    for each in METRICS
    for name in (
        each.name,
        *([f"{each.name}_{part}" for part in ("bucket", "sum", "count")] if each.kind is Kind.HISTOGRAM else []),
    )
}


def test_every_metric_that_the_page_names_is_one():
    named = set(re.findall(r"\b(?:greenroom|process)_[a-z_]+", PAGE))
    assert named - SERIES == set()
    assert {each.name for each in METRICS} <= named


@pytest.mark.parametrize("word", sorted(set(re.findall(r"`([A-Z][a-z]+(?:[A-Z][a-z]+)+)`", PAGE))))
def test_every_reason_that_the_page_names_is_one(word):
    assert word in set(Reason)


def test_every_label_of_an_alert_is_one_of_its_metric():
    for name, labels in re.findall(r"\b((?:greenroom|process)_[a-z_]+)\{([^}]*)\}", PAGE):
        metric = next(each for each in METRICS if name.startswith(each.name))
        assert set(re.findall(r"(\w+)(?:=|!)", labels)) <= set(metric.label_names), name
