"""The other end of the control socket: whatever is, or is not, behind it is an answer or a reason."""

import anyio
import pytest

from statemachine.problem import ProblemError
from statemachine.reasons import Reason
from supervisor.client import call
from supervisor.host.net import HostNet

pytestmark = pytest.mark.anyio


async def test_a_worker_that_is_not_there_is_unreachable(tmp_path):
    (tmp_path / "file.sock").write_text("")
    for name in ("none.sock", "file.sock", "x" * 200):
        with pytest.raises(ProblemError) as caught:
            await call(HostNet(), tmp_path / name, "status")
        assert caught.value.problem.reason is Reason.WORKER_UNREACHABLE


ANSWERS = [b"", b"\n", b"{", b"[]\n", b"null\n", b'"x"\n', b'{"ok":false}\n', b'{"ok":false,"errors":[]}\n',
           b'{"ok":false,"errors":[{"reason":"NotOfThisVersion"}]}\n', b"\xff\n", b'{"ok":true}\n']  # fmt: skip


@pytest.mark.parametrize("data", ANSWERS)
async def test_an_answer_that_makes_no_sense_counts_as_none(tmp_path, data):
    path = tmp_path / "odd.sock"
    async with HostNet().listen_unix(path) as listener, anyio.create_task_group() as group:

        async def serve():
            connection = await listener.accept()
            async with connection.stream as stream:
                await stream.receive()
                if data:
                    await stream.send(data)

        group.start_soon(serve)
        with pytest.raises(ProblemError) as caught:
            await call(HostNet(), path, "status")
        assert caught.value.problem.reason is Reason.WORKER_UNREACHABLE
