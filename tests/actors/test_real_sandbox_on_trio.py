"""One whole life of a real sandbox on trio, where a child that is tied to its thread would die with the thread."""

import pytest

from tests.actors.stage import open_stage

pytestmark = [pytest.mark.anyio, pytest.mark.runsc]


@pytest.fixture
def anyio_backend():
    return "trio"


async def test_an_actor_is_started_saved_restored_and_ended(tmp_path, rootfs):
    async with open_stage(tmp_path, rootfs) as stage:
        containers = stage.container("c1"), stage.container("c2")
        sandbox = await stage.start(*containers)
        await stage.wait_for_lines("c1", 3)
        image = await stage.suspend(sandbox)
        saved = stage.lines("c1")
        sandbox = await stage.restore(image, *containers)
        lines = await stage.wait_for_lines("c1", len(saved) + 3)
        assert lines == [str(number) for number in range(len(lines))]
        await stage.end(sandbox)
        assert stage.left() == []
