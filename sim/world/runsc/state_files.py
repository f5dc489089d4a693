"""runsc's own memory: one JSON file for each container, found by a prefix of its id.

`<root>/<id>_sandbox:<sandbox id>.state` beside a `.lock`, and `runsc-<sandbox id>.sock` for each sandbox. Measured on
runsc 20240729: an exact id is a prefix like any other, so one that a longer one begins with finds nothing any more.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

import attrs
import orjson

OCI_VERSION: Final = "1.2.0"
CONTAINER_TYPE: Final = "io.kubernetes.cri.container-type"
SANDBOX_ID: Final = "io.kubernetes.cri.sandbox-id"

_ID: Final = re.compile(r"[\w+.-]+", re.ASCII)
_STATE_FILE: Final = re.compile(r"(?P<id>[\w+.-]+)_sandbox:(?P<sandbox>[\w+.-]+)\.state", re.ASCII)
_EPOCH: Final = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)


class AmbiguousError(Exception):
    """Raised when an id is a prefix of several."""


@attrs.frozen
class FullId:
    """A container of a sandbox."""

    sandbox: str
    container: str

    @property
    def is_root(self) -> bool:
        """Whether it is the sandbox's root."""
        return self.sandbox == self.container

    def path(self, root: str, suffix: str = "state") -> str:
        """Return where its state stands, or its lock."""
        return f"{root}/{self.container}_sandbox:{self.sandbox}.{suffix}"


def is_valid(container_id: str) -> bool:
    """Whether an id may be given to a container."""
    return _ID.fullmatch(container_id) is not None


def all_ids(names: Sequence[str]) -> list[FullId]:
    """Return the containers that have a state file, in the order of the files' names."""
    found = (_STATE_FILE.fullmatch(name) for name in sorted(names))
    return [FullId(each["sandbox"], each["id"]) for each in found if each is not None]


def find(names: Sequence[str], container_id: str) -> FullId | None:
    """Find the container that an id, or a prefix of one, means.

    Raises:
        AmbiguousError: it means several.
    """
    ids = all_ids(names)
    fitting = [each for each in ids if each.container.startswith(container_id)]
    if len(fitting) > 1:
        first, second = fitting[:2]
        raise AmbiguousError(
            f'id "{container_id}" is ambiguous and could refer to multiple containers: '
            f'"{first.sandbox}/{first.container}", {{"{second.sandbox}" "{second.container}"}}'
        )
    return fitting[0] if fitting else None


def socket_path(root: str, sandbox_id: str) -> str:
    """Return where a sandbox listens."""
    return f"{root}/runsc-{sandbox_id}.sock"


def timestamp(now_s: float) -> str:
    """Return a moment of the clock as runsc writes it, counted from a day that is always the same."""
    moment = _EPOCH + dt.timedelta(seconds=now_s)
    return f"{moment.replace(tzinfo=None).isoformat(timespec='microseconds')}000Z"


@attrs.define(kw_only=True)
class State:
    """What a state file says of a container.

    Attributes:
        id: which.
        bundle: its bundle's directory.
        spec: its config.json.
        status: created, running, paused or stopped, as far as runsc has seen it.
        gofer: pid of its file server; 0 before there is one.
        pid: of the sandbox.
        created_at: when.
        filestore: the file that holds what is written to its rootfs; empty when there is none.
    """

    id: FullId
    bundle: str
    spec: Mapping[str, Any]
    status: str
    gofer: int
    pid: int
    created_at: str
    root: str
    version: str
    filestore: str = ""

    @property
    def is_alive(self) -> bool:
        """Whether it has a sandbox as far as is known."""
        return self.status != "stopped"

    def encode(self) -> bytes:
        """Return the file's content, with the fields that anybody reads."""
        return orjson.dumps(
            {
                "id": self.id.container,
                "spec": self.spec,
                "bundleDir": self.bundle,
                "createdAt": self.created_at,
                "owner": "",
                "consoleSocket": "",
                "status": self.status,
                "goferPid": self.gofer,
                "sandbox": {
                    "id": self.id.sandbox,
                    "pid": self.pid,
                    "metricMetadata": {"version": self.version},
                    "controlSocketPath": socket_path(self.root, self.id.sandbox),
                },
                "saver": {
                    "rootDir": self.root,
                    "id": {"sandboxId": self.id.sandbox, "containerId": self.id.container},
                },
                "filestore": self.filestore,
            }
        )

    @classmethod
    def decode(cls, data: bytes) -> State:
        """Read a state file.

        Raises:
            KeyError, TypeError, ValueError: it is none.
        """
        document = orjson.loads(data)
        sandbox = document["sandbox"]
        return cls(
            id=FullId(sandbox["id"], document["id"]),
            bundle=document["bundleDir"],
            spec=document["spec"],
            status=document["status"],
            gofer=document["goferPid"],
            pid=sandbox["pid"],
            created_at=document["createdAt"],
            root=document["saver"]["rootDir"],
            version=sandbox["metricMetadata"]["version"],
            filestore=document["filestore"],
        )

    def as_oci(self) -> dict[str, Any]:
        """Return what `state` and `list` say."""
        answer = {
            "ociVersion": OCI_VERSION,
            "id": self.id.container,
            "status": self.status,
            "pid": self.pid if self.is_alive else -1,
            "bundle": self.bundle,
        }
        annotations = self.spec.get("annotations")
        return {**answer, "annotations": annotations} if annotations else answer
