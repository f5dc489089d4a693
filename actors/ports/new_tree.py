"""What a directory is to be made with: said as a whole, so that it can be made as a whole."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias

import attrs

if TYPE_CHECKING:
    from collections.abc import Mapping

FILE_MODE: Final = 0o600
DIRECTORY_MODE: Final = 0o700


@attrs.frozen
class NewFile:
    """A file that is to be made. Its content may hold secrets of an environment, which no message shows."""

    data: bytes = attrs.field(repr=False)
    mode: int = attrs.field(default=FILE_MODE, kw_only=True)


@attrs.frozen
class NewDirectory:
    """A directory that is to be made, with what is in it by name.

    Raises:
        ValueError: a name leads out of it.
    """

    entries: Mapping[str, NewEntry] = attrs.field(factory=dict)
    mode: int = attrs.field(default=DIRECTORY_MODE, kw_only=True)

    @entries.validator
    def _names(self, _attribute: object, entries: Mapping[str, NewEntry]) -> None:
        for name in entries:
            if name in {"", ".", ".."} or {"/", "\0"} & set(name):
                raise ValueError(f"{name!r} is no name in a directory")


NewEntry: TypeAlias = NewFile | NewDirectory
