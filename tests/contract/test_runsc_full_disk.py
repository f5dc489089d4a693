"""Checkpoints that find no room, held against the model, the fake program and the real binary."""

import pytest

from tests.contract.benches import COUNT
from tests.contract.faces import on
from tests.contract.images import restored

FILLS = "dd if=/dev/urandom of=/dev/shm/x bs=1M count=24 2>/dev/null; echo filled; exec sleep 10000"
SIZES = [(8 << 20, "no space left on device"), (16 << 10, "invalid memory address or nil pointer dereference")]


@pytest.mark.parametrize(("size_bytes", "why"), SIZES, ids=["pages", "state"])
def test_a_full_disk_fails_a_checkpoint_and_costs_nothing_when_the_sandbox_is_left_running(face, size_bytes, why):
    @on(face)
    async def _(bench):
        await bench.up(c1=COUNT, c2=FILLS)
        await bench.counted("c2", 1)
        with bench.small_disk("small", size_bytes) as disk:
            error = await bench.fails(
                "checkpoint", f"--image-path={disk}/image", "--compression=none", "--leave-running", "sb"
            )
            assert error.startswith('checkpoint failed: checkpointing container "sb": ')
            assert why in error
            assert await bench.names(disk / "image") == {"checkpoint.img", "pages_meta.img", "pages.img"}
        assert await bench.statuses("sb", "c1", "c2") == ["running"] * 3
        image = await bench.save(leave=False)
        fresh = await restored(bench, image, "c1", "c2")
        await fresh.counted("c1", 2)


@pytest.mark.parametrize(("size_bytes", "why"), SIZES, ids=["pages", "state"])
def test_a_full_disk_costs_the_actor_when_the_sandbox_is_not_left_running(face, size_bytes, why):
    @on(face)
    async def _(bench):
        await bench.up(c1=COUNT, c2=FILLS)
        await bench.counted("c2", 1)
        with bench.small_disk("small", size_bytes) as disk:
            options = (f"--image-path={disk}/image", "--compression=none")
            assert why in await bench.fails("checkpoint", *options, "sb")
        await bench.ended("sb")
        assert await bench.statuses("c1", "c2") == ["stopped", "stopped"]
