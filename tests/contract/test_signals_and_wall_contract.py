"""Signals, dates and names: what holds for the real ports and for the simulated ones."""

from __future__ import annotations

import os
import random
import re
import signal
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from sim.world.signals import SimSignals
from sim.world.wall import SimWall
from supervisor.host import wall as wall_module
from supervisor.host.signals import HostSignals
from supervisor.host.wall import HostWall

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from actors.ports import Signals, Wall

pytestmark = pytest.mark.anyio


@asynccontextmanager
async def opened(kind: str) -> AsyncIterator[tuple[Signals, Callable[[int], Any]]]:
    """A port, and what sends to it."""
    if kind == "simulated":
        simulated = SimSignals()
        yield simulated, simulated.deliver
    else:
        real = HostSignals()
        async with real.open():
            yield real, lambda signum: os.kill(os.getpid(), signum)


@pytest.mark.parametrize("kind", ["real", "simulated"])
async def test_all_receivers_get_the_signals_they_asked_for(kind: str):
    async with opened(kind) as (port, send):
        one, both = port.receive(signal.SIGUSR1), port.receive(signal.SIGUSR1, signal.SIGUSR2, signal.SIGUSR2)
        with anyio.fail_after(60):
            first, second = await one.__aenter__(), await both.__aenter__()
            send(signal.SIGUSR1)
            assert (await anext(first), await anext(second)) == (signal.SIGUSR1, signal.SIGUSR1)
            send(signal.SIGUSR2)
            assert await anext(second) == signal.SIGUSR2
            await one.__aexit__(None, None, None)
            send(signal.SIGUSR1)
            assert await anext(second) == signal.SIGUSR1
            await both.__aexit__(None, None, None)


@pytest.mark.parametrize("kind", ["real", "simulated"])
@pytest.mark.parametrize("signum", [signal.SIGKILL, signal.SIGSTOP, 0, 100])
async def test_what_cannot_be_handled_is_refused(kind: str, signum: int):
    async with opened(kind) as (port, _):
        with pytest.raises(ValueError, match="can be handled"):
            async with port.receive(signal.SIGUSR1, signum):
                pass


async def test_the_world_learns_whether_a_signal_is_handled():
    signals = SimSignals()
    assert not signals.deliver(signal.SIGTERM)
    async with signals.receive(signal.SIGTERM):
        assert signals.deliver(signal.SIGTERM)
    assert not signals.deliver(signal.SIGTERM)


async def test_signals_nobody_takes_do_not_pile_up():
    signals = SimSignals()
    async with signals.receive(signal.SIGUSR1) as received:
        for _ in range(100):
            signals.deliver(signal.SIGUSR1)
        for _ in range(64):
            await anext(received)
        with anyio.move_on_after(0) as scope:
            await anext(received)
        assert scope.cancelled_caught


@pytest.mark.parametrize("make", [HostWall, lambda: SimWall(random.Random(1))], ids=["real", "simulated"])
async def test_ids_have_their_form_and_never_come_twice(make: Callable[[], Wall]):
    wall = make()
    found = [wall.fresh_id() for _ in range(1000)]
    assert len(set(found)) == 1000
    assert all(re.fullmatch(r"[0-9a-f]{16}", name) for name in found)
    assert re.fullmatch(r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}", wall.boot_id())
    assert wall.boot_id() == wall.boot_id()
    assert wall.machine() in {"x86_64", "aarch64"}
    features = wall.cpu_features()
    assert features
    assert list(features) == sorted(set(features))
    assert {"x86_64": "fpu", "aarch64": "fp"}[wall.machine()] in features
    assert wall.now_s() >= 1_767_000_000 or isinstance(wall, HostWall)


@pytest.mark.parametrize(
    ("text", "features"),
    [
        ("processor\t: 0\nvmx flags\t: vnmi\nflags\t\t: fpu sse fpu\nbugs\t: x\n\nflags\t: other\n", ("fpu", "sse")),
        ("processor\t: 0\nFeatures\t: fp asimd\n", ("asimd", "fp")),
        ("processor\t: 0\n", None),
        ("", None),
    ],
)
async def test_the_features_are_those_of_the_first_processor(text, features, tmp_path, monkeypatch):
    (tmp_path / "cpuinfo").write_text(text)
    monkeypatch.setattr(wall_module, "_CPUINFO", str(tmp_path / "cpuinfo"))
    assert HostWall().cpu_features() == features


async def test_a_machine_that_says_nothing_of_its_processor_is_no_failure(tmp_path, monkeypatch):
    monkeypatch.setattr(wall_module, "_CPUINFO", str(tmp_path / "absent"))
    assert HostWall().cpu_features() is None


async def test_ids_never_come_twice_even_if_the_randomness_repeats_itself():
    class Stuck:
        def __init__(self) -> None:
            self.asked = 0

        def getrandbits(self, k: int) -> int:
            self.asked += 1
            return self.asked // 3

    wall = SimWall(Stuck())
    assert len({wall.fresh_id() for _ in range(100)}) == 100


async def test_a_simulated_calendar_goes_with_the_clock_and_jumps_when_it_is_told_to():
    now_s = 5.0
    wall = SimWall(random.Random(1), start_s=1000.0, clock=lambda: now_s, machine="aarch64")
    assert (wall.now_s(), wall.now_ns(), wall.machine()) == (1005.0, 1_005_000_000_000, "aarch64")
    now_s = 6.0
    wall.jump(-100.0)
    assert wall.now_s() == 906.0
    before = wall.boot_id()
    wall.reboot()
    assert wall.boot_id() != before
    again = SimWall(random.Random(1), clock=lambda: now_s)
    assert again.boot_id() == before
