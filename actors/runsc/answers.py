"""What runsc says on stdout when it succeeds, read strictly.

Source: OCI runtime specification, "State"; measured on runsc 20240729.
"""

from __future__ import annotations

import enum

import attrs

from actors.strict_json import parse, parse_object


class Status(enum.StrEnum):
    """A container's status in OCI's words, and runsc's own `paused`."""

    CREATING = "creating"
    CREATED = "created"
    RUNNING = "running"
    PAUSED = "paused"
    STOPPED = "stopped"


@attrs.frozen(kw_only=True)
class ContainerState:
    """A container as runsc knows it. After a restore this is not to be believed: see `Sandbox.inspect`.

    Attributes:
        id: runsc's id.
        status: its status.
        pid: the sandbox's pid, the same for all of its containers; None when it has stopped.
    """

    id: str
    status: Status
    pid: int | None


def parse_state(data: bytes) -> ContainerState:
    """Read the answer to `state`.

    Raises:
        ValueError: it is no such answer.
    """
    return _state(parse_object(data))


def parse_list(data: bytes) -> tuple[ContainerState, ...]:
    """Read the answer to `list`, which is `null` when there is no container.

    Raises:
        ValueError: it is no such answer.
    """
    document = parse(data)
    if document is None:
        return ()
    if not isinstance(document, list):
        message = "the list is no array"
        raise ValueError(message)  # noqa: TRY004 - bad data, not a bad argument
    return tuple(_state(each) for each in document)


def parse_exit_status(data: bytes) -> int:
    """Read the answer to `wait`: 0-255, a signal as 128 plus its number.

    Raises:
        ValueError: it is no such answer.
    """
    return _whole(parse_object(data).get("exitStatus"), "exitStatus")


def parse_processes(data: bytes) -> dict[int, int]:
    """Read the answer to `ps`: the parent of each process, by pids inside the sandbox; 0 for what runsc started.

    Raises:
        ValueError: it is no such answer.
    """
    heading, *lines = data.decode("utf-8", "replace").splitlines() or [""]
    if heading.split()[:3] != ["UID", "PID", "PPID"]:
        message = f"no table of processes: {heading!r:.60}"
        raise ValueError(message)
    fields = [line.split() for line in lines if line.strip()]
    if any(len(each) < 3 for each in fields):  # noqa: PLR2004 - the three that are read
        message = "a process has no parent"
        raise ValueError(message)
    return {int(each[1]): int(each[2]) for each in fields}


def descendants(parents: dict[int, int], pid: int) -> tuple[int, ...]:
    """Return a process and all below it, itself first and each once; nothing when it is not there.

    However many a container has started, and whatever a sandbox says of them: two may be each other's parent there.
    """
    children: dict[int, list[int]] = {}
    for child, parent in parents.items():
        children.setdefault(parent, []).append(child)
    found = dict.fromkeys([pid] if pid in parents else [])
    waiting = list(found)
    for each in waiting:  # grows while it is gone through
        new = [child for child in children.get(each, ()) if child not in found]
        found.update(dict.fromkeys(new))
        waiting.extend(new)
    return tuple(found)


def parse_pid_file(data: bytes) -> int:
    """Read the file that `--pid-file` or `--internal-pid-file` names.

    Raises:
        ValueError: it holds no pid that could be meant: 1 is an init's, of the pod or of the sandbox.
    """
    pid = int(data.decode("ascii", "replace"))
    if pid <= 1:
        message = f"{pid} is not the pid of anything that runsc starts"
        raise ValueError(message)
    return pid


def _state(document: object) -> ContainerState:
    if not isinstance(document, dict) or not isinstance(document.get("id"), str):
        message = "a state is no object with an id"
        raise ValueError(message)  # noqa: TRY004 - bad data, not a bad argument
    pid = _whole(document.get("pid"), "pid")
    status = Status(str(document.get("status")))
    return ContainerState(id=document["id"], status=status, pid=pid if pid > 0 else None)


def _whole(value: object, what: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        message = f"{what} is no whole number: {value!r}"
        raise ValueError(message)  # noqa: TRY004 - bad data, not a bad argument
    return value
