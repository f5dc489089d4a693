"""Results that were written down: the documents of `greenroom sim replay --json`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from sim.replay.results import FORMAT, ReplayResult
from statemachine.problem import Problem, ProblemError, Step
from statemachine.reasons import Reason
from statemachine.wording import file_label
from supervisor.host.surroundings import read_small

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

BYTES_MAX: Final = 64 << 20
BUCKETS_MAX: Final = 10_000
_DURATION: Final = ("count", "p50", "p95", "p99", "max")
_DECODER: Final = msgspec.json.Decoder(dict[str, Any])


def read_result(path: Path) -> ReplayResult:
    """One of them. Fields that are not known are of a newer Greenroom, and passed over.

    Raises:
        ProblemError: UnreadableFile; InvalidResult; NewerFormat.
    """
    try:
        data = read_small(path, limit_bytes=BYTES_MAX)
    except OSError as error:
        message = f"{file_label(str(path))} cannot be read: {error.strerror or error}"
        raise _problem(Reason.UNREADABLE_FILE, path, message) from error
    try:
        document = _DECODER.decode(data)
        result = _structured(document, path)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise _refused(path, str(error)) from error
    if wrong := next(_inconsistencies(result), None):
        raise _refused(path, wrong)
    return result


def _structured(document: dict[str, Any], path: Path) -> ReplayResult:
    version = document.get("v")
    if type(version) is not int:
        raise _refused(path, "it has no format version")
    if version > FORMAT:
        message = f"{file_label(str(path))} has format {version}; this version reads up to {FORMAT}"
        raise _problem(Reason.NEWER_FORMAT, path, message)
    return msgspec.convert({**document, "machine_events": document.get("machineEvents")}, ReplayResult)


def _inconsistencies(result: ReplayResult) -> Iterator[str]:
    """What no replay tells, and no chart could show."""
    durations: Mapping[str, Mapping[str, float]] = {
        "activation_s": result.activation_s,
        "suspend_s": result.suspend_s,
        **{f"steps.{name}": each for name, each in result.steps.items()},
    }
    for name, each in durations.items():
        yield from (f"{name} has no {column}" for column in _DURATION if column not in each)
        yield from (f"{name}.{column} is negative" for column, value in each.items() if value < 0)
    yield from (f"gpu_seconds has no {name}" for name in ("held", "free") if name not in result.gpu_seconds)
    told = result.timeline
    buckets = len(told.at_s)
    if not 0 < buckets <= BUCKETS_MAX or told.bucket_s <= 0 or result.virtual_s < 0:
        yield "its timeline has no time"
    gpus = told.gpus or told.at_s  # an earlier version does not tell them
    if {len(each) for each in (told.running, told.waiting, told.suspended, told.held_gpus, gpus)} != {buckets}:
        yield "the series of its timeline are not of one length"
    if len(result.occupancy.held) != len(result.occupancy.workers):
        yield "its occupancy has not one row for each worker"
    rows = (*result.occupancy.held, *result.occupancy.up)
    if any(len(row) != buckets for row in rows):
        yield "the rows of its occupancy are not as long as its timeline"
    if len(result.occupancy.up) not in {0, len(result.occupancy.workers)}:
        yield "it does not say of each worker when it was there"


def _refused(path: Path, what: str) -> ProblemError:
    return _problem(
        Reason.INVALID_RESULT, path, f"{file_label(str(path))} is no result of a replay: {what[:1].lower()}{what[1:]}"
    )


def _problem(reason: Reason, path: Path, message: str) -> ProblemError:
    return ProblemError(Problem(step=Step.SUPERVISE, reason=reason, subject=file_label(str(path)), message=message))
