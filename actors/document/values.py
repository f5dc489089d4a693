"""A document as plain Python values: what large documents are read into, at a tenth of the time and memory of nodes.

The quick reading knows right documents only. Whatever it meets that is not (a limit, a key that stands twice, an alias)
makes it give up, and `read_document` reads the text once more and says what it is; so there is one reader that decides,
and the quick one only has to be right about what it accepts. Values have no places: `place_of` finds them in the tree.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Final, NoReturn, TypeAlias

from statemachine.problem import Step

from .dialect import STRICT, Dialect
from .nodes import MappingNode, Node, Place, ScalarKind, ScalarNode, SequenceNode
from .reading import begins_like_json, decoded, read_document

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    import yaml


class Plain(str):
    """A scalar that leaves its type open: YAML without quotes, or a JSON number as written. Text is a bare `str`."""

    __slots__ = ()


Value: TypeAlias = "dict[str, Value] | list[Value] | str | bool | None"
_Pairs: TypeAlias = "list[tuple[str, Value]]"

_MERGE_KEY: Final = "<<"
_SURROGATE_ESCAPE: Final = re.compile(r"\\u[dD][89a-fA-F]")


class _NotQuickError(Exception):
    """Raised where the quick reading gives up."""


def read_values(data: bytes, *, step: Step = Step.ADMISSION, dialect: Dialect = STRICT) -> Value:
    """Read one YAML or JSON document.

    Raises:
        DocumentError: as `read_document`.
    """
    text = decoded(data, step, dialect)
    try:
        value = _quick_json(text, dialect) if begins_like_json(text) else _quick_yaml(text, dialect)
    except _NotQuickError:
        value = None
    if value is None or isinstance(value, Plain):
        return value_of(read_document(data, step=step, dialect=dialect))
    return value


def value_of(node: Node) -> Value:
    """The tree without places; of a key that stands twice, which is refused elsewhere, the first.

    A tree is at most as deep as its dialect allows, so that this may recurse.
    """
    match node:
        case MappingNode():
            mapping: dict[str, Value] = {}
            for entry in node.entries:
                mapping.setdefault(entry.key, value_of(entry.value))
            return mapping
        case SequenceNode():
            return [value_of(item) for item in node.items]
        case ScalarNode(kind=ScalarKind.NULL):
            return None
        case ScalarNode(kind=ScalarKind.BOOLEAN):
            return node.text == "true"
        case ScalarNode(kind=ScalarKind.TEXT):
            return node.text
        case ScalarNode():
            return Plain(node.text)


def place_of(root: Node, path: Sequence[str | int], fold: Callable[[str], str] = str) -> Place:
    """Where the value of a path begins, or the innermost value around it that is there; keys are compared folded."""
    node = root
    for segment in path:
        inner = _child(node, segment, fold)
        if inner is None:
            break
        node = inner
    return node.place


def _child(node: Node, segment: str | int, fold: Callable[[str], str]) -> Node | None:
    match node:
        case SequenceNode() if isinstance(segment, int):
            return node.items[segment] if segment < len(node.items) else None
        case MappingNode() if isinstance(segment, str):
            folded = fold(segment)
            return next((entry.value for entry in node.entries if fold(entry.key) == folded), None)
        case _:
            return None


class _Plains(dict[str, Plain]):
    """Each plain text once: a document repeats few numbers and words many times."""

    def __missing__(self, text: str) -> Plain:
        plain = self[text] = Plain(text)
        return plain


def _quick_json(text: str, dialect: Dialect) -> Value:
    # The standard library lets halves of surrogate pairs pass.
    if _SURROGATE_ESCAPE.search(text) or _json_nodes_at_most(text) > dialect.nodes_max:
        raise _NotQuickError
    number = _Plains().__getitem__
    try:
        value: Value = json.loads(
            text, object_pairs_hook=_unique, parse_int=number, parse_float=number, parse_constant=_give_up
        )
    except (ValueError, RecursionError):
        raise _NotQuickError from None
    if _is_deeper(value, dialect.depth_max):
        raise _NotQuickError
    return value


def _json_nodes_at_most(text: str) -> int:
    """Every key and value but the root stands behind one of these; inside texts they are counted too."""
    return 1 + sum(map(text.count, "[{,:"))


def _is_deeper(value: Value, depth_max: int) -> bool:
    level = [value] if isinstance(value, dict | list) else []
    for _ in range(depth_max):
        level = [
            inner
            for outer in level
            for inner in (outer.values() if isinstance(outer, dict) else outer)
            if isinstance(inner, dict | list)
        ]
        if not level:
            return False
    return bool(level)


def _unique(pairs: _Pairs) -> dict[str, Value]:
    mapping = dict(pairs)
    if len(mapping) < len(pairs):
        raise _NotQuickError
    return mapping


def _give_up(_text: str) -> NoReturn:
    raise _NotQuickError


def _quick_yaml(text: str, dialect: Dialect) -> Value:
    import yaml  # noqa: PLC0415 - as in `.reading`

    try:
        return _Quick(dialect).read(yaml.parse(text, Loader=yaml.CSafeLoader))
    except yaml.YAMLError:
        raise _NotQuickError from None


class _Quick:
    """Takes events of one document that has no aliases, no tags and no key twice."""

    def __init__(self, dialect: Dialect) -> None:
        self._plain_key = dialect.plain_key
        self._nodes_left = dialect.nodes_max
        self._depth_max = dialect.depth_max
        self._plains = _Plains()
        self._keys: dict[str, str] = {}
        self._documents: list[Value] = []
        self._top: dict[str, Value] | list[Value] = self._documents
        self._key: str | None = None
        """The key that waits for its value, when the innermost is a mapping."""
        self._around: list[dict[str, Value] | list[Value]] = []

    def read(self, events: Iterable[yaml.Event]) -> Value:
        """The document's value, when nothing stands behind it."""
        import yaml  # noqa: PLC0415 - as in `.reading`

        for event in events:
            match event:
                case yaml.ScalarEvent():
                    self._scalar(event)
                case yaml.MappingEndEvent() | yaml.SequenceEndEvent():
                    self._top = self._around.pop()
                case yaml.MappingStartEvent():
                    self._admit(event)
                    self._open({})
                case yaml.SequenceStartEvent():
                    self._admit(event)
                    self._open([])
                case yaml.AliasEvent():
                    raise _NotQuickError
                case _:
                    continue
        # Several, none, or an empty one: each has its own name, which the other reader knows.
        if len(self._documents) != 1:
            raise _NotQuickError
        return self._documents[0]

    def _scalar(self, event: yaml.ScalarEvent) -> None:
        self._admit(event)
        if self._key is None and isinstance(self._top, dict):
            self._key = self._taken_key(event, self._top)
        else:
            self._value(self._plains[event.value] if event.implicit[0] else event.value)

    def _admit(self, event: yaml.ScalarEvent | yaml.CollectionStartEvent) -> None:
        self._nodes_left -= 1
        if event.anchor is not None or event.tag is not None or self._nodes_left < 0:
            raise _NotQuickError

    def _taken_key(self, event: yaml.ScalarEvent, mapping: dict[str, Value]) -> str:
        text: str | None = event.value
        if event.implicit[0]:
            text = None if event.value == _MERGE_KEY else self._plain_key(event.value)
        if text is None or text in mapping:
            raise _NotQuickError
        return self._keys.setdefault(text, text)

    def _value(self, value: Value) -> None:
        if isinstance(self._top, list):
            self._top.append(value)
        elif self._key is None:
            raise _NotQuickError
        else:
            self._top[self._key] = value
            self._key = None

    def _open(self, opened: dict[str, Value] | list[Value]) -> None:
        self._value(opened)
        self._around.append(self._top)
        self._top = opened
        if len(self._around) > self._depth_max:
            raise _NotQuickError
