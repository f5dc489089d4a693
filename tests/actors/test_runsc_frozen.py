"""Whether a sandbox is frozen: what is executed in it answers, or it stands still."""

from types import SimpleNamespace
from typing import Any

import pytest

from actors.ports import Exit, Finished
from actors.runsc.driver import Target
from actors.runsc.record import ROOT_CONTAINER
from actors.runsc.sandbox import Sandbox
from statemachine.problem import Problem, ProblemError, Step
from statemachine.reasons import Reason

pytestmark = pytest.mark.anyio
HANGS = ProblemError(Problem(step=Step.SUPERVISE, reason=Reason.STEP_DEADLINE_EXCEEDED, subject="exec", message="no"))


def a_sandbox(ended):
    async def exec_in(*_args, **_kwargs):
        if isinstance(ended, ProblemError):
            raise ended
        return Finished(exit=Exit(code=ended))

    runsc: Any = SimpleNamespace(exec_in=exec_in)
    anything: Any = SimpleNamespace(belongings=None)
    targets = {ROOT_CONTAINER: Target.of(ROOT_CONTAINER, "pause")}
    return Sandbox(runsc=runsc, record=anything, process=anything, gofers={}, targets=targets)


@pytest.mark.parametrize("code", [0, 1, 128, 137])
async def test_one_in_which_a_command_ends_by_itself_is_not_frozen(code):
    assert not await a_sandbox(code).is_frozen()


@pytest.mark.parametrize("ended", [-9, -15, None, HANGS], ids=str)
async def test_a_command_that_hung_or_was_killed_while_it_waited_has_not_said_that_it_runs(ended):
    assert await a_sandbox(ended).is_frozen()
