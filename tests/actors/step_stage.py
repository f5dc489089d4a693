"""What the tests of the steps share: a stage whose containers have a shape, and an actor to suspend."""

from typing import Any

import pytest

from actors.manifest import Shape, ShapeUser
from actors.steps.suspend import save_snapshot
from statemachine import commands as c
from statemachine.actor import Actor, ContainerFate, Snapshot
from statemachine.events import SnapshotProven
from statemachine.problem import ProblemError
from statemachine.states import State
from tests.fakes.sandbox import a_stage

ROLL_BACK, RELEASE = c.RollBack(undo=()), c.ReleaseSandbox(undo=())
SHAPE = Shape(args=("/bin/app",), user=ShapeUser(uid=0, gid=0), mounts=(), devices=(), capabilities=())


def an_actor(*codes, names=("main",)):
    fates = tuple(ContainerFate(name=name, exit_code=code) for name, code in zip(names, codes or (None,), strict=True))
    return Actor(state=State.SUSPENDING, containers=fates)


def shaped(*containers, **spec):
    stage, sandbox, marks = a_stage(containers or ("main",), **spec)
    stage.shapes = dict.fromkeys(sandbox.containers, SHAPE)
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
