"""The page of a replay, and the comparison of two."""

import base64
import hashlib
import os
import re
import struct
import subprocess
import sys
import zlib

import attrs
import orjson
import pytest

from sim.reports import wording
from sim.reports.heat import ABSENT, png
from sim.reports.page import page
from sim.reports.run import Run
from statemachine.catalogue import CATALOGUE
from statemachine.reasons import Reason
from tests.needs import ROOT
from tests.sim.reports.test_elements import read
from tests.sim.reports.told import HOSTILE, hostile, large, nothing, small


def text_of(content):
    """What a person reads, and the elements with their attributes."""
    found = read(re.sub(r"<(style|script)\b.*?</\1>", "", content.decode(), flags=re.DOTALL))
    return found.text, found.elements


def data_of(content):
    found = re.search(rb'<script id="data" type="application/json">(.*?)</script>', content, re.DOTALL)
    assert found
    return orjson.loads(found[1])


def one(result=None):
    return page([Run("mine", result or small())])


def two():
    return page([Run("before", small()), Run("after", attrs.evolve(small(), cost=99.0, failures={"SandboxDied": 7}))])


def test_a_page_has_every_part():
    text, elements = text_of(one())
    for title in (
        "Fleet over time", "GPU occupancy", "How long each step takes", "Failures by reason", "Slowest activations",
        "Invariants", "density, actors per GPU", "activation p95", "every invariant held",
    ):  # fmt: skip
        assert title in text
    assert {slow.actor for slow in small().slowest} <= set(re.findall(r"a\d", text))
    assert any(name == "image" and given["href"].startswith("data:image/png;base64,") for name, given in elements)


def test_a_failure_is_told_with_what_it_means():
    text, _ = text_of(one(attrs.evolve(small(), failures={str(Reason.SANDBOX_DIED): 12_345})))
    assert "12,345" in text
    assert CATALOGUE[Reason.SANDBOX_DIED].sentence in text


def test_a_comparison_tells_both_and_what_changed():
    text, elements = text_of(two())
    assert text.count("before") > 3
    assert text.count("after") > 3
    assert "99.00" in text
    kinds = [given.get("class", "") for _, given in elements]
    assert {"line a", "line b", "bar a", "bar b", "n bad"} <= set(kinds)
    assert "worse" in text  # colours alone do not tell everybody
    assert "better" not in text
    assert sum(name == "image" for name, _ in elements) == 2


def test_what_was_passed_over_and_what_could_not_be_done_is_told_before_the_figures():
    it = attrs.evolve(small(), skipped=1234, rows=20_000, notes=("the fast engine has no fault x: none of 3 happened",))
    for content in (one(it), page([Run("a", small()), Run("b", it)])):
        text, _ = text_of(content)
        assert "Passed over: 1,234 of 20,000 records" in text
        assert "The fast engine has no fault x: none of 3 happened." in text
        assert text.index("Passed over") < text.index("activation p95")
    assert "Passed over" not in text_of(one())[0]


@pytest.mark.parametrize(
    ("other", "said"),
    [({"seed": 9}, "seed"), ({"source": "another", "engine": "faithful"}, "trace and engine"), ({"rows": 2}, "trace")],
)
def test_a_comparison_of_what_is_not_alike_says_so(other, said):
    text, _ = text_of(page([Run("a", small()), Run("b", attrs.evolve(small(), **other))]))
    assert f"Not of the same {said}: " in text
    assert "Not of the same" not in text_of(two())[0]


@pytest.mark.parametrize(("p95_s", "word"), [(1.02, ""), (0.98, ""), (1.05, "worse"), (0.95, "better")])
def test_a_percentile_is_worse_only_if_it_is_by_more_than_it_is_measured(p95_s, word):
    runs = [Run(name, attrs.evolve(small(), activation_s={**small().activation_s, "p95": each}))
            for name, each in (("a", 1.0), ("b", p95_s))]  # fmt: skip
    text, _ = text_of(page(runs))
    assert [each for each in ("worse", "better") if each in text] == ([word] if word else [])
    assert wording.change(1.0, p95_s) in text


def test_shares_are_compared_in_points_and_where_nothing_was_there_is_no_figure():
    fewer = attrs.evolve(small(), gpu_seconds={"held": 1.0, "free": 99.0})
    assert " points" in text_of(page([Run("a", small()), Run("b", fewer)]))[0]
    text, _ = text_of(one(nothing()))
    assert "-activation p95" in text
    assert "-activation p95" not in text_of(one())[0]


def test_the_same_result_makes_the_same_bytes_however_long_it_took_to_make():
    assert one() == one(attrs.evolve(small(), cpu_s=123.0))
    assert two() == two()


def test_the_order_of_hashes_makes_no_difference():
    program = "import sys; from tests.sim.reports.test_page import two; sys.stdout.buffer.write(two())"
    seed = "2" if os.environ.get("PYTHONHASHSEED") == "1" else "1"  # another one than here
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, env={"PYTHONHASHSEED": seed}, capture_output=True, check=True
    )
    assert done.stdout == two()


def test_a_page_names_no_address_and_lets_only_its_own_style_and_script_in():
    content = one().decode()
    assert not re.search(r"https?:|//[a-z]|@import|url\((?!#)", content.replace(HOSTILE, ""))
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', content)
    assert policy
    script = re.findall(r"<script>(.*?)</script>", content, re.DOTALL)
    style = re.findall(r"<style>(.*?)</style>", content, re.DOTALL)
    assert (len(script), len(style)) == (1, 1)
    for text in (*script, *style):
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"sha256-{digest}" in policy[1]
    assert "default-src &#x27;none&#x27;" in policy[1]
    assert not re.search(r'\sstyle="', content)  # the policy would not let them in


def test_hostile_names_stay_text_wherever_they_are():
    for content in (one(hostile()), page([Run(HOSTILE, hostile()), Run("b", small())])):
        text, elements = text_of(content)
        assert not [name for name, _ in elements if name == "img"]
        assert content.count(b"<script") == 2
        assert not [given for _, given in elements if any(key.startswith("on") for key in given)]
        # The source, a failure, a fault, an invariant and its violation, a step, an actor and its worker.
        assert text.count(HOSTILE) >= 8
        assert data_of(content)["heat"][0]["workers"] == [HOSTILE, HOSTILE]


def test_where_nothing_happened_there_is_still_a_page():
    text, _ = text_of(one(nothing()))
    for words in ("No worker with GPUs.", "Nothing failed.", "No activation."):
        assert words in text
    assert text_of(page([Run("a", nothing()), Run("b", small())]))


def test_the_largest_page_can_still_be_mailed():
    content = one(large())
    assert len(content) < 2 << 20
    assert "the first 200 of 1,213 workers" in text_of(content)[0]


@pytest.mark.parametrize("rows", [[[0, 50, 100]], [[1, 2], [3, 4], [5, 6]]])
def test_the_heat_map_is_a_picture_with_a_pixel_for_each_percentage(rows):
    chunks, rest = {}, png(rows)[8:]
    while rest:
        (size,) = struct.unpack(">I", rest[:4])
        kind, content, crc = rest[4:8], rest[8 : 8 + size], rest[8 + size : 12 + size]
        assert crc == struct.pack(">I", zlib.crc32(kind + content))
        chunks[kind], rest = content, rest[12 + size :]
    width, height = struct.unpack(">II", chunks[b"IHDR"][:8])
    lines = zlib.decompress(chunks[b"IDAT"])
    assert [list(lines[y * (width + 1) + 1 : (y + 1) * (width + 1)]) for y in range(height)] == rows
    assert (chunks[b"tRNS"][0], chunks[b"tRNS"][100]) == (0, 255)
    assert chunks[b"PLTE"][3 * ABSENT :] == bytes((128, 128, 128))
    assert chunks[b"tRNS"][ABSENT] == round(0.35 * 255)  # as the swatch of the legend has it
    assert b"rgb(128 128 128 / 35%)" in one(small())


def test_the_script_is_told_the_same_percentages():
    told = data_of(one(large(workers=3)))["heat"][0]
    for row, lengths in enumerate(told["rows"]):
        values = [value for value, times in zip(lengths[::2], lengths[1::2], strict=True) for _ in range(times)]
        assert values == [row * column % 101 for column in range(1000)]


def test_a_worker_that_was_not_there_is_told_from_one_that_was_idle():
    told = large(workers=2)
    away = [0.0] * 400 + [0.5] + [1.0] * 599
    some = attrs.evolve(told.occupancy, held=[[0.0] * 1000, [0.0] * 600 + [1.0] * 400], up=[away, [1.0] * 1000])
    rows = data_of(one(attrs.evolve(told, occupancy=some)))["heat"][0]["rows"]
    assert rows == [[ABSENT, 400, 0, 600], [0, 600, 100, 400]]
    untold = attrs.evolve(some, up=[])
    assert data_of(one(attrs.evolve(told, occupancy=untold)))["heat"][0]["rows"] == [[0, 1000], [0, 600, 100, 400]]


def test_how_many_gpus_there_were_is_a_dashed_line_where_the_result_tells_it():
    told = large()
    more = attrs.evolve(told, timeline=attrs.evolve(told.timeline, gpus=[200.0] * 1000))
    assert "dashed: all of them" in text_of(one(more))[0]
    untold = attrs.evolve(told, timeline=attrs.evolve(told.timeline, gpus=[]))
    assert "dashed: all of them" not in text_of(one(untold))[0]


def test_what_of_the_config_is_not_the_default_stands_on_the_page_and_what_was_changed_on_a_comparison():
    before = attrs.evolve(small(), config={"placement.scheduler": "spread", "suspension.idle_timeout_s": 60.0})
    constant = {"kind": "constant", "value": 2.0, "source": "a guess"}
    after = attrs.evolve(before, config={"suspension.idle_timeout_s": 30.0, "latency.create": constant})
    assert "Config: placement.scheduler = spread, suspension.idle_timeout_s = 60." in text_of(one(before))[0]
    text, _ = text_of(page([Run("before", before), Run("after", after)]))
    for changed in (
        "latency.create, default → constant (value 2)",
        "placement.scheduler, spread → default",
        "suspension.idle_timeout_s, 60 → 30",
    ):
        assert f"Changed: {changed}." in text
    assert "Changed" not in text_of(page([Run("a", before), Run("b", before)]))[0]
