"""What the tests of the steps share: a stage whose containers have a shape, and an actor to suspend."""

from typing import Any

import pytest

from actors.assignment import Resources, Rootfs
from actors.bundle.capabilities import Claims
from actors.bundle.config import Membership, container_config
from actors.manifest import shape_of
from actors.steps.suspend import save_snapshot
from statemachine import commands as c
from statemachine.actor import Actor, ContainerFate, Snapshot
from statemachine.events import SnapshotProven
from statemachine.problem import ProblemError
from statemachine.states import State
from tests.actors.assignments import BASE
from tests.fakes.sandbox import a_stage

ROLL_BACK, RELEASE = c.RollBack(undo=()), c.ReleaseSandbox(undo=())
SHAPE = shape_of(
    container_config(
        Rootfs(path=BASE / "rootfs", argv=("/bin/app",)),
        membership=Membership(name="main", sandbox_id="s"),
        hostname="a1",
        limits=Resources(),
        claims=Claims.NONE,
    )
)
"""Of every container of `a_stage`."""


def an_actor(*codes, names=("main",)):
    fates = tuple(ContainerFate(name=name, exit_code=code) for name, code in zip(names, codes or (None,), strict=True))
    return Actor(state=State.SUSPENDING, containers=fates)


def shaped(*containers, **spec):
    stage, sandbox, marks = a_stage(containers or ("main",), **spec)
    stage.shapes = dict.fromkeys(sandbox.containers, SHAPE)
    files: Any = stage.ports.files
    files.put(BASE / "rootfs/bin/app", b"")
    return stage, sandbox, marks


async def reason_of(awaitable):
    with pytest.raises(ProblemError) as caught:
        await awaitable
    return caught.value.problem.reason


async def saved(stage) -> Snapshot:
    """The snapshot of a suspend that succeeds."""
    proven: Any = await save_snapshot(stage, an_actor())
    assert isinstance(proven, SnapshotProven)
    return proven.snapshot
