"""The table of XIDs: one row for each number, and what follows from it."""

import pytest

from actors.gpu.xids import CLASSES, LOSING, UNKNOWN, XidPolicy, as_markdown, class_of
from tests.needs import ROOT

RESET_AT_ONCE = {46, 62, 64, 95, 109, 110, 119, 120, 136, 140, 143, 155, 156, 158}
"""RESET_GPU as immediate action in NVIDIA's catalogue, for Ampere and newer."""


def test_no_number_stands_in_two_rows_and_each_is_in_order():
    numbers = [xid for row in CLASSES for xid in row.xids]
    assert len(set(numbers)) == len(numbers)
    assert all(list(row.xids) == sorted(row.xids) for row in CLASSES)
    assert all(row.what and row.action for row in CLASSES)


@pytest.mark.parametrize("xid", [13, 31, 43, 45, 68, 94])
def test_case_041_an_error_of_an_application_is_told_and_the_gpu_stays(xid):
    assert class_of(xid).policy is XidPolicy.TELL
    assert xid not in LOSING


@pytest.mark.parametrize("xid", [46, 48, 62, 64, 79, 95, 109, 119, 120, 140])
def test_case_041_what_stops_the_gpu_until_it_is_reset_loses_it(xid):
    assert class_of(xid).policy is XidPolicy.LOSE
    assert xid in LOSING


@pytest.mark.parametrize("xid", [74, 144, 150, 154, 156])
def test_what_lets_the_present_work_go_on_is_withheld_from_others_alone(xid):
    assert class_of(xid).policy is XidPolicy.WITHHOLD
    assert xid not in LOSING


@pytest.mark.parametrize("xid", sorted(RESET_AT_ONCE))
def test_what_nvidia_wants_reset_at_once_is_granted_to_nobody_new(xid):
    assert class_of(xid).policy in {XidPolicy.LOSE, XidPolicy.WITHHOLD}


@pytest.mark.parametrize("xid", [0, 1, 999, 173, (1 << 32) - 1])
def test_case_041_a_number_that_nobody_knows_is_told_and_nothing_else(xid):
    assert class_of(xid) is UNKNOWN
    assert UNKNOWN.policy is XidPolicy.TELL


def test_the_page_on_gpus_has_the_table():
    assert as_markdown() in (ROOT / "docs" / "gpu.md").read_text()
