"""`greenroom validate`: documents of every kind, checked together, one report a file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import attrs

from statemachine.problem import ProblemError, Step

from .admission import decode_assignment
from .document import Finding, Findings, Node, Place, RefusedError, Spot, UnsetError, in_document_order, read_document
from .given_paths import GivenPath, missing_paths
from .kinds import Kind, kind_of
from .pools import Advice, Pool, check_template, read_pool

if TYPE_CHECKING:
    from collections.abc import Sequence

    from statemachine.problem import Problem

    from .ports import Files


@attrs.frozen(kw_only=True)
class DocumentFile:
    """One document to check. `base` is the absolute directory that its relative paths are below."""

    name: str
    data: bytes
    base: Path


@attrs.frozen(kw_only=True)
class FileReport:
    """What was found in one document.

    Attributes:
        name: the file's name as it was given.
        findings: the problems with their places.
        advice: what is allowed and will probably not work.
        given_paths: the paths of a WorkerAssignment, for `with_missing_paths`.
    """

    name: str
    findings: tuple[Finding, ...] = ()
    advice: tuple[Advice, ...] = ()
    given_paths: tuple[GivenPath, ...] = ()

    @property
    def problems(self) -> tuple[Problem, ...]:
        """The problems in document order."""
        return tuple(finding.problem for finding in in_document_order(self.findings))


@attrs.frozen
class _Read:
    file: DocumentFile
    node: Node
    findings: Findings
    kind: Kind

    @property
    def spot(self) -> Spot:
        return Spot(self.findings, self.node.place)


def validate_documents(files: Sequence[DocumentFile]) -> list[FileReport]:
    """Check every document by its kind, templates against all pools of the same call; reports in the order given.

    Pure: the paths that assignments name are not looked for, see `with_missing_paths`.
    """
    read = [_read(file) for file in files]
    pools: list[Pool] = []
    reports: dict[int, FileReport] = {}
    for index, document in enumerate(read):
        match document:
            case FileReport():
                reports[index] = document
            case _Read(kind=Kind.WORKER_ASSIGNMENT):
                reports[index] = _assignment_report(document)
            case _Read(kind=Kind.WORKER_POOL):
                reports[index] = _pool_report(document, pools)
    # Only now are all pools known, wherever they stand among the files.
    for index, document in enumerate(read):
        if isinstance(document, _Read) and document.kind is Kind.ACTOR_TEMPLATE:
            check_template(document.node, document.spot, pools)
            reports[index] = FileReport(name=document.file.name, findings=document.findings.in_document_order())
    return [reports[index] for index in range(len(files))]


async def with_missing_paths(report: FileReport, files: Files) -> FileReport:
    """The report with RootfsNotFound and BundleNotFound for the paths of an assignment that do not exist."""
    missing = await missing_paths(report.given_paths, files)
    return attrs.evolve(report, findings=in_document_order((*report.findings, *missing)))


def _read(file: DocumentFile) -> _Read | FileReport:
    findings = Findings(Step.ADMISSION)
    try:
        node = read_document(file.data)
        kind = kind_of(node, Spot(findings, node.place))
    except ProblemError as error:
        # The reader's problems are in order already; one common place keeps them so.
        return FileReport(name=file.name, findings=tuple(Finding(Place(1, 1), problem) for problem in error.problems))
    except (RefusedError, UnsetError):
        return FileReport(name=file.name, findings=findings.in_document_order())
    return _Read(file, node, findings, kind)


def _assignment_report(document: _Read) -> FileReport:
    decoded = decode_assignment(document.node, document.file.base)
    return FileReport(name=document.file.name, findings=decoded.findings, given_paths=decoded.given_paths)


def _pool_report(document: _Read, pools: list[Pool]) -> FileReport:
    reading = read_pool(document.node, document.spot, document.file.name)
    if reading.pool is not None:
        pools.append(reading.pool)
    return FileReport(name=document.file.name, findings=document.findings.in_document_order(), advice=reading.advice)
