"""nvproxy: how a sandbox is told to pass calls on to the NVIDIA driver, and whether its runsc knows that driver.

Decided once for each sandbox, from the claims alone: gVisor looks at the root container only, which never has a device,
so nothing may depend on which container it is that has one.

Source: the flag and its failures were measured on runsc 20240729; the annotation was read in gVisor 3eee17d of
2026-08-21, which takes the flag as well.
"""

from __future__ import annotations

import enum
import re
from typing import TYPE_CHECKING, Final

import anyio
import attrs

from actors.bundle.capabilities import Claims
from actors.ports import DeadlineExceededError
from statemachine.problem import Problem
from statemachine.reasons import Reason

from . import argv
from .version import ENVIRONMENT

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from actors.ports import Processes
    from statemachine.problem import Step

    from .version import RuntimeVersion

ANNOTATION: Final = "dev.gvisor.internal.nvproxy"
FLAG: Final = "--nvproxy=true"
ANNOTATION_SINCE: Final = 20260821
"""From the release on whose source was read. Each older one knows the flag; of which of them the annotation on the root
reaches all that it has to, nothing is known."""

_ASK_S: Final = 10.0
_VERSION: Final = re.compile(r"\d{1,5}(?:\.\d{1,5}){1,3}")


class Nvproxy(enum.StrEnum):
    """Whether gVisor passes calls on to the driver."""

    AUTO = "auto"
    """For a sandbox with a claim."""
    OFF = "off"
    """Never: for mock nodes, whose devices nobody can open."""


@attrs.frozen(kw_only=True)
class NvproxyChoice:
    """How one sandbox is told.

    Attributes:
        annotations: of its root container, `NAME=VALUE`.
        flags: more global flags for every command.
    """

    annotations: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()

    @property
    def is_on(self) -> bool:
        """Whether calls are passed on."""
        return bool(self.annotations or self.flags)


NOT_PASSED_ON: Final = NvproxyChoice()


def decide(claims: Claims, wanted: Nvproxy, version: RuntimeVersion) -> NvproxyChoice:
    """Return how a sandbox is told; nothing for an actor without a claim, whatever the node has.

    Measured: with it, every sandbox needs the driver, and one without a GPU would not start where there is none.
    """
    if claims is Claims.NONE or wanted is Nvproxy.OFF:
        return NOT_PASSED_ON
    if version.date >= ANNOTATION_SINCE:
        return NvproxyChoice(annotations=(f"{ANNOTATION}=true",))
    return NvproxyChoice(flags=(FLAG,))


class SupportedDrivers:
    """Which drivers a runsc knows: asked once for a worker, and only when a driver is to be used.

    Nothing fails because this cannot be asked: then it is runsc that says what is wrong, when the sandbox is made.

    Args:
        processes: runs it.
        path: the runsc.
    """

    def __init__(self, processes: Processes, path: Path) -> None:
        self._processes, self._path = processes, path
        self._answer: tuple[str, ...] | None = None
        self._was_asked = False
        self._lock = anyio.Lock()

    async def known(self) -> tuple[str, ...] | None:
        """The versions it knows; None when it does not say."""
        async with self._lock:
            if not self._was_asked:
                self._answer = await self._ask()
                self._was_asked = True
            return self._answer

    async def verdict(self, driver: str, *, step: Step) -> Problem | None:
        """Return DriverUnsupportedByRuntime when it is known that this driver is not; else None."""
        known = await self.known()
        if known is None or _numbers(driver) is None or is_known(driver, known):
            return None
        nearest = nearest_of(driver, known)
        return Problem(
            step=step,
            reason=Reason.DRIVER_UNSUPPORTED_BY_RUNTIME,
            subject=f"driver {driver}",
            message=f"driver {driver} is not supported by this runsc; the nearest that is: {nearest}",
            detail=f"{self._path} supports {', '.join(known)}",
        )

    async def _ask(self) -> tuple[str, ...] | None:
        try:
            finished = await self._processes.run(
                (str(self._path), *argv.list_supported_drivers()), deadline_s=_ASK_S, env=ENVIRONMENT
            )
        except (DeadlineExceededError, OSError):
            return None
        # A runsc that does not know the command ends with another code and its usage.
        return parse_drivers(finished.stdout) if finished.exit.code == 0 else None


def parse_drivers(answer: bytes) -> tuple[str, ...] | None:
    """Read the answer to `nvproxy list-supported-drivers`, oldest first; None when it is anything else.

    Measured on runsc 20240729: a version a line, each time in another order.
    """
    lines = [line.strip() for line in answer.decode("utf-8", "replace").splitlines() if line.strip()]
    if not lines or not all(_VERSION.fullmatch(line) for line in lines):
        return None
    return tuple(sorted(lines, key=_by_age))


def is_known(driver: str, known: Iterable[str]) -> bool:
    """Whether a driver is among those; 550.90.7 is 550.90.07."""
    return _numbers(driver) in {_numbers(each) for each in known}


def nearest_of(driver: str, known: Iterable[str]) -> str:
    """Return the version that differs least, in the first place where one differs; of two equals the newer one."""
    wanted = _numbers(driver) or ()
    newest_first = sorted(known, key=_by_age, reverse=True)
    return min(newest_first, key=lambda version: _distance(wanted, _numbers(version) or ()))


def _numbers(version: str) -> tuple[int, ...] | None:
    return tuple(int(part) for part in version.split(".")) if _VERSION.fullmatch(version) else None


def _by_age(version: str) -> tuple[int, ...]:
    return _numbers(version) or ()


def _distance(one: tuple[int, ...], other: tuple[int, ...]) -> tuple[int, ...]:
    places = max(len(one), len(other))
    padded = ((*each, *(0,) * (places - len(each))) for each in (one, other))
    return tuple(abs(a - b) for a, b in zip(*padded, strict=True))
