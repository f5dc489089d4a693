"""Which actor a document is about, even when it must be refused: a broken file still stands for its actor."""

from __future__ import annotations

from typing import TYPE_CHECKING

from actors.document import MappingNode, ScalarNode, read_document
from statemachine.problem import ProblemError

if TYPE_CHECKING:
    from actors.document import Node


def peek_uid(data: bytes) -> str | None:
    """The text of metadata.uid; None when the document cannot be read that far."""
    try:
        node = read_document(data)
    except ProblemError:
        return None
    uid = _member(_member(node, "metadata"), "uid")
    return uid.text if isinstance(uid, ScalarNode) else None


def _member(node: Node | None, key: str) -> Node | None:
    if not isinstance(node, MappingNode):
        return None
    return next((entry.value for entry in node.entries if entry.key == key), None)
