"""Problem and the error that carries it."""

from __future__ import annotations

import copy
import pickle

import attrs
import pytest

from statemachine.catalogue import CATALOGUE
from statemachine.problem import DETAIL_CHARACTERS_MAX, Problem, ProblemError, Step, beyond
from statemachine.reasons import Reason

FULL = Problem(
    step=Step.CREATE, reason=Reason.RUNTIME_FAILED, subject="c", message="runsc ended with 128", detail="x\ny"
)
OTHER = Problem(step=Step.VERIFY, reason=Reason.RESTORED_NOT_SERVING, subject="probe", message="no answer", hint="wait")


def test_a_problem_takes_its_hint_from_the_catalogue_unless_it_brings_one():
    assert FULL.hint == CATALOGUE[Reason.RUNTIME_FAILED].hint
    assert OTHER.hint == "wait"


def test_no_text_of_a_problem_is_without_bound_or_reaches_a_terminal_as_it_came():
    flood = "\x1b]0;owned\x07" * (1 << 20)
    problem = Problem(
        step=Step.ADMISSION, reason=Reason.INVALID_UID, subject=flood, message=flood, hint=flood, detail=f"{flood}\n"
    )
    texts = (problem.subject, problem.message, problem.hint, problem.detail)
    assert max(map(len, texts)) <= DETAIL_CHARACTERS_MAX
    assert not any("\x1b" in text or "\x07" in text for text in texts)
    assert attrs.evolve(problem) == problem


@pytest.mark.parametrize(
    ("message", "detail", "more"),
    [
        ("it failed", "", ""),
        ("it failed", "it failed", ""),
        ("web.json: container: it failed", "  it failed\n\n", ""),
        ("it failed", "first\nit failed\nlast", "first\nlast"),
    ],
)
def test_a_detail_that_says_what_the_message_says_says_nothing_more(message, detail, more):
    assert beyond(message, detail) == more


def test_a_problem_reads_as_reason_and_message():
    assert str(FULL) == "RuntimeFailed: runsc ended with 128"


def test_problems_compare_by_content_and_cannot_be_changed():
    assert attrs.evolve(FULL) == FULL
    assert len({FULL, attrs.evolve(FULL), OTHER}) == 2
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        FULL.subject = "d"  # type: ignore[misc]


def test_an_error_carries_all_problems_in_order_and_says_one_a_line():
    error = ProblemError(FULL, OTHER)
    assert error.problems == (FULL, OTHER)
    assert error.problem == FULL
    assert str(error) == "RuntimeFailed: runsc ended with 128\nRestoredNotServing: no answer"


def test_an_error_without_a_problem_cannot_be_made():
    with pytest.raises(ValueError, match="at least one problem"):
        ProblemError()


@pytest.mark.parametrize("again", [copy.copy, copy.deepcopy, lambda error: pickle.loads(pickle.dumps(error))])
def test_an_error_survives_a_copy_and_a_pickle(again):
    error = ProblemError(FULL, OTHER)
    error.add_note("met in a test")
    twin = again(error)
    assert type(twin) is ProblemError
    assert twin.problems == error.problems
    assert (str(twin), twin.args, twin.__notes__) == (str(error), error.args, error.__notes__)
