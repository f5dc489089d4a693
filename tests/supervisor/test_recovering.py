"""A start on what an earlier life of the worker left: nothing is lost, and the second start is like the first."""

import errno
import json
from contextlib import asynccontextmanager

import attrs
import pytest

from actors.journal import Journal
from actors.steps.assign import write_assignment
from statemachine import commands as c
from statemachine.actor import Actor, Pending, Resource
from statemachine.reasons import Reason
from statemachine.states import FINAL, RESTING, State
from supervisor import operations
from supervisor.admitting import Effect
from supervisor.memory import first_memory
from supervisor.recovering import recover
from supervisor.surveying import survey
from tests.actors.memory_files import DIRECTORY
from tests.fakes.performer import a_problem, a_snapshot, failing
from tests.fakes.ports import FakePorts
from tests.supervisor.lives import an_assignment, settled
from tests.supervisor.stands import STATE, a_stand
from tests.supervisor.test_admission_snapshots import put_snapshot

pytestmark = pytest.mark.anyio

A1 = STATE.actor("a1")


def an_actor(state, **changes):
    return attrs.evolve(first_memory(an_assignment(), None), state=state, **changes)


async def left(ports, actor, assignment=None, *, uid="a1"):
    """What a worker leaves of one actor when it is killed."""
    assignment = attrs.evolve(assignment or an_assignment(), uid=uid)
    directory = STATE.actor(uid)
    await write_assignment(ports.files, directory, assignment)
    journal = Journal(files=ports.files, wall=ports.wall, path=directory.journal)
    await journal.begin(actor, since_s=ports.wall.now_s())


@asynccontextmanager
async def started(ports, prepare=None):
    """A worker that has recovered, and whose actors have come to rest."""
    async with a_stand(ports) as stand:
        stand.prepare.update(prepare or {})
        await recover(ports.as_ports, STATE, stand.worker, await survey(ports.as_ports, STATE, stand.worker.gpus))
        for life in stand.worker.lives:
            while life.actor.state not in RESTING | FINAL:
                await life.changed()
        await settled()
        yield stand


def told(logs):
    return [entry["reason"] for entry in logs if entry["event"] == "unusable"]


async def test_an_empty_state_directory_is_no_trouble(logs):
    async with started(FakePorts()) as stand:
        assert stand.worker.lives == ()
    assert logs == []


ACTIVE = [state for state in State if state not in {State.SUSPENDED, State.FAILED, State.TERMINATED}]


@pytest.mark.parametrize("state", ACTIVE)
async def test_an_actor_that_was_active_is_failed_or_ended_and_its_sandbox_undone(state):
    ports = FakePorts()
    problem = a_problem(Reason.CONTAINER_FAILED) if state is State.BACKING_OFF else None
    held = (Resource.BUNDLES, Resource.SANDBOX)
    await left(ports, an_actor(state, held=held, last_good=a_snapshot(), problem=problem))
    async with started(ports) as stand:
        life = stand.life()
        if state in {State.STOPPING, State.RELEASING}:
            assert life.actor.state is {State.STOPPING: State.TERMINATED, State.RELEASING: State.SUSPENDED}[state]
        else:
            assert life.actor.state is State.FAILED
            # What it backed off from is the better reason.
            expected = "ContainerFailed" if state is State.BACKING_OFF else "SupervisorRestarted"
            assert stand.status()["error"]["reason"] == expected
            assert stand.status()["lastGoodSnapshot"]["id"] == a_snapshot().id


@pytest.mark.parametrize("state", [State.SUSPENDED, State.FAILED])
async def test_an_actor_that_rested_is_as_it_was(state):
    ports = FakePorts()
    actor = an_actor(state, last_good=a_snapshot())
    await left(ports, actor)
    since_s = ports.wall.now_s()
    ports.wall.time_s += 1000
    async with started(ports) as stand:
        assert stand.life().actor == actor
        assert stand.life().since_s == since_s
        assert stand.performers["a1"].story == []
        assert stand.status()["state"] == str(state)


async def test_a_failed_cleanup_of_an_earlier_life_is_forgotten_since_everything_of_it_is_ended():
    ports = FakePorts()
    await left(ports, an_actor(State.FAILED, held=(Resource.SANDBOX,)))
    async with started(ports) as stand:
        assert stand.life().actor.held == ()


async def test_a_tombstone_is_one_still_and_for_the_rest_of_its_day():
    ports = FakePorts()
    await left(ports, an_actor(State.TERMINATED))
    ports.wall.time_s += 23 * 3600
    async with started(ports) as stand:
        assert await stand.submit() is Effect.SAME
        ports.wall.time_s += 2 * 3600
        assert stand.worker.find("a1") is None


async def test_a_lost_actor_is_told_what_resume_would_do():
    """Without a snapshot it starts from nothing, which nobody may learn from an empty log."""
    hints = {}
    for has_snapshot in (False, True):
        ports = FakePorts()
        await left(ports, an_actor(State.RUNNING))
        if has_snapshot:
            async with a_stand(ports) as stand:
                await put_snapshot(stand)
        async with started(ports) as stand:
            life = stand.life()
            assert life.actor.problem.reason is Reason.SUPERVISOR_RESTARTED
            assert operations.starts_anew(stand.worker, "a1") is not has_snapshot
            hints[has_snapshot] = life.actor.problem.hint
            if has_snapshot:
                assert life.actor.last_good.id in life.actor.problem.hint
    assert "no snapshot" in hints[False]
    assert "anew" not in hints[True]


async def test_an_actor_can_be_run_again_afterwards():
    ports = FakePorts()
    await left(ports, an_actor(State.RUNNING))
    uri = None
    async with a_stand(ports) as stand:
        uri = await put_snapshot(stand)
    async with started(ports) as stand:
        assert stand.life().actor.last_good.uri == uri
        await operations.resume(stand.worker, "a1")
        await stand.until(State.RUNNING)
        assert stand.life().actor.origin.uri == uri


async def test_two_starts_in_a_row_give_the_same():
    ports = FakePorts()
    for place, state in enumerate(State):
        await left(ports, an_actor(state, last_good=a_snapshot()), uid=f"a{place}")
    results, since = [], []
    for _ in range(3):
        ports.wall.time_s += 100
        async with started(ports) as stand:
            results.append({life.uid: (life.actor, life.assignment) for life in stand.worker.lives})
            since.append({life.uid: life.since_s for life in stand.worker.lives})
    assert results[0] == results[1] == results[2]
    assert since[0] == since[1] == since[2]


async def test_a_torn_last_line_is_cut_off_so_that_what_follows_is_whole():
    ports = FakePorts()
    await left(ports, an_actor(State.SUSPENDED))
    ports.files.content[A1.journal] += b'{"v":1,"seq":2,"fr'
    for _ in range(2):
        async with started(ports) as stand:
            assert stand.life().actor.state is State.SUSPENDED
    assert all(json.loads(line) for line in ports.files.content[A1.journal].splitlines())


JOURNALS = {
    b"": Reason.STATE_CORRUPT,
    b"garbage\n": Reason.STATE_CORRUPT,
    b'{"v":1,"base"': Reason.STATE_CORRUPT,
    b'{"v":9,"everything":"else"}\n': Reason.NEWER_FORMAT,
    b'{"v":1,"seq":"x","base":{}}\n': Reason.STATE_CORRUPT,
}


@pytest.mark.parametrize("data", JOURNALS)
async def test_a_journal_that_cannot_be_used_is_set_aside_and_its_actor_is_failed(data, logs):
    ports = FakePorts()
    await left(ports, an_actor(State.RUNNING))
    ports.files.content[A1.journal] = data
    async with started(ports) as stand:
        assert stand.life().actor.state is State.FAILED
        assert stand.status()["error"]["reason"] == "SupervisorRestarted"
    kept = [path for path in ports.files.below(A1.root) if path.startswith("journal.jsonl.aside-")]
    assert [ports.files.content[A1.root / path] for path in kept] == [data]
    assert told(logs) == [JOURNALS[data]]
    logs.clear()
    async with started(ports) as stand:
        assert stand.life().actor.state is State.FAILED
    assert told(logs) == []


async def test_a_journal_that_is_not_there_is_one_that_cannot_be_used():
    ports = FakePorts()
    await left(ports, an_actor(State.RUNNING))
    del ports.files.content[A1.journal]
    async with started(ports) as stand:
        assert stand.life().actor.state is State.FAILED


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", Reason.STATE_CORRUPT), (b"[]", Reason.STATE_CORRUPT), (b'{"v":1}', Reason.STATE_CORRUPT),
        (b'{"v":1,"assignment":{"uid":"a1"}}', Reason.STATE_CORRUPT), (b'{"v":2,"assignment":{}}', Reason.NEWER_FORMAT),
    ],
)  # fmt: skip
async def test_an_assignment_that_cannot_be_used_is_set_aside_with_its_journal(data, reason, logs):
    ports = FakePorts()
    await left(ports, an_actor(State.RUNNING))
    journal = ports.files.content[A1.journal]
    ports.files.content[A1.assignment] = data
    async with started(ports) as stand:
        assert stand.worker.lives == ()
        # A new life of this actor writes over neither.
        await stand.running()
    contents = ports.files.below(A1.root)
    assert data in [content for path, content in contents.items() if path.startswith("assignment.json.aside-")]
    assert journal in [content for path, content in contents.items() if path.startswith("journal.jsonl.aside-")]
    assert told(logs) == [reason]


async def test_an_actor_of_which_only_snapshots_are_left_is_none_and_they_stay():
    ports = FakePorts()
    async with a_stand(ports) as stand:
        await put_snapshot(stand)
    before = ports.files.below(A1.root)
    async with started(ports) as stand:
        assert stand.worker.lives == ()
    assert ports.files.below(A1.root) == before


async def test_strangers_below_the_state_directory_are_left_alone():
    ports = FakePorts()
    await left(ports, an_actor(State.SUSPENDED))
    strange = {
        STATE.root / "note.txt", STATE.actors / "file", STATE.actors / "empty/x", A1.root / "note",
        A1.snapshots / "backup/file", A1.snapshots / "note", A1.snapshots / "s1/pages.img",
        STATE.refused / "x", STATE.actors / "b2/assignment.json/x",
    }  # fmt: skip
    for path in strange:
        ports.files.put(path, b"mine")
    async with started(ports) as stand:
        assert [life.uid for life in stand.worker.lives] == ["a1"]
    assert {path for path in strange if ports.files.content.get(path) == b"mine"} == strange


async def test_what_never_became_a_snapshot_is_removed_and_what_may_be_one_is_not():
    ports = FakePorts()
    await left(ports, an_actor(State.SUSPENDED))
    half, newer = A1.snapshot(a_snapshot(1).id), A1.snapshot(a_snapshot(2).id)
    ports.files.put(half / "pages.img", b"half")
    ports.files.put(newer / "manifest.json", b'{"v":7}')
    async with started(ports):
        pass
    assert half / "pages.img" not in ports.files.content
    assert newer / "manifest.json" in ports.files.content


async def test_what_a_killed_replace_left_is_swept_and_other_hidden_files_are_not():
    ports = FakePorts()
    await left(ports, an_actor(State.SUSPENDED))
    torn = {
        directory / ".status.json.0123456789abcdef.tmp" for directory in (STATE.root, STATE.refused, A1.root)
    } | {STATE.cdi / "0123456789abcdef" / ".lib.0123456789abcdef.tmp"}  # fmt: skip
    mine = {
        A1.root / ".note.tmp",
        A1.root / ".status.json.0123456789abcdeg.tmp",
        STATE.actors / ".x.0123456789abcdef.tmp",
    }
    for path in torn | mine:
        ports.files.put(path, b"half")
    async with started(ports):
        pass
    assert {path for path in torn | mine if path in ports.files.content} == mine


async def test_a_spec_that_is_no_directory_costs_no_start(logs):
    ports = FakePorts()
    await left(ports, an_actor(State.SUSPENDED))
    ports.files.put(STATE.cdi / "0123456789abcdef", b"a file")
    async with started(ports) as stand:
        assert stand.life("a1").actor.state is State.SUSPENDED


async def test_snapshots_that_are_no_directory_cost_no_start():
    ports = FakePorts()
    await left(ports, an_actor(State.SUSPENDED))
    ports.files.content[A1.snapshots] = b"a file"
    await left(ports, an_actor(State.SUSPENDED), uid="a2")
    async with started(ports) as stand:
        assert stand.life("a2").actor.state is State.SUSPENDED


async def test_a_copied_directory_is_not_taken_for_the_actor(logs):
    ports = FakePorts()
    await left(ports, an_actor(State.SUSPENDED))
    for path, data in ports.files.below(A1.root).items():
        ports.files.put(STATE.actors / "a1-copy" / path, data)
    async with started(ports) as stand:
        assert [life.uid for life in stand.worker.lives] == ["a1"]
    assert told(logs) == [Reason.STATE_CORRUPT]


@pytest.mark.parametrize("operation", ["read", "list_directory", "lstat", "truncate", "rename", "append_durably"])
@pytest.mark.parametrize("number", [errno.EIO, errno.EACCES])
async def test_an_actor_that_cannot_be_looked_at_costs_no_other_actor_anything(operation, number):
    ports = FakePorts()
    await left(ports, an_actor(State.SUSPENDED))
    await left(ports, an_actor(State.SUSPENDED), uid="a2")
    ports.files.content[A1.journal] += b"torn"
    ports.files.content[STATE.actor("a2").snapshots] = DIRECTORY
    for pattern in ("a1/*", "a1/*/*"):
        ports.files.fail(operation, pattern, number)
    async with started(ports) as stand:
        assert stand.life("a2").actor.state is State.SUSPENDED


async def test_a_fault_of_ours_in_one_actor_costs_no_other_actor_anything(logs):
    ports = FakePorts()
    await left(ports, an_actor(State.SUSPENDED))
    await left(ports, an_actor(State.SUSPENDED), uid="a2")

    def fails(_performer):
        raise ZeroDivisionError

    async with started(ports, {"a1": fails}) as stand:
        assert [life.uid for life in stand.worker.lives] == ["a2"]
    assert [entry["event"] for entry in logs if entry["log_level"] == "error"] == ["fault"]


async def test_a_memory_follows_the_assignment_that_was_written_just_before_the_crash():
    ports = FakePorts()
    await left(ports, an_actor(State.SUSPENDED), an_assignment(2, restartPolicy="OnFailure"))
    async with started(ports) as stand:
        assert stand.life().actor.restart == "OnFailure"


async def test_a_kept_run_still_means_the_snapshot_that_the_assignment_names():
    ports = FakePorts()
    named = "file:///elsewhere/one"
    actor = an_actor(State.RELEASING, pending=Pending.RUN, last_good=a_snapshot())
    await left(ports, actor, an_assignment(2, snapshot={"uri": named}))
    refused = {"a1": lambda performer: performer.answers.update({c.RestoreSandbox: failing()})}
    async with started(ports, refused) as stand:
        # It is not there: the restore is what says so. A cold start was never asked for.
        assert "CreateSandbox" not in stand.performers["a1"].story
        assert stand.life().actor.origin.uri == named


async def test_a_rollback_that_is_found_has_its_deadline(monkeypatch):
    monkeypatch.setattr(
        Actor, "deadline_s", property(lambda actor: 0.01 if actor.state is State.ROLLING_BACK else None)
    )
    ports = FakePorts()
    await left(ports, an_actor(State.ROLLING_BACK))
    async with started(ports, {"a1": lambda performer: performer.hold(c.RollBack)}) as stand:
        assert stand.life().actor.state is State.FAILED


@pytest.mark.parametrize("stands", [None, b"", b'{"v":1,"state":"Stopping"}\n', b"x" * 10_000])
async def test_an_end_that_was_journaled_and_not_told_is_told_by_the_next_worker(stands):
    ports = FakePorts()
    await left(ports, an_actor(State.TERMINATED))
    if stands is not None:
        ports.files.content[A1.status] = stands
    async with started(ports) as stand:
        assert stand.status()["state"] == "Terminated"


async def test_an_end_that_was_told_is_not_written_again():
    ports = FakePorts()
    await left(ports, an_actor(State.TERMINATED))
    async with started(ports):
        told = ports.files.content[A1.status]
    async with started(ports) as stand:
        assert ports.files.content[A1.status] is told  # the very object, which a second writing would have replaced
        assert stand.life().actor.state is State.TERMINATED
