"""`greenroom cdi`: the CDI specs of a machine, or of files, for those who look for what is wrong with them.

It asks no worker, and reads what container engines read. The words of its failures are `actors.cdi.CdiReason`'s.
"""

from __future__ import annotations

import errno
import json
import posixpath
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import anyio
import click
import orjson

from actors import strict_json
from actors.cdi import (
    DEFAULT_DIRECTORIES,
    SPEC_BYTES_MAX,
    CdiError,
    CdiProblem,
    CdiReason,
    Registry,
    SpecFile,
    read_spec,
    registry_of,
    scan,
)
from actors.cdi import inject as injected
from actors.cdi.host import HostFiles, lstat
from actors.cdi.scanning import unreadable
from actors.ports.files import FileKind
from statemachine.wording import file_label
from supervisor.cli.asking import own_json_option
from supervisor.cli.cdi_answers import Places, failed, hint_among, judged_files, tell_broken, tell_places, warn
from supervisor.cli.cdi_showing import device_rows, devices_json, files_json, shown_json, shown_lines
from supervisor.host import files as greenroom_files
from supervisor.host.surroundings import read_small

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

_STANDARD_STREAM: Final = "-"
_DOCUMENT_BYTES_MAX: Final = 16 << 20
_READ_SUFFIXES: Final = (".json", ".yaml")
_SUFFIXES_MEANT: Final = (".json", ".yaml", ".yml")

spec_dir_option: Callable[[Any], Any] = click.option(
    "--spec-dir",
    "directories",
    multiple=True,
    metavar="DIR",
    help=f"Where specs are, lowest priority first; may be repeated.  [default: {', '.join(DEFAULT_DIRECTORIES)}]",
)
dev_root_option: Callable[[Any], Any] = click.option(
    "--dev-root",
    default="/",
    show_default=True,
    metavar="DIR",
    help="The directory that the host's /dev is in.",
)


@click.group()
def cdi() -> None:
    """Look at, check and use CDI specs, as container engines read them. No worker is asked."""


@cdi.command("list")
@spec_dir_option
@own_json_option
def list_devices(directories: tuple[str, ...], as_json: bool) -> None:
    """List the devices that containers can ask for; what is wrong with files goes to stderr."""
    registry, places = _looked_up(directories)
    if as_json:
        content = {
            "devices": devices_json(registry),
            "files": files_json(registry),
            "missingDirectories": list(map(file_label, places.missing)),
            "passedOver": list(map(file_label, places.passed_over)),
        }
        click.echo(orjson.dumps(content))
    else:
        for line in device_rows(registry):
            click.echo(line)
    tell_broken(registry)
    tell_places(places)


@cdi.command()
@click.argument("names", nargs=-1, required=True, metavar="NAME…")
@spec_dir_option
@dev_root_option
@own_json_option
def show(names: tuple[str, ...], directories: tuple[str, ...], dev_root: str, as_json: bool) -> int:
    """Show what a container gets with these devices, and which of their nodes exist on this host."""
    registry, places = _looked_up(directories)
    try:
        edits = registry.resolve(names)
    except CdiError as error:
        return _refused(error, registry, places, as_json=as_json)
    found = [registry.found[name] for name in dict.fromkeys(names)]
    if as_json:
        click.echo(orjson.dumps(shown_json(registry, found, edits, lstat=lstat, dev_root=dev_root)))
        return 0
    for line in shown_lines(registry, found, edits, lstat=lstat, dev_root=dev_root):
        click.echo(line)
    return 0


@cdi.command()
@click.argument("files", nargs=-1, metavar="[FILE…|-]")
@spec_dir_option
@own_json_option
def validate(files: tuple[str, ...], directories: tuple[str, ...], as_json: bool) -> int:
    """Check spec files, or all in the directories when none is named; 1 if there is any problem.

    Each problem is a line `file:line: path: Reason: message` on stdout, and so is each file that is right.
    """
    registry, places = _named(files) if files else _looked_up(directories)
    if as_json:
        click.echo(orjson.dumps(files_json(registry)))
    else:
        for line in judged_files(registry):
            click.echo(line)
    for file in registry.files:
        for warning in file.warnings:
            warn(warning)
    tell_places(places)
    problems = [problem for each in registry.errors.values() for problem in each]
    # All of them are told; the last line of stderr is the first one's, as with every command.
    return failed(problems[:1], as_json=False) if problems else 0


@cdi.command()
@click.option(
    "--device", "names", multiple=True, required=True, metavar="NAME", help="vendor/class=device; may be repeated."
)
@click.option(
    "--spec",
    "specs",
    multiple=True,
    metavar="FILE",
    help="A spec file to use in place of the directories, or before those that --spec-dir names; may be repeated.",
)
@spec_dir_option
@click.option("--in", "source", default=_STANDARD_STREAM, metavar="FILE", help="The OCI document.  [default: stdin]")
@click.option("--out", "target", default=_STANDARD_STREAM, metavar="FILE", help="For the result.  [default: stdout]")
@dev_root_option
@own_json_option
def inject(
    *,
    names: tuple[str, ...],
    specs: tuple[str, ...],
    directories: tuple[str, ...],
    source: str,
    target: str,
    dev_root: str,
    as_json: bool,
) -> int:
    """Inject devices into an OCI document (a config.json): all of them, or nothing is written."""
    registry, places = (Registry(), Places()) if specs and not directories else _looked_up(directories)
    # A file that was named wins over what lies in a directory, as one of a higher directory would.
    given = [_spec_file(name, len(directories)) for name in specs]
    broken = [problem for file in given for problem in file.problems]
    if broken:
        return failed(broken, as_json=as_json)
    registry = registry_of((*registry.files, *given), registry.directory_problems)
    try:
        made = injected(_document(source), registry.resolve(names), lstat=lstat, dev_root=dev_root)
        data = f"{json.dumps(made, ensure_ascii=False, indent=2)}\n".encode()
        if target != _STANDARD_STREAM:
            anyio.run(partial(_write, Path(target).absolute(), data))
    except CdiError as error:
        return _refused(error, registry, places, as_json=as_json)
    if target == _STANDARD_STREAM:
        click.echo(data, nl=False)
    elif as_json:
        click.echo(orjson.dumps({"file": file_label(target), "devices": list(dict.fromkeys(names))}))
    return 0


def _looked_up(directories: Sequence[str]) -> tuple[Registry, Places]:
    """The registry of some directories, and what is to be said of the directories themselves."""
    directories = directories or DEFAULT_DIRECTORIES
    missing: list[str] = []
    passed_over: list[str] = []
    for directory in directories:
        try:
            names = HostFiles().list_directory(directory)
        except FileNotFoundError:
            missing.append(directory)
        except OSError:
            continue  # the scan meets it as well, and tells it
        else:
            passed_over += [posixpath.join(directory, name) for name in names if _is_mistaken(name)]
    places = Places(directories=tuple(directories), missing=tuple(missing), passed_over=tuple(passed_over))
    return scan(HostFiles(), directories), places


def _named(files: Iterable[str]) -> tuple[Registry, Places]:
    """Files by their names, each for itself: the same device in two of them is no conflict."""
    files = tuple(dict.fromkeys(files))
    registry = registry_of(_spec_file(name, number) for number, name in enumerate(files))
    return registry, Places(passed_over=tuple(name for name in files if _is_mistaken(name)))


def _is_mistaken(name: str) -> bool:
    """Whether a file was meant to be read and is not, for the letters of its suffix."""
    return name.lower().endswith(_SUFFIXES_MEANT) and not name.endswith(_READ_SUFFIXES)


def _spec_file(name: str, priority: int) -> SpecFile:
    """One file that was named, whatever its name ends in; `-` is stdin."""
    try:
        reading = read_spec(_bytes(name, limit_bytes=SPEC_BYTES_MAX), name)
    except OSError as error:
        return SpecFile(path=name, priority=priority, problems=(unreadable(name, error),))
    return SpecFile(
        path=name, priority=priority, spec=reading.spec, problems=reading.problems, warnings=reading.warnings
    )


def _bytes(name: str, *, limit_bytes: int) -> bytes:
    if name == _STANDARD_STREAM:
        # One byte more than it may have, so that it is refused by the reader's own rule.
        return read_small(Path(name), limit_bytes=limit_bytes + 1)
    data = HostFiles().read(name, limit_bytes=limit_bytes)
    if data is None:
        raise IsADirectoryError(errno.EISDIR, "it is a directory", name)
    return data


def _document(name: str) -> dict[str, Any]:
    """The OCI document; nothing of it is lost, unknown keys included."""
    label = name
    try:
        content = strict_json.parse(_bytes(name, limit_bytes=_DOCUMENT_BYTES_MAX))
    except OSError as error:
        raise CdiError(_of_document(label, f"it cannot be read: {error.strerror or error}")) from None
    except strict_json.StrictJsonError as error:
        raise CdiError(_of_document(label, error.message, error.path)) from None
    if not isinstance(content, dict):
        raise CdiError(_of_document(label, "it must be an object"))
    return content


def _of_document(file: str, message: str, path: str = "") -> CdiProblem:
    return CdiProblem(reason=CdiReason.BAD_OCI_DOCUMENT, message=message, file=file, path=path)


async def _write(target: Path, data: bytes) -> None:
    """Replace a file atomically, for its owner alone: environments hold secrets. A device or a pipe is left alone."""
    port = greenroom_files.HostFiles(roots=(target.parent,))
    there = await port.lstat(target)
    if there is not None and there.kind is not FileKind.REGULAR:
        raise CdiError(_not_written(target, "what is there is no regular file"))
    try:
        await port.replace(target, data)
    except OSError as error:
        raise CdiError(_not_written(target, f"it cannot be written: {error.strerror or error}")) from None


def _not_written(target: Path, message: str) -> CdiProblem:
    return CdiProblem(reason=CdiReason.NOT_WRITTEN, message=message, file=str(target))


def _refused(error: CdiError, registry: Registry, places: Places, *, as_json: bool) -> int:
    """Say why, and before it what is wrong with the files that a missing device may be in."""
    if CdiReason.UNRESOLVABLE in error.reasons:
        tell_broken(registry)
        tell_places(places)
    return failed(error.problems, as_json=as_json, hint=hint_among(registry))
