"""Numbers as a person reads them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.reports import wording
from sim.reports.axes import Linear, decades, even_marks, finer, level_marks, round_up, time_marks


@pytest.mark.parametrize(
    ("value_s", "text"),
    [
        (0.0, "0 s"), (1e-6, "0 s"), (0.004, "4 ms"), (0.0314, "31.4 ms"), (0.9996, "1 s"), (1.0, "1 s"),
        (11.84, "11.8 s"), (59.97, "1 min"), (60.0, "1 min"), (200.0, "3 min 20 s"), (3599.9, "1 h"),
        (7500.0, "2 h 5 min"), (86_400.0, "1 d"), (200_000.0, "2 d 8 h"),
    ],
)  # fmt: skip
def test_seconds_are_told_in_the_units_of_their_size(value_s, text):
    assert wording.seconds(value_s) == text


@pytest.mark.parametrize(
    ("before", "after", "text"),
    [
        (1.0, 1.0, "same"), (1.0, 1.024, "+2.4%"), (1.0, 0.5, "-50%"), (1.0, 3.4, "x3.4"), (0.0, 2.0, "new"),
        (4.0, 0.0, "-100%"),
    ],
)  # fmt: skip
def test_a_change_is_told_by_percent_or_how_many_times(before, after, text):
    assert wording.change(before, after) == text


def test_a_change_of_a_share_is_told_in_points():
    assert wording.points(0.476, 0.459) == "-1.7 points"
    assert wording.points(0.0, 1.0) == "+100.0 points"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0.00"),
        (0.0036, "0.0036"),
        (2.5, "2.50"),
        (9999.5, "9,999.50"),
        (45_678.9, "45,679"),
        (22_264_794.6, "22.3 M"),
    ],
)
def test_an_amount_has_room_in_a_tile(value, text):
    assert wording.amount(value) == text


def test_a_time_of_a_replay_has_its_days_apart():
    assert wording.clock(7.9) == "00:00:07"
    assert wording.clock(86_400 * 2 + 3723) == "2 d 01:02:03"


@given(st.floats(1e-9, 1e15))
def test_a_round_number_above_is_above_and_at_most_half_as_much_again(value):
    above = round_up(value)
    assert value * (1 - 1e-6) <= above <= value * 1.5 * (1 + 1e-6)


@given(st.floats(1e-3, 1e12))
def test_an_axis_of_time_begins_at_0_and_has_a_dozen_marks_at_most(end_s):
    marks = time_marks(end_s)
    assert marks[0] == 0
    assert marks[-1] <= end_s
    assert len(marks) <= 13


@pytest.mark.parametrize(
    ("most", "marks"),
    [(0.0, (0, 1)), (0.4, (0, 1)), (1.0, (0, 1)), (3.5, (0, 2, 4)), (11.0, (0, 6, 12)), (24.0, (0, 15, 30))],
)
def test_an_axis_of_things_has_whole_numbers_alone(most, marks):
    assert level_marks(most) == marks


@given(st.floats(0, 1e9))
def test_an_axis_of_things_has_room_for_the_most(most):
    marks = level_marks(most)
    assert marks[-1] >= most * (1 - 1e-6)
    assert all(mark == int(mark) for mark in marks)


@given(st.floats(0, 1e9), st.integers(2, 12))
def test_even_marks_begin_at_0_and_end_no_more_than_a_step_beyond_the_most(most, number):
    marks = even_marks(most, number)
    assert len(marks) <= number + 1
    assert marks[0] == 0
    assert marks[-2] <= most * (1 + 1e-6) + 1e-6
    assert marks[-1] >= most * (1 - 1e-6)


def test_a_finer_logarithmic_scale_is_as_narrow_as_its_marks_let_it_be():
    assert finer(0.23, 9.3, 0.0, 1.0).marks == pytest.approx((0.2, 0.5, 1.0, 2.0, 5.0, 10.0))
    assert finer(1.0, 1.0, 0.0, 1.0).marks == pytest.approx((1.0, 2.0))


@given(st.floats(1e-6, 1e9), st.floats(1e-6, 1e9))
def test_a_finer_logarithmic_scale_has_both_ends_inside(one, other):
    scale = finer(min(one, other), max(one, other), 0.0, 100.0)
    assert scale.marks[0] <= min(one, other) * (1 + 1e-6)
    assert scale.marks[-1] >= max(one, other) * (1 - 1e-6)


@given(st.floats(0, 1e9), st.floats(0, 1e9))
def test_a_logarithmic_scale_has_both_ends_inside(one, other):
    scale = decades(min(one, other), max(one, other), 0.0, 100.0)
    assert len(scale.marks) > 1
    assert 0 <= scale.at(min(one, other)) <= scale.at(max(one, other)) <= 100


def test_what_is_outside_of_a_scale_is_at_its_edge():
    assert Linear(0.0, 10.0, 5.0, 105.0).at(20.0) == 105.0
    assert Linear(3.0, 3.0, 5.0, 105.0).at(3.0) == 5.0
