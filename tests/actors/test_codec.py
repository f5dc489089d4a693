"""One form for journal, API and traces."""

from typing import Any

import attrs
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from actors.assignment import (
    Bundle,
    ColdStart,
    ExecAction,
    HttpGetAction,
    Lifecycle,
    SignalAction,
    SnapshotAt,
    TcpSocketAction,
    WakeupProbe,
    WorkerAssignment,
)
from actors.codec import JSON_LIMIT_BYTES, CodecError, camel, dumps, epoch_s, loads, plain, rfc3339, structure
from statemachine.actor import Actor, Pending, Resource
from statemachine.commands import COMMANDS, Command, CreateSandbox, FollowPending, RestoreSandbox, StopContainers
from statemachine.events import Event
from statemachine.reasons import Reason
from tests.actors.assignments import BASE, admitted, document
from tests.statemachine.samples import CPU, EVERY_EVENT, GPU, HALF, OLD, problem

COMMAND_SAMPLES = [
    RestoreSandbox(snapshot=HALF),
    StopContainers(undo=(Resource.SANDBOX, Resource.BUNDLES), grace_s=1.5),
    FollowPending(pending=Pending.DRAIN_BY_STOP),
    CreateSandbox(),
]


def again_from(value, kind: Any = Event):
    return structure(value, kind)


def again(value, kind: Any):
    return structure(loads(dumps(value, kind)), kind)


@pytest.mark.parametrize("event", EVERY_EVENT, ids=lambda event: type(event).__name__)
def test_every_event_comes_back_as_it_went(event):
    assert again(event, Event) == event
    assert plain(event, Event)["type"] == type(event).__name__


@pytest.mark.parametrize("command", COMMAND_SAMPLES, ids=lambda command: type(command).__name__)
def test_commands_come_back_as_they_went(command):
    assert again(command, Command) == command


def test_every_command_has_its_own_type():
    assert len({kind.__name__ for kind in COMMANDS}) == len(COMMANDS)


@pytest.mark.parametrize(
    "actor",
    [
        CPU,
        GPU,
        attrs.evolve(
            GPU, origin=HALF, last_good=OLD, pending=Pending.RUN, held=tuple(Resource), lost_gpus=("GPU-0",), tries=3,
            problem=problem(Reason.SANDBOX_DIED),
        ),
    ],
)  # fmt: skip
def test_every_memory_comes_back_as_it_went(actor):
    assert again(actor, Actor) == actor


@pytest.mark.parametrize("snapshot", [None, ColdStart.WANTED, SnapshotAt("file:///x")])
@pytest.mark.parametrize("hook", [None, ExecAction(("a", "b")), SignalAction("USR1")])
@pytest.mark.parametrize("action", [ExecAction(("x",)), HttpGetAction(path="/", port=80), TcpSocketAction(8080)])
def test_every_assignment_comes_back_as_it_went(snapshot, hook, action):
    plain_one = admitted(document())
    container = attrs.evolve(
        plain_one.containers[0], wakeup_probe=WakeupProbe(action=action, timeout_s=2.5), source=Bundle(BASE / "b")
    )
    full = attrs.evolve(
        plain_one,
        snapshot=snapshot,
        lifecycle=Lifecycle(pre_suspend=hook, post_resume=hook),
        containers=(*plain_one.containers, container),
        reservation=(("nvidia.com/gpu", 2),),
    )
    assert again(full, WorkerAssignment) == full


@pytest.mark.parametrize(
    "value", [None, [], "Activate", 5, {}, {"type": "Nope"}, {"type": ["Activate"]}, {"type": "StepFailed"}]
)
def test_what_is_no_event_is_named_and_nothing_else_is_raised(value):
    with pytest.raises(CodecError):
        again_from(value)


@pytest.mark.parametrize("data", [b"", b"{", b"\xff", b"NaN", b"[1,", b" " * (JSON_LIMIT_BYTES + 1)])
def test_what_is_no_json_or_too_much_of_it_is_named(data):
    with pytest.raises(CodecError):
        loads(data)


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("exit_code", "exitCode"), ("uid", "uid"), ("delay_s", "delay_s"), ("last_good", "lastGood"),
        ("size_bytes", "size_bytes"), ("cpu_milli", "cpu_milli"), ("termination_grace_s", "terminationGrace_s"),
    ],
)  # fmt: skip
def test_keys_are_camel_case_and_units_stay_as_they_are(name, key):
    assert camel(name) == key


@given(st.floats(allow_nan=False))
@example(17179869184.21875)  # .218 of it is no float, and the nearest one is below
def test_any_number_of_seconds_has_a_text(seconds):
    text = rfc3339(seconds)
    assert len(text) == len("2026-11-29T15:04:05.678Z")
    assert rfc3339(epoch_s(text)) == text


@given(st.integers(min_value=0, max_value=253_402_300_799_000))
def test_a_time_comes_back_to_the_millisecond(milliseconds):
    assert abs(epoch_s(rfc3339(milliseconds / 1000)) - milliseconds / 1000) < 0.002


@pytest.mark.parametrize("text", ["", "yesterday", "0001-01-01T00:00:00", "0001-01-01T00:00:00+23:59", "2026-13-01"])
def test_what_is_no_time_or_none_that_can_be_told_is_no_error(text):
    assert rfc3339(epoch_s(text)) == "1970-01-01T00:00:00.000Z"


def test_a_time_without_a_zone_is_utc():
    assert epoch_s("1970-01-02T00:00:00") == 86400.0
