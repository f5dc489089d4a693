"""Random lives on the fake runsc and on the real one come to the same states, reasons, exit codes, words and files.

What is told of a difference holds the life as a value: `both.difference(Life(…))` plays it again.
"""

import pytest

from sim.world.runsc.programs import Program
from sim.world.runsc.settings import INSTANT, RunscSettings
from tests.contract.benches import write_fake
from tests.differential.applications import Counter, Ending, Sleeper
from tests.differential.comparing import open_both
from tests.differential.lives import Life, drawn
from tests.needs import Tool, need

BATCH = 10


@pytest.mark.runsc
@pytest.mark.parametrize(
    ("count", "number"),
    [
        (4, 0),  # the first of the campaign's
        pytest.param(20, 1000, marks=pytest.mark.long),
        *(pytest.param(BATCH, batch * BATCH, marks=pytest.mark.campaign) for batch in range(20)),
    ],
)
def test_random_lives_come_to_the_same_on_both(both, count, number):
    differences = both.differences(drawn(count, number=number))
    assert not differences, "\n\n".join(differences)


LEAPS = (("write", "0\n", 1), ("write", "1\n", 1), ("write", "5\n", 1), ("sleep", 0.02, True), ("jump", 0))


def test_a_fake_that_does_something_else_is_found(tmp_path):
    need(Tool.ROOT)
    ending, counter = Ending(code=3), Counter()
    programs = {tuple(ending.argv): Program((("exit", 4),)), tuple(counter.argv): Program(LEAPS)}
    wrong = write_fake(tmp_path / "wrong-runsc", RunscSettings(latencies=INSTANT, programs=programs))
    right = write_fake(tmp_path / "fake-runsc", RunscSettings(latencies=INSTANT))
    rootfs = tmp_path / "rootfs"
    rootfs.mkdir()
    with open_both(tmp_path, fake=wrong, real=right, rootfs=rootfs) as both:
        assert "ContainerExited" in both.difference(Life(containers=(Sleeper(), ending)))
        assert "which was never saved" in both.difference(Life(containers=(counter,)))
