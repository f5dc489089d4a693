"""Faults by port call: every kind of them, every way to say when, and what is reported of them."""

import pytest
import trio

from actors.ports import DeadlineExceededError
from sim.documents import actor, container, counter, idler
from sim.engine import run
from sim.faults import (
    CONVERTER,
    Cut,
    Fail,
    Fault,
    Halfway,
    Hang,
    Kill,
    Lie,
    Slow,
    When,
    faults_as_json,
    faults_from_json,
)
from sim.world.calls import LEFT_BEHIND
from sim.world.runsc.settings import Latencies
from sim.world.world import Machine
from statemachine.reasons import Reason
from statemachine.states import State


def fault(what, **when):
    return Fault(id="f", when=When(**when), what=what)


def fired(record):
    (report,) = record.faults
    return report.fired


async def to_running(here):
    await here.submit(counter())
    await here.wait(State.RUNNING)


EVERY_KIND = (
    fault(Fail("ENOSPC"), port="files", method="replace", nth=3),
    fault(Hang(), argument="checkpoint", from_s=1.5),
    fault(Hang(for_s=2.0), number=17),
    fault(Slow(0.25), probability=0.5, times_max=None),
    fault(Lie("flipped"), method="read"),
    fault(Kill(after=True), incarnation=2),
    fault(Halfway(at="written", error="EIO"), method="replace"),
    fault(Cut(3), argument="checkpoint"),
)


def test_a_plan_is_the_same_after_a_way_through_json():
    assert faults_from_json(faults_as_json(EVERY_KIND)) == EVERY_KIND
    assert faults_as_json(EVERY_KIND[:1]) == (
        b'[{"id":"f","when":{"port":"files","method":"replace","nth":3},"what":{"error":"ENOSPC","type":"Fail"}}]'
    )


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: Fail("ENOSUCH"),
        lambda: Halfway(at="written", error="ENOSUCH"),
        lambda: When(port="disk"),
        lambda: When(nth=0),
        lambda: Cut(0),
        lambda: When(probability=1.5),
        lambda: When(argument="("),
    ],
)
def test_a_plan_that_could_never_be_is_refused(wrong):
    with pytest.raises(Exception, match=r"."):
        wrong()


def test_what_is_unknown_in_a_plan_is_refused():
    with pytest.raises(ExceptionGroup):
        CONVERTER.structure([{"id": "f", "when": {"mthod": "read"}, "what": {"type": "Hang"}}], tuple[Fault, ...])


def test_a_fault_reports_at_which_call_it_fired_and_how_often_it_could_have():
    record = run(to_running, faults=[fault(Slow(0.5), port="files", method="append", nth=2)])
    (number,) = fired(record)
    met = record.calls[number - 1]
    assert (met.port, met.method) == ("files", "append")
    assert record.faults[0].seen == sum(call.method == "append" for call in record.calls) >= 2


def test_a_fault_that_meets_nothing_says_so():
    record = run(to_running, faults=[fault(Fail("EIO"), method="truncate")])
    assert record.faults[0].seen == 0
    assert fired(record) == ()


def test_the_nth_call_of_the_whole_run_can_be_met():
    number = next(call.number for call in run(to_running).calls if call.method == "append_durably")
    assert fired(run(to_running, faults=[fault(Slow(0.1), number=number)])) == (number,)


def test_a_fault_happens_at_most_so_often():
    assert len(fired(run(to_running, faults=[fault(Slow(0.1), port="files", times_max=4)]))) == 4


def test_a_probability_is_drawn_from_the_seed():
    plan = [fault(Slow(0.001), port="files", probability=0.3, times_max=None)]
    counts = [len(fired(run(to_running, seed=seed, faults=plan))) for seed in (1, 1, 2)]
    assert counts[0] == counts[1]
    total = run(to_running, seed=1, faults=plan).faults[0].seen
    assert 0 < counts[0] < total


def test_a_failed_call_has_no_effect():
    async def life(here):
        await here.submit(counter())
        await here.until(State.FAILED)
        assert (await here.status())["error"]["reason"] == Reason.STATE_UNWRITABLE
        assert here.left() == []

    record = run(life, faults=[fault(Fail("ENOSPC"), method="make_tree")])
    assert fired(record)
    assert not any(said.event == "fault" for said in record.log)


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        ("EAGAIN", Reason.RUNTIME_UNAVAILABLE),
        ("EMFILE", Reason.RUNTIME_UNAVAILABLE),
        ("ENOENT", Reason.RUNTIME_UNAVAILABLE),
        ("DeadlineExceeded", Reason.STEP_DEADLINE_EXCEEDED),
    ],
)
def test_a_runsc_that_cannot_be_started_is_told_with_its_reason(error, reason):
    async def life(here):
        await here.submit(counter())
        await here.until(State.FAILED)
        assert (await here.status())["error"]["reason"] == reason
        assert here.left() == []

    record = run(life, faults=[fault(Fail(error), method="run", argument="create.*c[0-9a-f]+$", nth=2)])
    assert fired(record)
    assert not any(said.event == "fault" for said in record.log)


@pytest.mark.parametrize(
    ("method", "argument"),
    [("list_directory", "sandboxes/"), ("make_tree", ""), ("stat_each", "rootfs$")],
)
def test_a_broken_disk_at_the_start_of_an_actor_is_a_reason_and_no_fault_of_ours(method, argument):
    async def life(here):
        await here.submit(actor("a1", container("one"), container("two")))
        await here.until(State.FAILED)
        assert here.left() == []

    plan = fault(Fail("EIO"), port="files", method=method, argument=argument, from_s=0.02)
    record = run(life, faults=[plan])
    assert fired(record)
    assert not any(said.event == "fault" for said in record.log)


def test_a_command_that_hangs_is_ended_at_its_deadline():
    async def life(here):
        await to_running(here)
        await here.reach(State.SUSPENDING)
        await here.until(State.RUNNING)
        assert (await here.status())["error"]["reason"] == Reason.STEP_DEADLINE_EXCEEDED
        assert 30 <= trio.current_time() < 40

    assert fired(run(life, faults=[fault(Hang(), method="run", argument=" pause ")]))


def test_who_hangs_goes_on_when_released():
    async def life(here):
        hung = here.plant(fault(Hang(), method="append_durably", argument="journal"))
        await here.submit(idler())
        await trio.sleep(5)
        assert hung.has_fired
        assert here.state() == State.VERIFYING
        assert here.journal()[-1]["to"] == State.VERIFYING
        hung.release()
        await here.wait(State.RUNNING)
        assert here.journal()[-1]["to"] == State.RUNNING

    run(life)


def test_who_hangs_for_ever_does_not_outlive_its_supervisor():
    async def life(here):
        here.plant(fault(Hang(), method="append_durably", argument="journal"))
        await here.submit(idler())
        await trio.sleep(5)
        await here.restart()
        await here.wait(State.FAILED)

    assert run(life).virtual_s < 10


def test_a_hung_file_cannot_be_cancelled_and_a_hung_socket_can_and_so_can_a_look_that_is_left_behind():
    async def life(here):
        here.plant(Fault(id="files", when=When(method="read"), what=Hang(for_s=50)))
        for method in sorted(LEFT_BEHIND):
            here.plant(Fault(id=method, when=When(method=method), what=Hang(for_s=50)))
        files, runsc = here.worker.ports.files, here.world.settings.runsc
        here.plant(Fault(id="net", when=When(method="connect_unix"), what=Hang(for_s=50)))
        for call, waited_s in (
            (lambda: files.read(runsc, limit_bytes=100), 50),
            (lambda: files.read_from(runsc, offset_bytes=0, limit_bytes=100), 1),
            (lambda: files.stat(runsc), 1),
            (lambda: files.free_bytes(runsc), 1),
            (lambda: here.worker.ports.net.connect_unix(here.world.settings.control_socket), 1),
        ):
            began_s = trio.current_time()
            with trio.move_on_after(1):
                await call()
            assert trio.current_time() - began_s == pytest.approx(waited_s)

    run(life)


def test_a_slow_call_is_late_and_right():
    async def life(here):
        await to_running(here)

    quick = run(life).virtual_s
    assert run(life, faults=[fault(Slow(7), method="run", argument="start")]).virtual_s == pytest.approx(quick + 7)


def test_a_write_that_breaks_in_the_middle_leaves_the_old_file_and_nothing_else():
    async def life(here):
        await to_running(here)
        before = here.status_file()
        broken = here.plant(fault(Halfway(at="synced", error="EIO"), method="replace", argument="status.json"))
        await here.reach(State.SUSPENDING)
        await trio.lowlevel.checkpoint()
        await here.until(State.SUSPENDED)
        assert broken.has_fired
        names = here.world.files_below(here.world.state.actor("a1").root)
        assert not any(name.endswith(".tmp") for name in names)
        assert before["state"] == "Running"

    run(life)


@pytest.mark.parametrize(
    ("at", "is_new"), [("created", False), ("written", False), ("synced", False), ("renamed", True)]
)
def test_a_kill_in_the_middle_of_a_replacement_leaves_the_old_or_the_new_file(at, is_new):
    async def life(here):
        await to_running(here)
        here.plant(fault(Halfway(at=at), method="replace", argument="status.json"))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_ask_quietly, here, "suspend")
            await here.worker.ended.wait()
            nursery.cancel_scope.cancel()
        assert here.status_file()["state"] == ("Suspending" if is_new else "Running")
        left = [name for name in here.world.files_below(here.world.state.actor("a1").root) if name.endswith(".tmp")]
        assert len(left) == (0 if is_new else 1)
        await here.start()
        await here.wait(State.RUNNING)  # its sandbox is found, and thawed if it was frozen

    run(life)


async def _ask_quietly(here, op):
    try:
        await here.ask(op, uid="a1")
    except Exception:  # noqa: BLE001 - the worker dies under it
        return


def test_a_call_that_does_not_wait_can_lie_and_fail_but_not_hang():
    async def life(here):
        wall = here.worker.ports.wall
        true_s = here.world.wall.now_s()
        for what in (Lie("anHourBack"), Fail("EIO"), Hang()):
            here.plant(Fault(id=type(what).__name__, when=When(method="now_s"), what=what))
        assert wall.now_s() == true_s - 3600
        with pytest.raises(OSError, match="Input"):
            wall.now_s()
        with pytest.raises(ValueError, match="does not wait"):
            wall.now_s()

    run(life)


def test_faults_of_another_life_leave_this_one_alone():
    async def life(here):
        here.plant(fault(Fail("EIO"), incarnation=2, method="find_arguments"))
        await here.submit(idler())
        await here.wait(State.RUNNING)
        worker = await here.restart()
        assert worker.error is not None or worker.lives

    record = run(life)
    assert record.calls[fired(record)[0] - 1].incarnation == 2


def test_the_errors_that_are_no_errno_are_the_ports_own():
    async def life(here):
        here.plant(fault(Fail("DeadlineExceeded"), method="kill_and_wait"))
        identity = here.worker.processes.process.identity
        with pytest.raises(DeadlineExceededError):
            await here.worker.ports.processes.kill_and_wait(identity, deadline_s=1)

    run(life)


def test_a_call_that_does_not_have_the_part_has_not_been_cut():
    record = run(to_running, faults=[fault(Halfway(at="no such part"), method="replace", times_max=None)])
    assert record.faults[0].seen > 1
    assert fired(record) == ()
    assert fired(run(to_running, faults=[fault(Cut(99), method="run", times_max=None)])) == ()


@pytest.mark.parametrize(("nth", "names"), [(1, []), (2, []), (3, ["checkpoint.img", "pages.img", "pages_meta.img"])])
def test_a_command_that_is_cut_has_done_what_it_did_before(nth, names):
    async def life(here):
        await to_running(here)
        await here.reach(State.SUSPENDING)
        cut = here.plant(fault(Cut(nth), method="run", argument=" checkpoint "))
        seen = []

        def observe(call):
            if call.method == "run" and " resume " in call.argument:
                seen.append(sorted(files_of_snapshots(here)))

        here.world.ledger.observe = observe
        await here.until(State.RUNNING)
        assert cut.has_fired
        assert (await here.status())["error"]["reason"] == Reason.RUNTIME_FAILED
        assert seen == [names]
        assert files_of_snapshots(here) == set()

    run(life)


def files_of_snapshots(here):
    files = here.world.files_below(here.world.state.actor("a1").snapshots)
    return {name.rpartition("/")[2] for name, data in files.items() if data is not None}


def test_a_save_whose_command_was_cut_goes_on_inside_and_no_resume_is_taken_before_its_end():
    save_s = 30.0

    async def life(here):
        await to_running(here)
        await here.reach(State.SUSPENDING)
        here.plant(fault(Cut(3), method="run", argument=" checkpoint "))
        await here.until(State.THAWING)
        began_s = trio.current_time()
        (sandbox,) = here.world.execution.sandboxes.values()
        assert len(sandbox.sentry.saves) == 1
        await here.until(State.RUNNING)
        assert save_s / 2 < trio.current_time() - began_s < save_s
        assert sandbox.sentry.saves == []
        assert not sandbox.sentry.pauses

    run(life, machine=Machine(latencies=Latencies(save_s=save_s)))
