"""From a flat stream of scalars, openings and closings to a tree of nodes; each limit on its shape stands here once.

Both text formats feed the same builder. It keeps its own stack, so no document can exhaust Python's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias

import attrs

from statemachine.problem import ProblemError
from statemachine.reasons import Reason

from .findings import Findings, located
from .limits import DEPTH_MAX, NODES_MAX
from .nodes import Entry, MappingNode, Node, Place, ScalarKind, ScalarNode, SequenceNode
from .wording import document_path, shown

if TYPE_CHECKING:
    from statemachine.problem import Problem, Step

_MERGE_KEY: Final = "<<"


@attrs.define
class _OpenMapping:
    place: Place
    entries: list[Entry] = attrs.field(factory=list)
    lines: dict[str, int] = attrs.field(factory=dict)
    """The line of each key so far."""
    key: ScalarNode | None = None
    """The key that waits for its value."""

    def closed(self) -> MappingNode:
        return MappingNode(tuple(self.entries), self.place)

    def segment(self) -> str:
        return self.key.text if self.key else ""


@attrs.define
class _OpenSequence:
    place: Place
    items: list[Node] = attrs.field(factory=list)

    def closed(self) -> SequenceNode:
        return SequenceNode(tuple(self.items), self.place)

    def segment(self) -> int:
        return len(self.items)


_Open: TypeAlias = _OpenMapping | _OpenSequence


class TreeBuilder:
    """Takes a document's parts in order; `finish` gives the tree or raises what was found."""

    def __init__(self, step: Step) -> None:
        self._step = step
        self._findings = Findings(step)
        self._open: list[_Open] = []
        self._nodes = 0
        self._root: Node | None = None

    def scalar(self, node: ScalarNode) -> None:
        """A scalar: a key where a mapping waits for one, else a value."""
        self._count(node.place)
        top = self._open[-1] if self._open else None
        if isinstance(top, _OpenMapping) and top.key is None:
            self._key(top, node)
        else:
            self._value(node)

    def open_mapping(self, place: Place) -> None:
        """A mapping begins."""
        self._descend(_OpenMapping(place))

    def open_sequence(self, place: Place) -> None:
        """A list begins."""
        self._descend(_OpenSequence(place))

    def close(self) -> None:
        """The innermost mapping or list ends."""
        ended = self._open.pop()
        top = self._open[-1] if self._open else None
        if isinstance(top, _OpenMapping) and top.key is None:
            self._refuse_key(top, ended.place)
        else:
            self._value(ended.closed())

    def refuse(self, place: Place, reason: Reason, message: str) -> None:
        """Keep a problem with what comes next, and go on reading for more.

        Raises:
            ProblemError: that was the last one that is kept.
        """
        self._findings.add(place, reason, subject=self._path(), message=message)
        if self._findings.is_full:
            raise ProblemError(*self._found())

    def stop(self, place: Place, reason: Reason, message: str) -> ProblemError:
        """The error to raise where reading cannot or must not go on: what was found before, then this."""
        last = located(place, self._step, reason, subject=self._path(), message=message)
        return ProblemError(*self._found(), last.problem)

    def finish(self) -> Node:
        """The whole tree.

        Raises:
            ProblemError: EmptyDocument, or what was refused on the way, in document order.
        """
        if found := self._found():
            raise ProblemError(*found)
        root = self._root
        if root is None or (isinstance(root, ScalarNode) and root.is_null):
            raise self.stop(Place(1, 1), Reason.EMPTY_DOCUMENT, "the document has no content")
        return root

    def _found(self) -> tuple[Problem, ...]:
        return tuple(finding.problem for finding in self._findings.in_document_order())

    def _descend(self, opened: _Open) -> None:
        self._count(opened.place)
        if len(self._open) >= DEPTH_MAX:
            raise self.stop(opened.place, Reason.TOO_DEEP, f"the document nests deeper than {DEPTH_MAX} levels")
        self._open.append(opened)

    def _count(self, place: Place) -> None:
        self._nodes += 1
        if self._nodes > NODES_MAX:
            message = f"the document holds more than {NODES_MAX} keys and values"
            raise self.stop(place, Reason.DOCUMENT_TOO_LARGE, message)

    def _key(self, mapping: _OpenMapping, node: ScalarNode) -> None:
        mapping.key = node
        if node.kind is ScalarKind.PLAIN and node.text == _MERGE_KEY:
            self.refuse(node.place, Reason.ALIASES_REFUSED, "merge keys (<<) are not read; write the fields out")
        elif node.text in mapping.lines:
            first = mapping.lines[node.text]
            self.refuse(node.place, Reason.DUPLICATE_KEY, f"the key {shown(node.text)} stands already on line {first}")
        else:
            mapping.lines[node.text] = node.place.line

    def _refuse_key(self, mapping: _OpenMapping, place: Place) -> None:
        self.refuse(place, Reason.WRONG_TYPE, "a key must be text, not a mapping or list")
        mapping.key = ScalarNode("", ScalarKind.TEXT, place)

    def _value(self, node: Node) -> None:
        match self._open[-1] if self._open else None:
            case None:
                self._root = node
            case _OpenSequence(items=items):
                items.append(node)
            case _OpenMapping(key=ScalarNode() as key) as mapping:
                mapping.entries.append(Entry(key.text, key.place, node))
                mapping.key = None
            case _OpenMapping():
                message = "a value came where a key was due"
                raise AssertionError(message)

    def _path(self) -> str:
        segments = (opened.segment() for opened in self._open)
        return document_path(segment for segment in segments if segment != "")
