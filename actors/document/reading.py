"""The one strict reader of every document: bytes in, a tree of nodes out, each limit with its reason.

A byte order mark at the very beginning is dropped (editors write it, and it means nothing in UTF-8). The format is told
by the content: what begins with `{` or `[` is read as JSON first, because YAML refuses tabs and escapes that JSON has;
what is not JSON is read as YAML, whose flow style begins with the same characters.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from statemachine.problem import ProblemError, Step
from statemachine.reasons import Reason

from .findings import located
from .json_text import MalformedJsonError, read_json
from .limits import DOCUMENT_BYTES_MAX
from .nodes import Place
from .yaml_text import MalformedYamlError, read_yaml

if TYPE_CHECKING:
    from .nodes import Node

_BYTE_ORDER_MARK: Final = "\ufeff"
# What neither YAML nor a careful JSON writer leaves unescaped; tab, newline, return and NEL are YAML's own white space.
_UNPRINTABLE: Final = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x84\x86-\x9f\ufffe\uffff]")
_JSON_OPENERS: Final = ("{", "[")


def read_document(data: bytes, *, step: Step = Step.ADMISSION) -> Node:
    """Read one YAML or JSON document.

    Args:
        data: the whole file.
        step: the step that the problems name.

    Raises:
        ProblemError: with one problem where reading had to stop, with all where it could go on (keys that stand twice,
            aliases): EmptyDocument NotUtf8 DocumentTooLarge TooDeep AliasesRefused MultipleDocuments MalformedDocument
            DuplicateKey WrongType (a key that is no text).
    """
    text = _decoded(data, step)
    if not text.lstrip(" \t\r\n").startswith(_JSON_OPENERS):
        return _read_yaml_alone(text, step)
    try:
        return read_json(text, step)
    except MalformedJsonError as not_json:
        return _read_yaml_instead(text, not_json, step)


def _decoded(data: bytes, step: Step) -> str:
    if len(data) > DOCUMENT_BYTES_MAX:
        message = f"the document has {len(data)} bytes; {DOCUMENT_BYTES_MAX} are the most"
        raise _refusal(Place(1, 1), step, Reason.DOCUMENT_TOO_LARGE, message)
    try:
        text = data.decode("utf-8").removeprefix(_BYTE_ORDER_MARK)
    except UnicodeDecodeError as error:
        place = Place(data.count(b"\n", 0, error.start) + 1, 1)
        message = f"byte {error.start} (0x{data[error.start]:02x}) is not UTF-8"
        raise _refusal(place, step, Reason.NOT_UTF8, message) from None
    if found := _UNPRINTABLE.search(text):
        place = Place(text.count("\n", 0, found.start()) + 1, found.start() - text.rfind("\n", 0, found.start()))
        message = f"the control character U+{ord(found[0]):04X} at column {place.column} must be escaped"
        raise _refusal(place, step, Reason.MALFORMED_DOCUMENT, message)
    return text


def _read_yaml_alone(text: str, step: Step) -> Node:
    try:
        return read_yaml(text, step)
    except MalformedYamlError as not_yaml:
        raise not_yaml.refusal from None


def _read_yaml_instead(text: str, not_json: MalformedJsonError, step: Step) -> Node:
    try:
        return read_yaml(text, step)
    except MalformedYamlError as not_yaml:
        # It is neither: the reader that got further has understood more of what was meant.
        further = not_yaml if not_yaml.index > not_json.index else not_json
        raise further.refusal from None


def _refusal(place: Place, step: Step, reason: Reason, message: str) -> ProblemError:
    return ProblemError(located(place, step, reason, subject="document", message=message).problem)
