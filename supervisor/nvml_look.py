"""One question to NVML, for commands: a monitor is started, heard until it has answered, and ended."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import anyio

from actors.gpu.detection import judge, look_for_nodes
from actors.gpu.facts import FactError, decode_lines, is_of_nvml
from actors.gpu.view import SILENT, NvmlFails, after, after_monitor_ended

if TYPE_CHECKING:
    from actors.gpu.detection import Detected
    from actors.gpu.view import View
    from actors.ports import DriverPlaces, GpuMonitor, Gpus, Ports

ANSWER_S: Final = 20.0
"""Without persistence mode the driver takes seconds to wake up."""


async def look_at_gpus(ports: Ports, places: DriverPlaces) -> Detected:
    """The GPUs of this pod, as a worker that starts here would find them.

    Raises:
        ProblemError: why it would grant nobody one.
    """
    seen = await look_for_nodes(ports.files, places)
    return judge(seen, await ask_nvml(ports.gpus, places))


async def ask_nvml(gpus: Gpus, places: DriverPlaces, *, deadline_s: float = ANSWER_S) -> View:
    """What NVML says of the GPUs, or why it says nothing; never raises for it."""
    try:
        with anyio.fail_after(deadline_s):
            async with gpus.monitor(places) as monitor:
                return await _answer(monitor)
    except TimeoutError:
        return NvmlFails(why=f"it did not answer within {deadline_s:g} s")
    except FactError as error:
        return after_monitor_ended(SILENT, f"the monitor says what it cannot have said: {error}")
    except OSError as error:
        return NvmlFails(why=f"the monitor cannot be started: {error.strerror or error}")


async def _answer(monitor: GpuMonitor) -> View:
    view, rest = SILENT, b""
    while data := await monitor.receive():
        facts, rest = decode_lines(rest + data)
        for fact in facts:
            view = after(view, fact)
        if any(map(is_of_nvml, facts)):
            return view
    return after_monitor_ended(view, "the monitor ended without an answer")
