"""The one strict reader of every document: bytes in, a tree of nodes out, each limit with its reason.

A byte order mark at the very beginning is dropped (editors write it, and it means nothing in UTF-8). The format is told
by the content: what begins with `{` or `[` is read as JSON first, because YAML refuses tabs and escapes that JSON has;
what is not JSON is read as YAML, whose flow style begins with the same characters.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from actors.ports import TooLargeError
from statemachine.problem import Problem, Step
from statemachine.reasons import Reason

from .dialect import STRICT, Dialect
from .findings import DocumentError, located
from .json_text import MalformedJsonError, read_json
from .limits import DOCUMENT_BYTES_MAX
from .nodes import Place

if TYPE_CHECKING:
    from .nodes import Node

_BYTE_ORDER_MARK: Final = "\ufeff"
# What neither YAML nor a careful JSON writer leaves unescaped; tab, newline, return and NEL are YAML's own white space.
_UNPRINTABLE: Final = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x84\x86-\x9f\ufffe\uffff]")
_DOUBTLESS: Final = bytes([*b"\t\n\r", *range(0x20, 0x7F)])
_JSON_OPENERS: Final = ("{", "[")


def read_document(data: bytes, *, step: Step = Step.ADMISSION, dialect: Dialect = STRICT) -> Node:
    """Read one YAML or JSON document.

    Args:
        data: the whole file.
        step: the step that the problems name.
        dialect: what its writers may do.

    Raises:
        DocumentError: with one problem where reading had to stop, with all where it could go on (keys that stand twice,
            aliases): EmptyDocument NotUtf8 DocumentTooLarge TooDeep AliasesRefused MultipleDocuments MalformedDocument
            DuplicateKey WrongType (a key that is no text).
    """
    text = decoded(data, step, dialect)
    if not begins_like_json(text):
        return _read_yaml(text, None, step, dialect)
    try:
        return read_json(text, step, dialect)
    except MalformedJsonError as not_json:
        return _read_yaml(text, not_json, step, dialect)


def begins_like_json(text: str) -> bool:
    """Whether JSON is tried first."""
    return text.lstrip(" \t\r\n").startswith(_JSON_OPENERS)


def unreadable(error: OSError) -> Problem:
    """Why a document's file could not even be read."""
    if isinstance(error, TooLargeError):
        reason, message = Reason.DOCUMENT_TOO_LARGE, f"the file is larger than {DOCUMENT_BYTES_MAX >> 20} MiB"
    else:
        reason, message = Reason.UNREADABLE_FILE, f"the file cannot be read: {error.strerror or error}"
    return Problem(step=Step.ADMISSION, reason=reason, subject="document", message=message)


def decoded(data: bytes, step: Step, dialect: Dialect) -> str:
    """The text, without its byte order mark.

    Raises:
        DocumentError: DocumentTooLarge NotUtf8 MalformedDocument (a control character).
    """
    if len(data) > dialect.document_bytes_max:
        message = f"the document has {len(data)} bytes; {dialect.document_bytes_max} are the most"
        raise _refusal(Place(1, 1), step, Reason.DOCUMENT_TOO_LARGE, message)
    try:
        text = data.decode("utf-8").removeprefix(_BYTE_ORDER_MARK)
    except UnicodeDecodeError as error:
        place = Place(data.count(b"\n", 0, error.start) + 1, 1)
        message = f"byte {error.start} (0x{data[error.start]:02x}) is not UTF-8"
        raise _refusal(place, step, Reason.NOT_UTF8, message) from None
    # Most documents are ASCII without a doubt, and that is seen ten times as fast.
    found = _UNPRINTABLE.search(text) if data.translate(None, _DOUBTLESS) else None
    if found:
        place = Place(text.count("\n", 0, found.start()) + 1, found.start() - text.rfind("\n", 0, found.start()))
        message = f"the control character U+{ord(found[0]):04X} at column {place.column} must be escaped"
        raise _refusal(place, step, Reason.MALFORMED_DOCUMENT, message)
    return text


def _read_yaml(text: str, not_json: MalformedJsonError | None, step: Step, dialect: Dialect) -> Node:
    from .yaml_text import MalformedYamlError, read_yaml  # noqa: PLC0415 - PyYAML is slow to import, and many have JSON

    try:
        return read_yaml(text, step, dialect)
    except MalformedYamlError as not_yaml:
        if not_json is None or not_yaml.index > not_json.index:
            raise not_yaml.refusal from None
        # It is neither: the reader that got further has understood more of what was meant.
        raise not_json.refusal from None


def _refusal(place: Place, step: Step, reason: Reason, message: str) -> DocumentError:
    return DocumentError((located(place, step, reason, subject="document", message=message),))
