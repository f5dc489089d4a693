"""`greenroom validate`: admission only, without a worker. Each problem is a line on stdout, advice goes to stderr."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import anyio
import click
import orjson

from actors.ports import TooLargeError
from actors.validation import DocumentFile, FileReport, validate_documents, with_missing_paths
from statemachine.problem import Problem, Step
from statemachine.reasons import Reason
from supervisor.cli.asking import json_option
from supervisor.host.files import HostFiles
from supervisor.status import problem_json

READ_LIMIT_BYTES = (1 << 20) + 1
"""One byte more than a document may have, so that the reader's own rule refuses it."""


@click.command()
@click.argument("files", nargs=-1, required=True, metavar="FILE…")
@json_option
def validate(files: tuple[str, ...], as_json: bool) -> int:
    """Check WorkerAssignments, WorkerPools and ActorTemplates; 1 if there is any problem.

    Each problem is a line `file: path: Reason: message`. ActorTemplates are checked against every WorkerPool given in
    the same call.
    """
    outcome = anyio.run(partial(_check, {name: Path(name).absolute() for name in files}))
    if as_json:
        click.echo(orjson.dumps([_as_json(name, problems, report) for name, problems, report in outcome]))
    else:
        for name, problems, report in outcome:
            for problem in problems:
                click.echo(f"{name}: {problem.subject}: {problem.reason}: {problem.message}")
            for advice in report.advice if report else ():
                click.echo(f"warning: {name}: {advice.subject}: {advice.message}", err=True)
    return 1 if any(problems for _name, problems, _report in outcome) else 0


async def _check(paths: dict[str, Path]) -> list[tuple[str, tuple[Problem, ...], FileReport | None]]:
    """Every file's problems, in the order given; the report is None for a file that cannot be read."""
    port = HostFiles(roots=())
    documents: list[DocumentFile] = []
    unreadable: dict[str, Problem] = {}
    for name, path in paths.items():
        try:
            data = await port.read(path, limit_bytes=READ_LIMIT_BYTES)
        except OSError as error:
            unreadable[name] = _unreadable(name, error)
        else:
            documents.append(DocumentFile(name=name, data=data, base=path.parent))
    reports = {report.name: report for report in validate_documents(documents)}
    outcome: list[tuple[str, tuple[Problem, ...], FileReport | None]] = []
    for name in paths:
        if name in unreadable:
            outcome.append((name, (unreadable[name],), None))
        else:
            report = await with_missing_paths(reports[name], port)
            outcome.append((name, report.problems, report))
    return outcome


def _as_json(name: str, problems: tuple[Problem, ...], report: FileReport | None) -> dict[str, Any]:
    advice = report.advice if report else ()
    return {
        "file": name,
        "problems": [problem_json(problem) for problem in problems],
        "warnings": [{"subject": each.subject, "message": each.message} for each in advice],
    }


def _unreadable(name: str, error: OSError) -> Problem:
    reason = Reason.DOCUMENT_TOO_LARGE if isinstance(error, TooLargeError) else Reason.UNREADABLE_FILE
    message = "it is larger than 1 MiB" if isinstance(error, TooLargeError) else error.strerror or str(error)
    return Problem(step=Step.ADMISSION, reason=reason, subject=name, message=message)
