"""A result that was written down is read again, strictly."""

import attrs
import orjson
import pytest

from sim.reports.reading import read_result
from statemachine.problem import ProblemError
from tests.sim.reports.told import hostile, large, nothing, small


@pytest.fixture
def place(tmp_path):
    return tmp_path / "result.json"


@pytest.mark.parametrize("make", [small, nothing, hostile, large])
def test_what_a_replay_told_comes_back_as_it_was(place, make):
    place.write_bytes(make().as_json())
    assert read_result(place).document() == make().document()


def test_a_field_of_a_newer_greenroom_is_passed_over(place):
    place.write_bytes(orjson.dumps({**small().document(), "weather": "fine"}))
    assert read_result(place).document() == small().document()


def changed(**values):
    return orjson.dumps({**small().document(), **values})


def shorter(document, *names):
    for name in names[:-1]:
        document = document[name]
    document[names[-1]] = document[names[-1]][:-1]


def cut(*names):
    document = orjson.loads(small().as_json())
    shorter(document, *names)
    return orjson.dumps(document)


NO_P95 = {key: value for key, value in small().activation_s.items() if key != "p95"}
TIMELINE = attrs.asdict(small().timeline)


@pytest.mark.parametrize(
    ("data", "reason", "said"),
    [
        (b"", "InvalidResult", "truncated"),
        (b"[]", "InvalidResult", "expected `object`"),
        (b"\xff", "InvalidResult", "no result of a replay"),
        (b"[" * 10_000, "InvalidResult", "no result of a replay"),
        (b"{}", "InvalidResult", "no format version"),
        (changed(v=True), "InvalidResult", "no format version"),
        (changed(v=2), "NewerFormat", "format 2"),
        (changed(seed="0"), "InvalidResult", "$.seed"),
        (changed(machineEvents=None), "InvalidResult", "machine_events"),
        (changed(verdict="Maybe"), "InvalidResult", "$.verdict"),
        (changed(activation_s=NO_P95), "InvalidResult", "activation_s has no p95"),
        (changed(suspend_s={**small().suspend_s, "max": -1}), "InvalidResult", "suspend_s.max is negative"),
        (changed(steps={"create": {}}), "InvalidResult", "steps.create has no count"),
        (changed(gpu_seconds={"held": 1.0}), "InvalidResult", "gpu_seconds has no free"),
        (changed(timeline={**TIMELINE, "bucket_s": 0}), "InvalidResult", "its timeline has no time"),
        (changed(timeline={**TIMELINE, "at_s": []}), "InvalidResult", "its timeline has no time"),
        (cut("timeline", "waiting"), "InvalidResult", "are not of one length"),
        (cut("occupancy", "workers"), "InvalidResult", "not one row for each worker"),
        (cut("occupancy", "held", 0), "InvalidResult", "not as long as its timeline"),
        (cut("occupancy", "up", 0), "InvalidResult", "not as long as its timeline"),
        (cut("timeline", "gpus"), "InvalidResult", "are not of one length"),
        (cut("occupancy", "up"), "InvalidResult", "when it was there"),
    ],
)
def test_what_is_no_result_is_refused_by_its_reason(place, data, reason, said):
    place.write_bytes(data)
    with pytest.raises(ProblemError) as refused:
        read_result(place)
    assert str(refused.value.problems[0].reason) == reason
    assert said in refused.value.problems[0].message
    assert refused.value.problems[0].subject == str(place)


def test_a_file_that_is_not_there_is_unreadable(place):
    with pytest.raises(ProblemError) as refused:
        read_result(place)
    assert str(refused.value.problems[0].reason) == "UnreadableFile"


def test_a_result_of_an_earlier_version_does_not_say_when_a_worker_was_there(place):
    document = orjson.loads(small().as_json())
    del document["timeline"]["gpus"], document["occupancy"]["up"]
    place.write_bytes(orjson.dumps(document))
    result = read_result(place)
    assert (result.timeline.gpus, result.occupancy.up) == ([], [])
    assert result.occupancy.held == small().occupancy.held
