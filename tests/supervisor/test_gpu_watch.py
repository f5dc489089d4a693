"""The watch over the GPU monitor: when one runs, when it is replaced, and what is known in the meantime."""

import errno
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest

from actors.gpu.facts import ErrorFact, InventoryFact, MemoryFact, ProcessesFact, XidFact, encode
from actors.gpu.view import SILENT, NvmlAnswers, NvmlFails
from actors.ports import DriverPlaces
from supervisor import gpu_watch
from supervisor.gpu_watch import GpuWatch
from tests.gpu.making import inventory

pytestmark = pytest.mark.anyio

SEEN = InventoryFact(driver="570.1", inventory=inventory(0, 1))
DOWN = ErrorFact(call="nvmlInit", error="NVML_ERROR_DRIVER_NOT_LOADED")
BOUND_S = 90.0
SOON_S = 0.03
SILENCE_S = 1.0


class Monitor:
    """A monitor that says what the test lets it say."""

    def __init__(self):
        self.send_stream, self.stream = anyio.create_memory_object_stream[Any](1000)
        self.is_left = anyio.Event()

    def say(self, *facts):
        self.send_stream.send_nowait(b"".join(map(encode, facts)))

    def babble(self, data):
        self.send_stream.send_nowait(data)

    def end(self):
        self.send_stream.send_nowait(b"")

    def fail(self, error):
        self.send_stream.send_nowait(error)

    async def receive(self):
        said = await self.stream.receive()
        if isinstance(said, Exception):
            raise said
        return said


class Gpus:
    """Starts one after the other, never two at once."""

    def __init__(self):
        self.monitors, self.refusals, self.is_slow = [], [], False
        self.started = anyio.Event()

    @asynccontextmanager
    async def monitor(self, _places):
        if self.refusals:
            raise self.refusals.pop(0)
        if self.is_slow:
            self.is_slow = False
            await anyio.sleep_forever()
        assert all(each.is_left.is_set() for each in self.monitors)
        monitor = Monitor()
        self.monitors.append(monitor)
        self.started.set()
        self.started = anyio.Event()
        try:
            yield monitor
        finally:
            monitor.is_left.set()
            monitor.stream.close()
            monitor.send_stream.close()

    async def number(self, number):
        """The monitor with this number, from 1."""
        while len(self.monitors) < number:
            await self.started.wait()
        return self.monitors[number - 1]


@pytest.fixture
def no_delay(monkeypatch):
    monkeypatch.setattr(gpu_watch, "_DELAY_MIN_S", 0.0)


@asynccontextmanager
async def watching(**settings):
    gpus = Gpus()
    watch = GpuWatch(gpus, DriverPlaces(), **settings)
    with anyio.fail_after(BOUND_S):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(watch.run)
            yield watch, gpus
            tasks.cancel_scope.cancel()


async def until(watch, condition):
    while not condition(watch.view):
        await watch.changed(watch.view)
    return watch.view


def answers(view):
    return isinstance(view, NvmlAnswers)


def fails(word):
    return lambda view: isinstance(view, NvmlFails) and word in view.why


async def test_nobody_asks_and_no_monitor_runs():
    async with watching() as (watch, gpus):
        await anyio.wait_all_tasks_blocked()
        assert (gpus.monitors, watch.view) == ([], SILENT)


async def test_who_asks_twice_gets_one_monitor():
    async with watching() as (watch, gpus):
        watch.ask_for_facts()
        watch.ask_for_facts()
        await gpus.number(1)
        await anyio.wait_all_tasks_blocked()
        assert len(gpus.monitors) == 1


async def test_the_first_word_is_waited_for_and_asking_for_it_starts_a_monitor():
    async with watching() as (watch, gpus), anyio.create_task_group() as tasks:

        @tasks.start_soon
        async def _():
            (await gpus.number(1)).say(SEEN, ProcessesFact(gpu="GPU-0", pids=(7,)))

        view = await watch.first_word(BOUND_S)
        assert isinstance(view, NvmlAnswers)
        assert (view.driver, view.processes["GPU-0"]) == ("570.1", (7,))
        assert await watch.first_word(0.0) == view


async def test_used_memory_is_known_and_wakes_nobody():
    async with watching() as (watch, gpus):
        watch.ask_for_facts()
        monitor = await gpus.number(1)
        monitor.say(SEEN, MemoryFact(gpu="GPU-0", used_bytes=7))
        view = await watch.first_word(BOUND_S)
        woken = []

        async def wait():
            await watch.changed(view)
            woken.append(watch.view)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(wait)
            monitor.say(MemoryFact(gpu="GPU-0", used_bytes=8), MemoryFact(gpu="GPU-1", used_bytes=9))
            await anyio.wait_all_tasks_blocked()
            assert (watch.used_bytes, woken, watch.view) == ({"GPU-0": 8, "GPU-1": 9}, [], view)
            tasks.cancel_scope.cancel()


async def test_used_memory_is_taken_of_gpus_alone_that_are_there_and_answer():
    async with watching() as (watch, gpus):
        watch.ask_for_facts()
        monitor = await gpus.number(1)
        monitor.say(MemoryFact(gpu="GPU-0", used_bytes=5))  # before anybody has said that it is there
        await anyio.wait_all_tasks_blocked()
        assert watch.used_bytes == {}
        monitor.say(SEEN, XidFact(gpu="GPU-1", xid=79), MemoryFact(gpu="GPU-1", used_bytes=6))
        monitor.say(*(MemoryFact(gpu=f"GPU-{number}", used_bytes=number) for number in range(1000)))
        monitor.say(MemoryFact(gpu="GPU-0", used_bytes=7))
        await anyio.wait_all_tasks_blocked()
        assert watch.used_bytes == {"GPU-0": 7}


async def test_of_a_gpu_that_is_lost_and_of_an_nvml_that_fails_no_used_memory_is_known():
    async with watching() as (watch, gpus):
        watch.ask_for_facts()
        monitor = await gpus.number(1)
        monitor.say(SEEN, MemoryFact(gpu="GPU-0", used_bytes=7), MemoryFact(gpu="GPU-1", used_bytes=8))
        monitor.say(XidFact(gpu="GPU-0", xid=79))
        await anyio.wait_all_tasks_blocked()
        assert watch.used_bytes == {"GPU-1": 8}
        monitor.say(DOWN)
        await anyio.wait_all_tasks_blocked()
        assert watch.used_bytes == {}


async def test_an_error_is_a_first_word_too():
    async with watching() as (watch, gpus), anyio.create_task_group() as tasks:

        @tasks.start_soon
        async def _():
            (await gpus.number(1)).say(DOWN)

        assert fails("DRIVER_NOT_LOADED")(await watch.first_word(BOUND_S))


async def test_who_waits_no_longer_learns_that_there_was_no_word():
    async with watching() as (watch, _):
        assert await watch.first_word(SOON_S) == SILENT


async def test_a_word_that_is_about_one_gpu_only_is_not_the_first():
    async with watching() as (watch, gpus):
        watch.ask_for_facts()
        (await gpus.number(1)).say(XidFact(gpu="GPU-0", xid=13), ErrorFact(call="c", error="NVML_ERROR_X", gpu="GPU-0"))
        assert await watch.first_word(SOON_S) == SILENT


async def test_a_line_may_come_in_pieces():
    async with watching() as (watch, gpus):
        watch.ask_for_facts()
        line = encode(SEEN)
        monitor = await gpus.number(1)
        for place in range(0, len(line), 50):
            monitor.babble(line[place : place + 50])
        assert answers(await watch.first_word(BOUND_S))


async def test_what_is_told_again_changes_nothing_and_what_is_new_does():
    async with watching() as (watch, gpus), anyio.create_task_group() as tasks:
        watch.ask_for_facts()
        monitor = await gpus.number(1)
        monitor.say(SEEN)
        await watch.first_word(BOUND_S)
        changes = []

        @tasks.start_soon
        async def _():
            while True:
                await watch.changed()
                changes.append(watch.view)

        await anyio.wait_all_tasks_blocked()
        monitor.say(SEEN)
        await anyio.wait_all_tasks_blocked()
        assert changes == []
        monitor.say(XidFact(gpu="GPU-1", xid=79))
        await anyio.wait_all_tasks_blocked()
        assert [view.inventory.gpu("GPU-1").lost for view in changes] == ["XID 79"]
        tasks.cancel_scope.cancel()


async def test_a_change_that_came_before_somebody_waited_is_not_missed():
    async with watching() as (watch, gpus):
        before = watch.view
        watch.ask_for_facts()
        (await gpus.number(1)).say(SEEN)
        await watch.first_word(BOUND_S)
        await watch.changed(before)
        assert answers(watch.view)


async def test_an_xid_has_had_its_effect_by_the_time_that_its_holder_can_be_told():
    async with watching() as (watch, gpus):
        watch.xids.holder_of = {"GPU-1": "a1"}.get
        watch.ask_for_facts()
        (await gpus.number(1)).say(SEEN, XidFact(gpu="GPU-1", xid=94), XidFact(gpu="GPU-1", xid=79))
        assert await watch.xids.untold() == (("a1", "GPU-1", 94, 1), ("a1", "GPU-1", 79, 1))
        assert watch.view.inventory.gpu("GPU-1").lost == "XID 79"


LOST = InventoryFact(driver="570.1", inventory=inventory(0, 1, lost={1: "NVML_ERROR_GPU_IS_LOST"}))


async def test_case_041_a_gpu_that_was_lost_is_granted_to_nobody_in_the_same_second_and_again_when_it_stays_well(
    monkeypatch,
):
    async with watching() as (watch, gpus):
        watch.ask_for_facts()
        monitor = await gpus.number(1)
        monitor.say(LOST, SEEN)
        view = await until(watch, lambda view: answers(view) and view.inventory.withheld)
        assert [gpu.uuid for gpu in view.inventory.grantable] == ["GPU-0"]
        assert view.inventory.gpu("GPU-1").lost is None
        assert "NVML_ERROR_GPU_IS_LOST" in view.inventory.withheld["GPU-1"]
        monkeypatch.setattr("actors.gpu.quarantine.Illness.is_over", lambda _self, _now_s: True)
        monitor.say(SEEN)
        view = await until(watch, lambda view: answers(view) and not view.inventory.withheld)
        assert [gpu.uuid for gpu in view.inventory.grantable] == ["GPU-0", "GPU-1"]


async def test_an_xid_that_withholds_leaves_the_gpu_to_its_holder():
    async with watching() as (watch, gpus):
        watch.ask_for_facts()
        (await gpus.number(1)).say(SEEN, XidFact(gpu="GPU-1", xid=74), XidFact(gpu="GPU-nobody", xid=74))
        view = await until(watch, lambda view: answers(view) and view.inventory.withheld)
        assert list(view.inventory.withheld) == ["GPU-1"]
        assert view.inventory.gpu("GPU-1").lost is None


async def test_a_flood_of_xids_stirs_nobody_and_is_counted():
    async with watching() as (watch, gpus):
        watch.ask_for_facts()
        monitor = await gpus.number(1)
        monitor.say(SEEN)
        await watch.first_word(BOUND_S)
        before = watch.view
        monitor.say(*[XidFact(gpu="GPU-1", xid=31)] * 5000, XidFact(gpu="GPU-1", xid=79))
        view = await until(watch, lambda view: view != before)
        assert view.inventory.gpu("GPU-1").lost == "XID 79"
        assert [(each["xid"], each["count"]) for each in watch.xids.as_json("GPU-1")] == [(31, 5000), (79, 1)]


def hang(_monitor):
    """It says nothing more."""


@pytest.mark.parametrize(
    ("trouble", "why"),
    [
        (hang, "said nothing for 1 s"),
        (Monitor.end, "the monitor ended"),
        (lambda monitor: monitor.babble(b"{}\n"), "cannot have said"),
        (lambda monitor: monitor.babble(b"x" * (1 << 20) + b"y"), "cannot have said"),
        (lambda monitor: monitor.fail(OSError(errno.EIO, "Input/output error")), "Input/output error"),
    ],
)
async def test_a_monitor_in_trouble_is_replaced_and_until_then_nvml_does_not_answer(no_delay, trouble, why):
    # Long enough that nobody is silent for want of a turn, and the others are not to be silent at all.
    async with watching(silence_s=SILENCE_S if trouble is hang else BOUND_S) as (watch, gpus):
        watch.ask_for_facts()
        first = await gpus.number(1)
        first.say(SEEN)
        await watch.first_word(BOUND_S)
        trouble(first)
        view = await until(watch, fails(why))
        assert view.last.inventory == SEEN.inventory
        second = await gpus.number(2)
        assert first.is_left.is_set()
        assert fails(why)(watch.view)
        assert watch.replaced == 1
        second.say(SEEN)
        assert answers(await watch.first_word(BOUND_S))


async def test_a_monitor_that_talks_without_ending_a_line_is_silent(no_delay):
    async with watching(silence_s=SOON_S) as (watch, gpus):
        watch.ask_for_facts()
        monitor = await gpus.number(1)
        monitor.say(SEEN)
        while not monitor.is_left.is_set():
            with anyio.move_on_after(SOON_S / 10):
                await monitor.is_left.wait()
            if not monitor.is_left.is_set():
                monitor.babble(b"x")
        assert fails("said nothing")(watch.view)


async def test_a_monitor_that_never_says_anything_is_replaced(no_delay):
    async with watching(first_word_s=SOON_S) as (watch, gpus):
        watch.ask_for_facts()
        await gpus.number(2)
        assert fails("said nothing for 0.03 s")(watch.view)


@pytest.mark.parametrize("refusal", [FileNotFoundError(errno.ENOENT, "No such file"), OSError(errno.EBUSY, "it hangs")])
async def test_a_monitor_that_cannot_be_started_is_tried_again(no_delay, refusal):
    async with watching() as (watch, gpus):
        gpus.refusals = [refusal] * 3
        watch.ask_for_facts()
        (await gpus.number(1)).say(SEEN)
        await until(watch, answers)
        assert gpus.refusals == []


async def test_a_start_that_hangs_is_given_up(no_delay):
    async with watching(first_word_s=SOON_S) as (watch, gpus):
        gpus.is_slow = True
        watch.ask_for_facts()
        await until(watch, fails("did not start"))
        assert await gpus.number(1)


async def test_why_nvml_fails_outlives_the_monitor_that_ends_for_it(no_delay):
    async with watching() as (watch, gpus):
        watch.ask_for_facts()
        monitor = await gpus.number(1)
        monitor.say(SEEN, ErrorFact(call="nvmlInit", error="NVML_ERROR_LIB_RM_VERSION_MISMATCH"))
        monitor.end()
        await gpus.number(2)
        assert fails("LIB_RM_VERSION_MISMATCH")(watch.view)
        # The next one that ends says nothing of NVML: then that it ended is all that is known.
        (await gpus.number(2)).say(SEEN)
        (await gpus.number(2)).end()
        assert fails("the monitor ended")(await until(watch, fails("ended")))


async def test_the_end_of_the_worker_ends_the_monitor():
    async with watching() as (watch, gpus):
        watch.ask_for_facts()
        monitor = await gpus.number(1)
    assert monitor.is_left.is_set()
