"""The environment of a life fails, its disk, its clock, the files of a snapshot: a promised state, the right reason."""

from typing import Any

import pytest
import trio

from actors.manifest import MANIFEST_NAME
from sim.documents import counter
from sim.engine import record_of, run
from sim.faults import Fail, Fault, Halfway, Lie, When
from sim.invariants.registry import check
from sim.world.world import Machine
from statemachine.problem import ProblemError
from statemachine.reasons import Reason
from statemachine.states import FINAL, RESTING, State

LARGE = Machine(state_bytes=1 << 20)
"""So that a snapshot does not fit where nothing but small files does."""
MEND_S = 1.0
ALL_OVER_S = 1000.0


async def goes_on_well(here):
    """Nothing is violated, and what was not stopped can be suspended, resumed and stopped as if nothing had been."""
    assert check(here.world, record_of(here.world)) == ()
    if here.state() in {State.SUSPENDED, State.FAILED}:
        await here.resume()
    if here.state() == State.RUNNING:
        await here.suspend()
        await here.resume()
        await here.stop()
    await trio.sleep(MEND_S)
    assert here.state() == State.TERMINATED
    assert check(here.world, record_of(here.world)) == ()


async def rests(here):
    with trio.fail_after(ALL_OVER_S):
        while here.state() is not None and State(here.state()) not in RESTING | FINAL:
            await trio.sleep(0.1)
    await trio.sleep(MEND_S)


async def what_came(here):
    """The state at rest and the reason that stands in the status."""
    await rests(here)
    try:
        error = (await here.status())["error"]
    except ProblemError as refused:
        return None, refused.problem.reason
    return here.state(), None if error is None else Reason(error["reason"])


# ---- the disk


def fill(world):
    world.fill_disk(slack_bytes=1 << 14)


def fill_up(world):
    world.fill_disk(slack_bytes=0)


def protect(world):
    world.disk.find(world.settings.state_dir).volume.is_read_only = True


def mend(world):
    world.make_room()
    world.disk.find(world.settings.state_dir).volume.is_read_only = False


Promised = dict[State, dict[State, set[Reason | None]]]

WRITES: set[Reason | None] = {Reason.STATE_UNWRITABLE, Reason.INSUFFICIENT_DISK}
# A runsc that has begun already cannot write its own log either, and so says nothing of why it fails.
STARTS: set[Reason | None] = {*WRITES, Reason.RUNTIME_FAILED}
DISKS: Promised = {
    # From which state on, and what may have come of it at rest: states, each with the reasons that are right for it.
    State.CREATING: {State.FAILED: STARTS, State.RUNNING: {None}},
    State.SUSPENDING: {State.RUNNING: WRITES, State.SUSPENDED: {None}},
    State.RELEASING: {State.SUSPENDED: {None}},
    State.RESTORING: {State.SUSPENDED: WRITES, State.RUNNING: {None}},
    State.STOPPING: {State.TERMINATED: {None}},
}
READ_ONLY: Promised = {
    # Nothing can be removed either; and runsc cannot write down that it has paused anything.
    State.CREATING: {State.FAILED: STARTS},
    State.SUSPENDING: {State.RUNNING: {*WRITES, Reason.RUNTIME_FAILED}},
    State.RELEASING: {State.SUSPENDED: {Reason.STATE_UNWRITABLE}},
    State.RESTORING: {State.FAILED: WRITES, State.SUSPENDED: WRITES},
    State.STOPPING: {State.FAILED: WRITES},
}
TROUBLES: dict[str, Any] = {"nearly full": (fill, DISKS), "full": (fill_up, DISKS), "read-only": (protect, READ_ONLY)}


@pytest.mark.parametrize("trouble", TROUBLES)
@pytest.mark.parametrize("state", DISKS)
def test_a_disk_that_is_full_or_read_only_from_any_state_on_ends_in_a_promised_state(state, trouble):
    begin, promised = TROUBLES[trouble]

    async def scenario(here):
        await here.submit(counter())
        await here.reach(state)
        begin(here.world)
        came, reason = await what_came(here)
        assert came in promised[state], (came, reason)
        assert reason in promised[state][came], (came, reason)
        mend(here.world)
        await here.restart()
        await rests(here)
        await goes_on_well(here)

    run(scenario, machine=LARGE)


SYNCS = (
    ("replace", Halfway(at="written", error="EIO")),
    ("append_durably", Halfway(at="written", error="EIO")),
    ("sync_tree", Fail("EIO")),
)
"""What the kernel says when it could not write what it had promised to."""


@pytest.mark.parametrize("state", DISKS)
def test_a_disk_that_fails_to_sync_from_any_state_on_ends_in_a_promised_state(state):
    async def scenario(here):
        await here.submit(counter())
        await here.reach(state)
        planted = [
            here.plant(Fault(id=method, when=When(method=method, incarnation=1, times_max=None), what=what))
            for method, what in SYNCS
        ]
        came, reason = await what_came(here)
        assert any(each.has_fired for each in planted)
        assert came in DISKS[state], (came, reason)
        assert reason in DISKS[state][came], (came, reason)
        await here.restart()
        await rests(here)
        await goes_on_well(here)

    run(scenario)


def test_files_of_a_checkpoint_that_do_not_sync_are_no_snapshot_and_the_actor_runs_on():
    async def scenario(here):
        await here.submit(counter())
        await here.reach(State.SUSPENDING)
        planted = here.plant(Fault(id="f", when=When(method="sync_tree"), what=Fail("EIO")))
        assert await what_came(here) == (State.RUNNING, Reason.STATE_UNWRITABLE)
        assert planted.has_fired
        assert here.world.files_below(here.world.state.actor("a1").snapshots) == {}
        await goes_on_well(here)

    run(scenario)


def test_a_manifest_that_was_said_to_be_written_and_is_not_costs_the_suspend_and_not_the_actor():
    async def scenario(here):
        await here.submit(counter())
        await here.reach(State.SUSPENDING)
        planted = here.plant(Fault(id="f", when=When(method="replace", argument="/manifest.json"), what=Lie("notDone")))
        assert await what_came(here) == (State.RUNNING, Reason.STATE_UNWRITABLE)
        assert planted.has_fired
        await goes_on_well(here)

    run(scenario)


@pytest.mark.parametrize("at", ["created", "written", "synced"])
def test_an_admission_that_was_cut_off_leaves_no_temporary_file_to_the_next_supervisor(at):
    async def scenario(here):
        here.plant(Fault(id="f", when=When(method="replace", argument="/assignment.json"), what=Halfway(at=at)))
        with pytest.raises(ProblemError):
            await here.submit(counter())
        names = here.world.files_below(here.world.state.actor("a1").root)
        assert any(name.endswith(".tmp") for name in names)
        await here.start()
        assert check(here.world, record_of(here.world)) == ()

    run(scenario)


def test_a_rootfs_that_cannot_be_looked_at_is_named_at_a_restore_too():
    async def scenario(here):
        await here.submit(counter())
        await here.wait(State.RUNNING)
        await here.suspend()
        planted = here.plant(Fault(id="f", when=When(argument="/images/rootfs"), what=Fail("EIO")))
        await here.ask("resume", uid="a1")
        assert await what_came(here) == (State.SUSPENDED, Reason.ROOTFS_NOT_FOUND)
        assert planted.has_fired
        await goes_on_well(here)

    run(scenario)


# ---- the clock


@pytest.mark.parametrize("by_s", [-3600.0, 3e9, *(pytest.param(by_s, marks=pytest.mark.long) for by_s in (3600, -3e9))])
@pytest.mark.parametrize("state", DISKS)
def test_a_clock_that_jumps_in_any_state_changes_nothing(state, by_s):
    async def scenario(here):
        await here.submit(counter())
        if state is State.RESTORING:
            await here.wait(State.RUNNING)
            await here.suspend()
            await here.resume()
        await here.reach(state)
        here.world.wall.jump(by_s)
        came, reason = await what_came(here)
        assert (came, reason) in {(State.RUNNING, None), (State.SUSPENDED, None), (State.TERMINATED, None)}
        await goes_on_well(here)

    record = run(scenario)
    assert [said for said in record.log if said.event == "fault"] == []


def test_a_clock_that_goes_back_does_not_make_an_older_snapshot_the_newest():
    async def scenario(here):
        await here.submit(counter())
        await here.wait(State.RUNNING)
        for jump_s in (0.0, -7200.0, -7200.0):
            here.world.wall.jump(jump_s)
            await trio.sleep(1)
            before = len(here.output())
            status = await here.suspend()
            lines = here.output()
            assert len(lines) > before - 1
            assert status["lastGoodSnapshot"]["id"] in here.world.files_below(here.world.state.actor("a1").snapshots)
            await here.restart()
            assert (await here.status())["lastGoodSnapshot"] == status["lastGoodSnapshot"]
            await here.resume()
            await trio.sleep(1)
            assert here.output() == [str(number) for number in range(len(here.output()))]

    run(scenario)


# ---- the files of a snapshot


def flipped(data, _other):
    middle = len(data) // 2
    return data[:middle] + bytes((data[middle] ^ 1,)) + data[middle + 1 :]


DAMAGES = {
    "flipped by one bit": flipped,
    "cut": lambda data, _: data[: len(data) // 2],
    "longer": lambda data, _: data + b"\0",
    "empty": lambda _, __: b"",
    "missing": lambda _, __: None,
    "stale": lambda _, other: other,
}
OF_A_MANIFEST = {
    Reason.SNAPSHOT_MISSING,
    Reason.SNAPSHOT_CORRUPT,
    # The bit that has flipped may be one of what it says about the actor.
    Reason.SNAPSHOT_INCOMPATIBLE,
    Reason.BUNDLE_CHANGED,
}
FILES = ("checkpoint.img", "pages_meta.img", "pages.img", MANIFEST_NAME)


def damage(here, older, newer, name, how):
    """Let a file of the newer snapshot be another, `stale` that of the older one; whether that makes a difference."""
    disk, actor = here.world.disk, here.world.state.actor("a1")
    true = here.world.read(actor.snapshot(newer) / name)
    data = DAMAGES[how](true, here.world.read(actor.snapshot(older) / name))
    directory = disk.find_directory(actor.snapshot(newer))
    disk.remove(directory, name)
    if data is not None:
        disk.append(disk.create(directory, name, 0o600), data)
    return data != true


def restores(here):
    return [call for call in here.world.ledger.calls if call.method == "run" and " restore " in call.argument]


@pytest.mark.parametrize("restarts", [False, pytest.param(True, marks=pytest.mark.long)])
@pytest.mark.parametrize("how", DAMAGES)
@pytest.mark.parametrize("name", FILES)
def test_a_damaged_snapshot_is_refused_before_anything_is_restored(name, how, restarts):
    async def scenario(here):
        await here.submit(counter())
        await here.wait(State.RUNNING)
        older = (await here.suspend())["lastGoodSnapshot"]["id"]
        await here.resume()
        await trio.sleep(1)
        newer = (await here.suspend())["lastGoodSnapshot"]["id"]
        is_damaged = damage(here, older, newer, name, how)
        before = len(restores(here))
        if restarts:
            await here.restart()
        await here.ask("resume", uid="a1")
        await rests(here)
        status = await here.status()
        if not is_damaged:  # of a small image one file is always the same
            assert status["state"] == State.RUNNING
            return
        assert status["state"] == State.SUSPENDED
        assert len(restores(here)) == before
        assert here.left() == []
        right = OF_A_MANIFEST if name == MANIFEST_NAME else {Reason.SNAPSHOT_CORRUPT}
        assert Reason(status["error"]["reason"]) in right
        assert newer in status["error"]["message"] + status["error"]["subject"]
        # The one before it is still there, and can be asked for.
        assert older in here.world.files_below(here.world.state.actor("a1").snapshots)

    run(scenario)
