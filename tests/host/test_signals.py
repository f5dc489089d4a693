"""Signals to our process, for everybody who wants them."""

from __future__ import annotations

import os
import signal
import sys
import threading
from typing import TYPE_CHECKING

import anyio
import pytest

from actors.ports import Exit
from supervisor.host.signals import HostSignals, interrupting

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from actors.ports import Ports

pytestmark = pytest.mark.anyio


async def following(signals: AsyncIterator[int]) -> int:
    with anyio.fail_after(60):
        return await anext(signals)


async def test_signals_are_handled_from_the_moment_of_entering(ports: Ports):
    async with ports.signals.receive(signal.SIGTERM, signal.SIGUSR1) as signals:
        os.kill(os.getpid(), signal.SIGTERM)
        assert await following(signals) == signal.SIGTERM
        os.kill(os.getpid(), signal.SIGUSR1)
        assert await following(signals) == signal.SIGUSR1


async def test_a_signal_that_comes_after_its_last_receiver_is_ignored_where_that_was_asked_for():
    """Whoever asks twice must not turn a clean end into a death by signal."""
    before = {signum: signal.getsignal(signum) for signum in (signal.SIGUSR1, signal.SIGUSR2)}
    signals = HostSignals(ignored_afterwards=(signal.SIGUSR1,))
    try:
        async with signals.open(), signals.receive(signal.SIGUSR1, signal.SIGUSR2) as outer:
            async with signals.receive(signal.SIGUSR1):
                pass
            os.kill(os.getpid(), signal.SIGUSR1)
            assert await following(outer) == signal.SIGUSR1
        os.kill(os.getpid(), signal.SIGUSR1)
        assert signal.getsignal(signal.SIGUSR1) is signal.SIG_IGN
        assert signal.getsignal(signal.SIGUSR2) is before[signal.SIGUSR2]
    finally:
        signal.signal(signal.SIGUSR1, before[signal.SIGUSR1])


def test_a_signal_may_interrupt_as_ctrl_c_does_and_one_that_is_ignored_stays_so():
    before = signal.signal(signal.SIGUSR2, signal.SIG_IGN)
    try:
        with pytest.raises(KeyboardInterrupt), interrupting(signal.SIGUSR1, signal.SIGUSR2):  # noqa: PT012 - two signals
            os.kill(os.getpid(), signal.SIGUSR2)
            os.kill(os.getpid(), signal.SIGUSR1)
        assert signal.getsignal(signal.SIGUSR1) is signal.SIG_DFL
        assert signal.getsignal(signal.SIGUSR2) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGUSR2, before)


async def test_all_receivers_get_a_signal_in_whatever_order_they_leave(ports: Ports):
    before = signal.getsignal(signal.SIGUSR1)
    first, second = ports.signals.receive(signal.SIGUSR1), ports.signals.receive(signal.SIGUSR1, signal.SIGUSR2)
    one, two = await first.__aenter__(), await second.__aenter__()
    os.kill(os.getpid(), signal.SIGUSR1)
    assert (await following(one), await following(two)) == (signal.SIGUSR1, signal.SIGUSR1)
    await first.__aexit__(None, None, None)
    os.kill(os.getpid(), signal.SIGUSR1)
    assert await following(two) == signal.SIGUSR1
    await second.__aexit__(None, None, None)
    assert signal.getsignal(signal.SIGUSR1) == before


async def test_sigchld_is_received_beside_the_reaper_which_goes_on(ports: Ports):
    for _ in range(2):
        async with ports.signals.receive(signal.SIGCHLD) as signals:
            argv = ["/bin/sh", "-c", "exit 3"]
            assert (await ports.processes.run(argv, deadline_s=30, env={})).exit == Exit(code=3)
            assert await following(signals) == signal.SIGCHLD
    assert signal.getsignal(signal.SIGCHLD) not in {signal.SIG_DFL, signal.SIG_IGN, None}


async def test_a_cancelled_receiver_removes_its_handler(ports: Ports):
    before = signal.getsignal(signal.SIGUSR1)
    with anyio.CancelScope() as scope:
        async with ports.signals.receive(signal.SIGUSR1) as signals:
            scope.cancel()
            await anext(signals)
    assert scope.cancelled_caught
    assert signal.getsignal(signal.SIGUSR1) == before


async def test_signals_nobody_takes_do_not_pile_up(ports: Ports):
    async with ports.signals.receive(signal.SIGUSR1) as signals, ports.signals.receive(signal.SIGUSR1) as taken:
        for _ in range(100):
            os.kill(os.getpid(), signal.SIGUSR1)
            await following(taken)
        for _ in range(64):
            await following(signals)
        with anyio.move_on_after(0) as scope:
            await anext(signals)
        assert scope.cancelled_caught


async def test_no_signal_is_lost_among_thousands_that_come_while_the_loop_is_busy(ports: Ports, capfd):
    """As when all orphans of a worker die at once, and then the worker is told to stop."""
    async with ports.signals.receive(signal.SIGTERM) as signals:
        for _ in range(3000):
            os.kill(os.getpid(), signal.SIGCHLD)
        os.kill(os.getpid(), signal.SIGTERM)
        assert await following(signals) == signal.SIGTERM
    assert capfd.readouterr() == ("", "")


async def test_a_signal_to_another_thread_wakes_the_loop(ports: Ports):
    done = threading.Event()
    thread = threading.Thread(target=done.wait)
    thread.start()
    try:
        async with ports.signals.receive(signal.SIGUSR1) as signals:
            assert thread.ident is not None
            threading.Timer(0.05, signal.pthread_kill, (thread.ident, signal.SIGUSR1)).start()
            assert await following(signals) == signal.SIGUSR1
    finally:
        done.set()
        thread.join()


@pytest.mark.parametrize("signum", [signal.SIGKILL, signal.SIGSTOP, 0, 100])
async def test_what_cannot_be_handled_is_refused(ports: Ports, signum: int):
    with pytest.raises(ValueError, match="can be handled"):
        async with ports.signals.receive(signal.SIGUSR1, signum):
            pass
    assert signal.getsignal(signal.SIGUSR1) == signal.SIG_DFL


async def test_a_signal_between_any_two_instructions_of_passing_on_is_neither_lost_nor_a_fault():
    """Python runs a handler between two instructions of whatever runs: here after each of them in turn."""
    instructions, moment = 0, 0
    while moment <= instructions:
        signals = HostSignals()
        came: list[int] = []
        with (
            signals.passing_on(signal.SIGUSR1, came.append),
            signals.passing_on(signal.SIGUSR2, came.append),
        ):
            instructions = _passed_on_with_a_signal_at(signals, moment)
            signals._pass_on()
        assert set(came) == {signal.SIGUSR1, signal.SIGUSR2}, f"a signal at instruction {moment}"
        moment += 1
    assert moment > 20


def _passed_on_with_a_signal_at(signals: HostSignals, moment: int) -> int:
    """Pass a signal on while another one is noted before this instruction; returns how many instructions there were."""
    seen = 0

    def trace(frame, event, _arg):
        nonlocal seen
        if frame.f_code is not HostSignals._pass_on.__code__:
            return None
        frame.f_trace_opcodes = True
        if event == "opcode":
            if seen == moment:
                signals._note(signal.SIGUSR2, None)
            seen += 1
        return trace

    signals._note(signal.SIGUSR1, None)
    before = sys.gettrace()
    sys.settrace(trace)
    try:
        signals._pass_on()
    finally:
        sys.settrace(before)
    if moment >= seen:
        signals._note(signal.SIGUSR2, None)
    return seen
