"""`greenroom trace`: an actor's life as its journal tells it, for a person and for Perfetto."""

import json
from typing import Any

import anyio
import pytest

import greenroom
from actors.codec import plain
from actors.layout import StateDir
from statemachine import commands as c
from statemachine.actor import Actor
from statemachine.problem import ProblemError
from statemachine.reasons import Reason
from statemachine.states import State
from supervisor.host.surroundings import read_small
from supervisor.timeline import events_for_perfetto, timeline
from tests.fakes.performer import failing
from tests.supervisor.lives import Bench, until
from tests.supervisor.stands import STATE, a_stand

BASE = {"state": "Assigned"}


def line(second, **content):
    """A line, this many seconds after the hour by the calendar and by the supervisor's clock."""
    at = f"2026-11-29T15:{int(second) // 60:02d}:{second % 60:06.3f}Z"
    head = {"v": 1, "seq": 1, "at": at, "mono_s": 1000.0 + second, "bootId": "b1", "generation": 1}
    return {**head, **content}


def moved(second, source, target, event="AssignmentRecorded", **fields):
    kind, more = event, {name: fields.pop(name) for name in ("mono_s", "bootId", "generation") if name in fields}
    content: dict[str, Any] = {"from": source, "to": target, "event": {"type": kind, **fields}, "commands": []}
    return line(second, **content, **more)


def marked(second, mark, step="create"):
    return line(second, progress={"step": step, "mark": mark})


def read(*lines, torn=b""):
    return timeline(b"".join(json.dumps(each).encode() + b"\n" for each in lines) + torn, subject="journal.jsonl")


def refused(data):
    with pytest.raises(ProblemError) as caught:
        timeline(data, subject="journal.jsonl")
    return caught.value.problem


PROBLEM = {"step": "create", "reason": "RuntimeFailed", "subject": "main", "message": "it failed", "hint": "h"}
LIFE = [
    line(0, base=BASE, since="2026-11-29T15:00:00.000Z"),
    moved(0.5, "Assigned", "Creating"),
    marked(1, "Started"),
    moved(2.25, "Creating", "RollingBack", "StepFailed", problem=PROBLEM),
    moved(3, "RollingBack", "Failed", "RolledBack"),
]


def test_each_stay_has_its_duration_what_led_to_it_and_what_happened_in_it():
    found = read(*LIFE, torn=b'{"v":1,"se')
    assert [(stay.state, stay.begin_s, stay.end_s, stay.event, stay.reason) for stay in found.stays] == [
        ("Assigned", 0.0, 0.5, "", ""),
        ("Creating", 0.5, 2.25, "AssignmentRecorded", ""),
        ("RollingBack", 2.25, 3.0, "StepFailed", "RuntimeFailed"),
        ("Failed", 3.0, None, "RolledBack", ""),
    ]
    assert [(each.at_s, each.name) for each in found.stays[1].happenings] == [(1.0, "create: Started")]
    assert found.stays[2].detail == "it failed"
    assert found.last_s == 3.0


def test_an_event_that_moves_nothing_happens_within_its_stay():
    exited = moved(5, "Running", "Running", "ContainerExited", container="main", exitCode=0)
    found = read(line(0, base={"state": "Running"}), exited, moved(6, "Running", "Stopping", "StopRequested"))
    assert [(stay.state, stay.end_s) for stay in found.stays] == [("Running", 6.0), ("Stopping", None)]
    (happening,) = found.stays[0].happenings
    assert (happening.name, happening.detail) == ("ContainerExited", "container=main exitCode=0")


def test_a_journal_that_begins_in_the_middle_of_a_stay_knows_since_when_it_lasts():
    found = read(
        line(60, base={"state": "Running"}, since="2026-11-29T15:00:10.000Z"),
        moved(70, "Running", "Suspending", "SuspendRequested"),
    )
    assert [(stay.begin_s, stay.end_s) for stay in found.stays] == [(0.0, 60.0), (60.0, None)]


def test_a_clock_that_begins_anew_or_is_set_costs_no_duration():
    after_restart = moved(10, "Assigned", "Creating", mono_s=3.0)
    calendar_back = {**moved(1, "Creating", "Verifying"), "mono_s": 4.5}
    found = read(line(0, base=BASE), after_restart, calendar_back)
    assert [stay.begin_s for stay in found.stays] == [0.0, 10.0, 10.0]
    # The supervisor's clock is the finer one where the calendar confirms it.
    found = read(line(0, base=BASE), {**moved(1, "Assigned", "Creating"), "mono_s": 1001.0004})
    assert round(found.stays[1].begin_s, 6) == 1.0004


def test_a_higher_generation_and_a_gap_are_told():
    found = read(
        line(0, base={"state": "Running"}),
        line(1, base={"state": "Running"}, generation=2),
        line(2, base={"state": "Suspended"}),
    )
    assert [(stay.state, stay.generation, stay.event) for stay in found.stays] == [
        ("Running", 2, ""),
        ("Suspended", 1, ""),
    ]
    assert [each.name for each in found.stays[0].happenings] == ["updated"]


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", Reason.STATE_CORRUPT),
        (b'{"v":1', Reason.STATE_CORRUPT),
        (b"[]\n", Reason.STATE_CORRUPT),
        (b"nonsense\n", Reason.STATE_CORRUPT),
        (b'{"v":99}\n', Reason.NEWER_FORMAT),
        (b'{"v":1}\n', Reason.STATE_CORRUPT),
        (b'{"v":1,"progress":{"step":"create","mark":"m"}}\n', Reason.STATE_CORRUPT),
        (b'{"v":1,"base":{"state":"Nowhere"}}\n', Reason.STATE_CORRUPT),
        (b'{"v":1,"base":7}\n', Reason.STATE_CORRUPT),
        (b'{"v":1,"generation":[],"base":{"state":"Running"}}\n', Reason.STATE_CORRUPT),
        (b'{"v":1,"from":"Running","to":"Failed","event":"x"}\n', Reason.STATE_CORRUPT),
        (b'{"v":1,"from":"Running","to":"Failed","event":{"type":"E","problem":{}}}\n', Reason.STATE_CORRUPT),
    ],
)
def test_what_is_no_journal_is_refused_with_its_line(data, reason):
    assert refused(data).reason is reason


@pytest.mark.anyio
async def test_the_journal_of_a_whole_life_is_read():
    async with a_stand() as stand:
        stand.prepare["a1"] = lambda performer: performer.answers.update({c.CreateSandbox: failing()})
        await stand.submit()
        await stand.until(State.FAILED)
        found = timeline(stand.files.content[STATE.actor("a1").journal], subject="journal.jsonl")
        assert [stay.state for stay in found.stays] == ["Assigned", "Creating", "RollingBack", "Failed"]
        assert found.stays[2].reason


@pytest.mark.anyio
async def test_what_every_state_is_written_as_is_what_is_read():
    bench = Bench()
    async with bench.running(State.RUNNING) as life:
        with anyio.fail_after(60):
            await until(life, State.RUNNING)
        assert timeline(bench.journal, subject="journal.jsonl").stays[-1].state == plain(life.actor, Actor)["state"]


# ---- the command


@pytest.fixture
def journal(tmp_path):
    path = StateDir(tmp_path).actor("a1").journal
    path.parent.mkdir(parents=True)
    path.write_text("".join(json.dumps(each) + "\n" for each in LIFE))
    return path


def traced(capsys, tmp_path, *arguments):
    code = greenroom.run(["trace", *map(str, arguments), "--state-dir", str(tmp_path)])
    captured = capsys.readouterr()
    return code, captured.out, captured.err.splitlines()


def test_a_person_sees_a_table(journal, tmp_path, capsys):
    code, out, err = traced(capsys, tmp_path, "a1")
    assert (code, err) == (0, [])
    assert out.splitlines() == [
        "a1  from 2026-11-29T15:00:00.000Z to 2026-11-29T15:00:03.000Z",
        "AT            LASTED        STATE                                        AFTER",
        "     0.000 s       0.500 s  Assigned           #######",
        "     0.500 s       1.750 s  Creating           ########################  AssignmentRecorded",
        "     1.000 s                  create: Started",
        "     2.250 s       0.750 s  RollingBack        ##########                StepFailed RuntimeFailed: it failed",
        "     3.000 s                Failed                                       RolledBack",
    ]


def test_perfetto_gets_the_same_to_the_microsecond_and_always_the_same(journal, tmp_path, capsys):
    target = tmp_path / "trace.json"
    assert traced(capsys, tmp_path, "a1", "-o", target) == (0, "", [])
    assert target.stat().st_mode & 0o777 == 0o600
    document = json.loads(read_small(target))
    assert traced(capsys, tmp_path, "a1", "-o", "-")[1].encode() == target.read_bytes()
    events = document["traceEvents"]
    assert [(event["name"], event["ts"], event["dur"]) for event in events if event["ph"] == "X"] == [
        ("Assigned", 0, 500_000), ("Creating", 500_000, 1_750_000), ("RollingBack", 2_250_000, 750_000),
        ("Failed", 3_000_000, 0),
    ]  # fmt: skip
    assert [(event["name"], event["ts"]) for event in events if event["ph"] == "i"] == [("create: Started", 1_000_000)]
    assert events == list(events_for_perfetto(read(*LIFE), uid="a1"))


@pytest.mark.parametrize("uid", ["nobody", "../a1", "", ".", "a1/../a1"])
def test_an_actor_that_is_not_there_is_refused(journal, tmp_path, capsys, uid):
    code, out, err = traced(capsys, tmp_path, uid)
    assert (code, out) == (1, "")
    assert err[-1].startswith("error: ActorNotFound: ")


def test_what_cannot_be_written_is_told(journal, tmp_path, capsys):
    code, _out, err = traced(capsys, tmp_path, "a1", "-o", tmp_path / "nowhere" / "trace.json")
    assert code == 1
    assert err[-2:-1] == ["hint: Name a file in a directory that is there and that you may write to."]
    assert err[-1].startswith("error: OutputUnwritable: ")
    journal.unlink()
    journal.mkdir()
    assert traced(capsys, tmp_path, "a1")[2][-1].startswith("error: UnreadableFile: ")
