"""What a simulated fleet is like: one TOML file, `default.toml` beside this module, which explains every number.

A file of one's own holds only what differs; it is laid over the default, table by table.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Literal, TypeAlias

import msgspec
from msgspec import Meta, Struct

from statemachine.problem import Problem, ProblemError, Step
from statemachine.reasons import Reason
from statemachine.wording import file_label
from supervisor.host.surroundings import read_small

from .distributions import Distribution, NotNegative, Positive

SHIPPED: Final = ("default", "troubled")
"""Configs that come with Greenroom, by their names: `NAME.toml` beside this module."""
BYTES_MAX: Final = 256 << 10
FORMAT: Final = 1

Probability: TypeAlias = Annotated[float, Meta(ge=0, le=1)]
Count: TypeAlias = Annotated[int, Meta(ge=0, le=1_000_000)]
Seconds: TypeAlias = Annotated[float, Meta(ge=0)]
"""May be `inf`, which is TOML's word for never."""

LATENCIES: Final = (
    "assign", "detect", "generate", "generate_cached", "partition", "inject", "create", "restore", "verify", "suspend",
    "release", "thaw", "stop", "rollback", "recover", "store", "worker_start",
)  # fmt: skip
"""Everything that takes time by itself. `store` is the requests for a snapshot; its bytes go over the bandwidth."""

CANNOT_FAIL: Final = frozenset({"generate", "recover", "worker_start"})
"""Latencies that are nobody's step: a start waits for the spec in `generate_cached`."""

Outcome: TypeAlias = Literal["failed", "refused", "hangs", "sandbox-died"]


class _Table(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A table of the file."""


class Placement(_Table, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Who goes where: `locality_wait_s` is how long an actor waits for the worker that has its snapshot."""

    scheduler: str
    locality_wait_s: Seconds
    actors_per_worker_max: Annotated[int, Meta(ge=1, le=100_000)]


class Suspension(_Table, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """When an actor is suspended that nobody asked to suspend.

    Attributes:
        idle_timeout_s: after so long without being asked for anything; inf is never.
        oversubscribe: whether the one that is idle longest is suspended when somebody else waits.
        idle_min_s: it must have been idle so long for that.
        busy_s: how long a request keeps an actor busy, where the trace does not say.
    """

    idle_timeout_s: Seconds
    oversubscribe: bool
    idle_min_s: Seconds
    busy_s: NotNegative


class Retry(_Table, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How often an actor that is wanted Running is tried again after an activation that failed, and how much later."""

    times_max: Count
    delay_s: NotNegative


class Drain(_Table, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What SIGTERM does to the actors of a worker, and how long it may take until the worker is gone."""

    on_drain: Literal["suspend", "stop"]
    timeout_s: Positive


class Loss(_Table, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Whether an actor whose worker is lost, and of which no store has a snapshot, begins from nothing elsewhere."""

    cold_start: bool


class Actors(_Table, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What their assignments say."""

    restart: Literal["Never", "OnFailure"]
    grace_s: NotNegative
    probe_s: NotNegative


class Snapshots(_Table, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How large snapshots are: `mib`, and `per_gpu_mib` more for each GPU."""

    mib: Distribution
    per_gpu_mib: Distribution


class Store(_Table, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where snapshots go, so that they outlive their worker.

    Attributes:
        upload: whether they go there at all.
        bytes_per_s: what it takes and gives to all workers together.
        worker_bytes_per_s: what one worker takes and gives.
        retry_s: an upload that failed is tried again so much later.
    """

    upload: bool
    bytes_per_s: Positive
    worker_bytes_per_s: Positive
    retry_s: Positive


class Retention(_Table, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Of the snapshots on a worker that a store has too, the oldest go when all take more than this."""

    worker_bytes_max: Positive


class Failure(_Table, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Something that goes wrong in a step, by chance.

    Attributes:
        step: the latency that it meets: `create`, `suspend`, …, or `store` for an upload, which can but fail.
        probability: for each time that the step is done.
        reason: a word of the catalogue.
        outcome: the step fails, refuses (a suspend, a restore), hangs until its deadline, or the sandbox dies of it.
        source: where the number comes from.
    """

    step: str
    probability: Probability
    reason: Reason
    outcome: Outcome = "failed"
    source: str


class Cost(_Table, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a GPU costs in an hour, whether it is held or not; `models` has those with a price of their own."""

    per_gpu_hour: NotNegative
    per_worker_hour: NotNegative
    models: dict[str, NotNegative] = {}


class FleetConfig(_Table, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The whole of it; each attribute is the table of its name."""

    v: Literal[1]
    placement: Placement
    suspension: Suspension
    retry: Retry
    drain: Drain
    loss: Loss
    actors: Actors
    snapshots: Snapshots
    store: Store
    retention: Retention
    latency: dict[str, Distribution]
    failure: dict[str, Failure] = {}
    cost: Cost


def read_config(given: Path | str | None = None, overrides: Mapping[str, object] | None = None) -> FleetConfig:
    """The default, with what a file says instead, and what `overrides` say instead of both.

    Args:
        given: a file; or the name of a config that is shipped; None is the default alone.
        overrides: values by dotted names, as `suspension.idle_timeout_s`.

    Raises:
        ProblemError: UnreadableFile; ConfigRefused, with the name of the table and the setting.
    """
    values = _values(_shipped("default"))
    subject = "default"
    if given is not None:
        subject = str(given)
        path = _shipped(subject) if subject in SHIPPED else Path(given)
        values = _laid_over(values, _values(path))
    for name, value in (overrides or {}).items():
        subject = name
        *tables, last = name.split(".")
        over: dict[str, Any] = {last: value}
        for table in reversed(tables):
            over = {table: over}
        values = _laid_over(values, over)
    return _read(values, subject)


def _read(values: dict[str, Any], subject: str) -> FleetConfig:
    try:
        config = msgspec.convert(values, FleetConfig)
    except msgspec.ValidationError as error:
        raise _refused(subject, str(error)) from error
    if missing := [name for name in LATENCIES if name not in config.latency]:
        raise _refused(subject, f"latency.{missing[0]} is not there")
    if unknown := sorted(config.latency.keys() - set(LATENCIES)):
        raise _refused(subject, f"latency.{unknown[0]} is nothing that takes time; these do: {', '.join(LATENCIES)}")
    for name, failure in config.failure.items():
        if (wrong := _wrong_with(failure)) is not None:
            raise _refused(subject, f"failure.{name}{wrong}")
    return config


def _wrong_with(failure: Failure) -> str | None:
    """Why a failure can never come; None if it can."""
    steps = [name for name in LATENCIES if name not in CANNOT_FAIL]
    if failure.step not in steps:
        return f".step is {failure.step!r}; steps that can fail are {', '.join(steps)}"
    if failure.outcome == "refused" and failure.step not in {"suspend", "restore"}:
        return f": {failure.step} refuses nothing; only suspend and restore do"
    if failure.step == "store" and failure.outcome != "failed":
        return f": an upload does not end as {failure.outcome!r}; it can but fail"
    return None


def _laid_over(below: dict[str, Any], above: dict[str, Any]) -> dict[str, Any]:
    """The values of both; where both have a table, the tables likewise. A distribution is replaced as a whole."""
    merged = dict(below)
    for key, value in above.items():
        under = below.get(key)
        both = isinstance(value, dict) and isinstance(under, dict) and "kind" not in value
        merged[key] = _laid_over(under, value) if both and isinstance(under, dict) else value
    return merged


def _shipped(name: str) -> Path:
    return Path(__file__).parent / f"{name}.toml"


def _values(path: Path) -> dict[str, Any]:
    try:
        data = read_small(path, limit_bytes=BYTES_MAX)
    except OSError as error:
        message = f"{path} cannot be read: {error.strerror or error}"
        raise ProblemError(
            Problem(step=Step.ADMISSION, reason=Reason.UNREADABLE_FILE, subject=str(path), message=message)
        ) from error
    try:
        return tomllib.loads(data.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise _refused(str(path), str(error)) from error


def _refused(subject: str, message: str) -> ProblemError:
    return ProblemError(
        Problem(
            step=Step.ADMISSION,
            reason=Reason.CONFIG_REFUSED,
            subject=file_label(subject),
            message=f"the fleet's config cannot be used: {message}",
            hint=f"sim/fleet/default.toml has every setting with its meaning; shipped configs: {', '.join(SHIPPED)}.",
        )
    )
