"""What a campaign is like: how large its runs are, and how often things go wrong. A TOML file may say it."""

from __future__ import annotations

import tomllib
from typing import TYPE_CHECKING, Any, Final

import attrs
from cattrs.errors import BaseValidationError

from sim.chaos.kinds import KINDS
from sim.chaos.plan import CONVERTER
from statemachine.problem import Problem, ProblemError, Step
from statemachine.reasons import Reason

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

LIMIT_BYTES: Final = 1 << 20


def _at_least(bound: float) -> Any:
    return attrs.validators.ge(bound)


@attrs.frozen(kw_only=True)
class CampaignConfig:
    """The measures of a run, of which each draws its own within these bounds.

    Attributes:
        actors_max: how many actors.
        gpus_max: how many GPUs the machine has.
        wishes_max: how often something is asked for.
        faults_max: how many faults are planned.
        lasts_min_s, lasts_max_s: virtual seconds of the part with faults.
        quiet_share: of the kinds of faults, how many a run has none of.
        weights: of a kind of fault, how often it comes beside the others; 0 is never, what is not named has 1.
    """

    actors_max: int = attrs.field(default=3, validator=_at_least(1))
    gpus_max: int = attrs.field(default=4, validator=_at_least(0))
    wishes_max: int = attrs.field(default=8, validator=_at_least(1))
    faults_max: int = attrs.field(default=8, validator=_at_least(0))
    lasts_min_s: float = attrs.field(default=4.0, validator=_at_least(0.1))
    lasts_max_s: float = attrs.field(default=25.0, validator=_at_least(0.1))
    quiet_share: float = attrs.field(default=0.75, validator=[_at_least(0.0), attrs.validators.le(1.0)])
    weights: dict[str, float] = attrs.field(factory=dict)

    @weights.validator
    def _known(self, _attribute: object, value: dict[str, float]) -> None:
        for kind, weight in value.items():
            if kind not in KINDS:
                raise ValueError(f"there is no kind of fault {kind!r}; there are {', '.join(KINDS)}")
            if weight < 0:
                raise ValueError(f"the weight of {kind} is below 0")

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds of faults that it can have."""
        return tuple(kind for kind in KINDS if self.weights.get(kind, 1.0) > 0)


def read_config(data: bytes, *, path: Path) -> CampaignConfig:
    """A configuration out of its TOML.

    Raises:
        ProblemError: ConfigRefused, with what is wrong.
    """
    try:
        values = tomllib.loads(data.decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ProblemError(_refused(path, f"it is not TOML: {error}")) from error
    return _structured(values, path)


def overlaid(config: CampaignConfig, overrides: Mapping[str, object]) -> CampaignConfig:
    """A configuration, with what `overrides` say instead: `faults_max`, or of a kind of fault `weights.files.hang`.

    Raises:
        ProblemError: ConfigRefused, with what is wrong.
    """
    values: dict[str, Any] = CONVERTER.unstructure(config)
    for name, value in overrides.items():
        table, dot, kind = name.partition(".")
        if dot and table == "weights":
            values[table] = {**values[table], kind: value}
        else:
            values[name] = value
    return _structured(values, ", ".join(overrides))


def _structured(values: dict[str, Any], subject: Path | str) -> CampaignConfig:
    try:
        return CONVERTER.structure(values, CampaignConfig)
    except (BaseValidationError, ValueError, TypeError) as error:
        raise ProblemError(_refused(subject, "; ".join(_leaves(error)))) from error


def _leaves(error: BaseException) -> list[str]:
    """What is wrong, without the tree of where."""
    if isinstance(error, BaseExceptionGroup):
        return [leaf for each in error.exceptions for leaf in _leaves(each)]
    return [str(error)]


def _refused(path: Path | str, message: str) -> Problem:
    hint = "Correct what is named; docs/simulator.md tells what can be set."
    return Problem(
        step=Step.SUPERVISE, reason=Reason.CONFIG_REFUSED, subject=str(path), message=f"{path}: {message}", hint=hint
    )
