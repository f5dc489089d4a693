"""The record of an activation, `sandboxes/<activation>/sandbox.json`: what a later life needs to know what is ours.

Written before the first runsc command, and again whenever a process of it becomes known; for this boot only, with which
everything ends that it tells of.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import attrs

from actors.ports import ProcessIdentity
from actors.strict_json import StrictJsonError, canonical, parse_object
from statemachine.problem import Problem, ProblemError, Step
from statemachine.reasons import Reason

from .belongings import Belongings
from .flags import GlobalFlags

if TYPE_CHECKING:
    from actors.ports import Files
    from actors.strict_json import JsonObject

FORMAT: Final = 2
"""1, before there were belongings: of its sandbox is not known what is needed to go on with it."""
RECORD_NAME: Final = "sandbox.json"
ROOT_CONTAINER: Final = "pause"

_RECORD_BYTES_MAX: Final = 1 << 20


@attrs.frozen(kw_only=True)
class SandboxRecord:
    """One activation.

    Attributes:
        activation: its name, which is its directory's.
        actor: the actor's uid.
        boot_id: the boot that its process identities belong to.
        runtime_path: the runsc that made it; no other may be used on it.
        runtime_version: that runsc's own text.
        flags: the global flags of every command.
        container_ids: runsc's id for each container name, `pause` included.
        sandbox: the sandbox's process, once it is known.
        gofers: the file server of each container that has started, by container name.
        belongings: what else there is to know; None in a record of format 1.
    """

    activation: str
    actor: str
    boot_id: str
    runtime_path: Path
    runtime_version: str
    flags: GlobalFlags
    container_ids: Mapping[str, str]
    sandbox: ProcessIdentity | None = None
    gofers: Mapping[str, ProcessIdentity] = attrs.field(factory=dict)
    belongings: Belongings | None = None

    @property
    def root_id(self) -> str:
        """The sandbox's id, which is its root container's."""
        return self.container_ids[ROOT_CONTAINER]

    def as_json(self) -> JsonObject:
        """Return format 2; without belongings format 1."""
        more = {} if self.belongings is None else {"belongings": self.belongings.as_json()}
        return {
            "v": 1 if self.belongings is None else FORMAT,
            "activation": self.activation,
            "actor": self.actor,
            "bootId": self.boot_id,
            "runsc": {
                "path": str(self.runtime_path),
                "version": self.runtime_version,
                "flags": self.flags.as_json(),
            },
            "containers": dict(self.container_ids),
            "sandbox": None if self.sandbox is None else _identity_as_json(self.sandbox),
            "gofers": {name: _identity_as_json(identity) for name, identity in self.gofers.items()},
            **more,
        }

    @classmethod
    def from_json(cls, document: JsonObject) -> SandboxRecord:
        """Read format 1 or 2; members that they do not know are passed over.

        Raises:
            KeyError, TypeError, ValueError: it is not that form.
        """
        runtime = _typed(document, "runsc", dict)
        sandbox = document["sandbox"]
        ids = _typed(document, "containers", dict)
        if ROOT_CONTAINER not in ids or not all(isinstance(each, str) for each in ids.values()):
            message = f"containers must be ids by name, {ROOT_CONTAINER} among them"
            raise ValueError(message)
        return cls(
            activation=_typed(document, "activation", str),
            actor=_typed(document, "actor", str),
            boot_id=_typed(document, "bootId", str),
            runtime_path=Path(_typed(runtime, "path", str)),
            runtime_version=_typed(runtime, "version", str),
            flags=GlobalFlags.from_json(_typed(runtime, "flags", dict)),
            container_ids=ids,
            sandbox=None if sandbox is None else _identity(sandbox),
            gofers={name: _identity(each) for name, each in _typed(document, "gofers", dict).items()},
            belongings=_belongings(document),
        )


async def write_record(files: Files, directory: Path, record: SandboxRecord, *, step: Step = Step.CREATE) -> None:
    """Replace the record in an activation's directory.

    Raises:
        ProblemError: StateUnwritable.
    """
    try:
        await files.replace_for_boot(directory / RECORD_NAME, canonical(record.as_json()))
    except OSError as error:
        message = f"{directory} cannot be written: {error.strerror or error}"
        raise ProblemError(
            Problem(step=step, reason=Reason.STATE_UNWRITABLE, subject=record.activation, message=message)
        ) from error


async def read_record(files: Files, directory: Path) -> SandboxRecord | None:
    """Read the record of an activation's directory; None when there is none.

    Raises:
        ProblemError: NewerFormat, or StateCorrupt when it is no record.
    """
    path = directory / RECORD_NAME
    try:
        document = parse_object(await files.read(path, limit_bytes=_RECORD_BYTES_MAX))
        version = _typed(document, "v", int)
        if version > FORMAT:
            message = f"{path} has format {version}; this version reads up to {FORMAT}"
            raise ProblemError(_problem(Reason.NEWER_FORMAT, path, message))
        return SandboxRecord.from_json(document)
    except FileNotFoundError:
        return None
    except (OSError, StrictJsonError, KeyError, TypeError, ValueError) as error:
        message = f"{path} is no record of a sandbox: {error}"
        raise ProblemError(_problem(Reason.STATE_CORRUPT, path, message)) from error


def _belongings(document: JsonObject) -> Belongings | None:
    return Belongings.from_json(_typed(document, "belongings", dict)) if document["v"] > 1 else None


def _identity_as_json(identity: ProcessIdentity) -> JsonObject:
    return {"pid": identity.pid, "startTicks": identity.start_ticks}


def _identity(document: object) -> ProcessIdentity:
    if not isinstance(document, dict):
        message = "a process must be an object"
        raise TypeError(message)
    return ProcessIdentity(pid=_typed(document, "pid", int), start_ticks=_typed(document, "startTicks", int))


def _typed(document: JsonObject, key: str, kind: type) -> Any:
    value = document[key]
    if not isinstance(value, kind) or isinstance(value, bool):
        message = f"{key} must be a {kind.__name__}, is {value!r}"
        raise TypeError(message)
    return value


def _problem(reason: Reason, path: Path, message: str) -> Problem:
    return Problem(step=Step.RECOVER, reason=reason, subject=str(path), message=message)
