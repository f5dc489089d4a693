"""The shapes of the status, and a container's log in pieces."""

import base64
import errno
from types import SimpleNamespace
from typing import Any

import pytest

from statemachine import commands as c
from statemachine.problem import ProblemError
from statemachine.reasons import Reason
from statemachine.states import State
from supervisor.container_logs import ContainerLogs
from supervisor.log_reading import PIECE_BYTES, read_log
from tests.fakes.performer import failing
from tests.supervisor.lives import TWO, an_assignment
from tests.supervisor.stands import STATE, a_stand

pytestmark = pytest.mark.anyio

A1 = STATE.actor("a1")


async def test_the_status_of_an_actor_has_the_shape_that_the_design_gives():
    async with a_stand() as stand:
        await stand.running()
        status = stand.worker.status_of(stand.life())
        assert status == {
            "uid": "a1", "name": "", "namespace": "", "generation": 1, "desiredState": "Running", "state": "Running",
            "since": "1970-01-12T13:46:40.000Z", "error": None, "forced": False, "lastGoodSnapshot": None,
            "containers": [{"name": "main", "state": "Running", "exitCode": None, "gpus": []}],
            "notices": [],
        }  # fmt: skip
        assert stand.status() == {"v": 1, **status}


async def test_an_error_in_the_status_has_every_field():
    async with a_stand() as stand:
        stand.prepare["a1"] = lambda performer: performer.answers.update({c.CreateSandbox: failing()})
        await stand.submit()
        await stand.until(State.FAILED)
        error = stand.worker.status_of(stand.life())["error"]
        assert set(error) == {"step", "reason", "subject", "message", "hint", "detail"}
        assert error["hint"]


async def test_a_status_that_cannot_be_written_costs_nothing():
    async with a_stand() as stand:
        stand.files.fail("replace", "status.json", errno.ENOSPC)
        assert (await stand.running()).actor.problem is None
        assert A1.status not in stand.files.content


async def test_a_status_file_is_as_new_as_the_state():
    async with a_stand() as stand:
        await stand.running()
        await stand.submit(generation=2, spec__desiredState="Suspended")
        await stand.until(State.SUSPENDED)
        assert stand.status()["containers"][0]["state"] == "Suspended"
        assert stand.status()["lastGoodSnapshot"]["uri"].startswith("file:///")


LIFE: Any = SimpleNamespace(
    uid="a1", assignment=an_assignment(containers=TWO), actor=SimpleNamespace(state=State.RUNNING)
)


async def piece(stand, offset_bytes=0, container="one"):
    logs = ContainerLogs(stand.files, STATE)
    answer = await read_log(logs, None, LIFE, container, offset_bytes=offset_bytes, wait_s=0)
    return base64.b64decode(answer["data"]), answer["nextOffset_bytes"]


async def test_a_log_comes_in_pieces_and_whatever_bytes_it_holds():
    data = bytes(range(256)) * 1500
    async with a_stand() as stand:
        stand.files.put(A1.log("one"), data)
        got, offset_bytes = b"", 0
        while len(got) < len(data):
            part, offset_bytes = await piece(stand, offset_bytes)
            assert 0 < len(part) <= PIECE_BYTES
            got += part
        assert got == data
        assert await piece(stand, offset_bytes) == (b"", len(data))
        assert await piece(stand, 1 << 40) == (b"", len(data))


async def test_a_container_that_has_not_written_yet_has_an_empty_log():
    async with a_stand() as stand:
        assert await piece(stand) == (b"", 0)


@pytest.mark.parametrize("name", ["", "three", "../two", "two/../../status", "\0"])
async def test_only_a_log_of_the_actors_own_containers_is_read(name):
    async with a_stand() as stand:
        with pytest.raises(ProblemError) as caught:
            await piece(stand, container=name)
        assert caught.value.problem.reason is Reason.INVALID_REQUEST
        assert caught.value.problem.hint == "Name one of its containers: one, two."


async def test_a_log_that_cannot_be_read_is_named():
    async with a_stand() as stand:
        stand.files.put(A1.log("one"), b"x")
        stand.files.fail("read", A1.log("one"), errno.EIO)
        with pytest.raises(ProblemError) as caught:
            await piece(stand)
        assert caught.value.problem.reason is Reason.UNREADABLE_FILE
