"""docs/operating.md and deploy/alerts.yaml: what they name is there, and the numbers are those of the program."""

from __future__ import annotations

import re

import click
import pytest
import yaml

from greenroom import cli
from statemachine.reasons import Reason
from statemachine.states import State
from supervisor.cli.run import run
from supervisor.draining import SUSPENDS_MAX
from supervisor.metrics.catalogue import METRICS, Kind
from supervisor.metrics.looking import GPU_STATES
from supervisor.reloading import LIVE
from supervisor.self_check import FILES_OF_THE_WORKER, FILES_PER_ACTOR
from supervisor.shutdown import HURRIED_S, Phase
from tests.deploy.objects import DEPLOY
from tests.needs import ROOT

DOCS = ROOT / "docs"
PAGE = (DOCS / "operating.md").read_text()
RULES = [rule for group in yaml.safe_load((DEPLOY / "alerts.yaml").read_text())["groups"] for rule in group["rules"]]
OF_PROMETHEUS = {"up"}
FROM_THE_SCRAPE = {"job", "instance", "le"}
METRIC = re.compile(r"\b(up|(?:greenroom|process)_[a-z_]+)\b(?:\{([^}]*)\})?")
NEW = re.compile(r"or \((\S+) unless \1 offset \w+\)")
"""What was not there before: a counter that begins at 1 has no increase yet."""
WORDS_OF_QUERIES = {"sum", "by", "rate", "increase", "histogram_quantile", "unless", "or", "on"}
OUTCOMES = {"done", "failed", "cancelled", "stored"}

alerts = pytest.mark.parametrize("rule", RULES, ids=[rule["alert"] for rule in RULES])


def metric_of(series: str) -> tuple[set[str], Kind]:
    """The labels of what a query names, and what it is."""
    if series in OF_PROMETHEUS:
        return set(), Kind.GAUGE
    for each in METRICS:
        parts = ("bucket", "sum", "count") if each.kind is Kind.HISTOGRAM else ()
        if series in (each.name, *(f"{each.name}_{part}" for part in parts)):
            return set(each.label_names), each.kind
    raise AssertionError(f"{series} is no metric of a worker")


@alerts
def test_an_alert_asks_for_metrics_that_there_are_and_for_their_labels(rule):
    found = METRIC.findall(rule["expr"])
    assert found
    for series, labels in found:
        assert set(re.findall(r"(\w+)(?:=~|!~|!=|=)", labels)) <= metric_of(series)[0] | FROM_THE_SCRAPE, series
    left = METRIC.sub("", NEW.sub("", rule["expr"]))
    grouped = {name for names in re.findall(r"\b(?:by|on) \(([^)]*)\)", left) for name in names.split(", ")}
    assert grouped <= FROM_THE_SCRAPE | {label for series, _ in found for label in metric_of(series)[0]}
    assert set(re.findall(r"[a-z_]{2,}", re.sub(r"\([^()]*\)", "", left))) <= WORDS_OF_QUERIES


@alerts
def test_what_an_alert_compares_a_label_with_is_one_of_its_values(rule):
    for labels in METRIC.findall(rule["expr"]):
        for name, value in re.findall(r'(\w+)(?:=~|!~|!=|=)"([^"]*)"', labels[1]):
            known = {"reason": set(Reason), "state": {*State, *GPU_STATES}, "outcome": OUTCOMES}.get(name)
            assert known is None or set(value.split("|")) <= {str(each) for each in known}, value


@alerts
def test_what_only_grows_is_asked_for_its_increase(rule):
    for series in re.findall(r"(?<![a-z(])((?:greenroom|process)_[a-z_]+)", NEW.sub("", rule["expr"])):
        assert metric_of(series)[1] is Kind.GAUGE, series


@alerts
def test_the_page_says_what_to_do_about_an_alert(rule):
    assert re.search(rf"^\| `{rule['alert']}` \| \S.+ \|$", PAGE, re.MULTILINE)
    assert rule["labels"]["severity"] in {"info", "warning", "critical"}
    assert rule["annotations"]["summary"]


def test_the_page_has_no_alert_that_there_is_not():
    assert set(re.findall(r"`(Greenroom[A-Z]\w+)`", PAGE)) == {rule["alert"] for rule in RULES}


def test_every_command_that_the_page_shows_is_one():
    names = set(
        re.findall(r"\bgreenroom (?!exec|create|port-forward|get)([a-z][a-z-]+)\b(?=[ `]|$)", PAGE, re.MULTILINE)
    )
    assert names
    assert names <= set(cli.list_commands(click.Context(cli)))


def test_every_flag_of_a_worker_and_every_setting_that_the_page_names_is_one():
    settings = {each.name for each in run.params if each.name}
    assert set(re.findall(r"`(\w+_\w+)(?: = [^`]*)?`", section("Settings") + section("Drain"))) <= settings


def test_the_settings_of_a_live_worker_are_those_that_it_takes_over():
    (line,) = [line for line in section("Settings").split("\n\n") if line.startswith("Of a live worker")]
    assert set(re.findall(r"`(\w+)`", line.split("can be changed")[0])) == LIVE


def test_the_numbers_of_the_drain_are_those_of_the_program():
    text = section("Drain")
    numbers = {1: "one", 2: "two", 3: "three", 4: "four", 5: "five", 6: "six"}
    assert f"{numbers[SUSPENDS_MAX]} at a time" in text
    share, most_s = Phase.SAVING.value
    assert share == 1 / 3
    assert f"When a third of the time, at most {most_s:.0f} s, is left" in text
    assert f"A second SIGTERM leaves {HURRIED_S:.0f} s" in text
    assert f"| open files | {FILES_OF_THE_WORKER}, and {FILES_PER_ACTOR} for each actor |" in section("Sizing")


def test_every_reason_that_the_page_names_is_one():
    named = set(re.findall(r"`([A-Z][a-z]+(?:[A-Z][a-z]+)+)`", PAGE)) - {rule["alert"] for rule in RULES}
    assert named - {str(each) for each in Reason} == set()


def test_every_link_leads_somewhere():
    for target, anchor in re.findall(r"\]\(([\w./-]*)(?:#([\w-]+))?\)", PAGE):
        path = DOCS / target if target else DOCS / "operating.md"
        assert path.is_file(), target
        titles = re.findall(r"^#+ (.+)$", path.read_text(), re.MULTILINE)
        slugs = {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}
        assert not anchor or anchor in slugs, f"{target}#{anchor}"


def section(title: str) -> str:
    (found,) = [part for part in PAGE.split("\n## ") if part.startswith(f"{title}\n")]
    return found
