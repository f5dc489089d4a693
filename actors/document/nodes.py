"""What a document is after reading, before any field gives it a type: mappings, lists and scalars with their places."""

from __future__ import annotations

import enum
from typing import Final, TypeAlias

import attrs

from .wording import shown

_NULL_WORDS: Final = frozenset({"", "~", "null", "Null", "NULL"})


@attrs.frozen(order=True)
class Place:
    """Where something begins: line and column, both from 1; columns count characters. Sorts in document order."""

    line: int
    column: int


class ScalarKind(enum.Enum):
    """What the text itself says about a scalar's type; the field decides the rest."""

    PLAIN = "plain"
    """YAML without quotes: any type, by the field."""
    TEXT = "text"
    """Quoted or block YAML, or a JSON string: text and nothing else."""
    NUMBER = "number"
    """A JSON number, as written."""
    BOOLEAN = "boolean"
    """JSON true or false."""
    NULL = "null"
    """JSON null."""


_KIND_WORDS: Final = {
    ScalarKind.PLAIN: "unquoted",
    ScalarKind.TEXT: "text",
    ScalarKind.NUMBER: "number",
    ScalarKind.BOOLEAN: "boolean",
}


@attrs.frozen
class ScalarNode:
    """A scalar: its text exactly as written (escapes and folding resolved) and its kind."""

    text: str
    kind: ScalarKind
    place: Place

    @property
    def is_nothing(self) -> bool:
        """JSON null, or YAML with nothing after the colon or dash: the same as absent for every type of field."""
        return self.kind is ScalarKind.NULL or (self.kind is ScalarKind.PLAIN and not self.text)

    @property
    def is_null(self) -> bool:
        """Nothing, or YAML's words for it (`null`, `~`): absent for every field that is not text."""
        return self.kind is ScalarKind.NULL or (self.kind is ScalarKind.PLAIN and self.text in _NULL_WORDS)


@attrs.frozen
class Entry:
    """One key of a mapping, as text, and its value."""

    key: str
    key_place: Place
    value: Node


@attrs.frozen
class MappingNode:
    """A mapping: entries in document order, keys unique."""

    entries: tuple[Entry, ...]
    place: Place


@attrs.frozen
class SequenceNode:
    """A list."""

    items: tuple[Node, ...]
    place: Place


Node: TypeAlias = MappingNode | SequenceNode | ScalarNode


def described(node: Node) -> str:
    """What a node is, in words that fit behind "is": for messages about a wrong type."""
    match node:
        case MappingNode():
            return "a mapping"
        case SequenceNode():
            return "a list"
        case ScalarNode():
            return "empty" if node.is_null else f"the {_KIND_WORDS[node.kind]} {shown(node.text)}"
