"""The termination message: what somebody reads in `kubectl describe`."""

import attrs
import pytest

from statemachine.actor import Snapshot
from statemachine.problem import Problem, Step
from statemachine.reasons import Reason
from statemachine.states import State
from supervisor.left import Left, LeftActor
from supervisor.termination_message import LIMIT_BYTES, LINE_CHARACTERS_MAX, termination_message
from tests.needs import ROOT

GOOD = Snapshot(id="s0123456789abcdef", uri="file:///x", created_at=1.0)
STORED = attrs.evolve(GOOD, stored_uri="s3://bucket/a1/s0123456789abcdef")


def problem(reason, message="so it was"):
    return Problem(step=Step.SUPERVISE, reason=reason, subject="x", message=message)


def an_actor(uid="a1", state=State.SUSPENDED, *, why=None, snapshot=GOOD, is_owed=False):
    return LeftActor(uid=uid, state=state, problem=why, snapshot=snapshot, is_owed=is_owed)


def lines(left, *problems):
    data = termination_message(left, problems)
    assert len(data) <= LIMIT_BYTES
    assert data.endswith(b"\n")
    return data.decode().splitlines()


def test_what_became_of_every_actor_stands_there_the_worst_first():
    actors = (
        an_actor("a1", snapshot=STORED),
        an_actor("a2"),
        an_actor("a3", is_owed=True),
        an_actor("a4", State.TERMINATED, why=problem(Reason.LIVE_CUDA_CONTEXT, "it computes"), snapshot=None),
        an_actor("a5", State.FAILED, why=problem(Reason.WORKER_DRAINING, "shut down")),
        an_actor("a6", State.STOPPING, snapshot=None),
        an_actor("a7", State.TERMINATED, why=problem(Reason.COMPLETED), snapshot=None),
    )
    late = problem(Reason.STEP_DEADLINE_EXCEEDED, "the time of the drain was over")
    assert lines(Left(actors=actors, not_recovered=("a9",)), late) == [
        "error: StepDeadlineExceeded: the time of the drain was over",
        "the worker has left; its actors: 1 Failed, 1 Stopping, 3 Suspended, 2 Terminated",
        "a6: Stopping",
        "a3: Suspended; snapshot s0123456789abcdef on this worker's disk, not in its store",
        "a4: Terminated; LiveCudaContext: it computes",
        "a5: Failed; last good snapshot s0123456789abcdef on this worker's disk; WorkerDraining: shut down",
        "a7: Terminated",
        "a1: Suspended; snapshot s0123456789abcdef in s3://bucket/a1/s0123456789abcdef",
        "a2: Suspended; snapshot s0123456789abcdef on this worker's disk",
        "a9: not looked at, as the worker had just started",
    ]


def test_a_start_that_is_refused_says_why():
    refused = problem(Reason.STATE_DIR_IN_USE, "another worker holds it"), problem(Reason.INTERNAL, "and more")
    assert lines(None, *refused) == ["error: StateDirInUse: another worker holds it", "error: Internal: and more"]


def test_a_worker_without_actors_says_so():
    assert lines(Left(actors=())) == ["the worker has left; its actors: none"]


@pytest.mark.parametrize("count", [20, 60, 1000])
def test_what_does_not_fit_is_counted(count):
    actors = tuple(an_actor(f"a{number:04}", snapshot=STORED) for number in range(count))
    told = lines(Left(actors=actors))
    if count == 20:
        assert len(told) == 21
        return
    assert told[-1] == f"and {count - (len(told) - 2)} more: see the last line of the worker's log"
    assert len("\n".join(told)) > LIMIT_BYTES - 200


def test_it_fits_whatever_is_in_it():
    """Long problems and texts of others are cut, many bytes a character or not, and stay one line each."""
    why = problem(Reason.RUNTIME_FAILED, "é\n😀 " * 400)
    actors = tuple(an_actor(f"a{number}", State.FAILED, why=why) for number in range(30))
    told = lines(Left(actors=actors), why)
    assert max(map(len, told)) <= LINE_CHARACTERS_MAX
    assert told[-1].startswith("and ")
    for count in range(30):
        lines(Left(actors=actors[:count]), *([why] * count))


def test_the_docs_tell_of_every_exit_code_of_the_worker():
    drain = (ROOT / "docs" / "cli.md").read_text().partition("## The drain")[2].partition("\n## ")[0]
    rows = [line.split("|")[1].strip() for line in drain.splitlines() if line.startswith("| ")]
    assert [code for code in rows if code.isdigit()] == ["0", "1", "2", "130", "137"]
