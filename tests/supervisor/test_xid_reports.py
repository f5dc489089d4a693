"""XIDs as they come: counted, told, and bounded however many there are."""

import anyio
import pytest

from actors.gpu.facts import XidFact
from supervisor.xid_reports import AGAIN_S, LINES_MAX, PAIRS_MAX, SHOWN_MAX, UNTOLD_MAX, XidReports

pytestmark = pytest.mark.anyio

FLOOD = 10_000


def held_by(uid):
    reports = XidReports()
    reports.holder_of = {"GPU-0": uid}.get
    return reports


def xid(number, gpu="GPU-0"):
    return XidFact(gpu=gpu, xid=number)


def test_the_first_of_each_pair_has_its_line_at_once_and_the_others_one_a_minute():
    reports = XidReports()
    assert [reports.add(xid(13), at_s) for at_s in (0, 1, 2, AGAIN_S, AGAIN_S + 1)] == [1, 0, 0, 3, 0]
    assert reports.add(xid(31), 1) == 1
    assert reports.add(xid(13, "GPU-1"), 1) == 1


def test_a_flood_of_one_costs_one_line():
    reports = XidReports()
    assert sum(bool(reports.add(xid(13), 0.001 * number)) for number in range(FLOOD)) == 1
    assert reports.as_json("GPU-0") == [{"xid": 13, "count": FLOOD, "policy": "Tell"}]


def test_a_flood_of_ever_other_ones_costs_a_bounded_number_of_lines_and_no_memory():
    reports = XidReports()
    reports.holder_of = lambda _gpu: "a1"
    lines = sum(bool(reports.add(xid(number, f"GPU-{number}"), 0.001 * number)) for number in range(FLOOD))
    assert lines == LINES_MAX
    assert len(reports._pairs) == PAIRS_MAX
    assert len(reports._untold) == UNTOLD_MAX


def test_what_one_gpu_reported_is_shown_the_latest_last():
    reports = XidReports()
    for number in (*range(1000, 1100), 13, 79):
        reports.add(xid(number), 0)
    shown = reports.as_json("GPU-0")
    assert len(shown) == SHOWN_MAX
    assert [(each["xid"], each["policy"]) for each in shown[-2:]] == [(13, "Tell"), (79, "Lose")]
    assert reports.as_json("GPU-1") == []


async def test_what_is_to_be_told_is_waited_for_and_told_together():
    reports, taken = held_by("a1"), []

    async def take():
        taken.append(await reports.untold())

    async with anyio.create_task_group() as group:
        group.start_soon(take)
        await anyio.wait_all_tasks_blocked()
        assert taken == []
        for number in (13, 13, 31):
            reports.add(xid(number), 0)
    assert taken == [(("a1", "GPU-0", 13, 2), ("a1", "GPU-0", 31, 1))]
    with anyio.move_on_after(0.01) as patience:
        await reports.untold()
    assert patience.cancelled_caught


async def test_it_is_told_to_who_held_the_gpu_when_it_came_whoever_holds_it_when_it_is_told():
    reports = held_by("a1")
    reports.add(xid(13), 0)
    reports.holder_of = {"GPU-0": "a2"}.get
    reports.add(xid(13), 0)
    reports.holder_of = {}.get
    reports.add(xid(13), 0)
    assert await reports.untold() == (("a1", "GPU-0", 13, 1), ("a2", "GPU-0", 13, 1))
    assert reports.as_json("GPU-0") == [{"xid": 13, "count": 3, "policy": "Tell"}]


@pytest.mark.parametrize("gpu", [None, "GPU-1"])
async def test_an_xid_of_no_gpu_or_of_one_that_nobody_holds_is_logged_and_nobodys(gpu):
    reports = held_by("a1")
    assert reports.add(xid(79, gpu), 0) == 1
    with anyio.move_on_after(0.01) as patience:
        await reports.untold()
    assert patience.cancelled_caught
