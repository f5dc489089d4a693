"""What a kind of document lets its writers do: each kind chooses a dialect, and `STRICT` is the one of our own."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Final

import attrs

from .limits import DEPTH_MAX, DOCUMENT_BYTES_MAX, NODES_MAX

if TYPE_CHECKING:
    from collections.abc import Callable


class Aliases(enum.Enum):
    """What happens to YAML's anchors (&name), aliases (*name) and merge keys (<<)."""

    REFUSED = "refused"
    FOLLOWED = "followed"
    """An alias stands for the whole value of its anchor, each time counted as if it were written out."""


class Tags(enum.Enum):
    """What happens to YAML's tags (!name)."""

    REFUSED = "refused"
    IGNORED = "ignored"
    """But a scalar with a tag is text, unless the tag is one of YAML's own for numbers, booleans and null."""


class FurtherDocuments(enum.Enum):
    """What happens to whatever stands behind the first document."""

    REFUSED = "refused"
    UNREAD = "unread"


def as_written(plain: str) -> str:
    """A plain YAML key is the text that it is."""
    return plain


@attrs.frozen(kw_only=True)
class Dialect:
    """How a document is read.

    Attributes:
        plain_key: what a key without quotes is as text; None when it cannot be a key.
    """

    aliases: Aliases = Aliases.REFUSED
    tags: Tags = Tags.REFUSED
    further_documents: FurtherDocuments = FurtherDocuments.REFUSED
    plain_key: Callable[[str], str | None] = as_written
    document_bytes_max: int = DOCUMENT_BYTES_MAX
    depth_max: int = DEPTH_MAX
    nodes_max: int = NODES_MAX


STRICT: Final = Dialect()
