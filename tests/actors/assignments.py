"""A valid assignment as Python values, parts of it replaced, and what becomes of it."""

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from actors.admission import decode
from statemachine.problem import ProblemError
from tests.actors.memory_files import MemoryFiles

BASE = Path("/assignments")
MINIMAL = {
    "apiVersion": "greenroom.dev/v1alpha1",
    "kind": "WorkerAssignment",
    "metadata": {"uid": "a1", "generation": 1},
    "spec": {
        "desiredState": "Running",
        "containers": [{"name": "main", "rootfs": "rootfs", "command": ["/bin/app"]}],
    },
}
ABSENT = object()


def document(**changes):
    """The minimal assignment with values set at paths: `spec__containers__0__name="x"`; ABSENT deletes."""
    content: Any = copy.deepcopy(MINIMAL)
    for path, value in changes.items():
        parts: list[Any] = [int(part) if part.isdigit() else part for part in path.split("__")]
        *parents, last = parts
        target: Any = content
        for parent in parents:
            target = target[parent] if parent in target or isinstance(parent, int) else target.setdefault(parent, {})
        if value is ABSENT:
            del target[last]
        else:
            target[last] = value
    return content


def memory(content=()):
    """A Files port with this content. Not annotated on purpose: it has no more of the port than admission needs."""
    return MemoryFiles(content)


def with_spec(**fields):
    return document(**{f"spec__{name}": value for name, value in fields.items()})


def with_container(**fields):
    return document(**{f"spec__containers__0__{name}": value for name, value in fields.items()})


def with_limits(limits, requests=None, **fields):
    resources = {"limits": limits} if requests is None else {"limits": limits, "requests": requests}
    return with_container(resources=resources, **fields)


def admitted(content):
    data = content if isinstance(content, bytes) else json.dumps(content).encode()
    return decode(data, base=BASE)


def problems(content):
    with pytest.raises(ProblemError) as caught:
        admitted(content)
    return caught.value.problems


def refusals(content):
    """(reason, subject) of every problem, in order; the reasons as plain words."""
    return [(str(problem.reason), problem.subject) for problem in problems(content)]
