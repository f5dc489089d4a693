"""From a flat stream of scalars, openings and closings to a tree of nodes; each limit on its shape stands here once.

Both text formats feed the same builder. It keeps its own stack, so no document can exhaust Python's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias

import attrs

from statemachine.reasons import Reason

from .dialect import STRICT, Aliases, Dialect
from .findings import DocumentError, Findings, located
from .nodes import Entry, MappingNode, Node, Place, ScalarKind, ScalarNode, SequenceNode
from .wording import document_path, shown

if TYPE_CHECKING:
    from statemachine.problem import Step

_MERGE_KEY: Final = "<<"


@attrs.frozen
class _Anchored:
    """The value of an anchor, how many nodes it is written out, and how many levels lie inside it."""

    node: Node
    nodes: int
    height: int


@attrs.define
class _OpenMapping:
    place: Place
    anchor: str | None
    nodes_before: int
    height: int = 0
    """Levels inside, as far as is known."""
    is_merging: bool = False
    """The key that waits is a merge key."""
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
    anchor: str | None
    nodes_before: int
    height: int = 0
    items: list[Node] = attrs.field(factory=list)

    def closed(self) -> SequenceNode:
        return SequenceNode(tuple(self.items), self.place)

    def segment(self) -> int:
        return len(self.items)


_Open: TypeAlias = _OpenMapping | _OpenSequence


class TreeBuilder:
    """Takes a document's parts in order; `finish` gives the tree or raises what was found."""

    def __init__(self, step: Step, dialect: Dialect = STRICT) -> None:
        self._step = step
        self._dialect = dialect
        self._findings = Findings(step)
        self._open: list[_Open] = []
        self._nodes = 0
        self._root: Node | None = None
        self._anchors: dict[str, _Anchored] = {}

    def scalar(self, node: ScalarNode, anchor: str | None = None) -> None:
        """A scalar: a key where a mapping waits for one, else a value."""
        self._count(node.place)
        if anchor is not None:
            self._anchors[anchor] = _Anchored(node, 1, 0)
        top = self._open[-1] if self._open else None
        if isinstance(top, _OpenMapping) and top.key is None:
            self._key(top, node)
        else:
            self._value(node)

    def open_mapping(self, place: Place, anchor: str | None = None) -> None:
        """A mapping begins."""
        self._descend(_OpenMapping(place, anchor, self._nodes))

    def open_sequence(self, place: Place, anchor: str | None = None) -> None:
        """A list begins."""
        self._descend(_OpenSequence(place, anchor, self._nodes))

    def close(self) -> None:
        """The innermost mapping or list ends."""
        ended = self._open.pop()
        node = ended.closed()
        if ended.anchor is not None:
            self._anchors[ended.anchor] = _Anchored(node, self._nodes - ended.nodes_before, ended.height + 1)
        self._whole(node, ended.height + 1)

    def alias(self, place: Place, anchor: str | None) -> None:
        """The value of an anchor stands here once more; limits count it as if it were written out.

        Raises:
            DocumentError: there is no such anchor (or it is still open, so that it would contain itself), or a limit.
        """
        anchored = self._anchors.get(anchor or "")
        if anchored is None:
            name = shown(f"*{anchor}")
            raise self.stop(place, Reason.MALFORMED_DOCUMENT, f"the alias {name} has no complete anchor before it")
        self._count(place, anchored.nodes)
        if len(self._open) + anchored.height > self._dialect.depth_max:
            raise self._too_deep(place)
        top = self._open[-1] if self._open else None
        if isinstance(anchored.node, ScalarNode) and isinstance(top, _OpenMapping) and top.key is None:
            self._key(top, anchored.node)
        else:
            self._whole(anchored.node, anchored.height)

    def refuse(self, place: Place, reason: Reason, message: str) -> None:
        """Keep a problem with what comes next, and go on reading for more.

        Raises:
            DocumentError: that was the last one that is kept.
        """
        self._findings.add(place, reason, subject=self._path(), message=message)
        if self._findings.is_full:
            raise DocumentError(self._findings.in_document_order())

    def stop(self, place: Place, reason: Reason, message: str) -> DocumentError:
        """The error to raise where reading cannot or must not go on: what was found before, then this."""
        last = located(place, self._step, reason, subject=self._path(), message=message)
        return DocumentError((*self._findings.in_document_order(), last))

    def finish(self) -> Node:
        """The whole tree.

        Raises:
            DocumentError: EmptyDocument, or what was refused on the way, in document order.
        """
        root = self._root
        if found := self._findings.in_document_order():
            raise DocumentError(found, root)
        if root is None or (isinstance(root, ScalarNode) and root.is_null):
            raise self.stop(Place(1, 1), Reason.EMPTY_DOCUMENT, "the document has no content")
        return root

    def _descend(self, opened: _Open) -> None:
        self._count(opened.place)
        if len(self._open) >= self._dialect.depth_max:
            raise self._too_deep(opened.place)
        self._open.append(opened)

    def _too_deep(self, place: Place) -> DocumentError:
        message = f"the document nests deeper than {self._dialect.depth_max} levels"
        return self.stop(place, Reason.TOO_DEEP, message)

    def _count(self, place: Place, nodes: int = 1) -> None:
        self._nodes += nodes
        if self._nodes > self._dialect.nodes_max:
            message = f"the document holds more than {self._dialect.nodes_max} keys and values"
            raise self.stop(place, Reason.DOCUMENT_TOO_LARGE, message)

    def _key(self, mapping: _OpenMapping, node: ScalarNode) -> None:
        mapping.key = node
        if node.kind is ScalarKind.PLAIN:
            if node.text == _MERGE_KEY:
                self._merge_key(mapping, node)
                return
            text = self._dialect.plain_key(node.text)
            if text is None:
                self._refuse_key(mapping, node.place)
                return
            mapping.key = node = attrs.evolve(node, text=text)
        self._take_key(mapping, node.text, node.place)

    def _take_key(self, mapping: _OpenMapping, text: str, place: Place) -> None:
        if text in mapping.lines:
            first = mapping.lines[text]
            self.refuse(place, Reason.DUPLICATE_KEY, f"the key {shown(text)} stands already on line {first}")
        else:
            mapping.lines[text] = place.line

    def _merge_key(self, mapping: _OpenMapping, node: ScalarNode) -> None:
        if self._dialect.aliases is Aliases.REFUSED:
            self.refuse(node.place, Reason.ALIASES_REFUSED, "merge keys (<<) are not read; write the fields out")
        else:
            mapping.is_merging = True

    def _merge(self, mapping: _OpenMapping, node: Node) -> None:
        parts = node.items if isinstance(node, SequenceNode) else (node,)
        for part in parts:
            if not isinstance(part, MappingNode):
                self.refuse(part.place, Reason.WRONG_TYPE, "a merge key (<<) takes a mapping or a list of mappings")
                continue
            for entry in part.entries:
                self._take_key(mapping, entry.key, entry.key_place)
                mapping.entries.append(entry)

    def _refuse_key(self, mapping: _OpenMapping, place: Place) -> None:
        self.refuse(place, Reason.WRONG_TYPE, "a key must be text, not a mapping or list")
        mapping.key = ScalarNode("", ScalarKind.TEXT, place)

    def _whole(self, node: Node, height: int) -> None:
        """A mapping or list that is complete, or whatever an alias stands for."""
        top = self._open[-1] if self._open else None
        if top is not None:
            top.height = max(top.height, height)
        if isinstance(top, _OpenMapping) and top.key is None:
            self._refuse_key(top, node.place)
        else:
            self._value(node)

    def _value(self, node: Node) -> None:
        match self._open[-1] if self._open else None:
            case None:
                self._root = node
            case _OpenSequence(items=items):
                items.append(node)
            case _OpenMapping(key=ScalarNode(), is_merging=True) as mapping:
                self._merge(mapping, node)
                mapping.key, mapping.is_merging = None, False
            case _OpenMapping(key=ScalarNode() as key) as mapping:
                mapping.entries.append(Entry(key.text, key.place, node))
                mapping.key = None
            case _OpenMapping():
                message = "a value came where a key was due"
                raise AssertionError(message)

    def _path(self) -> str:
        segments = (opened.segment() for opened in self._open)
        return document_path(segment for segment in segments if segment != "")
