"""The fence: a supervisor that is killed has no effect any more, whatever it was doing; the world goes on."""

import signal

import pytest
import trio

from sim.documents import actor, container, counter
from sim.engine import run
from sim.faults import Fault, Halfway, Kill, When
from sim.world.incarnation import Incarnation
from statemachine.problem import ProblemError
from statemachine.states import State

KINDS = [
    *(("cgroups", method) for method in ("delegate", "make", "names", "remove", "usage")),
    *(("files", method) for method in ("append", "append_durably", "digest", "list_directory", "lock", "lstat")),
    *(("files", method) for method in ("make_directory", "read", "read_from", "remove_file", "remove_tree", "replace")),
    *(("files", method) for method in ("free_bytes", "make_tree", "replace_for_boot")),
    *(("files", method) for method in ("sha256", "stat", "stat_each", "sync_tree", "unlock")),
    *(("net", method) for method in ("accept", "close", "listen_unix", "receive", "send")),
    *(("processes", method) for method in ("adopt", "close", "find", "find_arguments", "holds_output", "run")),
    *(("processes", method) for method in ("open_files", "signal", "wait")),
    *(("signals", method) for method in ("next", "receive")),
    *(("wall", method) for method in ("boot_id", "cpu_features", "fresh_id", "machine", "now_s")),
    *(("watch", method) for method in ("changes", "next")),
]


async def rich(here):
    """A bit of everything, whatever becomes of the supervisor meanwhile."""
    here.world.put_assignment("bad.json", b"{")
    two = container("two", ["sh", "-c", "sleep 1; exit 0"])
    for op, arguments in (
        ("submit", {"document": actor("a1", container("one"), two)}),
        ("wait", {"uid": "a1", "state": "Running", "timeout_s": 60}),
        ("nap", {}),
        ("suspend", {"uid": "a1"}),
        ("wait", {"uid": "a1", "state": "Suspended", "timeout_s": 60}),
        ("resume", {"uid": "a1"}),
        ("wait", {"uid": "a1", "state": "Running", "timeout_s": 60}),
        ("logs", {"uid": "a1", "container": "one"}),
        ("stop", {"uid": "a1"}),
        ("wait", {"uid": "a1", "state": "Terminated", "timeout_s": 60}),
    ):
        if not here.worker.lives:
            return
        try:
            if op == "submit":
                await here.submit(arguments["document"])
            elif op == "nap":
                await trio.sleep(2)
            else:
                await here.ask(op, **arguments)
        except ProblemError:
            if here.worker.lives:
                raise
    here.worker.signal(signal.SIGTERM)
    await here.worker.ended.wait()


class Untouchable:
    """What stands in the place of the world once its owner is dead."""

    def __init__(self, touched):
        self.__dict__["touched"] = touched

    def __getattr__(self, name):
        self.touched.append(name)
        raise AssertionError(f"the dead touched {name}")


@pytest.fixture
def touched(monkeypatch):
    """What the dead have reached for in the world behind their ports."""
    found: list[str] = []
    ended = Incarnation._end

    def end(self, code):
        ended(self, code)
        untouchable = Untouchable(found)
        self._files._disk = self._files._beneath.disk = untouchable
        self.processes._execution = untouchable
        self._net._disk = self._net._sockets = untouchable

    monkeypatch.setattr(Incarnation, "_end", end)
    return found


def test_a_rich_life_makes_every_kind_of_call():
    record = run(rich, seed=1)
    assert sorted({(call.port, call.method) for call in record.calls}) == sorted(KINDS)


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize(("port", "method"), KINDS, ids=[".".join(kind) for kind in KINDS])
def test_a_supervisor_killed_at_a_call_has_no_effect_any_more(port, method, after, touched):
    async def life(here):
        first = here.worker
        await rich(here)
        calls = len(here.world.ledger.calls)
        lived = {process.pid for process in here.world.sandboxes_of("a1")}
        assert not first.lives
        killed_s = trio.current_time()
        await first.unwound.wait()
        assert trio.current_time() - killed_s < 1
        await trio.sleep(200)
        assert len(here.world.ledger.calls) == calls
        assert {process.pid for process in here.world.sandboxes_of("a1")} == lived
        assert not any(process.parent == first.pid for process in here.world.table)
        assert touched == []
        second = await here.start()
        assert second.lives
        await trio.sleep(1)
        # What it went on with is its own, and ends with it.
        await here.drain()
        assert here.left() == []

    when = When(port=port, method=method, incarnation=1, nth=1)
    record = run(life, seed=1, faults=[Fault(id="kill", when=when, what=Kill(after=after))])
    (met,) = record.faults[0].fired
    if not after:
        assert [call.number for call in record.calls if call.incarnation == 1] == list(range(1, met + 1))


def test_a_kill_after_a_call_that_is_given_up_comes_then():
    async def life(here):
        await here.drain()
        assert [said.event for said in here.world.hearing.said if said.event in {"draining", "left"}] == ["draining"]

    kill = Fault(id="kill", when=When(port="watch", method="next"), what=Kill(after=True))
    assert run(life, faults=[kill]).faults[0].fired


@pytest.mark.parametrize("at", ["created", "written", "synced", "renamed", "directory synced"])
def test_a_supervisor_killed_within_a_call_does_nothing_of_the_rest(at, touched):
    async def life(here):
        await rich(here)
        await trio.sleep(100)
        assert touched == []
        await here.start()
        await trio.sleep(1)
        await here.drain()
        assert here.left() == []

    when = When(method="replace", argument="journal", incarnation=1)
    record = run(life, faults=[Fault(id="kill", when=when, what=Halfway(at=at))])
    assert record.faults[0].fired


def test_a_kill_at_any_moment_leaves_sandboxes_to_live_on_and_locks_to_be_taken():
    async def life(here):
        await here.submit(counter())
        await here.wait(State.RUNNING)
        first = here.worker
        here.kill()
        (sandbox,) = here.world.sandboxes_of("a1")
        assert sandbox.parent == 1
        written = len(here.output())
        await trio.sleep(3)
        assert len(here.output()) > written + 20
        assert sandbox.is_running
        second = await here.start()
        assert second.lives
        assert (await here.status())["state"] == State.RUNNING
        assert here.world.sandboxes_of("a1") == [sandbox]
        assert (first.number, second.number) == (1, 2)

    run(life)


def test_who_was_connected_to_the_dead_is_told_and_nobody_listens_any_more():
    async def life(here):
        connection = await here.world.client.connect_unix(here.world.settings.control_socket)
        here.kill()
        with pytest.raises(Exception, match=r".*"), trio.fail_after(1):
            await connection.stream.receive()
        with pytest.raises(ConnectionRefusedError):
            await here.world.client.connect_unix(here.world.settings.control_socket)

    run(life)


def test_a_command_under_way_goes_on_without_the_one_who_gave_it():
    async def life(here):
        await here.submit(counter())
        await here.reach(State.CREATING)
        await trio.sleep(0.01)  # the sandbox is being created
        here.kill()
        assert here.world.sandboxes_of("a1") == []
        await trio.sleep(1)
        assert any("boot" in process for process in here.world.sandbox_processes())
        await here.start()
        await trio.sleep(1)
        assert here.left() == []

    run(life)


def test_the_dead_say_nothing():
    async def life(here):
        await here.submit(counter())
        await here.reach(State.SUSPENDING)
        here.kill()
        said = len(here.world.hearing.said)
        await trio.sleep(100)
        assert len(here.world.hearing.said) == said

    run(life)


def test_shielded_cleanup_of_the_dead_does_not_hold_up_the_run():
    async def life(here):
        await here.submit(counter())
        await here.reach(State.STOPPING)
        here.kill()
        await here.worker.unwound.wait()

    assert run(life).virtual_s < 5


def test_a_power_failure_ends_every_process():
    async def life(here):
        boot_id = here.world.wall.boot_id()
        await here.submit(counter())
        await here.wait(State.RUNNING)
        await here.world.reboot()
        assert here.world.sandbox_processes() == []
        assert here.world.wall.boot_id() != boot_id
        written = here.output()
        await trio.sleep(10)
        assert here.output() == written
        await here.start()
        await here.wait(State.FAILED)

    run(life)
