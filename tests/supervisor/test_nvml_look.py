"""One question to NVML: the answer, or why there is none, whatever the monitor does."""

import math
from contextlib import asynccontextmanager

import anyio
import pytest

from actors.gpu.facts import ErrorFact, InventoryFact, ProcessesFact, encode
from actors.gpu.view import NvmlAnswers, NvmlFails
from actors.ports import DriverPlaces
from supervisor.nvml_look import ask_nvml
from tests.gpu.making import inventory

pytestmark = pytest.mark.anyio
ANSWER = InventoryFact(driver="580.65.06", inventory=inventory(2, 5))
SILENCE = object()


class Monitor:
    """Tells these pieces, then ends; SILENCE never ends."""

    def __init__(self, *pieces):
        self.pieces = list(pieces)
        self.is_open = False

    @asynccontextmanager
    async def monitor(self, places):
        assert places == DriverPlaces()
        self.is_open = True
        try:
            yield self
        finally:
            self.is_open = False

    async def receive(self):
        await anyio.lowlevel.checkpoint()
        piece = self.pieces.pop(0) if self.pieces else b""
        if piece is SILENCE:
            await anyio.sleep_forever()
        return piece


async def asked(*pieces, deadline_s=math.inf):
    monitor = Monitor(*pieces)
    view = await ask_nvml(monitor, DriverPlaces(), deadline_s=deadline_s)
    assert not monitor.is_open
    return view


async def test_an_inventory_is_an_answer_in_however_many_pieces():
    line = encode(ANSWER)
    view = await asked(line[:7], line[7:20], line[20:], SILENCE)
    assert isinstance(view, NvmlAnswers)
    assert (view.driver, view.inventory) == ("580.65.06", inventory(2, 5))


async def test_what_is_said_of_one_gpu_is_no_answer_yet():
    of_one = ErrorFact(call="nvmlDeviceGetUUID", error="NVML_ERROR_GPU_IS_LOST", gpu="GPU-2")
    view = await asked(encode(of_one) + encode(ProcessesFact(gpu="GPU-2", pids=[1])), encode(ANSWER), SILENCE)
    assert isinstance(view, NvmlAnswers)


@pytest.mark.parametrize(
    ("pieces", "why"),
    [
        ((encode(ErrorFact(call="nvmlInit", error="NVML_ERROR_DRIVER_NOT_LOADED")), SILENCE), "DRIVER_NOT_LOADED"),
        ((), "ended without an answer"),
        ((b"half a line",), "ended without an answer"),
        ((b"what\n", SILENCE), "cannot have said"),
    ],
)
async def test_why_there_is_no_answer_is_told(pieces, why):
    view = await asked(*pieces)
    assert isinstance(view, NvmlFails)
    assert why in view.why


async def test_a_monitor_that_hangs_is_not_waited_for_beyond_the_deadline():
    view = await asked(SILENCE, deadline_s=0)
    assert isinstance(view, NvmlFails)
    assert "did not answer within 0 s" in view.why


async def test_a_monitor_that_cannot_be_started_is_told():
    class Nothing:
        def monitor(self, _places):
            return self

        async def __aenter__(self):
            raise OSError(11, "Resource temporarily unavailable")

        async def __aexit__(self, *_error):
            raise AssertionError("it was never entered")

    view = await ask_nvml(Nothing(), DriverPlaces())
    assert isinstance(view, NvmlFails)
    assert "cannot be started: Resource temporarily unavailable" in view.why
