"""Paths on the command line that say where something is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click


class _Place(click.Path):
    """A path that says where: an empty one would be the working directory.

    It is UTF-8, since status, journal and refusals name it, and JSON holds nothing else.
    """

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Read it, or say what is wrong."""
        if not str(value) or "\0" in str(value):
            self.fail("a path must not be empty or hold a NUL", param, ctx)
        try:
            str(Path(value).absolute()).encode()
        except UnicodeEncodeError:
            self.fail(f"the path {click.format_filename(value)} is not UTF-8", param, ctx)
        return super().convert(value, param, ctx)


PLACE = _Place(path_type=Path)
