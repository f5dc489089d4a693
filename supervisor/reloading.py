"""SIGHUP: the file of settings is read anew, and the watched directory is looked at, while every actor runs on.

What a live worker can change is taken over, all of it or nothing: a file that is wrong changes nothing. What only a
start can change is named. A flag and a variable win over the file now as they did at the start.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Protocol

import attrs
import structlog

from statemachine.catalogue import CATALOGUE
from statemachine.problem import Problem, ProblemError, Step
from statemachine.reasons import Reason

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from actors.ports import Files
    from supervisor.directory_intake import DirectoryIntake
    from supervisor.settings import Settings
    from supervisor.worker import Worker

FIELDS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "max_actors": "max_actors",
        "on_drain": "on_drain",
        "drain_timeout": "drain_timeout_s",
        "snapshot_store": "snapshot_store",
    }
)
"""The settings that a live worker takes over, and their names in `Settings`."""
LOG_LEVEL: Final = "log_level"
LIVE: Final = frozenset({*FIELDS, LOG_LEVEL})

_log = structlog.get_logger("greenroom.reload")


@attrs.frozen(kw_only=True)
class Reading:
    """What a start would be told now.

    Attributes:
        settings: of the worker.
        values: every setting, by the name that it has in the file.
    """

    settings: Settings
    values: Mapping[str, Any]


class SettingsSource(Protocol):
    """Where the settings came from."""

    @property
    def path(self) -> Path:
        """The file."""
        ...

    @property
    def limit_bytes(self) -> int:
        """What is larger is no such file."""
        ...

    @property
    def values(self) -> Mapping[str, Any]:
        """What the worker was started with."""
        ...

    def reading_of(self, data: bytes) -> Reading:
        """What a start would be told now, with this in the file.

        Raises:
            ProblemError: ConfigRefused, and what else a start would be refused for.
        """
        ...

    def use_log_level(self, level: str) -> None:
        """Log from this level on."""
        ...


class Reloading:
    """What a worker does at SIGHUP.

    Attributes:
        intake: who follows the watched directory, once somebody does.
    """

    intake: DirectoryIntake | None = None

    def __init__(self, files: Files, worker: Worker, source: SettingsSource | None) -> None:
        """`source` is None when there is no file of settings."""
        self._files, self._worker, self._source = files, worker, source
        self._taken = dict(source.values) if source else {}

    async def reload(self) -> None:
        """Take over what can be; nothing is raised for what is wrong with the file."""
        if self.intake is not None:
            self.intake.look_again()
        if self._source is None:
            _tell_refused(Reason.NOTHING_TO_RELOAD, CATALOGUE[Reason.NOTHING_TO_RELOAD].sentence)
            return
        try:
            reading = await self._read(self._source)
        except ProblemError as error:
            for problem in error.problems:
                _tell_refused(problem.reason, problem.message, problem.hint)
            return
        changed = {name for name, value in reading.values.items() if value != self._taken[name]}
        self._take_over(self._source, reading, sorted(changed & LIVE))
        if others := sorted(changed - LIVE):
            message = f"only a restart changes {', '.join(others)}"
            _tell_refused(Reason.RESTART_NEEDED, message, settings=others)

    async def _read(self, source: SettingsSource) -> Reading:
        """Through the port, since the file may be on a disk that takes its time."""
        try:
            data = await self._files.read(source.path, limit_bytes=source.limit_bytes)
        except OSError as error:
            why = f"{source.path} cannot be read: {error.strerror or error}"
            raise ProblemError(config_refused(source.path, why)) from error
        return source.reading_of(data)

    def _take_over(self, source: SettingsSource, reading: Reading, names: Iterable[str]) -> None:
        worker = self._worker
        for name in names:
            self._taken[name] = reading.values[name]
            if name == LOG_LEVEL:
                source.use_log_level(reading.values[name])
            else:
                field = FIELDS[name]
                worker.settings = attrs.evolve(worker.settings, **{field: getattr(reading.settings, field)})
        worker.shutdown.allow(worker.settings.drain_timeout_s)
        worker.uploads.use_store(worker.settings.snapshot_store)
        for life in worker.lives:
            worker.uploads.consider(life)
        _log.info("reloaded", settings=[*names])


def config_refused(path: Path, why: str) -> Problem:
    """The file is not as it must be."""
    return Problem(step=Step.SUPERVISE, reason=Reason.CONFIG_REFUSED, subject=str(path), message=why)


def _tell_refused(reason: Reason, message: str, hint: str = "", **more: Any) -> None:
    _log.warning("not_reloaded", reason=str(reason), message=message, hint=hint or CATALOGUE[reason].hint, **more)
