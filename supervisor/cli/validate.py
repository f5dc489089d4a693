"""`greenroom validate`: admission only, without a worker.

Each problem is a line on stdout. Advice goes to stderr, and so does the first problem, as the last line there.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
import click
import orjson

from actors.document import unreadable
from actors.validation import DocumentFile, FileReport, validate_documents, with_missing_paths
from statemachine.wording import file_label
from supervisor.cli.asking import own_json_option
from supervisor.cli.given import READ_LIMIT_BYTES, in_file
from supervisor.host.files import HostFiles
from supervisor.status import problem_json

if TYPE_CHECKING:
    from statemachine.problem import Problem


@click.command()
@click.argument("files", nargs=-1, required=True, metavar="FILE…")
@own_json_option
def validate(files: tuple[str, ...], as_json: bool) -> int:
    """Check WorkerAssignments, WorkerPools and ActorTemplates; 1 if there is any problem.

    Each problem is a line `file: path: Reason: message`. ActorTemplates are checked against every WorkerPool given in
    the same call.
    """
    outcome = anyio.run(partial(_check, {name: Path(name).absolute() for name in files}))
    if as_json:
        click.echo(orjson.dumps([_as_json(file_label(name), problems, report) for name, problems, report in outcome]))
    else:
        for name, problems, report in outcome:
            for problem in problems:
                click.echo(f"{file_label(name)}: {problem.subject}: {problem.reason}: {problem.message}")
            for advice in report.advice if report else ():
                click.echo(f"warning: {file_label(name)}: {advice.subject}: {advice.message}", err=True)
    found = [in_file(problem, name) for name, problems, _report in outcome for problem in problems]
    if found:
        click.echo(f"hint: {found[0].hint}", err=True)
        click.echo(f"error: {found[0]}", err=True)
    return 1 if found else 0


async def _check(paths: dict[str, Path]) -> list[tuple[str, tuple[Problem, ...], FileReport | None]]:
    """Every file's problems, in the order given; the report is None for a file that cannot be read."""
    port = HostFiles(roots=())
    documents: list[DocumentFile] = []
    unread: dict[str, Problem] = {}
    for name, path in paths.items():
        try:
            data = await port.read(path, limit_bytes=READ_LIMIT_BYTES)
        except OSError as error:
            unread[name] = unreadable(error)
        else:
            documents.append(DocumentFile(name=name, data=data, base=path.parent))
    reports = {report.name: report for report in validate_documents(documents)}
    outcome: list[tuple[str, tuple[Problem, ...], FileReport | None]] = []
    for name in paths:
        if name in unread:
            outcome.append((name, (unread[name],), None))
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
