"""nvproxy: how a sandbox is told, and whether its runsc knows the driver."""

from pathlib import Path

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.bundle.capabilities import Claims
from actors.ports import DeadlineExceededError, Exit, Finished
from actors.runsc.nvproxy import Nvproxy, SupportedDrivers, decide, is_known, nearest_of, parse_drivers
from actors.runsc.version import RuntimeVersion
from sim.world.runsc.settings import DRIVERS_OF, VERSION_OF, Flavour
from statemachine.problem import Step
from statemachine.reasons import Reason
from tests.actors.scripted_processes import ScriptedProcesses

pytestmark = pytest.mark.anyio

OF_THE_CASE = ("535.129.03", "550.90.12", "570.124.06")


def release(text):
    version = RuntimeVersion.of(text)
    assert version is not None
    return version


VERSIONS = [release(text) for text in (*VERSION_OF.values(), "release-20250101.0")]


def answering(answer):
    processes = ScriptedProcesses(answer=lambda _verb, _argv: answer)
    return SupportedDrivers(processes, Path("/runsc")), processes


def listing(*versions, code=0):
    return Finished(exit=Exit(code=code), stdout="".join(f"{each}\n" for each in versions).encode())


# --------------------------------------------------------------------------------------------------------- the decision


@pytest.mark.parametrize("version", VERSIONS, ids=lambda version: version.text)
@pytest.mark.parametrize(
    ("claims", "wanted"),
    [(Claims.NONE, Nvproxy.AUTO), (Claims.NONE, Nvproxy.OFF), (Claims.DEVICES, Nvproxy.OFF)],
)
def test_without_a_claim_and_where_it_is_off_nothing_is_said(claims, wanted, version):
    choice = decide(claims, wanted, version)
    assert (choice.flags, choice.annotations, choice.is_on) == ((), (), False)


@pytest.mark.parametrize("text", ["0.0~20240729.0", "release-20250101.0", "release-20260820.0"])
def test_a_runsc_older_than_the_one_that_was_read_is_told_by_the_flag(text):
    choice = decide(Claims.DEVICES, Nvproxy.AUTO, release(text))
    assert (choice.flags, choice.annotations, choice.is_on) == (("--nvproxy=true",), (), True)


@pytest.mark.parametrize("text", ["release-20260821.0", "release-20270101.0", "0.0~20261231.1"])
def test_a_later_one_by_the_annotation_of_its_root(text):
    choice = decide(Claims.DEVICES, Nvproxy.AUTO, release(text))
    assert (choice.flags, choice.annotations) == ((), ("dev.gvisor.internal.nvproxy=true",))
    assert choice.is_on


# ---------------------------------------------------------------------------------------------------------- the drivers


async def test_a_driver_that_is_not_listed_is_refused_with_the_nearest():
    drivers, _ = answering(listing(*OF_THE_CASE))
    problem = await drivers.verdict("550.90.07", step=Step.CREATE)
    assert problem is not None
    assert (problem.step, problem.reason) == (Step.CREATE, Reason.DRIVER_UNSUPPORTED_BY_RUNTIME)
    assert problem.subject == "driver 550.90.07"
    assert problem.message.endswith("not supported by this runsc; the nearest that is: 550.90.12")
    assert problem.detail == "/runsc supports 535.129.03, 550.90.12, 570.124.06"


@pytest.mark.parametrize("driver", [*OF_THE_CASE, "535.129.3", "550.90.012", "no version", "not a.driver"])
async def test_a_driver_that_is_listed_or_that_cannot_be_compared_is_not_refused(driver):
    drivers, _ = answering(listing(*OF_THE_CASE))
    assert await drivers.verdict(driver, step=Step.CREATE) is None


@pytest.mark.parametrize(
    "answer",
    [
        listing(*OF_THE_CASE, code=2),
        listing(*OF_THE_CASE, code=128),
        listing(),
        listing("Usage: runsc <flags>"),
        listing("535.129.03", "what is this"),
        Finished(exit=Exit(code=0), stdout=b"\xff\xfe550"),
        Finished(exit=Exit(code=None), stdout=b"550.90.12\n"),
    ],
)
async def test_a_runsc_that_does_not_say_is_let_go_on(answer):
    drivers, _ = answering(answer)
    assert await drivers.verdict("550.90.07", step=Step.CREATE) is None


@pytest.mark.parametrize("error", [DeadlineExceededError("x"), FileNotFoundError("x"), PermissionError("x")])
async def test_one_that_hangs_or_cannot_be_run_too(error):
    def fail(_verb, _argv):
        raise error

    drivers = SupportedDrivers(ScriptedProcesses(answer=fail), Path("/runsc"))
    assert await drivers.verdict("550.90.07", step=Step.CREATE) is None


async def test_it_is_asked_once_however_many_want_to_know():
    drivers, processes = answering(listing(*OF_THE_CASE))
    async with anyio.create_task_group() as group:
        for _ in range(5):
            group.start_soon(drivers.known)
    assert await drivers.known() == OF_THE_CASE
    assert processes.calls == [("nvproxy", "list-supported-drivers")]


async def test_who_gives_up_while_it_is_asked_leaves_the_question_to_the_next():
    asked = anyio.Event()

    async def hang():
        asked.set()
        await anyio.sleep_forever()

    processes = ScriptedProcesses(answer=lambda _verb, _argv: hang())
    drivers = SupportedDrivers(processes, Path("/runsc"))
    async with anyio.create_task_group() as group:
        group.start_soon(drivers.known)
        await asked.wait()
        group.cancel_scope.cancel()
    processes.answer = lambda _verb, _argv: listing(*OF_THE_CASE)
    assert await drivers.known() == OF_THE_CASE


@pytest.mark.parametrize(
    ("driver", "nearest"),
    [
        ("550.90.07", "550.90.12"),
        ("550.100.01", "550.90.12"),
        ("560.1", "550.90.12"),
        ("560.107.9", "570.124.06"),
        ("1.2.3", "535.129.03"),
        ("999.1", "570.124.06"),
    ],
)
def test_the_nearest_differs_least_where_it_differs_first(driver, nearest):
    assert nearest_of(driver, OF_THE_CASE) == nearest


def test_of_two_that_are_equally_far_the_newer_one_is_the_nearest():
    assert nearest_of("560.10", ["550.10", "570.10"]) == nearest_of("560.10", ["570.10", "550.10"]) == "570.10"


VERSION = st.lists(st.integers(0, 99999), min_size=2, max_size=4).map(lambda parts: ".".join(f"{n:02}" for n in parts))


@given(st.lists(VERSION, min_size=1))
def test_every_listed_version_is_read_known_and_its_own_nearest(versions):
    read = parse_drivers("\n".join(versions).encode())
    assert read is not None
    assert sorted(read) == sorted(versions)
    for each in versions:
        assert is_known(each, versions)
        assert is_known(nearest_of(each, versions), [each])


@pytest.mark.parametrize("flavour", Flavour)
def test_the_lists_of_the_facts_are_read(flavour):
    for order in (DRIVERS_OF[flavour], reversed(DRIVERS_OF[flavour])):
        assert parse_drivers("\n".join(order).encode()) == DRIVERS_OF[flavour]
