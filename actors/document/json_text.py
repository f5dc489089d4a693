"""JSON with places: the standard library's decoder gives none, recurses, and lets lone surrogates pass.

Source: RFC 8259. Duplicate keys are refused by the builder, numbers stay text, NaN and Infinity are no JSON.
"""

from __future__ import annotations

import enum
import json
import re
from typing import TYPE_CHECKING, Final, NoReturn

from statemachine.reasons import Reason

from .building import TreeBuilder
from .dialect import STRICT, Dialect, FurtherDocuments
from .nodes import Node, Place, ScalarKind, ScalarNode
from .wording import shown

if TYPE_CHECKING:
    from statemachine.problem import Step

    from .findings import DocumentError

_SPACE: Final = re.compile(r"[ \t\r\n]*+")
_NUMBER: Final = re.compile(r"-?(?:0|[1-9][0-9]*+)(?:\.[0-9]++)?(?:[eE][+-]?[0-9]++)?")
_WORD: Final = re.compile(r"true|false|null")
_WORDS: Final = {"true": ScalarKind.BOOLEAN, "false": ScalarKind.BOOLEAN, "null": ScalarKind.NULL}
_SURROGATE: Final = re.compile("[\ud800-\udfff]")
_STRINGS: Final = json.JSONDecoder()
"""Only ever asked for one string at a time, so it does not recurse."""


class MalformedJsonError(Exception):
    """Raised when the text is not JSON.

    Attributes:
        index: how many characters could be read.
        refusal: what to tell the user, should it not be YAML either.
    """

    def __init__(self, index: int, refusal: DocumentError) -> None:
        super().__init__(index)
        self.index = index
        self.refusal = refusal


class _Due(enum.Enum):
    """What may come next."""

    VALUE = "a value"
    FIRST_ITEM = "a value or ]"
    FIRST_KEY = "a key in quotes or }"
    KEY = "a key in quotes"
    SEPARATOR = "a comma or the closing bracket"
    NOTHING = "the end of the document"


def read_json(text: str, step: Step, dialect: Dialect = STRICT) -> Node:
    """Read one JSON document.

    Raises:
        MalformedJsonError: it is no JSON.
        DocumentError: it is, but over a limit, with a key twice, or with a second document behind it.
    """
    reader = _JsonReader(text, TreeBuilder(step, dialect), dialect)
    return reader.read()


class _JsonReader:
    """A cursor over the text; one method for each thing that may be due."""

    def __init__(self, text: str, builder: TreeBuilder, dialect: Dialect) -> None:
        self._text = text
        self._builder = builder
        self._dialect = dialect
        self._index = 0
        self._line = 1
        self._line_start = 0
        self._closers: list[str] = []

    def read(self) -> Node:
        due = _Due.VALUE
        self._skip_space()
        while due is not _Due.NOTHING:
            due = self._step(due)
            self._skip_space()
        if self._index < len(self._text) and self._dialect.further_documents is FurtherDocuments.REFUSED:
            self._refuse_rest()
        return self._builder.finish()

    def _step(self, due: _Due) -> _Due:
        character = self._peek()
        match due:
            case _Due.VALUE:
                return self._value(character, due)
            case _Due.FIRST_ITEM:
                return self._close() if character == "]" else self._value(character, due)
            case _Due.FIRST_KEY:
                return self._close() if character == "}" else self._key(character, due)
            case _Due.KEY:
                return self._key(character, due)
            case _:
                return self._separator(character)

    def _value(self, character: str, due: _Due) -> _Due:
        place = self._place()
        if character == "{":
            self._builder.open_mapping(place)
            return self._enter("}", _Due.FIRST_KEY)
        if character == "[":
            self._builder.open_sequence(place)
            return self._enter("]", _Due.FIRST_ITEM)
        if character == '"':
            self._builder.scalar(ScalarNode(self._string(), ScalarKind.TEXT, place))
        elif word := _WORD.match(self._text, self._index):
            self._index = word.end()
            self._builder.scalar(ScalarNode(word[0], _WORDS[word[0]], place))
        elif number := _NUMBER.match(self._text, self._index):
            self._index = number.end()
            self._builder.scalar(ScalarNode(number[0], ScalarKind.NUMBER, place))
        else:
            self._fail_expecting(due)
        return self._after_value()

    def _enter(self, closer: str, due: _Due) -> _Due:
        self._closers.append(closer)
        self._index += 1
        return due

    def _close(self) -> _Due:
        self._builder.close()
        self._closers.pop()
        self._index += 1
        return self._after_value()

    def _after_value(self) -> _Due:
        return _Due.SEPARATOR if self._closers else _Due.NOTHING

    def _key(self, character: str, due: _Due) -> _Due:
        if character != '"':
            self._fail_expecting(due)
        place = self._place()
        self._builder.scalar(ScalarNode(self._string(), ScalarKind.TEXT, place))
        self._skip_space()
        if self._peek() != ":":
            self._fail("a colon is missing after the key")
        self._index += 1
        return _Due.VALUE

    def _separator(self, character: str) -> _Due:
        if character == self._closers[-1]:
            return self._close()
        if character != ",":
            self._fail_expecting(_Due.SEPARATOR)
        self._index += 1
        return _Due.KEY if self._closers[-1] == "}" else _Due.VALUE

    def _string(self) -> str:
        try:
            value, end = _STRINGS.raw_decode(self._text, self._index)
        except json.JSONDecodeError as error:
            self._index = error.pos
            self._fail(f"{error.msg[:1].lower()}{error.msg[1:]}")
        text = str(value)
        if _SURROGATE.search(text):
            self._fail("half of a surrogate pair is no character")
        self._index = end
        return text

    def _peek(self) -> str:
        return self._text[self._index : self._index + 1]

    def _skip_space(self) -> None:
        space = _SPACE.match(self._text, self._index)
        if space and space.end() > self._index:
            lines = self._text.count("\n", self._index, space.end())
            if lines:
                self._line += lines
                self._line_start = self._text.rindex("\n", self._index, space.end()) + 1
            self._index = space.end()

    def _place(self) -> Place:
        return Place(self._line, self._index - self._line_start + 1)

    def _fail_expecting(self, due: _Due) -> NoReturn:
        found = shown(self._text[self._index : self._index + 10]) if self._peek() else "the end of the text"
        self._fail(f"{due.value} is expected, not {found}")

    def _fail(self, words: str) -> NoReturn:
        place = self._place()
        message = f"not JSON: {words}, column {place.column}"
        raise MalformedJsonError(self._index, self._builder.stop(place, Reason.MALFORMED_DOCUMENT, message))

    def _refuse_rest(self) -> NoReturn:
        if self._peek() in '{["':
            raise self._builder.stop(self._place(), Reason.MULTIPLE_DOCUMENTS, "a second document begins here")
        self._fail_expecting(_Due.NOTHING)
