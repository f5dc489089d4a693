"""One smoke on trio, where a child that is tied to its thread would die with the thread."""

import pytest

from tests.real.scenery import assignment, counting
from tests.real.stage import open_worker

pytestmark = [pytest.mark.anyio, pytest.mark.runsc]


@pytest.fixture
def anyio_backend():
    return "trio"


async def test_an_actor_is_started_suspended_resumed_and_stopped_on_trio(tmp_path, rootfs):
    async with open_worker(tmp_path) as worker:
        await worker.start(assignment("a1", counting("c1", rootfs), counting("c2", rootfs)))
        await worker.counted_on("a1", "c1")
        await worker.suspend("a1")
        assert worker.left() == []
        await worker.resume("a1")
        for container in ("c1", "c2"):
            await worker.counted_on("a1", container)
        await worker.stop("a1")
