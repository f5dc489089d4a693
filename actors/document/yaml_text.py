"""YAML, by libyaml's events: no Python object is ever constructed and no scalar is resolved to a type.

Source: YAML 1.1 as libyaml reads it. Not read, by design: anchors, aliases, merge keys, tags, several documents.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol, TypeAlias

import yaml

from statemachine.reasons import Reason

from .building import TreeBuilder
from .nodes import Node, Place, ScalarKind, ScalarNode

if TYPE_CHECKING:
    from statemachine.problem import ProblemError, Step

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

    def __init__(self, index: int, refusal: ProblemError) -> None:
        super().__init__(index)
        self.index = index
        self.refusal = refusal


def read_yaml(text: str, step: Step) -> Node:
    """Read one YAML document.

    Raises:
        MalformedYamlError: it is no YAML.
        ProblemError: it is, but not what is read here.
    """
    builder = TreeBuilder(step)
    try:
        _feed(text, builder)
    except yaml.MarkedYAMLError as error:
        raise _refused(error, builder) from None
    except yaml.YAMLError as error:
        # Unreadable characters, which the caller has excluded, carry no mark; the words are libyaml's.
        refusal = builder.stop(Place(1, 1), Reason.MALFORMED_DOCUMENT, f"not YAML: {str(error).splitlines()[0]}")
        raise MalformedYamlError(0, refusal) from None
    return builder.finish()


def _feed(text: str, builder: TreeBuilder) -> None:
    documents = 0
    for event in yaml.parse(text, Loader=yaml.CSafeLoader):
        match event:
            case yaml.ScalarEvent():
                _refuse_decoration(event, builder)
                builder.scalar(ScalarNode(event.value, _kind(event), _place(event)))
            case yaml.MappingStartEvent():
                _refuse_decoration(event, builder)
                builder.open_mapping(_place(event))
            case yaml.SequenceStartEvent():
                _refuse_decoration(event, builder)
                builder.open_sequence(_place(event))
            case yaml.MappingEndEvent() | yaml.SequenceEndEvent():
                builder.close()
            case yaml.AliasEvent():
                builder.refuse(_place(event), Reason.ALIASES_REFUSED, "aliases (*name) are not read; write it out")
                # A stand-in, so that keys and values keep their pairs and further problems are found.
                builder.scalar(ScalarNode(f"*{event.anchor}", ScalarKind.TEXT, _place(event)))
            case yaml.DocumentStartEvent():
                documents += 1
                if documents > 1:
                    raise builder.stop(_place(event), Reason.MULTIPLE_DOCUMENTS, "a second document begins here")
            case _:
                # Beginning and end of the stream and of the document carry nothing.
                continue


def _refuse_decoration(event: _TaggedEvent, builder: TreeBuilder) -> None:
    if event.anchor is not None:
        builder.refuse(_place(event), Reason.ALIASES_REFUSED, "anchors (&name) are not read; write the value out")
    if event.tag is not None:
        builder.refuse(_place(event), Reason.ALIASES_REFUSED, "tags (!name) are not read; a field has its own type")


def _kind(event: yaml.ScalarEvent) -> ScalarKind:
    return ScalarKind.TEXT if event.style else ScalarKind.PLAIN


def _place(event: yaml.Event) -> Place:
    return _at(event.start_mark)


def _at(mark: _Mark | None) -> Place:
    return Place(1, 1) if mark is None else Place(mark.line + 1, mark.column + 1)


def _refused(error: yaml.MarkedYAMLError, builder: TreeBuilder) -> ProblemError | MalformedYamlError:
    mark = error.problem_mark or error.context_mark
    place = _at(mark)
    words = error.problem or "unreadable"
    if _NESTING_WORDS in words:
        return builder.stop(place, Reason.TOO_DEEP, "the document nests far too deep")
    message = f"not YAML: {': '.join(filter(None, (error.context, words)))}, column {place.column}"
    refusal = builder.stop(place, Reason.MALFORMED_DOCUMENT, message)
    return MalformedYamlError(mark.index if mark else 0, refusal)
