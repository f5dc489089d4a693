"""Documents: one strict reader (`read_document`), and decoders that give each field its type and report every problem.

Nothing here knows a kind of document; `actors.admission` and `actors.pools` do.
"""

from .decoding import Decoder, Field, Record, RefusedError, Spot, UnsetError
from .findings import Finding, Findings, in_document_order, raise_if_any
from .nodes import Entry, MappingNode, Node, Place, ScalarKind, ScalarNode, SequenceNode
from .reading import read_document, unreadable

__all__ = [
    "Decoder",
    "Entry",
    "Field",
    "Finding",
    "Findings",
    "MappingNode",
    "Node",
    "Place",
    "Record",
    "RefusedError",
    "ScalarKind",
    "ScalarNode",
    "SequenceNode",
    "Spot",
    "UnsetError",
    "in_document_order",
    "raise_if_any",
    "read_document",
    "unreadable",
]
