"""Every repro that lies here: a fault that was mended stays mended, a defect that is planted is found again."""

from pathlib import Path

import pytest

from sim.shrinking.repro import read_repro, run_repro

FILES = sorted(Path(__file__).parent.glob("*.jsonl"))


def test_there_are_repros_of_both_kinds():
    planted = {read_repro(path.read_bytes(), path=path).planted is not None for path in FILES}
    assert planted == {True, False}


@pytest.mark.parametrize("path", FILES, ids=[path.stem for path in FILES])
def test_a_repro_shows_what_it_showed_exactly_when_its_defect_is_planted(path):
    repro = read_repro(path.read_bytes(), path=path)
    found = {each.what for each in run_repro(path).found}
    if repro.planted is None:
        assert not found
    else:
        assert repro.found[0] in found
