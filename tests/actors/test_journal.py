"""The journal: whatever happens, replaying it gives the memory again."""

import errno

import attrs
import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from actors.codec import epoch_s
from actors.journal import COMPACT_OVER_LINES, Journal, Mark, replay
from statemachine.events import AssignmentRecorded, ContainersVerified, SandboxCreated, SnapshotProven
from statemachine.machine import Transition, step
from statemachine.problem import ProblemError, Step
from statemachine.reasons import Reason
from statemachine.states import FINAL, RESTING, State
from tests.actors.assignments import BASE
from tests.fakes.files import FakeFiles
from tests.fakes.ports import FakeWall
from tests.statemachine.samples import CPU, EVERY_EVENT, GPU, PROVEN

pytestmark = pytest.mark.anyio

PATH = BASE / "journal.jsonl"


class Written:
    """A journal and the memory that it should tell."""

    def __init__(self, actor=CPU):
        self.files, self.wall, self.actor = FakeFiles(), FakeWall(), actor
        self.since_s = self.wall.time_s
        self.journal = Journal(files=self.files, wall=self.wall, path=PATH)

    @property
    def data(self):
        return self.files.content[PATH]

    @property
    def lines(self):
        return [orjson.loads(line) for line in self.data.splitlines()]

    def replayed(self):
        return replay(self.data, subject="journal.jsonl")

    async def begin(self):
        await self.journal.begin(self.actor, since_s=self.since_s)
        return self

    async def happen(self, event):
        """As the loop does it: what happens is true, whether or not it can be written."""
        outcome = step(self.actor, event)
        if not isinstance(outcome, Transition):
            return
        before, self.actor = self.actor, outcome.actor
        if before.state is not self.actor.state:
            self.since_s = self.wall.time_s
        try:
            await self.journal.record(before, event, outcome, since_s=self.since_s)
        finally:
            self.wall.time_s += 1


async def climbed(count=6, actor=CPU):
    """A journal with some transitions, and one line per transition besides the base."""
    written = await Written(actor).begin()
    for event in EVERY_EVENT * 9:
        if len(written.lines) > count:
            break
        await written.happen(event)
    return written


ACTIONS = st.lists(
    st.one_of(
        st.sampled_from(EVERY_EVENT),
        st.sampled_from(["full", "space", "mark", "rebase", "compact"]),
    ),
    max_size=80,
)


@given(actions=ACTIONS, start=st.sampled_from([CPU, GPU]))
@settings(max_examples=60, deadline=None)
async def test_replaying_gives_the_memory_again_after_any_run_with_a_disk_that_is_full_at_times(actions, start):
    written = await Written(start).begin()
    for action in actions:
        try:
            match action:
                case "full":
                    for operation in ("append", "append_durably", "replace"):
                        written.files.fail(operation, PATH, errno.ENOSPC)
                case "space":
                    written.files.failures.clear()
                case "mark":
                    await written.journal.mark(Mark(step=Step.SUSPEND, mark="Paused"))
                case "rebase":
                    await written.journal.rebase(written.actor, since_s=written.since_s)
                case "compact":
                    await written.journal.begin(written.actor, since_s=written.since_s)
                case event:
                    await written.happen(event)
        except OSError:
            continue
    written.files.failures.clear()
    await written.journal.rebase(written.actor, since_s=written.since_s)
    assert written.replayed().actor == written.actor
    assert written.replayed().since_s == written.since_s


@given(events=st.lists(st.sampled_from(EVERY_EVENT), max_size=60), cut=st.integers(min_value=1))
@settings(max_examples=40, deadline=None)
async def test_a_journal_that_is_cut_anywhere_tells_the_memory_of_its_last_whole_line(events, cut):
    written = await Written().begin()
    memories = [written.actor]
    for event in events:
        before = len(written.lines)
        await written.happen(event)
        memories += [written.actor] * (len(written.lines) - before)
    first_bytes = len(written.data.splitlines(keepends=True)[0])
    kept = first_bytes + cut % (len(written.data) - first_bytes + 1)
    replayed = replay(written.data[:kept], subject="journal.jsonl")
    assert replayed.actor == memories[replayed.lines - 1]
    assert replayed.torn_bytes == kept - written.data[:kept].rfind(b"\n") - 1


async def test_numbers_count_up_and_go_on_after_a_replay():
    written = await climbed()
    again = Journal(
        files=written.files, wall=written.wall, path=PATH, seq=written.replayed().seq, lines=written.replayed().lines
    )
    await again.rebase(written.actor, since_s=written.since_s)
    numbers = [line["seq"] for line in written.lines]
    assert numbers == list(range(1, len(numbers) + 1))


async def test_a_line_has_the_form_that_the_design_gives():
    written = await climbed()
    await written.journal.mark(Mark(step=Step.SUSPEND, mark="Paused"))
    base, *transitions, mark = written.lines
    head = {"v", "seq", "at", "mono_s", "bootId", "generation"}
    assert set(base) == head | {"base", "since"}
    assert all(set(line) == head | {"from", "event", "to", "commands"} for line in transitions)
    assert all("type" in line["event"] and all("type" in each for each in line["commands"]) for line in transitions)
    assert mark["progress"] == {"step": "suspend", "mark": "Paused"}


async def test_marks_since_the_last_transition_are_told():
    written = await climbed()
    marks = (Mark(step=Step.SUSPEND, mark="Paused"), Mark(step=Step.SUSPEND, mark="FilesProven"))
    for mark in marks:
        await written.journal.mark(mark)
    assert written.replayed().marks == marks
    await written.journal.rebase(written.actor, since_s=0)
    assert written.replayed().marks == ()


async def test_a_transition_is_durable_where_a_crash_must_find_it():
    written = await Written().begin()
    durable: dict[State, set[str]] = {}
    for event in EVERY_EVENT * 4:
        before = len(written.files.done)
        await written.happen(event)
        for operation, _ in written.files.done[before:]:
            durable.setdefault(written.actor.state, set()).add(operation)
    resting = [state for state in durable if state in RESTING | FINAL]
    assert resting
    assert all(durable[state] == {"append_durably"} for state in resting)


async def test_the_proof_of_a_snapshot_is_durable_before_the_sandbox_is_ended():
    written = await Written(attrs.evolve(CPU, state=State.SUSPENDING)).begin()
    await written.happen(SnapshotProven(snapshot=PROVEN))
    assert written.files.done[-1] == ("append_durably", PATH)


async def test_a_long_journal_is_compacted_and_a_short_one_stays():
    written = await climbed()
    short = written.data
    await written.journal.compact(written.actor, since_s=written.since_s)
    assert written.data == short
    while len(written.lines) <= COMPACT_OVER_LINES:
        await written.journal.mark(Mark(step=Step.CREATE, mark="x"))
    await written.journal.compact(written.actor, since_s=written.since_s)
    assert len(written.lines) == 1
    assert written.replayed().actor == written.actor


async def test_a_compaction_that_cannot_be_written_leaves_the_long_journal():
    written = await climbed()
    while len(written.lines) <= COMPACT_OVER_LINES:
        await written.journal.mark(Mark(step=Step.CREATE, mark="x"))
    before = written.data
    written.files.fail("replace", PATH, errno.ENOSPC)
    with pytest.raises(OSError):
        await written.journal.compact(written.actor, since_s=written.since_s)
    assert written.data == before
    assert written.replayed().actor == written.actor


async def test_since_is_when_the_state_was_entered_and_outlives_every_rebase():
    written = await climbed()
    since_s = written.since_s
    for _ in range(3):
        written.wall.time_s += 1000
        await written.journal.rebase(written.actor, since_s=written.replayed().since_s)
    assert written.replayed().since_s == since_s
    assert epoch_s(written.lines[-1]["at"]) > since_s


def reasons(data):
    with pytest.raises(ProblemError) as caught:
        replay(data, subject="journal.jsonl")
    assert caught.value.problem.subject == "journal.jsonl"
    return [problem.reason for problem in caught.value.problems]


GARBAGE = [
    b"", b"{}", b"[]", b"null", b"garbage", b"\x00" * 40, b"\xff\xfe", b'{"v":"1"}', b'{"v":true,"base":{}}',
    b'{"v":0}', b'{"v":-1}', b'{"v":1}', b'{"v":1,"base":null}', b'{"v":1,"base":[]}', b'{"v":1,"base":{"state":"X"}}',
    b'{"v":1,"seq":"many","progress":{"step":"suspend","mark":"x"}}', b'{"v":1,"progress":{"step":"nap"}}',
    b'{"v":1,"from":"Assigned","event":{"type":"NoSuchEvent"},"to":"Creating","commands":[]}',
    b'{"v":1,"from":"Assigned","event":[1],"to":"Creating","commands":[]}',
]  # fmt: skip


@pytest.mark.parametrize("garbage", GARBAGE)
async def test_a_corrupt_line_is_named_wherever_it_stands(garbage):
    written = await climbed()
    lines = written.data.splitlines(keepends=True)
    for place in (0, 2, len(lines)):
        assert reasons(b"".join([*lines[:place], garbage + b"\n", *lines[place:]])) == [Reason.STATE_CORRUPT]


async def test_a_line_that_does_not_follow_is_corrupt():
    written = await Written().begin()
    for event in (AssignmentRecorded(), SandboxCreated(), ContainersVerified()):
        await written.happen(event)
    lines = written.data.splitlines(keepends=True)
    assert reasons(b"".join([*lines[:2], *lines[3:]])) == [Reason.STATE_CORRUPT]


async def test_a_newer_format_is_named_as_that():
    written = await climbed()
    newer = written.data.replace(b'{"v":1,"seq":3', b'{"v":2,"seq":3')
    assert reasons(newer) == [Reason.NEWER_FORMAT]


@pytest.mark.parametrize("data", [b"", b"\n", b'{"v":1,"base"'])
async def test_nothing_whole_is_corrupt(data):
    assert reasons(data) == [Reason.STATE_CORRUPT]
