"""The kinds of faults: what a campaign must see fired, each at least once, and by what it tells where it has looked."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from sim.chaos.plan import MISHAPS
from sim.faults import Cut, Fail, Halfway, Hang, Kill, Lie, Slow

if TYPE_CHECKING:
    from sim.faults import Fault, What

_WORDS: Final[dict[type, str]] = {
    Fail: "fail", Hang: "hang", Slow: "slow", Lie: "lie", Kill: "kill", Halfway: "half", Cut: "cut",
}  # fmt: skip
PORT_KINDS: Final = (
    "cgroups.fail", "cgroups.hang", "cgroups.kill", "cgroups.lie", "cgroups.slow",
    "files.fail", "files.half", "files.hang", "files.kill", "files.lie", "files.slow",
    "gpus.fail", "gpus.hang", "gpus.kill", "gpus.lie", "gpus.slow",
    "net.fail", "net.hang", "net.kill", "net.slow",
    "processes.cut", "processes.fail", "processes.hang", "processes.kill", "processes.lie", "processes.slow",
    "stores.fail", "stores.half", "stores.hang", "stores.kill", "stores.lie", "stores.slow",
    "wall.kill", "wall.lie",
    "watch.kill", "watch.lie", "watch.slow",
)  # fmt: skip
"""Of every port what it can meet; the kernel fails neither the clock nor signals."""


def mishap_kind(mishap: object) -> str:
    """The kind of something that happens beside the ports."""
    return _spelt(type(mishap))


def _spelt(kind: type) -> str:
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "-", kind.__name__).lower()


MISHAP_KINDS: Final = tuple(_spelt(each) for each in MISHAPS)
KINDS: Final = MISHAP_KINDS + PORT_KINDS


def fault_kind(fault: Fault) -> str:
    """The kind of a fault of a port."""
    return f"{fault.when.port}.{word(fault.what)}"


def word(what: What) -> str:
    """The word for what happens to a call."""
    return _WORDS[type(what)]
