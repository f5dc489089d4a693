"""Seeds on the command line: `0:200`, from the first to before the second."""

from __future__ import annotations

import re
from typing import Any, Final

import click

_SEEDS: Final = re.compile(r"(\d{1,15}):(\d{1,15})", re.ASCII)


class Seeds(click.ParamType[range]):
    """Seeds from A to before B."""

    name = "seeds"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> range:
        """Read them, or say what is wrong."""
        if isinstance(value, range):
            return value
        found = _SEEDS.fullmatch(str(value))
        if found is None or int(found[1]) >= int(found[2]):
            self.fail(f"{value!r} is not A:B, the seeds from A to before B, such as 0:200", param, ctx)
        return range(int(found[1]), int(found[2]))
