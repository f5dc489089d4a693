"""The pages in a real browser: nothing is fetched, nothing complains, and the pointer is told what it is over."""

import re
import struct

import pytest

from sim.reports.page import page
from sim.reports.run import Run
from sim.reports.what_if_page import what_if_page
from tests.needs import Tool, need
from tests.sim.reports.browser import WIDTH, browser
from tests.sim.reports.test_what_if import table
from tests.sim.reports.told import HOSTILE, hostile, large, nothing, small

pytestmark = pytest.mark.long

PAGES = {
    "one": lambda: page([Run("mine", small())]),
    "two": lambda: page([Run("before", small()), Run("after", small(seed=1))]),
    "nothing": lambda: page([Run("nothing", nothing())]),
    "hostile": lambda: page([Run(HOSTILE, hostile()), Run("b", small())]),
    "large": lambda: page([Run("large", large())]),
    "what-if": lambda: what_if_page(table(p95_s=1e6)),
}


@pytest.fixture(scope="module")
def chromium():
    need(Tool.CHROMIUM)
    with browser() as found:
        yield found


@pytest.fixture
def opened(chromium, tmp_path):
    """Opens a page and returns the browser."""

    def open_(name, **more):
        path = tmp_path / f"{name}.html"
        path.write_bytes(PAGES[name]())
        chromium.asked.clear()
        chromium.complaints.clear()
        chromium.open(path, **more)
        return chromium

    return open_


def tip(chromium):
    """What the pointer is told; empty while nothing is."""
    return chromium.value("(e => getComputedStyle(e).display === 'none' ? '' : e.textContent)(document.all.tip)")


@pytest.mark.parametrize("name", PAGES)
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_page_is_whole_asks_nobody_and_nothing_complains(opened, tmp_path, name, scheme):
    chromium = opened(name, scheme=scheme)
    assert not chromium.complaints
    assert [each for each in chromium.asked if not each.startswith("data:image/png")] == [
        (tmp_path / f"{name}.html").as_uri()
    ]
    # No wider than the window, and no picture without a size.
    assert chromium.value("document.documentElement.scrollWidth") <= WIDTH
    assert chromium.value("[...document.querySelectorAll('svg')].every(e => e.getBoundingClientRect().width > 0)")
    picture = chromium.screenshot()
    (tmp_path / f"{name}-{scheme}.png").write_bytes(picture)
    assert struct.unpack(">I", picture[16:20])[0] >= WIDTH


def test_a_page_is_light_or_dark_as_the_reader_has_it(opened):
    colours = [
        re.findall(r"\d+", opened("one", scheme=scheme).value("getComputedStyle(document.body).backgroundColor"))
        for scheme in ("light", "dark")
    ]
    assert [int(each[0]) > 128 for each in colours] == [True, False]


def test_the_pointer_over_the_timeline_is_told_the_time_and_the_levels(opened):
    chromium = opened("two")
    assert tip(chromium) == ""
    chromium.point_at("#timeline", 0.6, 0.4)
    lines = tip(chromium).splitlines()
    assert re.fullmatch(r"\d\d:\d\d:\d\d", lines[0])
    told = small().timeline
    hours, minutes, seconds = map(int, lines[0].split(":"))
    running = told.running[int((hours * 3600 + minutes * 60 + seconds) // told.bucket_s)]
    assert re.fullmatch(rf"actors running: {running:g}  \|  [\d.]+", lines[1])
    assert lines[-1] == "before  |  after"
    chromium.point_at("h1", 0.5, 0.5)
    assert tip(chromium) == ""


def test_the_pointer_over_the_heat_map_is_told_the_worker_and_its_share(opened):
    chromium = opened("large")
    chromium.point_at(".heat", 0.5, 0.2525)  # the middle of a row
    worker, _, share = tip(chromium).splitlines()
    assert worker == "openb-node-0050"
    assert re.fullmatch(r"\d+% of its GPUs held", share)


def test_the_heat_map_is_seen(opened):
    """Its picture is decoded, and as large as told."""
    chromium = opened("large")
    chromium.value("window.seen = new Image(); seen.src = document.querySelector('.heat').getAttribute('href')")
    chromium.call("Runtime.evaluate", expression="seen.decode()", awaitPromise=True)
    assert chromium.value("[seen.naturalWidth, seen.naturalHeight]") == [1000, 200]


def test_a_hostile_name_is_shown_and_does_nothing(opened):
    chromium = opened("hostile")
    assert chromium.value("window.hit") is None
    assert HOSTILE in chromium.value("document.body.innerText")
    chromium.point_at(".heat", 0.5, 0.2)
    assert tip(chromium).startswith(HOSTILE)
    assert chromium.value("window.hit") is None
    assert chromium.value("document.querySelectorAll('img').length") == 0
