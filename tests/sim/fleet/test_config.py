"""A fleet's config is one TOML file; what is wrong in it is named."""

import random

import pytest

from sim.fleet.config import LATENCIES, SHIPPED, read_config
from sim.fleet.differing import differing
from sim.fleet.distributions import Constant, Exponential, Lognormal, Uniform
from statemachine.problem import ProblemError
from statemachine.reasons import Reason


@pytest.mark.parametrize("name", SHIPPED)
def test_a_shipped_config_says_how_long_everything_takes_and_where_each_number_comes_from(name):
    config = read_config(name)
    assert set(config.latency) == set(LATENCIES)
    assert all(each.source for each in (*config.latency.values(), *config.failure.values()))


def test_a_file_holds_only_what_differs(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text("[suspension]\nidle_timeout_s = 60.0\n")
    mine, default = read_config(path), read_config()
    assert mine.suspension.idle_timeout_s == 60
    assert mine.suspension.busy_s == default.suspension.busy_s
    assert mine.latency == default.latency


def test_a_distribution_is_replaced_as_a_whole():
    constant = {"kind": "constant", "value": 1.0, "source": "a test"}
    assert read_config(None, {"latency.create": constant}).latency["create"] == Constant(value=1.0, source="a test")


@pytest.mark.parametrize(
    ("overrides", "named"),
    [
        ({"suspension.idle_timeout": 1.0}, "idle_timeout"),
        ({"suspension.idle_timeout_s": "long"}, "idle_timeout_s"),
        ({"latency.dance": {"kind": "constant", "value": 1.0, "source": "x"}}, "latency.dance"),
        ({"latency.create": {"kind": "lognormal", "median": 2.0, "p95": 1.0, "source": "x"}}, "below the median"),
        ({"failure.x": {"step": "dance", "probability": 0.1, "reason": "Internal", "source": "x"}}, "failure.x.step"),
        ({"failure.x": {"step": "create", "probability": 2.0, "reason": "Internal", "source": "x"}}, "probability"),
        ({"failure.x": {"step": "create", "probability": 0.1, "reason": "Nothing", "source": "x"}}, "Nothing"),
        (
            {
                "failure.x": {
                    "step": "create",
                    "probability": 0.1,
                    "reason": "Internal",
                    "outcome": "refused",
                    "source": "x",
                }
            },
            "refuses nothing",
        ),
        (
            {"failure.x": {"step": "generate", "probability": 1.0, "reason": "Internal", "source": "x"}},
            "generate_cached",
        ),
        (
            {
                "failure.x": {
                    "step": "store",
                    "probability": 0.1,
                    "reason": "Internal",
                    "outcome": "hangs",
                    "source": "x",
                }
            },
            "can but fail",
        ),
        ({"suspension.idle_timeout_s": float("nan")}, "idle_timeout_s"),
        ({"v": 2}, "2"),
    ],
)
def test_what_is_wrong_is_refused_and_named(overrides, named):
    with pytest.raises(ProblemError) as caught:
        read_config(None, overrides)
    assert caught.value.problem.reason is Reason.CONFIG_REFUSED
    assert named in caught.value.problem.message


@pytest.mark.parametrize(("text", "reason"), [(None, Reason.UNREADABLE_FILE), ("[", Reason.CONFIG_REFUSED)])
def test_a_file_that_is_none_is_told_by_its_reason(tmp_path, text, reason):
    path = tmp_path / "mine.toml"
    if text is not None:
        path.write_text(text)
    with pytest.raises(ProblemError) as caught:
        read_config(path)
    assert caught.value.problem.reason is reason


@pytest.mark.parametrize(
    ("distribution", "median"),
    [
        (Constant(value=3.0, source="x"), 3.0),
        (Uniform(low=1.0, high=3.0, source="x"), 2.0),
        (Exponential(mean=1.0, source="x"), 0.693),
        (Lognormal(median=0.147, p95=0.167, source="x"), 0.147),
    ],
)
def test_what_is_drawn_has_the_median_that_is_said(distribution, median):
    draw = distribution.drawn_by(random.Random(7))
    drawn = sorted(draw() for _ in range(4001))
    assert drawn[2000] == pytest.approx(median, rel=0.05)


def test_a_lognormal_has_the_95th_percentile_that_is_said():
    draw = Lognormal(median=1.0, p95=4.0, source="x").drawn_by(random.Random(7))
    drawn = sorted(draw() for _ in range(10_001))
    assert drawn[9_500] == pytest.approx(4.0, rel=0.1)


def again(differs):
    """The config that a result remembers."""
    return read_config(None, {name: float(value) if value == "inf" else value for name, value in differs.items()})


@pytest.mark.parametrize("name", SHIPPED)
def test_what_differs_from_the_default_makes_the_config_again(name):
    config = read_config(name)
    assert again(differing(config)) == config
    assert bool(differing(config)) is (name != "default")


def test_one_number_that_was_changed_is_all_that_differs():
    assert differing(read_config(None, {"suspension.idle_timeout_s": 30})) == {"suspension.idle_timeout_s": 30.0}
    assert differing(read_config(None, {"placement.locality_wait_s": float("inf")})) == {
        "placement.locality_wait_s": "inf"
    }
