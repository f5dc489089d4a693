"""Who was ill is granted to nobody until it has been well for a while, and for longer when that goes on."""

from hypothesis import given
from hypothesis import strategies as st

from actors.gpu.quarantine import DOUBTFUL_S, FORGET_S, WELL_MAX_S, WELL_S, Quarantine
from tests.gpu.making import inventory

WELL = inventory(0, 1)
ILL = inventory(0, 1).with_lost("GPU-1", "XID 79")
DAY_S = 86_400.0


def looked(*looks):
    """A quarantine after these looks, each (seconds, inventory)."""
    quarantine = Quarantine()
    for at_s, seen in looks:
        quarantine = quarantine.after_look(seen, at_s)
    return quarantine


def test_a_gpu_that_was_never_ill_is_withheld_from_nobody():
    assert looked((0, WELL), (3, WELL)).withheld(3) == {}


def test_a_lost_gpu_is_lost_and_not_withheld():
    assert looked((0, ILL)).withheld(0) == {}


def test_a_gpu_that_was_lost_is_withheld_until_it_has_been_well_for_a_while():
    quarantine = looked((0, ILL), (10, WELL))
    (why,) = quarantine.withheld(10).values()
    assert "XID 79" in why
    assert list(quarantine.withheld(10 + WELL_S - 0.1)) == ["GPU-1"]
    assert quarantine.withheld(10 + WELL_S) == {}


def test_what_is_said_of_it_does_not_change_from_look_to_look():
    quarantine = looked((0, ILL), (10, WELL))
    assert quarantine.withheld(10) == quarantine.after_look(WELL, 20).withheld(20)


def test_one_that_falls_ill_again_waits_twice_as_long_each_time_up_to_a_bound():
    at_s, needs = 0.0, []
    quarantine = Quarantine()
    for _ in range(12):
        quarantine = quarantine.after_look(ILL, at_s).after_look(WELL, at_s + 3)
        needs.append(quarantine.illnesses["GPU-1"].needs_s)
        at_s += 6
    assert needs[:4] == [WELL_S, 2 * WELL_S, 4 * WELL_S, 8 * WELL_S]
    assert needs[-1] == WELL_MAX_S


def test_one_that_was_well_for_an_hour_has_never_been_ill():
    quarantine = looked((0, ILL), (3, WELL))
    assert quarantine.after_look(WELL, 3 + FORGET_S).illnesses == {}
    again = quarantine.after_look(WELL, 3 + FORGET_S).after_look(ILL, DAY_S).after_look(WELL, DAY_S)
    assert again.illnesses["GPU-1"].needs_s == WELL_S


def test_a_doubtful_gpu_is_withheld_for_longer_and_a_reset_of_it_shortens_that():
    quarantine = looked((0, WELL)).after_doubt("GPU-1", "XID 74", 0)
    assert list(quarantine.withheld(DOUBTFUL_S - 1)) == ["GPU-1"]
    assert quarantine.withheld(DOUBTFUL_S) == {}
    reset = quarantine.after_look(ILL, 10).after_look(WELL, 20)
    assert list(reset.withheld(20)) == ["GPU-1"]
    assert reset.withheld(20 + 2 * WELL_S) == {}


def test_a_doubt_about_a_lost_gpu_changes_nothing():
    assert looked((0, ILL)).after_doubt("GPU-1", "XID 74", 1) == looked((0, ILL))


def test_a_doubt_that_comes_again_begins_anew():
    quarantine = looked((0, WELL)).after_doubt("GPU-1", "XID 74", 0).after_doubt("GPU-1", "XID 74", 100)
    assert list(quarantine.withheld(DOUBTFUL_S)) == ["GPU-1"]
    assert quarantine.withheld(100 + DOUBTFUL_S) == {}


def test_while_nvml_does_not_answer_nobody_is_well():
    quarantine = looked((0, ILL), (3, WELL)).after_silence(10)
    assert list(quarantine.after_look(WELL, 100).withheld(100)) == ["GPU-1"]
    assert quarantine.after_look(WELL, 100).withheld(100 + WELL_S) == {}


def test_a_board_that_is_gone_for_another_one_is_forgotten():
    assert looked((0, ILL), (3, inventory(0))).illnesses == {}


@given(st.lists(st.tuples(st.booleans(), st.floats(0.1, 400)), max_size=30))
def test_nobody_is_granted_a_gpu_that_was_not_well_for_a_while_whatever_happens(course):
    well_since_s: float | None = 0.0
    quarantine, now_s, was_ill = Quarantine(), 0.0, False
    for is_well, later_s in course:
        now_s += later_s
        if not is_well:
            was_ill, well_since_s = True, None
        elif well_since_s is None:
            well_since_s = now_s
        quarantine = quarantine.after_look(WELL if is_well else ILL, now_s)
        if is_well and was_ill and now_s - well_since_s < WELL_S:
            assert "GPU-1" in quarantine.withheld(now_s)
        assert len(quarantine.illnesses) <= 1
