"""A process of a sandbox that cannot be owned: whatever the kernel or a damaged pid file says, a reason comes of it."""

import errno
from types import SimpleNamespace
from typing import Any

import pytest

from actors.runsc.activation import _adopt_sandbox
from statemachine.problem import ProblemError, Step
from statemachine.reasons import Reason

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(
    ("error", "reason", "says"),
    [
        (ProcessLookupError(errno.ESRCH, "no child of ours"), Reason.SANDBOX_DIED, "ended before"),
        (OSError(errno.EBUSY, "it is owned already"), Reason.RUNTIME_FAILED, "it is owned already"),
        (OSError(errno.EMFILE, "Too many open files"), Reason.RUNTIME_FAILED, "Too many open files"),
    ],
)
async def test_a_sandbox_that_cannot_be_owned_has_a_reason(error, reason, says):
    async def adopt(_pid):
        raise error

    runsc: Any = SimpleNamespace(processes=SimpleNamespace(adopt=adopt))
    with pytest.raises(ProblemError) as caught:
        await _adopt_sandbox(runsc, 42, Step.CREATE)
    assert caught.value.problem.reason is reason
    assert says in caught.value.problem.message
