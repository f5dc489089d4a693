"""Axes of a grid, as a command line has them."""

import math

import pytest

from sim.grids.axes import read_axis, settings


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("suspension.idle_timeout_s=30,1.5,inf", [30, 1.5, math.inf]),
        ("placement.scheduler=first-fit, best-fit", ["first-fit", "best-fit"]),
        ("suspension.oversubscribe=true,false", [True, False]),
        ('placement.scheduler="spread"', ["spread"]),
        (
            'latency.create={kind = "constant", value = 1, source = "mine, or not"},{kind = "constant", value = 2}',
            [{"kind": "constant", "value": 1, "source": "mine, or not"}, {"kind": "constant", "value": 2}],
        ),
        ("workers=4,4,8", [4, 8]),
        ("a.b=x\ny = 1", ["x\ny = 1"]),
    ],
)
def test_an_axis_has_the_values_between_its_commas(text, values):
    axis = read_axis(text)
    assert axis.name == text.partition("=")[0]
    assert [value for _words, value in axis.values] == values


@pytest.mark.parametrize("text", ["", "a.b", "a.b=", "=1", "a..b=1", "a.b=1,,2", ".=1"])
def test_what_is_no_axis_is_refused_with_its_words(text):
    with pytest.raises(ValueError, match=r"is not NAME=VALUE|has a value that is empty"):
        read_axis(text)


def test_all_axes_are_combined_and_none_is_one_setting():
    axes = [read_axis("a.b=1,2"), read_axis("c.d=x,y,z")]
    found = [tuple(words for _name, words, _value in setting) for setting in settings(axes)]
    assert found == [("1", "x"), ("1", "y"), ("1", "z"), ("2", "x"), ("2", "y"), ("2", "z")]
    assert list(settings([])) == [()]
