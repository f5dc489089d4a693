"""Documents and the lives that they begin, change and end."""

import errno
from functools import partial
from pathlib import Path

import anyio
import pytest

from statemachine import commands as c
from statemachine.actor import OnDrain
from statemachine.problem import ProblemError
from statemachine.reasons import Reason
from statemachine.states import RESTING, State
from supervisor import operations
from supervisor.admitting import Effect
from tests.fakes.performer import failing
from tests.supervisor.lives import settled
from tests.supervisor.stands import STATE, a_document, a_stand

pytestmark = pytest.mark.anyio


async def test_a_document_begins_a_life_that_is_on_disk_before_it_is_answered():
    async with a_stand() as stand:
        assert await stand.submit() is Effect.BEGUN
        assert stand.on_disk()["uid"] == "a1"
        assert STATE.actor("a1").journal in stand.files.content
        await stand.until(State.RUNNING)
        assert stand.status()["state"] == "Running"


async def test_a_lower_generation_is_ignored_and_the_same_one_is_no_news():
    async with a_stand() as stand:
        await stand.running(generation=3)
        assert await stand.submit(generation=2, spec__desiredState="Terminated") is Effect.STALE
        assert await stand.submit(generation=3) is Effect.SAME
        assert stand.life().actor.state is State.RUNNING


async def test_the_same_generation_with_other_content_is_refused():
    async with a_stand() as stand:
        await stand.running()
        assert await stand.refused(spec__desiredState="Suspended") == [Reason.GENERATION_CONFLICT]
        assert stand.life().actor.state is State.RUNNING


async def test_a_refused_document_does_not_move_the_generation():
    async with a_stand() as stand:
        await stand.running()
        assert await stand.refused(generation=5, spec__containers__0__command=["/other"]) == [Reason.IMMUTABLE_FIELD]
        assert stand.life().assignment.generation == 1
        assert stand.on_disk()["generation"] == 1
        assert await stand.submit(generation=2, spec__desiredState="Suspended") is Effect.UPDATED


async def test_a_higher_generation_is_followed_and_stands_on_disk():
    async with a_stand() as stand:
        await stand.running()
        assert await stand.submit(generation=2, spec__desiredState="Suspended") is Effect.UPDATED
        assert stand.on_disk()["generation"] == 2
        await stand.until(State.SUSPENDED)
        assert stand.status()["generation"] == 2


async def test_a_command_keeps_the_generation_and_holds_until_the_next_higher_one():
    async with a_stand() as stand:
        await stand.running(generation=4)
        await operations.suspend(stand.worker, "a1")
        await stand.until(State.SUSPENDED)
        assert await stand.submit(generation=4) is Effect.SAME
        assert stand.life().actor.state is State.SUSPENDED
        assert await stand.submit(generation=5) is Effect.UPDATED
        await stand.until(State.RUNNING)


async def test_commands_that_overlap_are_refused():
    async with a_stand() as stand:
        life = await stand.running()
        hold = stand.performers["a1"].hold(c.SaveSnapshot)
        await operations.suspend(stand.worker, "a1")
        await hold.begun.wait()
        with pytest.raises(ProblemError) as caught:
            await operations.resume(stand.worker, "a1")
        assert caught.value.problem.reason is Reason.OPERATION_IN_PROGRESS
        hold.let_go()
        await stand.until(State.SUSPENDED)
        assert life.assignment.generation == 1


async def test_after_the_end_the_same_generation_stays_ended_and_a_higher_one_begins_anew():
    async with a_stand() as stand:
        await stand.terminated()
        assert await stand.submit(generation=2, spec__desiredState="Terminated") is Effect.SAME
        assert await stand.refused(generation=2) == [Reason.GENERATION_CONFLICT]
        assert await stand.submit(generation=1) is Effect.STALE
        assert stand.life().actor.state is State.TERMINATED
        assert await stand.submit(generation=3, spec__containers__0__command=["/other"]) is Effect.BEGUN
        await stand.until(State.RUNNING)


async def test_an_end_that_is_wanted_of_nobody_counts_as_a_generation():
    async with a_stand() as stand:
        assert await stand.submit(generation=5, spec__desiredState="Terminated") is Effect.ENDED_ALREADY
        # Delivered in the wrong order, the older wish must not bring it to life.
        assert await stand.submit(generation=4) is Effect.STALE
        assert await stand.refused(generation=5) == [Reason.GENERATION_CONFLICT]
        assert stand.on_disk()["generation"] == 5
        assert stand.status()["state"] == "Terminated"
        assert await stand.submit(generation=6) is Effect.BEGUN


async def test_an_end_that_is_wanted_of_the_ended_moves_the_generation_too():
    async with a_stand() as stand:
        await stand.terminated()
        assert await stand.submit(generation=9, spec__desiredState="Terminated") is Effect.ENDED_ALREADY
        assert await stand.submit(generation=8) is Effect.STALE


async def test_a_tombstone_stands_for_a_day():
    async with a_stand() as stand:
        await stand.terminated()
        stand.wall.time_s += 23 * 3600
        assert await stand.submit(generation=1) is Effect.STALE
        stand.wall.time_s += 2 * 3600
        assert stand.worker.find("a1") is None
        assert await stand.submit(generation=1) is Effect.BEGUN


async def test_a_new_life_is_not_forgotten_with_the_tombstone_of_the_one_before():
    async with a_stand() as stand:
        await stand.terminated()
        stand.wall.time_s += 23 * 3600
        await stand.running(generation=3)
        stand.wall.time_s += 2 * 3600
        assert stand.life().actor.state is State.RUNNING


async def test_a_generation_that_comes_while_the_actor_is_ending_begins_the_next_life():
    async with a_stand() as stand:
        await stand.running()
        hold = stand.performers["a1"].hold(c.StopContainers)
        await stand.submit(generation=2, spec__desiredState="Terminated")
        await hold.begun.wait()
        first = stand.life()
        assert await stand.submit(generation=3) is Effect.UPDATED
        hold.let_go()
        await stand.until(State.RUNNING)
        assert stand.life() is not first
        assert stand.life().assignment.generation == 3


async def ending_with_a_successor(stand):
    """Stop the actor, with generation 3 to follow, up to where Terminated is true but not yet written.

    Returns what lets it go on.
    """
    await stand.running()
    hold = stand.performers["a1"].hold(c.StopContainers)
    await stand.submit(generation=2, spec__desiredState="Terminated")
    await hold.begun.wait()
    await stand.submit(generation=3)
    original, go_on = stand.files.append_durably, anyio.Event()

    async def append_durably(path, data):
        await go_on.wait()
        await original(path, data)

    stand.files.append_durably = append_durably
    hold.let_go()
    await settled()
    assert stand.life().actor.state is State.TERMINATED
    return go_on


async def test_a_generation_that_comes_in_the_very_moment_of_the_end_begins_one_life_only():
    async with a_stand() as stand, anyio.create_task_group() as group:
        go_on = await ending_with_a_successor(stand)
        for generation in (4, 5, 6):
            group.start_soon(partial(stand.submit, generation=generation))
        await settled()
        go_on.set()
        await stand.until(State.RUNNING)
        await settled()
        assert stand.life().assignment.generation == 6
        assert stand.on_disk()["generation"] == 6
        assert stand.performers["a1"].running == 0


async def test_a_document_whose_actor_ends_before_it_gets_its_turn_is_judged_anew():
    async with a_stand() as stand, anyio.create_task_group() as group:
        await stand.running()
        life = stand.life()
        hold = stand.performers["a1"].hold(c.StopContainers)
        effects = []

        async def submit():
            effects.append(await stand.submit(generation=3, spec__containers__0__resources={}))

        await stand.submit(generation=2, spec__desiredState="Terminated")
        await hold.begun.wait()
        asked, original = anyio.Event(), life.ask

        async def ask_too_late(*arguments):
            asked.set()
            await life.ended.wait()
            return await original(*arguments)

        life.ask = ask_too_late
        group.start_soon(submit)
        await asked.wait()
        hold.let_go()
        await stand.until(State.RUNNING)
        assert effects == [Effect.BEGUN]


@pytest.mark.parametrize("uid", ["a1", "a2"])
async def test_two_submits_at_once_begin_one_life(uid):
    async with a_stand() as stand:
        effects = []

        async def submit():
            effects.append(await stand.submit(uid))

        async with anyio.create_task_group() as group:
            for _ in range(5):
                group.start_soon(submit)
        assert sorted(effects) == sorted([Effect.BEGUN, *[Effect.SAME] * 4])
        await stand.until(State.RUNNING, uid=uid)
        assert stand.story(uid).count("CreateSandbox") == 1


async def test_submits_at_once_never_begin_more_than_fit():
    async with a_stand(max_actors=3) as stand:
        reasons = []

        async def submit(uid):
            try:
                await stand.submit(uid)
            except ProblemError as error:
                reasons.append(error.problem.reason)

        async with anyio.create_task_group() as group:
            for number in range(10):
                group.start_soon(submit, f"a{number}")
        assert reasons == [Reason.WORKER_FULL] * 7
        assert len(stand.worker.lives) == 3


async def test_an_ended_actor_makes_room_unless_its_own_successor_needs_it():
    async with a_stand(max_actors=1) as stand:
        go_on = await ending_with_a_successor(stand)
        assert await stand.refused("a2") == [Reason.WORKER_FULL]
        go_on.set()
        await stand.until(State.RUNNING)
        await stand.submit(generation=4, spec__desiredState="Terminated")
        await stand.life().ended.wait()
        assert await stand.submit("a2") is Effect.BEGUN


async def test_a_worker_that_drains_begins_nothing_and_runs_nothing_again():
    async with a_stand(on_drain=OnDrain.SUSPEND) as stand:
        await stand.running()
        await stand.drain()
        assert stand.life().actor.state is State.SUSPENDED
        assert await stand.refused("a2") == [Reason.WORKER_DRAINING]
        assert await stand.refused(generation=2) == [Reason.WORKER_DRAINING]
        with pytest.raises(ProblemError) as caught:
            await operations.resume(stand.worker, "a1")
        assert caught.value.problem.reason is Reason.WORKER_DRAINING
        assert await stand.submit(generation=2, spec__desiredState="Terminated") is Effect.UPDATED
        await stand.life().ended.wait()


async def test_a_drain_waits_for_what_is_just_being_admitted_and_not_for_what_was_refused():
    async with a_stand() as stand, anyio.create_task_group() as group:
        original, go_on = stand.files.replace, anyio.Event()

        async def replace(path, data):
            if path.name == "journal.jsonl":
                await go_on.wait()
            if path == STATE.actor("a1").journal:
                raise OSError(errno.ENOSPC, "no space")
            await original(path, data)

        stand.files.replace = replace
        group.start_soon(stand.refused, "a1")
        group.start_soon(stand.submit, "a2")
        await settled()
        assert len(stand.worker.lives) == 2
        group.start_soon(stand.drain)
        await settled()
        go_on.set()


@pytest.mark.parametrize("name", ["assignment.json", "journal.jsonl"])
async def test_a_document_that_cannot_be_written_is_refused_and_leaves_no_actor(name):
    async with a_stand() as stand:
        stand.files.fail("replace", name, errno.ENOSPC)
        assert await stand.refused() == [Reason.STATE_UNWRITABLE]
        assert stand.worker.find("a1") is None
        assert stand.worker.usages._stages == {}
        assert STATE.actor("a1").assignment not in stand.files.content
        stand.files.heal("replace", name)
        assert await stand.submit() is Effect.BEGUN


async def test_a_new_life_that_cannot_be_written_leaves_the_tombstone_as_it_was():
    async with a_stand() as stand:
        await stand.terminated()
        stand.files.fail("replace", "journal.jsonl", errno.ENOSPC)
        assert await stand.refused(generation=3) == [Reason.STATE_UNWRITABLE]
        assert stand.on_disk()["generation"] == 2
        assert await stand.submit(generation=2, spec__desiredState="Terminated") is Effect.SAME


async def test_a_successor_that_cannot_begin_says_why_and_nobody_waits_for_it():
    async with a_stand() as stand:
        await stand.running()
        hold = stand.performers["a1"].hold(c.StopContainers)
        await stand.submit(generation=2, spec__desiredState="Terminated")
        await hold.begun.wait()
        await stand.submit(generation=3)
        stand.files.fail("replace", "journal.jsonl", errno.ENOSPC)
        hold.let_go()
        with pytest.raises(ProblemError) as caught:
            await operations.wait(stand.worker, "a1", State.RUNNING, timeout_s=60)
        assert caught.value.problem.reason is Reason.STATE_UNWRITABLE
        await settled()
        assert stand.status()["error"]["reason"] == "StateUnwritable"


@pytest.mark.parametrize("base", [Path("relative"), Path(), Path("/a\0b")])
async def test_a_base_that_is_no_absolute_path_is_an_invalid_request(base):
    async with a_stand() as stand:
        with pytest.raises(ProblemError) as caught:
            await stand.admission.submit(a_document(), base=base)
        assert caught.value.problem.reason is Reason.INVALID_REQUEST


@pytest.mark.parametrize("uid", ["../a1", "a/b", "", ".", "a" * 64, "-a", "ä"])
async def test_a_uid_that_could_lead_elsewhere_is_refused(uid):
    async with a_stand() as stand:
        assert await stand.refused(uid) == [Reason.INVALID_UID]
        assert await stand.files.list_directory(STATE.actors) == ()


async def test_no_turn_is_kept_for_an_actor_that_nobody_waits_for():
    async with a_stand() as stand:
        async with anyio.create_task_group() as group:
            for number in range(20):
                group.start_soon(stand.submit, f"a{number % 4}", number + 1)
        assert stand.admission._turns == {}


async def test_one_actor_that_takes_its_time_holds_up_no_other():
    async with a_stand() as stand, anyio.create_task_group() as group:
        stand.prepare["a1"] = lambda performer: performer.hold(c.CreateSandbox, has_cleanup=True)
        await stand.submit("a1")
        hold = stand.performers["a1"].holds[c.CreateSandbox]
        stand.prepare.clear()
        await hold.begun.wait()
        await stand.submit("a1", 2, spec__desiredState="Terminated")
        await hold.cancelled.wait()
        group.start_soon(stand.submit, "a1", 3)  # waits for the cleanup
        await stand.running("a2")
        assert stand.life("a1").actor.state not in RESTING
        hold.cleanup.set()


async def test_an_actor_that_fails_can_be_run_again_by_a_higher_generation():
    async with a_stand() as stand:
        stand.prepare["a1"] = lambda performer: performer.answers.update({c.CreateSandbox: [failing()]})
        await stand.submit()
        await stand.until(State.FAILED)
        assert stand.status()["error"]["reason"] == "RuntimeFailed"
        await stand.submit(generation=2)
        await stand.until(State.RUNNING)
        assert stand.status()["error"] is None
