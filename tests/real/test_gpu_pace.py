"""How quick the GPU steps are once there is a spec: from the first look at the GPUs to bundles with their devices.

Status and journal are synced in between, so that on a disk its speed is measured too: that number is only told.
"""

import json
import os
from contextlib import nullcontext
from itertools import pairwise
from pathlib import Path

import pytest
import structlog

from actors.ports import DriverPlaces
from actors.runsc.nvproxy import Nvproxy
from sim.mock.layout import TOOLKIT
from supervisor.logs import LogFormat, configure_logs
from tests.disks import small_disk
from tests.real.scenery import assignment, counting
from tests.real.stage import open_worker
from tests.sim.mock.nodes import make_node

pytestmark = [pytest.mark.anyio, pytest.mark.runsc, pytest.mark.bench]

TRIES = 20
MEDIAN_MS = 15.0
STEPS = ("Detecting", "Generating", "Partitioning", "Injecting", "Creating")


@pytest.fixture
def logs_as_in_a_pod():
    """JSON lines from info on, as a worker in a pod writes them; a test's own log is ten times as much work."""
    with Path(os.devnull).open("wb") as nowhere:
        configure_logs(LogFormat.JSON, level="info", stream=nowhere)
        yield
        structlog.reset_defaults()


@pytest.fixture
def node(tmp_path, rootfs):
    return make_node(tmp_path / "node", "--gpus=4", "--minors=7,2,5,3")


@pytest.mark.usefixtures("logs_as_in_a_pod")
@pytest.mark.parametrize("is_in_memory", [True, False], ids=["in memory", "on disk"])
async def test_with_a_warm_spec_it_takes_15_ms_from_detect_to_injected(
    is_in_memory, tmp_path, rootfs, node, record_property
):
    with small_disk(tmp_path / "worker", "64m") if is_in_memory else nullcontext():
        median_ms = await measured(tmp_path / "worker", rootfs, node, record_property)
    assert not is_in_memory or median_ms <= MEDIAN_MS


async def measured(directory, rootfs, node, record_property):
    """The median of what actors take that have two of four GPUs."""
    here = node.directory
    places = DriverPlaces(dev_root=here, proc_root=here / "proc", driver_root=here / "driver")
    claims = {"resources": {"limits": {"nvidia.com/gpu": "1"}}}
    took = []
    async with open_worker(directory, places=places, toolkit_dir=here / TOOLKIT, nvproxy=Nvproxy.OFF) as worker:
        for number in range(TRIES):
            uid = f"a{number}"
            stands = worker.gates.close("before create")
            containers = (counting("trainer", rootfs, **claims), counting("eval", rootfs, **claims))
            await worker.submit(assignment(uid, *containers, counting("logger", rootfs)))
            await stands.arrival()
            took.append(times_ms(worker.state.actor(uid).journal))
            await worker.stop(uid)
    warm = took[1:]  # the first one has had the spec and the links made
    total = sorted(sum(each.values()) for each in warm)
    for step in STEPS[:-1]:
        record_property(f"{step}_ms", sorted(each[step] for each in warm)[len(warm) // 2])
    record_property("detect_to_injected_ms", (total[0], total[len(total) // 2], total[-1]))
    median = total[len(total) // 2]
    each = ", ".join(f"{step} {sorted(one[step] for one in warm)[len(warm) // 2]:.1f}" for step in STEPS[:-1])
    print(f"detect to injected: {median:.1f} ms, at best {total[0]:.1f} ms, wanted {MEDIAN_MS:g} ms ({each})")  # noqa: T201 - `make bench` shows it
    return median


def times_ms(journal):
    """How long each GPU step took, with the journal that is written in between."""
    lines = [json.loads(line) for line in journal.read_bytes().splitlines()]
    came_s = {line["to"]: line["mono_s"] for line in lines if line.get("to") in STEPS}
    assert set(came_s) == set(STEPS)
    return {step: 1000 * (came_s[after] - came_s[step]) for step, after in pairwise(STEPS)}
