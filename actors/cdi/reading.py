"""One spec from a file's bytes: YAML or JSON by one reader, every problem with its place, never an exception.

Source: CDI SPEC.md for the fields; the Go library for how their texts are read (docs/cdi.md, "Reading").
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Final

import attrs

from actors.document.dialect import Aliases, Dialect, FurtherDocuments, Tags
from actors.document.findings import DocumentError
from actors.document.reading import read_document
from actors.document.values import place_of, read_values, value_of

from .decoding import Decoding, decode_spec, folded
from .problems import REMARKS_MAX, CdiError, CdiProblem, CdiReason, Path, Remark
from .scalars import plain_key
from .validation import device_at, remarks_on, warnings_on
from .versions import is_below, known_version

if TYPE_CHECKING:
    from collections.abc import Iterable

    from actors.document.findings import Finding
    from actors.document.nodes import Node
    from actors.document.values import Value

    from .model import Spec

SPEC_BYTES_MAX: Final = 4 << 20
"""Ten times what the largest hosts write; a file over it is refused before it is read."""
_NODES_MAX: Final = 250_000
_REMOVED_IN: Final = "1.1.0"

CDI: Final = Dialect(
    aliases=Aliases.FOLLOWED,
    tags=Tags.IGNORED,
    further_documents=FurtherDocuments.UNREAD,
    plain_key=plain_key,
    document_bytes_max=SPEC_BYTES_MAX,
    nodes_max=_NODES_MAX,
)
"""How Go's YAML library reads, which every container engine uses for these files; with limits, which it lacks."""


@attrs.frozen(kw_only=True)
class Reading:
    """What became of one file.

    Attributes:
        name: the file.
        spec: the spec, when nothing is wrong with it.
        problems: all that is wrong, in the order of the file.
        warnings: what SPEC.md forbids and every engine takes, and what some engines take for something else.
    """

    name: str
    spec: Spec | None = None
    problems: tuple[CdiProblem, ...] = ()
    warnings: tuple[CdiProblem, ...] = ()


def load(data: bytes, name: str) -> Spec:
    """The spec in a file's bytes.

    Args:
        data: the whole file, YAML or JSON whatever its name says.
        name: the file's name, for the problems.

    Raises:
        CdiError: with every problem of the file.
    """
    reading = read_spec(data, name)
    if reading.spec is None:
        raise CdiError(*reading.problems)
    return reading.spec


def read_spec(data: bytes, name: str) -> Reading:
    """As `load`, with problems and warnings as values."""
    try:
        value = read_values(data, dialect=CDI)
    except DocumentError as error:
        return _unreadable(error, name)
    spec, problems, warnings = _judged(value)
    if not problems and not warnings:
        return Reading(name=name, spec=spec)
    # Something is to be told: only now are its places worth their time.
    root = _with_places(data)
    if isinstance(root, DocumentError):
        return _unreadable(root, name)
    return Reading(
        name=name,
        spec=None if problems else spec,
        problems=_placed(problems, spec, root, name),
        warnings=_placed(warnings, spec, root, name),
    )


def _judged(value: Value) -> tuple[Spec, list[Remark], list[Remark]]:
    decoding = Decoding()
    spec = decode_spec(value, decoding)
    problems, warnings = _removed_fields(spec, decoding)
    problems += decoding.remarks
    problems += itertools.islice(decoding.undoubted(remarks_on(spec)), REMARKS_MAX)
    warnings += decoding.warnings
    warnings += itertools.islice(warnings_on(spec), REMARKS_MAX)
    return spec, problems[:REMARKS_MAX], warnings[:REMARKS_MAX]


def _removed_fields(spec: Spec, decoding: Decoding) -> tuple[list[Remark], list[Remark]]:
    declared = known_version(spec.cdi_version)
    if declared is not None and is_below(declared, _REMOVED_IN):
        words = f"does nothing: version {_REMOVED_IN} removed it"
        return [], [_removed(path, words) for path in decoding.removed]
    words = f"is no field since version {_REMOVED_IN}"
    return [_removed(path, words) for path in decoding.removed], []


def _removed(path: Path, words: str) -> Remark:
    return Remark(reason=CdiReason.UNKNOWN_FIELD, path=path, message=f"{path.segment} {words}", value=str(path.segment))


def _unreadable(error: DocumentError, name: str) -> Reading:
    problems = [_of_document(finding, name) for finding in error.findings]
    if error.root is not None:
        # It could be read to the end, so that what its fields say is worth telling as well.
        spec, remarks, _ = _judged(value_of(error.root))
        problems += _placed(remarks, spec, error.root, name)
    return Reading(name=name, problems=tuple(sorted(problems, key=lambda problem: problem.line or 0)))


def _of_document(finding: Finding, name: str) -> CdiProblem:
    problem, line = finding.problem, finding.place.line
    return CdiProblem(
        reason=CdiReason(problem.reason.value),
        message=problem.message.removesuffix(f" (line {line})"),
        file=name,
        path="" if problem.subject == "document" else problem.subject,
        line=line,
    )


def _with_places(data: bytes) -> Node | DocumentError:
    try:
        return read_document(data, dialect=CDI)
    except DocumentError as error:
        return error


def _placed(remarks: Iterable[Remark], spec: Spec, root: Node, name: str) -> tuple[CdiProblem, ...]:
    placed = [(place_of(root, remark.path.segments, folded), remark) for remark in remarks]
    placed.sort(key=lambda pair: pair[0])
    return tuple(remark.in_file(name, line=place.line, device=device_at(spec, remark.path)) for place, remark in placed)
