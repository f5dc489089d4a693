"""Cases of suspend, restore and recovery over the life of a worker. Under their numbers."""

import json
import signal

import attrs
import orjson
import pytest
import trio

from sim.documents import actor, container, counter
from sim.engine import record_of, run
from sim.faults import Fail, Fault, Hang, Lie, Slow, What, When
from sim.invariants.registry import check
from sim.lives import claiming
from sim.world import scenery
from sim.world.gpus import Driver, some_gpus
from sim.world.world import Machine, default_settings
from statemachine.actor import OnDrain
from statemachine.problem import ProblemError
from statemachine.reasons import Reason
from statemachine.states import State

SNAPSHOT_FILES = ["checkpoint.img", "pages.img", "pages_meta.img"]


def fault(what, **when):
    return Fault(id=f"{what}", when=When(**when), what=what)


def commands(here, verb):
    return [call for call in here.world.ledger.calls if call.method == "run" and f" {verb} " in call.argument]


def is_well(here):
    return check(here.world, record_of(here.world)) == ()


def reason(status):
    return status["error"] and Reason(status["error"]["reason"])


async def up(here, *documents):
    for document in documents:
        await here.submit(document)
        await here.wait(State.RUNNING, document["metadata"]["uid"])


# ---- case 024


def test_case_024_a_drain_has_one_budget_and_lets_a_running_suspend_finish_within_it():
    deaf = actor("u1", container(command=["sh", "-c", "trap '' TERM; while :; do sleep 1; done"]))
    deaf["spec"]["terminationGracePeriodSeconds"] = 3600
    budget_s = 1800.0

    async def scenario(here):
        await up(here, counter("u0"), deaf)
        here.plant(fault(Slow(600), method="run", argument=" checkpoint "))
        await here.ask("suspend", uid="u0")
        await here.until(State.SUSPENDING, "u0")
        began_s = trio.current_time()
        here.worker.signal(signal.SIGTERM)
        with trio.fail_after(budget_s + 10):
            await here.worker.ended.wait()
        assert trio.current_time() - began_s <= budget_s + 5
        assert here.state("u0") == State.SUSPENDED
        assert 600 <= next(move.at_s for move in here.world.hearing.moves if move.after == "Suspended") - began_s < 610
        names = {name.rpartition("/")[2] for name in here.world.files_below(here.world.state.actor("u0").snapshots)}
        assert names >= {*SNAPSHOT_FILES, "manifest.json"}
        assert here.left() == []
        assert here.world.files_below(here.world.settings.run_dir) == {}

    settings = attrs.evolve(default_settings(), on_drain=OnDrain.STOP, drain_timeout_s=budget_s)
    run(scenario, settings=settings)


# ---- case 026


@pytest.mark.parametrize("method", ["remove_tree", "find"])
def test_case_026_a_cleanup_that_fails_after_a_good_save_is_a_warning_and_tried_until_it_is_done(method):
    async def scenario(here):
        await up(here, counter())
        await here.reach(State.RELEASING)
        planted = here.plant(fault(Fail("EBUSY"), method=method, argument="sandboxes"))
        await here.until(State.SUSPENDED)
        await trio.sleep(1)
        first = await here.status()
        assert planted.has_fired
        names = {name.rpartition("/")[2] for name in here.world.files_below(here.world.state.actor("a1").snapshots)}
        assert names >= {*SNAPSHOT_FILES, "manifest.json"}
        # The same suspend again: the same answer, and nothing is saved again.
        second = await here.suspend()
        assert second["lastGoodSnapshot"] == first["lastGoodSnapshot"] is not None
        assert len(commands(here, "checkpoint")) == 1
        await trio.sleep(120)
        assert here.left() == []
        assert is_well(here)
        assert not any(move.event == "SandboxDied" for move in here.world.hearing.moves)

    run(scenario)


# ---- case 028


def test_case_028_an_actor_with_a_dead_container_is_not_suspended_and_says_which_and_how_it_ended():
    dead = container("main", ["sh", "-c", "sleep 0.3; exit 137"])

    async def scenario(here):
        await up(here, actor("a1", dead, container("side")))
        with trio.fail_after(10):
            while (await here.status())["containers"][0]["exitCode"] is None:
                await trio.sleep(0.1)
        await here.ask("suspend", uid="a1")
        await trio.sleep(5)
        status = await here.status()
        assert (status["state"], reason(status)) == (State.RUNNING, Reason.CONTAINER_EXITED)
        assert status["error"]["subject"] == "main"
        assert "137" in status["error"]["message"]
        assert commands(here, "checkpoint") == []
        assert here.world.files_below(here.world.state.actor("a1").snapshots) == {}
        before = len(here.output(container="side"))
        await trio.sleep(1)
        assert len(here.output(container="side")) > before
        assert is_well(here)

    run(scenario)


@pytest.mark.parametrize("how", ["failed", "silent", "statusLost"])
def test_case_028_a_look_that_cannot_be_read_refuses_the_suspend_and_the_actor_runs_on(how):
    async def scenario(here):
        await up(here, counter())
        await here.reach(State.SUSPENDING)
        planted = here.plant(fault(Lie(how), method="run", argument=" state "))
        await here.until(State.RUNNING)
        assert planted.has_fired
        assert reason(await here.status()) is Reason.RUNTIME_FAILED
        assert commands(here, "checkpoint") == []
        assert is_well(here)

    run(scenario)


# ---- case 029


FROZEN = {
    "the save is given up at its deadline": (Hang(), " checkpoint ", Reason.STEP_DEADLINE_EXCEEDED),
    "the save fails": (Lie("failed"), " checkpoint ", Reason.RUNTIME_FAILED),
    "the look fails": (Lie("failed"), " state ", Reason.RUNTIME_FAILED),
    "the pause fails": (Lie("failed"), " pause ", Reason.RUNTIME_FAILED),
}


@pytest.mark.parametrize("what", FROZEN)
def test_case_029_whatever_was_frozen_is_thawed_once_and_leaves_no_files(what):
    disturbance, verb, expected = FROZEN[what]

    async def scenario(here):
        await up(here, counter())
        await here.reach(State.SUSPENDING)
        planted = here.plant(fault(disturbance, method="run", argument=verb))
        await here.until(State.RUNNING)
        assert planted.has_fired
        assert reason(await here.status()) is expected
        assert len(commands(here, "resume")) == 1
        assert here.world.files_below(here.world.state.actor("a1").snapshots) == {}
        before = len(here.output())
        await trio.sleep(1)
        assert len(here.output()) > before
        assert is_well(here)

    run(scenario)


def test_case_029_the_patience_of_who_asked_is_not_the_budget_of_the_save():
    async def scenario(here):
        await up(here, counter())
        here.plant(fault(Slow(10), method="run", argument=" checkpoint "))
        await here.ask("suspend", uid="a1")
        with pytest.raises(ProblemError) as impatient:
            await here.ask("wait", uid="a1", state="Suspended", timeout_s=1.0)
        assert impatient.value.problem.reason is Reason.WAIT_TIMEOUT
        await here.until(State.SUSPENDED)
        assert commands(here, "resume") == []

    run(scenario)


def test_case_029_what_cannot_be_thawed_is_not_called_running():
    async def scenario(here):
        await up(here, counter())
        await here.suspend()
        good = (await here.resume())["lastGoodSnapshot"]
        await here.reach(State.SUSPENDING)
        here.plant(fault(Lie("failed"), method="run", argument=" checkpoint "))
        here.plant(Fault(id="r", when=When(method="run", argument=" resume ", times_max=None), what=Fail("EAGAIN")))
        await here.until(State.THAWING)
        await trio.sleep(200)
        status = await here.status()
        assert (status["state"], reason(status)) == (State.FAILED, Reason.COULD_NOT_THAW)
        assert status["lastGoodSnapshot"] == good is not None
        assert here.left() == []
        assert is_well(here)

    run(scenario)


def test_case_029_a_supervisor_that_is_killed_while_it_was_frozen_leaves_nobody_frozen():
    async def scenario(here):
        await up(here, counter())
        await here.reach(State.SUSPENDING)
        here.plant(fault(Hang(), method="run", argument=" checkpoint "))
        await trio.sleep(2)
        await here.restart()
        await trio.sleep(30)
        status = await here.status()
        assert status["state"] in {State.RUNNING, State.FAILED}
        assert status["state"] == State.RUNNING or status["error"] is not None
        assert is_well(here)

    run(scenario)


# ---- case 032

CONTROL = {"/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools"}


def test_case_032_a_snapshot_of_two_gpus_is_restored_on_two_others_in_their_order_and_sees_no_old_one():
    machine = Machine(gpus=some_gpus(4, minors=(0, 1, 2, 3)), driver=Driver(version="550.54.15"))

    async def scenario(here):
        await up(here, actor("u1", claiming("main", 2)))
        held = [each["uuid"] for each in (await here.ask("status"))["worker"]["gpus"] if each["holder"]]
        await here.suspend("u1")
        await up(here, actor("u2", claiming("main", 2)))
        await here.resume("u1")
        (config,) = [each.config for each in here.world.execution.given if each.container == "main"][-1:]
        nodes = {device["path"] for device in config["linux"]["devices"]}
        gpus = {node for node in nodes if node not in CONTROL and node.removeprefix("/dev/nvidia").isdecimal()}
        assert gpus == {"/dev/nvidia2", "/dev/nvidia3"}
        files = scenery.snapshot(here.world.disk, here.world.state.sandboxes).items()
        told = [json.loads(data or b"")["gpus"] for name, data in files if name.endswith("gpus.json")]
        before = [[each["atSnapshot"] and each["atSnapshot"]["uuid"] for each in gpus] for gpus in told]
        assert sorted(before, key=str) == sorted([held, [None, None]], key=str)
        assert is_well(here)

    run(scenario, machine=machine)


def test_case_032_a_restore_with_too_few_gpus_is_refused_and_the_snapshot_stays():
    machine = Machine(gpus=some_gpus(2, minors=(0, 1)), driver=Driver(version="550.54.15"))

    async def scenario(here):
        await up(here, actor("u1", claiming("main", 2)))
        await here.suspend("u1")
        await up(here, actor("u2", claiming("main", 1)))
        restores = len(commands(here, "restore"))
        with pytest.raises(ProblemError) as refused:
            await here.ask("resume", uid="u1")
        assert refused.value.problem.reason is Reason.INSUFFICIENT_GPUS
        assert (await here.status("u1"))["state"] == State.SUSPENDED
        assert len(commands(here, "restore")) == restores
        await here.stop("u2")
        await here.resume("u1")
        assert is_well(here)

    run(scenario, machine=machine)


# ---- case 035

PROBED = {"exec": ["true"], "timeoutSeconds": 5}
ANSWERS: dict[str, tuple[What, int | None, bool]] = {
    "hangs for ever": (Hang(), None, False),
    "fails for ever": (Lie("failed"), None, False),
    "fails at first": (Lie("failed"), 3, True),
    "answers at once": (Slow(0.001), 1, True),
}


@pytest.mark.parametrize("how", ANSWERS)
def test_case_035_what_is_restored_is_called_running_when_its_probe_has_answered(how):
    disturbance, times, serves = ANSWERS[how]

    async def scenario(here):
        await up(here, actor("a1", container("main", wakeupProbe=PROBED), container("side")))
        good = (await here.suspend())["lastGoodSnapshot"]
        when = When(method="run", argument=" exec .* true$", times_max=times)
        planted = here.plant(Fault(id="probe", when=when, what=disturbance))
        began_s = trio.current_time()
        await here.ask("resume", uid="a1")
        await here.until(State.RUNNING if serves else State.SUSPENDED)
        if not serves:
            assert 5 <= trio.current_time() - began_s < 12
            status = await here.status()
            assert reason(status) is Reason.RESTORED_NOT_SERVING
            assert status["error"]["subject"] == "main"
            assert "tries" in status["error"]["message"]
            assert status["lastGoodSnapshot"] == good
            assert here.left() == []
        assert planted.has_fired
        await trio.sleep(1)
        assert is_well(here)

    run(scenario)


# ---- case 037


def cut_the_journal(here, uid):
    journal = here.world.state.actor(uid).journal
    data = here.world.read(journal)
    scenery.put_file(here.world.disk, journal, data[:-7])


def make_it_newer(here, uid):
    journal = here.world.state.actor(uid).journal
    lines = [orjson.loads(line) for line in here.world.read(journal).splitlines()]
    scenery.put_file(here.world.disk, journal, b"".join(orjson.dumps({**line, "v": 99}) + b"\n" for line in lines))


async def of_every_kind(here):
    """Running, suspended just now, and failed."""
    await up(here, counter("u1"), counter("u2"))
    await here.suspend("u2")
    await here.submit(actor("u3", container(command=["/bin/no-such-thing"])))
    await here.until(State.FAILED, "u3")


@pytest.mark.parametrize("how", ["alive", "dead", "rebooted"])
def test_case_037_a_restart_finds_who_lives_who_is_saved_and_who_is_gone_before_it_takes_work(how):
    async def scenario(here):
        await of_every_kind(here)
        here.kill()
        if how == "dead":
            here.world.kill_sandbox("u1")
        await (here.reboot() if how == "rebooted" else here.start())
        await trio.sleep(1)
        found = {each["uid"]: each for each in (await here.ask("status"))["actors"]}
        assert found["u2"]["state"] == State.SUSPENDED
        assert found["u2"]["lastGoodSnapshot"] is not None
        assert found["u3"]["state"] == State.FAILED
        if found["u1"]["state"] == State.RUNNING:
            assert how == "alive"
        else:
            assert (found["u1"]["state"], reason(found["u1"])) == (State.FAILED, Reason.SUPERVISOR_RESTARTED)
        assert is_well(here)
        await here.resume("u2")
        assert is_well(here)

    run(scenario)


@pytest.mark.parametrize("spoil", [cut_the_journal, make_it_newer])
def test_case_037_a_journal_that_was_cut_or_is_newer_costs_no_other_actor_and_is_set_aside_not_deleted(spoil):
    async def scenario(here):
        await of_every_kind(here)
        here.kill()
        spoil(here, "u2")
        await here.start()
        assert here.worker.lives
        await trio.sleep(1)
        names = here.world.files_below(here.world.state.actor("u2").root)
        is_aside = any(".aside-" in name for name in names)
        assert is_aside is (spoil is make_it_newer)
        found = {each["uid"]: each["state"] for each in (await here.ask("status"))["actors"]}
        assert found["u3"] == State.FAILED
        assert found["u2"] in {State.SUSPENDED, State.FAILED}
        status = await here.status("u2")
        assert status["lastGoodSnapshot"] is not None
        await here.resume("u2")

    run(scenario)
