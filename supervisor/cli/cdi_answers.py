"""How `greenroom cdi` tells what is wrong: each problem with its place, its reason and a hint."""

from __future__ import annotations

import contextlib
import itertools
from typing import TYPE_CHECKING, Any, Final

import attrs
import click
import orjson

from actors.cdi import CdiReason
from statemachine.problem import ProblemError
from statemachine.wording import file_label, one_line

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from actors.cdi import CdiProblem, Registry

_SENTENCE_CHARACTERS_MAX: Final = 2000
_ITEMS_MAX: Final = 10
_R: Final = CdiReason

HINTS: Final = {
    _R.NOT_READABLE: "Look at its owner, its mode and whether it is a regular file; engines skip it and go on.",
    _R.NOT_UTF8: "Specs are UTF-8 text; was it cut off, or is it another kind of file?",
    _R.EMPTY_DOCUMENT: "Whoever generates it was perhaps stopped in between; generate it again.",
    _R.DOCUMENT_TOO_LARGE: "The largest hosts need a tenth of that; is it another kind of file?",
    _R.TOO_DEEP: "No spec is nested so deep.",
    _R.MALFORMED_DOCUMENT: "It must be YAML or JSON; the line is where reading ended.",
    _R.DUPLICATE_KEY: "Keep one of the two; a plain YAML loader would silently take the last.",
    _R.UNKNOWN_FIELD: "Fields are checked strictly: engines refuse the whole file for one.",
    _R.WRONG_TYPE: "Give the field the type that the message names.",
    _R.READ_DIFFERENTLY: "Quote the text, and spell the field as SPEC.md does: then every engine reads the same.",
    _R.OUT_OF_RANGE: "Give a number that fits.",
    _R.UNKNOWN_VERSION: "Use the lowest version that has every field used.",
    _R.VERSION_TOO_LOW: "Raise cdiVersion, or leave out what needs more.",
    _R.BAD_KIND: "A kind is vendor/class, such as nvidia.com/gpu.",
    _R.BAD_DEVICE_NAME: "Rename the device; those who ask for it use the new name.",
    _R.NO_DEVICES: "A generator that found no hardware writes such a file; look at the driver.",
    _R.DUPLICATE_DEVICE: "Rename or remove one of the two.",
    _R.EMPTY_EDITS: "Give the device at least one edit; an `all` of no devices has none.",
    _R.BAD_ENV: "Write NAME=value; quote it if a plain YAML scalar means something else.",
    _R.BAD_NODE_PATH: "Name the path in the container.",
    _R.BAD_NODE_TYPE: "Leave the type out to take the host's.",
    _R.BAD_PERMISSIONS: "Leave the permissions out for all of them.",
    _R.BAD_MOUNT: "A mount has a hostPath and a containerPath.",
    _R.BAD_HOOK: "A hook has a path, env of NAME=value, and a timeout above 0 if any.",
    _R.UNKNOWN_HOOK_STAGE: "Stages are spelt as OCI spells them.",
    _R.BAD_INTEL_RDT: "closID names one directory of resctrl.",
    _R.BAD_NET_DEVICE: "Each network device has a hostInterfaceName and a name of its own.",
    _R.BAD_ANNOTATION: "Annotations follow Kubernetes' rules.",
    _R.BAD_TEXT: "No path, variable or name can hold it.",
    _R.BAD_NAME: "A device is asked for as vendor/class=device.",
    _R.BAD_REQUEST: "The value of a request is qualified names with a comma between.",
    _R.REQUEST_TAKEN: "Use another plugin name or id.",
    _R.CONFLICT: "Remove one of the files, or move it to a directory of another priority.",
    _R.UNRESOLVABLE: "`greenroom cdi list` shows the devices that there are.",
    _R.NOT_ALLOTTED: "Ask for devices of the allotment only.",
    _R.HOST_NODE_MISSING: "Is the driver loaded? A node with a type and a major number need not be on the host.",
    _R.HOST_NODE_IS_NONE: "A symlink is not followed; name the node that it leads to.",
    _R.NODE_TYPE_MISMATCH: "The spec was made for another host or driver; generate it again.",
    _R.BAD_OCI_DOCUMENT: "It must be the config.json of an OCI bundle.",
    _R.NOT_WRITTEN: "Name a regular file in a directory that exists.",
}
"""What to do about each reason."""


@attrs.frozen(kw_only=True)
class Places:
    """The directories that were looked into.

    Attributes:
        directories: lowest priority first.
        missing: those that do not exist, which an engine takes for empty ones.
        passed_over: files in them that look like specs and that no engine reads.
    """

    directories: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    passed_over: tuple[str, ...] = ()


def hint_for(problem: CdiProblem) -> str:
    """What to do about a problem."""
    return HINTS[problem.reason]


def hint_among(registry: Registry) -> Callable[[CdiProblem], str]:
    """The same, and of a device that there is none of: which ones there are, and the files that have them."""

    def hint(problem: CdiProblem) -> str:
        if problem.reason is not CdiReason.UNRESOLVABLE or problem.related[1:] or not registry.found:
            return hint_for(problem)
        kind = problem.value.partition("=")[0]
        kin = [found for found in registry.found.values() if found.spec.kind == kind]
        names = _few(found.device.name for found in kin) if kin else _few(registry.names())
        files = _few(file_label(path) for path in sorted({each.path for each in kin or registry.found.values()}))
        return f"{kind} has {names} in {files}" if kin else f"there are {names} in {files}"

    return hint


def _few(items: Iterable[str]) -> str:
    first = list(itertools.islice(items, _ITEMS_MAX + 1))
    return ", ".join([*first[:_ITEMS_MAX], *("…" for _ in first[_ITEMS_MAX:])])


def problem_json(problem: CdiProblem, hint: Callable[[CdiProblem], str] = hint_for) -> dict[str, Any]:
    """A problem in the shape of all others, and its place apart."""
    return {
        "step": "cdi",
        "reason": str(problem.reason),
        "subject": file_label(problem.file) or one_line(problem.value, _SENTENCE_CHARACTERS_MAX),
        "message": _sentence(problem.message),
        "hint": hint(problem),
        "detail": "",
        "path": problem.path,
        "line": problem.line,
        "device": one_line(problem.device, _SENTENCE_CHARACTERS_MAX),
        "value": one_line(problem.value, _SENTENCE_CHARACTERS_MAX),
        "related": [file_label(file) for file in problem.related],
    }


def failed(problems: Sequence[CdiProblem], *, as_json: bool, hint: Callable[[CdiProblem], str] = hint_for) -> int:
    """Tell all problems on stderr, the first one on the last line, and return the exit code."""
    if as_json:
        errors = [problem_json(problem, hint) for problem in problems]
        with contextlib.suppress(ProblemError, BrokenPipeError):  # stdout cannot be written: stderr says it too
            click.echo(orjson.dumps({"ok": False, "error": errors[0], "errors": errors}))
    for number, problem in reversed(list(enumerate(problems))):
        # One hint for a run of problems that share it.
        if number == 0 or hint(problems[number - 1]) != hint(problem):
            click.echo(f"hint: {hint(problem)}", err=True)
        click.echo(f"error: {problem.reason}: {_front(problem)}{_sentence(problem.message)}", err=True)
    return 1


def judged_files(registry: Registry) -> Iterator[str]:
    """A line for each problem, and one for each file without any."""
    errors = registry.errors
    for place, problems in errors.items():
        for problem in problems:
            where = _place(problem) or file_label(place)
            yield f"{where}: {_path(problem)}{problem.reason}: {_sentence(problem.message)}"
    for file in registry.files:
        if file.spec is not None and file.path not in errors:
            count = len(file.spec.devices)
            devices = "1 device" if count == 1 else f"{count} devices"
            yield f"{file_label(file.path)}: ok: {devices} of {file.spec.kind}"


def warn(problem: CdiProblem) -> None:
    """Tell on stderr what stops nobody."""
    click.echo(f"warning: {_front(problem)}{_sentence(problem.message)} ({problem.reason})", err=True)


def tell_broken(registry: Registry) -> None:
    """What is wrong with files and directories, though something else was asked for."""
    for problems in registry.errors.values():
        for problem in problems:
            if problem.reason is not CdiReason.CONFLICT:
                warn(problem)
    for conflict in registry.conflicts:
        definers = " and by ".join(map(file_label, conflict.paths))
        # The Go library, which engines use, drops the device even then.
        end = f"; {file_label(conflict.shadowed_by)} settles it here, not everywhere" if conflict.shadowed_by else ""
        click.echo(f"warning: {conflict.name} is defined by {definers}{end} ({CdiReason.CONFLICT})", err=True)


def tell_places(places: Places) -> None:
    """What the directories themselves explain."""
    for path in places.passed_over:
        click.echo(f"warning: {file_label(path)}: no engine reads it: its name must end in .json or .yaml", err=True)
    for directory in places.missing:
        click.echo(f"warning: {file_label(directory)}: does not exist, which is the same as empty", err=True)
    if places.directories and len(places.missing) == len(places.directories):
        click.echo("hint: nothing has written a spec here; `nvidia-ctk cdi generate` does for NVIDIA GPUs", err=True)


def _front(problem: CdiProblem) -> str:
    place = _place(problem)
    return f"{place}: {_path(problem)}" if place else _path(problem)


def _place(problem: CdiProblem) -> str:
    file = file_label(problem.file)
    return f"{file}:{problem.line}" if file and problem.line else file


def _path(problem: CdiProblem) -> str:
    return f"{problem.path}: " if problem.path else ""


def _sentence(message: str) -> str:
    return one_line(message, _SENTENCE_CHARACTERS_MAX)
