"""The settings of a running worker, read anew from the file that `--config` named, by the rules of its start."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from statemachine.problem import ProblemError
from supervisor.cli.worker_options import NAMES, SETTINGS_BYTES_MAX, config_path, settings_in
from supervisor.reloading import Reading, config_refused

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from supervisor.cli.worker_options import FileValue
    from supervisor.settings import Settings


class SettingsAgain:
    """The source of a worker that was started with `--config`.

    Args:
        context: of the command that started it.
        path: the file.
        settings_of: makes settings of all values of the command.
        use_log_level: sets the log's level.
    """

    def __init__(
        self,
        context: click.Context,
        path: Path,
        settings_of: Callable[[Mapping[str, Any]], Settings],
        use_log_level: Callable[[str], None],
    ) -> None:
        self.path, self.limit_bytes, self.use_log_level = path, SETTINGS_BYTES_MAX, use_log_level
        self.values: Mapping[str, Any] = {name: context.params[name] for name in NAMES}
        self._context, self._settings_of = context, settings_of

    def reading_of(self, data: bytes) -> Reading:
        """What a start would be told now, with this in the file.

        Raises:
            ProblemError: ConfigRefused; RuntimeUnavailable.
        """
        try:
            values = self._values_with(settings_in(data, self.path))
        except click.UsageError as error:
            raise ProblemError(config_refused(self.path, error.format_message())) from error
        return Reading(settings=self._settings_of(values), values={name: values[name] for name in NAMES})

    def _values_with(self, texts: Mapping[str, FileValue]) -> dict[str, Any]:
        """All values of the command: what a flag said, else a variable, else the file, else the default."""
        command, flags = self._context.command, self._flags()
        # Without --config itself, which would have a file read here.
        again = click.Command(
            command.name,
            params=[parameter for parameter in command.params if parameter.name in NAMES],
            context_settings=command.context_settings,
        )
        defaults = {name: text for name, text in texts.items() if name not in flags}
        fresh = again.make_context(self._context.info_name, [], default_map=defaults)
        return {**fresh.params, **{name: self._context.params[name] for name in flags}}

    def _flags(self) -> set[str]:
        source_of = self._context.get_parameter_source
        return {name for name in NAMES if source_of(name) is ParameterSource.COMMANDLINE}


def source_of(
    context: click.Context,
    settings_of: Callable[[Mapping[str, Any]], Settings],
    use_log_level: Callable[[str], None],
) -> SettingsAgain | None:
    """The source of the settings of a command; None when it was given no file."""
    path = config_path(context)
    return None if path is None else SettingsAgain(context, path, settings_of, use_log_level)
