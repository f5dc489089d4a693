"""The words of `greenroom mock-node --set`: what happens to a mock GPU node, as changes of its state."""

from __future__ import annotations

import re
from typing import Final

import attrs

from sim.mock.state import Fault, NodeState
from sim.world.gpus import FELL_OFF_THE_BUS, GIB, ComputeProcess, Gpu, Health
from sim.world.nvml import Symbol

DRIVER_VERSION: Final = re.compile(r"\d{3}(?:\.\d{1,3}){1,2}", re.ASCII)
WORDS: Final = (
    "MINOR=lost|healthy|xid:N|process:PID|idle, driver=VERSION|none, devices=denied|allowed, "
    "FUNCTION[@MINOR]=hang|crash|CODE|ok"
)


class WordError(ValueError):
    """Raised for what is none of the words, and why."""


def apply(state: NodeState, word: str) -> NodeState:
    """The state after what the word says.

    Raises:
        WordError: it says nothing.
    """
    subject, equals, what = word.partition("=")
    if equals and subject.isascii() and subject.isdecimal():
        return state.with_gpu(_gpu_after(_gpu(state, subject), what))
    if equals and subject == "driver":
        return _with_driver(state, what)
    if equals and subject == "devices" and what in {"denied", "allowed"}:
        return attrs.evolve(state, may_open_devices=what == "allowed")
    if equals and subject.startswith("nvml"):
        return _with_fault(state, subject, what)
    raise WordError(f"{word!r} is not of the form {WORDS}")


def _gpu(state: NodeState, minor: str) -> Gpu:
    try:
        return state.gpu(int(minor))
    except KeyError:
        known = ", ".join(str(gpu.minor) for gpu in state.gpus)
        raise WordError(f"no GPU has the minor {minor}; there are {known or 'none'}") from None


def _gpu_after(gpu: Gpu, what: str) -> Gpu:
    word, _, argument = what.partition(":")
    number = int(argument) if argument.isascii() and argument.isdecimal() else None
    match word, argument, number:
        case "lost", "", _:
            # As in the simulated world: it says so once, and then answers nothing.
            return attrs.evolve(gpu, health=Health.LOST, xids=(*gpu.xids, FELL_OFF_THE_BUS))
        case "healthy", "", _:
            return attrs.evolve(gpu, health=Health.HEALTHY, processes=())
        case "idle", "", _:
            return attrs.evolve(gpu, processes=())
        case "xid", _, int():
            return attrs.evolve(gpu, xids=(*gpu.xids, number))
        case "process", _, int():
            return attrs.evolve(gpu, processes=(*gpu.processes, ComputeProcess(pid=number, used_bytes=GIB)))
    raise WordError(f"{what!r} is nothing that happens to a GPU; what does is in {WORDS}")


def _with_driver(state: NodeState, what: str) -> NodeState:
    if what == "none":
        return attrs.evolve(state, loaded_version=None)
    if not DRIVER_VERSION.fullmatch(what):
        raise WordError(f"{what!r} is no version of a driver, such as 580.65.06, nor `none`")
    return attrs.evolve(state, loaded_version=what)


def _with_fault(state: NodeState, subject: str, what: str) -> NodeState:
    name, at, minor = subject.partition("@")
    try:
        symbol = Symbol(name)
        meant = _gpu(state, minor).minor if at else None
        others = tuple(each for each in state.faults if (each.symbol, each.minor) != (symbol, meant))
        if what == "ok":
            return attrs.evolve(state, faults=others)
        fault = Fault(symbol=symbol, what=int(what) if what.isdecimal() else what, minor=meant)
    except WordError:
        raise
    except ValueError as error:
        raise WordError(f"{subject}={what}: {error}") from None
    return attrs.evolve(state, faults=(*others, fault))
