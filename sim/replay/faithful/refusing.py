"""What a config may not ask of the faithful engine: there the supervisor itself does it, or nobody does."""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING, Final

from sim.fleet.config import read_config
from statemachine.problem import Problem, ProblemError, Step
from statemachine.reasons import Reason

if TYPE_CHECKING:
    from sim.fleet.config import FleetConfig

ONLY_FAST: Final = {
    "retention.worker_bytes_max": "a worker keeps its copies here",
    "store.retry_s": "the supervisor has times of its own here",
    "actors.probe_s": "no actor has a wakeup probe here",
}
"""Settings that must be as they are by default, each with why."""


def require_heard(config: FleetConfig) -> None:
    """Refuse what would be set and do nothing.

    Raises:
        ProblemError: ConfigRefused, with the setting.
    """
    for name, failure in config.failure.items():
        if failure.probability > 0:
            raise _refused(f"failure.{name}", "nothing fails by chance here: its faults are those of the trace")
    default = read_config()
    for name, why in ONLY_FAST.items():
        setting = attrgetter(name)
        if setting(config) != setting(default):
            raise _refused(name, why)


def _refused(setting: str, why: str) -> ProblemError:
    return ProblemError(
        Problem(
            step=Step.ADMISSION,
            reason=Reason.CONFIG_REFUSED,
            subject=setting,
            message=f"the faithful engine does nothing with {setting}: {why}",
            hint="Replay with --engine fast, or leave it as it is by default.",
        )
    )
