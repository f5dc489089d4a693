"""Faults of ours: they cost one actor something, and no other one anything."""

import anyio
import pytest

from statemachine.problem import ProblemError
from statemachine.reasons import Reason
from statemachine.states import State
from supervisor import operations
from supervisor.life import Life
from tests.supervisor.lives import settled
from tests.supervisor.stands import a_stand

pytestmark = pytest.mark.anyio


async def test_a_fault_that_one_loop_cannot_survive_ends_no_other_actor(monkeypatch):
    async with a_stand() as stand:
        await stand.running("a1")
        run = Life.run

        async def broken(life, entrance):
            if life.uid == "a2":
                async with anyio.create_task_group():
                    raise ZeroDivisionError("division by zero")
            await run(life, entrance)

        monkeypatch.setattr(Life, "run", broken)
        await stand.submit("a2")
        await settled()
        assert stand.life("a1").actor.state is State.RUNNING
        assert stand.life("a2").actor.problem.reason is Reason.INTERNAL
        assert stand.status("a2")["error"]["reason"] == "Internal"
        with pytest.raises(ProblemError) as caught:
            await operations.suspend(stand.worker, "a2")
        assert caught.value.problem.reason is Reason.ACTOR_TERMINATED
