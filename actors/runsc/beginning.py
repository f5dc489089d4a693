"""A command of runsc that has not begun: the program before it could not do its part, and says so by its exit code."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from actors.cover_elf import CANNOT_COVER
from actors.enter_elf import CANNOT_ENTER
from statemachine.problem import Problem
from statemachine.reasons import Reason

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .errors import Call

_WHY: Final[Mapping[int | None, tuple[Reason, str]]] = MappingProxyType(
    {
        CANNOT_COVER: (
            Reason.RUNTIME_FAILED,
            "nothing can be laid over the rootfs of {name!r}: no mount namespace or overlay to be had",
        ),
        CANNOT_ENTER: (Reason.CGROUP_UNAVAILABLE, "the processes of {name!r} cannot begin in their cgroup"),
    }
)


def not_begun(call: Call, code: int | None) -> Problem | None:
    """The problem of a command that was never executed, by its exit code; None where it was."""
    if code not in _WHY:
        return None
    reason, message = _WHY[code]
    return Problem(step=call.step, reason=reason, subject=call.subject, message=message.format(name=call.subject))
