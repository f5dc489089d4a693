"""YAML, by libyaml's events: no Python object is ever constructed and no scalar is resolved to a type.

Source: YAML 1.1 as libyaml reads it. Whether anchors, aliases, merge keys, tags and several documents are read is a
matter of the dialect; the strict one refuses them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol, TypeAlias

import yaml

from statemachine.reasons import Reason

from .building import TreeBuilder
from .dialect import STRICT, Aliases, Dialect, FurtherDocuments, Tags
from .nodes import Node, Place, ScalarKind, ScalarNode

if TYPE_CHECKING:
    from statemachine.problem import Step

    from .findings import DocumentError

_TYPED_TAGS: Final = frozenset(f"tag:yaml.org,2002:{word}" for word in ("int", "float", "bool", "null"))
"""Tags under which a scalar is not simply text."""
_NESTING_WORDS: Final = "nesting depth"
"""libyaml's own limit (1000 levels) can strike while it looks ahead, before the events show the depth."""


_TaggedEvent: TypeAlias = yaml.ScalarEvent | yaml.CollectionStartEvent


class _Mark(Protocol):
    """A place as libyaml counts: from 0."""

    @property
    def line(self) -> int: ...
    @property
    def column(self) -> int: ...


class MalformedYamlError(Exception):
    """Raised when the text is not YAML.

    Attributes:
        index: how many characters could be read.
        refusal: what to tell the user.
    """

    def __init__(self, index: int, refusal: DocumentError) -> None:
        super().__init__(index)
        self.index = index
        self.refusal = refusal


def read_yaml(text: str, step: Step, dialect: Dialect = STRICT) -> Node:
    """Read one YAML document.

    Raises:
        MalformedYamlError: it is no YAML.
        DocumentError: it is, but not what is read here.
    """
    builder = TreeBuilder(step, dialect)
    try:
        _feed(text, builder, dialect)
    except yaml.MarkedYAMLError as error:
        raise _refused(error, builder) from None
    except yaml.YAMLError as error:
        # Unreadable characters, which the caller has excluded, carry no mark; the words are libyaml's.
        refusal = builder.stop(Place(1, 1), Reason.MALFORMED_DOCUMENT, f"not YAML: {str(error).splitlines()[0]}")
        raise MalformedYamlError(0, refusal) from None
    return builder.finish()


def _feed(text: str, builder: TreeBuilder, dialect: Dialect) -> None:
    documents = 0
    for event in yaml.parse(text, Loader=yaml.CSafeLoader):
        match event:
            case yaml.ScalarEvent():
                _refuse_decoration(event, builder, dialect)
                builder.scalar(ScalarNode(event.value, _kind(event), _place(event)), event.anchor)
            case yaml.MappingStartEvent():
                _refuse_decoration(event, builder, dialect)
                builder.open_mapping(_place(event), event.anchor)
            case yaml.SequenceStartEvent():
                _refuse_decoration(event, builder, dialect)
                builder.open_sequence(_place(event), event.anchor)
            case yaml.MappingEndEvent() | yaml.SequenceEndEvent():
                builder.close()
            case yaml.AliasEvent() if dialect.aliases is Aliases.FOLLOWED:
                builder.alias(_place(event), event.anchor)
            case yaml.AliasEvent():
                builder.refuse(_place(event), Reason.ALIASES_REFUSED, "aliases (*name) are not read; write it out")
                # A stand-in, so that keys and values keep their pairs and further problems are found.
                builder.scalar(ScalarNode(f"*{event.anchor}", ScalarKind.TEXT, _place(event)))
            case yaml.DocumentEndEvent() if dialect.further_documents is FurtherDocuments.UNREAD:
                return
            case yaml.DocumentStartEvent():
                documents += 1
                if documents > 1:
                    raise builder.stop(_place(event), Reason.MULTIPLE_DOCUMENTS, "a second document begins here")
            case _:
                # Beginning and end of the stream and of the document carry nothing.
                continue


def _refuse_decoration(event: _TaggedEvent, builder: TreeBuilder, dialect: Dialect) -> None:
    if event.anchor is not None and dialect.aliases is Aliases.REFUSED:
        builder.refuse(_place(event), Reason.ALIASES_REFUSED, "anchors (&name) are not read; write the value out")
    if event.tag is not None and dialect.tags is Tags.REFUSED:
        builder.refuse(_place(event), Reason.ALIASES_REFUSED, "tags (!name) are not read; a field has its own type")


def _kind(event: yaml.ScalarEvent) -> ScalarKind:
    if event.tag is not None:
        return ScalarKind.PLAIN if event.tag in _TYPED_TAGS else ScalarKind.TEXT
    return ScalarKind.TEXT if event.style else ScalarKind.PLAIN


def _place(event: yaml.Event) -> Place:
    return _at(event.start_mark)


def _at(mark: _Mark | None) -> Place:
    return Place(1, 1) if mark is None else Place(mark.line + 1, mark.column + 1)


def _refused(error: yaml.MarkedYAMLError, builder: TreeBuilder) -> DocumentError | MalformedYamlError:
    mark = error.problem_mark or error.context_mark
    place = _at(mark)
    words = error.problem or "unreadable"
    if _NESTING_WORDS in words:
        return builder.stop(place, Reason.TOO_DEEP, "the document nests far too deep")
    message = f"not YAML: {': '.join(filter(None, (error.context, words)))}, column {place.column}"
    refusal = builder.stop(place, Reason.MALFORMED_DOCUMENT, message)
    return MalformedYamlError(mark.index if mark else 0, refusal)
