"""How many documents a directory may have, and how many refusals one answer tells."""

import pytest

from statemachine.problem import Problem, Step
from statemachine.reasons import Reason
from statemachine.states import State
from supervisor import directory_intake, status
from supervisor.directory_intake import DIRECTORY
from supervisor.status import worker_status
from tests.supervisor.intakes import a_running_file
from tests.supervisor.stands import a_document, a_stand

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("short_times")]


async def test_a_directory_with_too_many_documents_is_told_ends_nobody_and_goes_on_when_it_has_fewer(monkeypatch):
    monkeypatch.setattr(directory_intake, "FILES_MAX", 3)
    async with a_running_file() as intake:
        for number in range(4):
            intake.write(f"more-{number}.yaml", a_document(f"b{number}"))
        await intake.eventually(lambda: DIRECTORY in intake.worker.refused)
        (problem,) = intake.worker.refused[DIRECTORY]
        assert problem.reason is Reason.INTAKE_UNREADABLE
        assert "more than 3" in problem.message
        await intake.some_rescans()
        assert intake.state() is State.RUNNING
        for number in range(4):
            intake.remove(f"more-{number}.yaml")
        intake.write("last.yaml", a_document("c1"))
        await intake.eventually(lambda: DIRECTORY not in intake.worker.refused and intake.state("c1") is State.RUNNING)
        assert intake.state() is State.RUNNING


async def test_an_answer_tells_so_many_refusals_and_counts_the_rest(monkeypatch):
    monkeypatch.setattr(status, "PROBLEMS_MAX", 3)
    async with a_stand() as stand:
        for number in range(4):
            problem = Problem(step=Step.ADMISSION, reason=Reason.WRONG_TYPE, subject="x", message="x")
            stand.worker.refused[f"{number}.yaml"] = (problem, problem)
        told = worker_status(stand.worker, boot_id="b")["worker"]
        assert [each["file"] for each in told["problems"]] == ["0.yaml", "0.yaml", "1.yaml"]
        assert told["problemsLeftOut"] == 5
