"""Files that vanish, and directories that do: what is ended, and what never is."""

import errno
from contextlib import asynccontextmanager

import anyio
import pytest

from statemachine.states import State
from supervisor import directory_intake
from supervisor.directory_intake import DirectoryIntake
from supervisor.shared_scans import SharedScans
from tests.actors.memory_files import DIRECTORY
from tests.supervisor.intakes import ASSIGNMENTS, Intake, a_running_file, an_intake
from tests.supervisor.lives import settled
from tests.supervisor.stands import a_document, a_stand

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("short_times")]


async def test_the_actor_of_a_vanished_file_ends_after_a_rescan():
    async with a_running_file() as intake:
        intake.remove("x.yaml")
        await intake.quiet()
        assert intake.state() is State.RUNNING
        await intake.ended()


async def test_a_file_that_moved_to_another_name_ends_nothing():
    async with a_running_file() as intake:
        del intake.files.content[ASSIGNMENTS / "x.yaml"]
        intake.files.put(ASSIGNMENTS / "y.yaml", a_document())
        intake.stand.ports.watch.tell("x.yaml")  # the other name is never told: the rescan finds it
        await intake.some_rescans()
        assert intake.state() is State.RUNNING


async def test_a_file_that_comes_back_in_time_ends_nothing():
    async with a_running_file() as intake:
        intake.remove("x.yaml")
        await intake.quiet()
        intake.write("x.yaml")
        await intake.some_rescans()
        assert intake.state() is State.RUNNING


async def test_of_two_files_of_one_actor_one_may_go():
    async with an_intake() as intake:
        intake.write("x.yaml")
        intake.write("y.yaml")
        await intake.running()
        intake.remove("x.yaml")
        await intake.some_rescans()
        assert intake.state() is State.RUNNING
        intake.remove("y.yaml")
        await intake.ended()


@pytest.mark.parametrize("data", [b"", b"\xff", b"{", b"kind: Pod", b"x" * (2 << 20), a_document()[:40], b"[1, 2]"])
async def test_a_file_that_no_longer_tells_its_uid_stands_for_the_actor_that_it_stood_for(data):
    async with a_running_file() as intake:
        intake.write("x.yaml", data)
        await intake.refused("x.yaml")
        await intake.some_rescans()
        assert intake.state() is State.RUNNING
        intake.remove("x.yaml")
        await intake.ended()


async def test_a_broken_file_that_still_names_the_uid_keeps_its_actor():
    async with a_running_file() as intake:
        intake.write("x.yaml", generation=2, spec__desiredState="Walking")
        await intake.refused("x.yaml")
        await intake.some_rescans()
        assert intake.state() is State.RUNNING


@pytest.mark.parametrize("operation", ["stat", "read"])
async def test_a_file_that_cannot_be_read_any_more_ends_nothing(operation):
    async with a_running_file() as intake:
        intake.files.fail(operation, ASSIGNMENTS / "x.yaml", errno.EACCES)
        intake.write("x.yaml")
        await intake.some_rescans()
        assert intake.state() is State.RUNNING
        assert intake.reasons("x.yaml") == ["UnreadableFile"]


async def test_a_dangling_symlink_is_an_unreadable_file_and_not_a_vanished_one():
    async with a_running_file() as intake:
        intake.files.symlinks.add(ASSIGNMENTS / "x.yaml")
        intake.files.fail("read", ASSIGNMENTS / "x.yaml", errno.ENOENT)
        intake.stand.ports.watch.tell("x.yaml")
        assert await intake.refused("x.yaml") == ["UnreadableFile"]
        await intake.some_rescans()
        assert intake.state() is State.RUNNING


async def test_only_actors_of_this_directory_are_ended():
    async with an_intake() as intake:
        await intake.stand.running("a2")
        intake.write("x.yaml")
        await intake.running()
        intake.remove("x.yaml")
        await intake.ended()
        assert intake.state("a2") is State.RUNNING


async def test_a_stale_file_beside_a_submitted_actor_ends_nothing_when_it_goes():
    async with an_intake() as intake:
        await intake.stand.running("a1", 5)
        intake.write("x.yaml", generation=3)
        await intake.quiet()
        intake.remove("x.yaml")
        await intake.some_rescans()
        assert intake.state() is State.RUNNING


async def test_a_stale_file_beside_the_right_one_does_not_keep_the_actor_when_both_go():
    async with an_intake() as intake:
        intake.write("x.yaml", generation=5)
        await intake.running(generation=5)
        intake.write("y.yaml", generation=3)
        await intake.quiet()
        intake.remove("x.yaml")
        intake.remove("y.yaml")
        await intake.ended()
        assert intake.on_stage() == {"a1": (State.TERMINATED, 5)}


async def test_an_actor_that_a_submit_took_over_is_not_ended_with_its_old_file():
    async with a_running_file() as intake:
        await intake.stand.submit(generation=2)
        intake.remove("x.yaml")
        await intake.some_rescans()
        assert intake.state() is State.RUNNING


async def test_the_same_document_again_after_its_end_stays_ended():
    async with a_running_file() as intake:
        intake.remove("x.yaml")
        await intake.ended()
        intake.write("x.yaml")
        await intake.quiet()
        assert intake.state() is State.TERMINATED
        intake.write("x.yaml", generation=2)
        await intake.running(generation=2)


@pytest.mark.parametrize("number", [errno.EACCES, errno.ENOENT, errno.ENOTDIR, errno.EIO])
async def test_a_directory_that_cannot_be_read_ends_nothing_and_is_named(number):
    async with a_running_file() as intake:
        intake.files.fail("list_directory", ASSIGNMENTS, number)
        intake.remove("x.yaml")
        assert await intake.refused(directory_intake.DIRECTORY) == ["IntakeUnreadable"]
        await intake.some_rescans()
        assert intake.state() is State.RUNNING


async def test_a_directory_that_can_be_read_again_is_followed_again_without_an_event():
    async with an_intake() as intake:
        intake.files.fail("list_directory", ASSIGNMENTS, errno.EACCES)
        intake.stand.ports.watch.tell()
        await intake.refused(directory_intake.DIRECTORY)
        intake.files.put(ASSIGNMENTS / "x.yaml", a_document())
        intake.files.heal("list_directory", ASSIGNMENTS)
        await intake.running()
        assert intake.worker.refused == {}


async def test_a_directory_that_comes_back_empty_gets_the_whole_time_again(monkeypatch):
    """Removed and made anew, its files are written a moment later: none of their actors is ended."""
    monkeypatch.setattr(directory_intake, "RESCAN_AFTER_S", 1.5)
    monkeypatch.setattr(directory_intake, "RETRY_S", 1.8)
    async with a_running_file() as intake:
        intake.files.fail("list_directory", ASSIGNMENTS, errno.ENOENT)
        intake.remove("x.yaml")
        await intake.refused(directory_intake.DIRECTORY)
        intake.files.heal("list_directory", ASSIGNMENTS)
        # The countdown's own rescan is the first to find it readable, and empty.
        await intake.eventually(lambda: directory_intake.DIRECTORY not in intake.worker.refused)
        await intake.quiet()
        assert intake.state() is State.RUNNING
        intake.write("x.yaml")
        await intake.some_rescans()
        assert intake.state() is State.RUNNING


async def test_a_directory_that_comes_back_empty_and_stays_so_ends_its_actors():
    async with a_running_file() as intake:
        intake.files.fail("list_directory", ASSIGNMENTS, errno.ENOENT)
        intake.remove("x.yaml")
        await intake.refused(directory_intake.DIRECTORY)
        intake.files.heal("list_directory", ASSIGNMENTS)
        await intake.ended()
        assert intake.worker.refused == {}


async def test_a_flapping_directory_is_retried_by_one_task_only():
    async with an_intake() as intake:
        tries = []
        original = intake.files.list_directory

        async def list_directory(path):
            tries.append(path)
            return await original(path)

        intake.files.fail("list_directory", ASSIGNMENTS, errno.ENOENT)
        for _ in range(50):
            intake.stand.ports.watch.tell()
        await intake.refused(directory_intake.DIRECTORY)
        await intake.quiet()
        intake.files.list_directory = list_directory
        began_s = anyio.current_time()
        await intake.eventually(lambda: len(tries) >= 5)
        assert anyio.current_time() - began_s >= 4 * 0.01


async def test_a_thousand_files_at_once_are_all_admitted():
    async with an_intake() as intake:
        for number in range(1000):
            wanted = "Running" if number % 100 == 0 else "Terminated"
            intake.files.put(ASSIGNMENTS / f"{number}.json", a_document(f"a{number}", spec__desiredState=wanted))
        intake.stand.ports.watch.tell()
        await intake.eventually(lambda: len(intake.worker.lives) == 1000, within_s=120)
        for number in range(0, 1000, 100):
            await intake.running(f"a{number}")
        assert intake.worker.refused == {}


async def test_half_of_many_files_that_go_at_once_cost_a_few_scans_and_not_one_each():
    async with an_intake() as intake:
        for number in range(200):
            intake.files.put(ASSIGNMENTS / f"{number}.json", a_document(f"a{number}"))
        intake.stand.ports.watch.tell()
        await intake.eventually(lambda: len(intake.worker.lives) == 200)
        list_directory, scans = intake.files.list_directory, []

        async def counted(path):
            scans.append(path)
            return await list_directory(path)

        intake.files.list_directory = counted
        for number in range(100):
            intake.remove(f"{number}.json")
        await intake.eventually(lambda: all(intake.state(f"a{n}") is State.TERMINATED for n in range(100)))
        assert len(scans) <= 10
        assert all(intake.state(f"a{number}") is not State.TERMINATED for number in range(100, 200))


async def test_who_asks_while_a_scan_runs_gets_one_that_begins_later():
    begun: list[int] = []
    go = anyio.Event()
    scans, said = SharedScans(), []

    async def scan():
        begun.append(len(begun))
        await go.wait()
        return len(begun) > 1

    async def ask():
        said.append(await scans.one(scan))

    async with anyio.create_task_group() as group:
        for _ in range(3):  # together: one scan for them all
            group.start_soon(ask)
        await settled()
        for _ in range(3):  # too late for that one
            group.start_soon(ask)
        await settled()
        assert begun == [0]
        go.set()
    assert begun == [0, 1]
    assert said == [False] * 3 + [True] * 3


# ---- vanished while there was no worker


@asynccontextmanager
async def an_intake_again(intake):
    """Another life of the intake, on what the one before left."""
    async with anyio.create_task_group() as scope:
        again = DirectoryIntake(
            directory=ASSIGNMENTS,
            ports=intake.stand.ports.as_ports,
            state_dir=intake.stand.state,
            worker=intake.stand.worker,
            admission=intake.stand.admission,
        )
        scope.start_soon(again.run)
        yield
        scope.cancel_scope.cancel()


@asynccontextmanager
async def a_stand_that_was_followed():
    """A stand whose first intake has ended, with a1 Running out of `x.yaml`."""
    async with a_stand() as stand:
        stand.files.content[ASSIGNMENTS] = DIRECTORY
        intake = Intake(stand, ASSIGNMENTS)
        stand.files.put(ASSIGNMENTS / "x.yaml", a_document())
        async with an_intake_again(intake):
            await intake.running()
        yield intake


async def test_the_actor_of_a_file_that_vanished_while_there_was_no_worker_ends():
    async with a_stand_that_was_followed() as intake:
        await intake.stand.running("a2")  # of a command
        del intake.files.content[ASSIGNMENTS / "x.yaml"]
        async with an_intake_again(intake):
            await intake.ended()
            assert intake.state("a2") is State.RUNNING


@pytest.mark.parametrize(
    "changed",
    [
        lambda intake, path: None,
        lambda intake, path: intake.files.content.pop(path),
        lambda intake, path: intake.files.put(path, b'{"v":1,"directory":"/assign'),
        lambda intake, path: intake.files.put(path, b'{"v":2,"directory":"/assignments","generation":1}'),
        lambda intake, path: intake.files.put(path, b'{"v":1,"directory":"/elsewhere","generation":1}'),
        lambda intake, path: intake.files.put(path, b'{"v":1,"directory":"/assignments","generation":2}'),
        lambda intake, path: intake.files.put(path, b'{"v":1,"directory":"/assignments","generation":true}'),
    ],
    ids=["file is here", "not noted", "torn", "newer", "of another directory", "of another generation", "wrong type"],
)
async def test_an_actor_of_which_that_is_not_known_for_sure_is_not_ended(changed, request):
    async with a_stand_that_was_followed() as intake:
        if "file is here" not in request.node.name:
            del intake.files.content[ASSIGNMENTS / "x.yaml"]
        changed(intake, intake.stand.state.actor("a1").followed)
        async with an_intake_again(intake):
            await intake.some_rescans()
            assert intake.state() is State.RUNNING


async def test_a_directory_that_cannot_be_read_after_a_restart_ends_nothing_before_it_is_back():
    async with a_stand_that_was_followed() as intake:
        del intake.files.content[ASSIGNMENTS / "x.yaml"]
        intake.files.fail("list_directory", ASSIGNMENTS, errno.EACCES)
        async with an_intake_again(intake):
            await intake.some_rescans()
            assert intake.state() is State.RUNNING
            intake.files.failures.clear()
            await intake.ended()


async def test_what_cannot_be_noted_costs_no_admission():
    async with an_intake() as intake:
        intake.files.fail("replace", intake.stand.state.actor("a1").followed, errno.ENOSPC)
        intake.write("x.yaml")
        await intake.running()
        assert intake.stand.state.actor("a1").followed not in intake.files.content
