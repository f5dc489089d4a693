"""A grid: which points it has, which runs, and how they are cut into chunks."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec
import orjson

from sim.chaos.config import CampaignConfig, overlaid
from sim.chaos.plan import CONVERTER
from sim.fleet.config import read_config
from sim.traces.shipped import shipped
from statemachine.problem import Problem, ProblemError, Step
from statemachine.reasons import Reason
from supervisor.host.folders import whole_path
from supervisor.host.reading import digest, read

from .axes import settings
from .work import Chunk, Kind, Point, Run, kept_name

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

    from .axes import Axis, Setting

WORKERS: Final = "workers"
"""The axis that is no setting of the fleet's config."""
WORKERS_MAX: Final = 100_000
TRACE_BYTES_MAX: Final = 1 << 30
"""Of one that travels to the workers of a cluster."""
CHUNK_MAX: Final = 100
"""Runs of one chunk: what is lost with a process is little, and a cluster is asked seldom."""
CHUNKS_EACH: Final = 4
"""As many for each process at least, so that all end at about the same time."""
FAITHFUL: Final = "faithful"
DEFAULT: Final = "default"


def replay_points(
    traces: Sequence[Path], engines: Iterable[str], config: str | None, axes: Sequence[Axis]
) -> list[Point]:
    """A point for each trace, engine and setting.

    Raises:
        ProblemError: UnreadableFile, ConfigRefused.
    """
    points: list[Point] = []
    for trace in traces:
        place = whole_path(shipped(str(trace)) or trace)
        found = _digest(place)
        for engine in engines:
            for setting in settings(axes):
                workers, others = _workers(setting)
                fleet = read_config(config, {name: value for name, _words, value in others})
                points.append(
                    Point(
                        number=len(points),
                        kind=Kind.REPLAY,
                        trace=str(trace),
                        place=str(place),
                        digest=found,
                        engine=engine,
                        config=config or DEFAULT,
                        workers=workers,
                        overrides={name: words for name, words, _value in setting},
                        settings=msgspec.msgpack.encode(fleet),
                    )
                )
    return points


def chaos_points(config: CampaignConfig, name: str, axes: Sequence[Axis]) -> list[Point]:
    """A point for each setting.

    Raises:
        ProblemError: ConfigRefused.
    """
    return [
        Point(
            number=number,
            kind=Kind.CHAOS,
            trace=None,
            place=None,
            digest=None,
            engine=FAITHFUL,
            config=name,
            workers=None,
            overrides={name: words for name, words, _value in setting},
            settings=orjson.dumps(
                CONVERTER.unstructure(overlaid(config, {name: value for name, _words, value in setting}))
            ),
        )
        for number, setting in enumerate(settings(axes))
    ]


def kept_traces(points: Sequence[Point]) -> dict[str, bytes]:
    """The traces of a grid, for those who cannot reach their files, each by the name that it has there.

    Raises:
        ProblemError: UnreadableFile.
    """
    places = {kept_name(each.place, each.digest): each.place for each in points if each.place and each.digest}
    return {name: _bytes(place) for name, place in places.items()}


def runs_of(points: Sequence[Point], seeds: range, code: str) -> list[Run]:
    """All runs of a grid, point by point."""
    return [Run(point.number, seed, point.key(seed, code)) for point in points for seed in seeds]


def chunks_of(
    points: Sequence[Point], runs: Sequence[Run], done: Collection[str], code: str, *, processes: int
) -> Iterator[Chunk]:
    """The runs that are not done, cut for so many processes. Runs of one key are one run."""
    left = list({run.key: run for run in runs if run.key not in done}.values())
    size = min(CHUNK_MAX, max(1, len(left) // (processes * CHUNKS_EACH)))
    quick = [run for run in left if not _is_long(points[run.point])]
    cut = [[run] for run in left if _is_long(points[run.point])]
    cut += [quick[at : at + size] for at in range(0, len(quick), size)]
    for part in cut:
        numbers = dict.fromkeys(run.point for run in part)
        yield Chunk(code=code, points=tuple(points[number] for number in numbers), runs=tuple(part))


def _is_long(point: Point) -> bool:
    """A faithful replay takes minutes: the start of a process is nothing beside it, and the loss of one is."""
    return point.kind is Kind.REPLAY and point.engine == FAITHFUL


def _workers(setting: Setting) -> tuple[int | None, Setting]:
    workers: int | None = None
    for name, words, value in setting:
        if name == WORKERS:
            if type(value) is not int or not 1 <= value <= WORKERS_MAX:
                raise _refused(name, f"{words!r:.80} is no number of workers, from 1 to {WORKERS_MAX}")
            workers = value
    return workers, tuple(each for each in setting if each[0] != WORKERS)


def _digest(place: Path) -> str:
    try:
        return digest(place)
    except OSError as error:
        raise _unreadable(place, error) from error


def _bytes(place: str) -> bytes:
    try:
        return read(Path(place), TRACE_BYTES_MAX)
    except OSError as error:
        raise _unreadable(place, error) from error


def _unreadable(place: Path | str, error: OSError) -> ProblemError:
    message = f"{place} cannot be read: {error.strerror or error}"
    return ProblemError(
        Problem(step=Step.SUPERVISE, reason=Reason.UNREADABLE_FILE, subject=str(place), message=message)
    )


def _refused(name: str, message: str) -> ProblemError:
    return ProblemError(
        Problem(step=Step.ADMISSION, reason=Reason.CONFIG_REFUSED, subject=name, message=f"{name}: {message}")
    )
