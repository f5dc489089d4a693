"""Format 1 of the manifest: how it is written, and how strictly it is read.

Fields may be added to a format, so unknown ones are passed over; none is ever renamed. What is there must have its
type: a manifest that is not to be believed in one field is not to be believed at all.

Source: DESIGN, "JSON shapes".
"""

from __future__ import annotations

import errno
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, TypeVar, get_args

import attrs
import cattrs
from cattrs.gen import make_dict_structure_fn, make_dict_unstructure_fn, override
from cattrs.v import format_exception

from actors.assignment import SnapshotScope
from actors.codec import camel
from actors.ports import TooLargeError
from actors.strict_json import StrictJsonError, canonical, parse_object
from statemachine.problem import Problem, ProblemError, Step
from statemachine.reasons import Reason

from .model import MANIFEST_NAME, Manifest

if TYPE_CHECKING:
    from pathlib import Path

    from actors.ports import Files
    from actors.strict_json import JsonObject

FORMAT: Final = 1

MANIFEST_BYTES_MAX: Final = 64 << 20  # it may repeat the arguments of many containers
_SMALL_BYTES: Final = 1 << 14  # most have some four thousand

_T = TypeVar("_T")


def as_json(manifest: Manifest) -> JsonObject:
    """Return format 1."""
    document: JsonObject = {"v": FORMAT, **_CONVERTER.unstructure(manifest)}
    return document


async def write_manifest(files: Files, directory: Path, manifest: Manifest) -> None:
    """Make a directory of proven files a snapshot: atomically, durably, last.

    Raises:
        OSError: it cannot be written, or not be read back; the directory is to be no snapshot then.
        ProblemError: it could not be read back, so it is not written either.
    """
    path, data = directory / MANIFEST_NAME, canonical(as_json(manifest))
    # Once it stands there the sandbox is ended, and a manifest that cannot be believed would be the end of the actor.
    parse_manifest(data, path=path, step=Step.SUSPEND)
    await files.replace(path, data)
    if await files.read(path, limit_bytes=MANIFEST_BYTES_MAX) != data:
        raise OSError(errno.EIO, "what was written does not stand there", str(path))


async def read_manifest(files: Files, directory: Path, *, step: Step = Step.RESTORE) -> Manifest:
    """Read the manifest of a snapshot.

    Raises:
        ProblemError: SnapshotMissing when there is none, SnapshotCorrupt when it cannot be believed, NewerFormat.
    """
    path = directory / MANIFEST_NAME
    try:
        data = await files.read(path, limit_bytes=MANIFEST_BYTES_MAX)
    except TooLargeError as error:
        raise ProblemError(_too_large(step, path)) from error
    except OSError as error:
        message = f"there is no snapshot at {directory}: {MANIFEST_NAME}: {error.strerror or error}"
        raise ProblemError(_problem(step, Reason.SNAPSHOT_MISSING, path, message)) from error
    return parse_manifest(data, path=path, step=step)


def parse_manifest(data: bytes, *, path: Path | str, step: Step = Step.RESTORE) -> Manifest:
    """Read a manifest's bytes.

    Raises:
        ProblemError: SnapshotCorrupt, NewerFormat.
    """
    if len(data) > MANIFEST_BYTES_MAX:
        raise ProblemError(_too_large(step, path))
    try:
        return _parse_again(data) if len(data) <= _SMALL_BYTES else _parse(data)
    except _FormatError as error:
        raise ProblemError(_problem(step, error.reason, path, f"{path} has {error}")) from error
    except StrictJsonError as error:
        raise ProblemError(_problem(step, Reason.SNAPSHOT_CORRUPT, path, f"{path} is damaged: {error}")) from error
    except Exception as error:  # cattrs raises groups, KeyError, TypeError, ValueError
        said = "; ".join(cattrs.transform_error(error, path="$", format_exception=_say))
        raise ProblemError(_problem(step, Reason.SNAPSHOT_CORRUPT, path, f"{path} is damaged: {said}")) from error


class _FormatError(Exception):
    """Raised for another format than ours, and for a snapshot that has not what its scope demands."""

    def __init__(self, reason: Reason, text: str) -> None:
        super().__init__(text)
        self.reason = reason


def _parse(data: bytes) -> Manifest:
    document = parse_object(data)
    version = document.get("v")
    if isinstance(version, int) and not isinstance(version, bool) and version > FORMAT:
        raise _FormatError(Reason.NEWER_FORMAT, f"format {version}; this version reads up to {FORMAT}")
    if isinstance(version, bool) or version != FORMAT:
        raise _FormatError(Reason.SNAPSHOT_CORRUPT, f"no known format: {version!r}")
    manifest = _CONVERTER.structure(document, Manifest)
    if manifest.absent:
        message = f"no {', '.join(manifest.absent)}, which a snapshot of scope {manifest.scope} must have"
        raise _FormatError(Reason.SNAPSHOT_CORRUPT, message)
    return manifest


# The same bytes are the same manifest, and each is read again at every suspend, restore and release of its actor. Few
# are kept: one takes some 25 KB, and every suspend brings another.
_parse_again: Final = lru_cache(maxsize=32)(_parse)


def _too_large(step: Step, path: Path | str) -> Problem:
    message = f"{path} is larger than {MANIFEST_BYTES_MAX >> 20} MiB"
    return _problem(step, Reason.SNAPSHOT_CORRUPT, path, message)


def _problem(step: Step, reason: Reason, path: Path | str, message: str) -> Problem:
    return Problem(step=step, reason=reason, subject=str(path), message=message)


# ---------------------------------------------------------------------------------------------- structuring, strictly


def _exactly(value: object, kind: type[_T]) -> _T:
    """Return the value when it has just this type: no number from text, no flag from a number."""
    if type(value) is not kind:
        message = f"must be {kind.__name__}, is {value!r:.60}"
        raise TypeError(message)
    return value


def _strict_converter() -> cattrs.Converter:
    converter = cattrs.Converter(detailed_validation=True)
    converter.register_structure_hook(str, _exactly)
    converter.register_structure_hook(int, _exactly)
    # A word of text: the hook of str would take it for one of its own and ask for an exact text.
    converter.register_structure_hook(SnapshotScope, lambda value, kind: kind(_exactly(value, str)))
    converter.register_unstructure_hook(SnapshotScope, str)
    converter.register_structure_hook_factory(
        lambda kind: getattr(kind, "__origin__", None) is tuple,
        lambda kind: _array_hook(converter, get_args(kind)[0]),
    )
    converter.register_unstructure_hook_factory(
        lambda kind: getattr(kind, "__origin__", None) is tuple,
        lambda kind: _list_hook(converter, get_args(kind)[0]),
    )

    def renames(kind: type) -> dict[str, Any]:
        return {field.name: override(rename=camel(field.name.removesuffix("_bytes"))) for field in attrs.fields(kind)}

    converter.register_structure_hook_factory(
        attrs.has, lambda kind: make_dict_structure_fn(kind, converter, **renames(kind))
    )
    converter.register_unstructure_hook_factory(
        attrs.has, lambda kind: make_dict_unstructure_fn(kind, converter, **renames(kind))
    )
    return converter


def _array_hook(converter: cattrs.Converter, element: Any) -> Any:
    def structure(value: object, _kind: object) -> tuple[Any, ...]:
        if not isinstance(value, list):  # a text is a sequence too, of one-letter texts
            message = f"must be an array, is {value!r:.60}"
            raise TypeError(message)
        return tuple(converter.structure(value, array))

    array = list[element]
    return structure


def _list_hook(converter: cattrs.Converter, element: Any) -> Any:
    def unstructure(values: tuple[Any, ...]) -> list[Any]:
        return [converter.unstructure(each, element) for each in values]

    return unstructure


def _say(error: BaseException, kind: type | None) -> str:
    """Say what is wrong with one value: our own words where we refused it."""
    return str(error) if isinstance(error, TypeError | ValueError) else format_exception(error, kind)


_CONVERTER: Final = _strict_converter()
