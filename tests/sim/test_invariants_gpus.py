"""The checkers of GPUs find what they are for, in a world that was spoilt for it."""

import attrs
import pytest
import trio

from sim.documents import IDLE, actor, container
from sim.engine import run
from sim.lives import claiming
from statemachine.states import State
from tests.sim.gpu_pods import HOLDER, MACHINE
from tests.sim.spoiling import files, looked_at, names, put

CLAIMING = actor("a1", claiming("trainer", 1), container("logger", IDLE))


async def both(here):
    for document in (CLAIMING, HOLDER):
        await here.submit(document)
        await here.wait(State.RUNNING, document["metadata"]["uid"])
    await trio.sleep(0.5)


def spoilt(spoil, prepare=both):
    found = []

    async def scenario(here):
        await prepare(here)
        assert looked_at(here) == ()
        spoil(here)
        found.extend(looked_at(here))

    run(scenario, machine=MACHINE)
    return found


def given(here, name):
    """What runsc was given of a container of a1, to be changed in place."""
    for document in here.world.execution.given:
        if (document.actor, document.container) == ("a1", name):
            return document.config
    raise AssertionError(name)


def devices_of(config):
    return config["linux"]["devices"]


def spec_of(here, name):
    return next(
        each.spec
        for sandbox in here.world.execution.sandboxes.values()
        for each in sandbox.sentry.containers.values()
        if each.name == name
    )


def without_gpus(here):
    config = given(here, "trainer")
    config["linux"]["devices"] = []


def without_control(here):
    config = given(here, "trainer")
    config["linux"]["devices"] = [each for each in devices_of(config) if each["path"] != "/dev/nvidiactl"]


def one_more(here):
    config = given(here, "trainer")
    config["linux"]["devices"] += [{"path": "/dev/nvidia7", "type": "c", "major": 195, "minor": 7}]


def twice(here):
    config = given(here, "trainer")
    config["linux"]["devices"] += [dict(devices_of(config)[0])]


def without_numbers(here):
    for device in devices_of(given(here, "trainer")):
        device.update(major=0, minor=0)


def no_device(here):
    for device in devices_of(given(here, "trainer")):
        device.update(type="b")


def to_the_logger(here):
    given(here, "logger")["linux"]["devices"] = [{"path": "/dev/nvidiactl", "type": "c", "major": 195, "minor": 255}]


def a_mount_to_the_logger(here):
    given(here, "logger")["mounts"] += [{"destination": "/run/greenroom/lib", "source": "/x"}]


def to_pause(here):
    given(here, "pause")["linux"]["devices"] = devices_of(given(here, "trainer"))


@pytest.mark.parametrize(
    "spoil",
    [without_gpus, without_control, one_more, twice, without_numbers, no_device, to_the_logger, a_mount_to_the_logger,
     to_pause],
)  # fmt: skip
def test_a_container_that_was_started_with_other_devices_than_it_claims_is_found(spoil):
    assert names(spoilt(spoil)) == {"GpusAreExact"}


def test_one_gpu_in_two_sandboxes_is_found():
    def spoil(here):
        trainer, solo = spec_of(here, "trainer"), spec_of(here, "solo")
        solo["linux"]["devices"] = trainer["linux"]["devices"]

    found = spoilt(spoil)
    assert {"GpusHaveOneHolder"} <= names(found)
    assert any(each.message == "is in trainer of a1 and in solo of holder" for each in found)


def test_a_status_that_names_other_gpus_than_the_container_has_is_found():
    def spoil(here):
        status = here.status_file()
        status["containers"][0]["gpus"] = [MACHINE.gpus[0].uuid]
        put(here, files(here).status, status)

    (found,) = spoilt(spoil)
    assert (found.name, found.subject) == ("GpusHaveOneHolder", "a1")


def test_a_suspended_actor_that_is_told_to_hold_a_gpu_is_found():
    async def suspended(here):
        await both(here)
        await here.suspend()
        await trio.sleep(0.5)

    def spoil(here):
        status = here.status_file()
        status["containers"][0]["gpus"] = [MACHINE.gpus[0].uuid]
        put(here, files(here).status, status)

    (found,) = spoilt(spoil, suspended)
    assert found.name == "GpusHaveOneHolder"


def test_what_runsc_read_is_remembered_with_whose_it_was():
    async def scenario(here):
        await both(here)
        await here.stop()
        told = [(each.actor, each.container) for each in here.world.execution.given]
        assert sorted(told) == sorted(
            [("a1", "pause"), ("a1", "trainer"), ("a1", "logger"), ("holder", "pause"), ("holder", "solo")]
        )
        assert all(attrs.asdict(each) for each in here.world.execution.given)

    run(scenario, machine=MACHINE)
