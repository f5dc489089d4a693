"""The generation rules, one after the other."""

import pytest

from actors.generations import Known, Verdict, judge
from statemachine.problem import ProblemError
from statemachine.reasons import Reason
from statemachine.states import State
from tests.actors.assignments import admitted, document

LIVING = [state for state in State if state is not State.TERMINATED]


def one(generation, **changes):
    return admitted(document(metadata__generation=generation, **changes))


def known(state=State.RUNNING, generation=3, **changes):
    return Known(assignment=one(generation, **changes), state=state)


def refusals(before, new):
    with pytest.raises(ProblemError) as caught:
        judge(before, new)
    return [(problem.reason, problem.subject) for problem in caught.value.problems]


@pytest.mark.parametrize("generation", [1, 7])
def test_an_actor_that_nobody_knows_begins_with_any_generation(generation):
    assert judge(None, one(generation)) is Verdict.BEGIN


@pytest.mark.parametrize("state", State)
def test_a_lower_generation_is_ignored_whatever_it_says(state):
    assert judge(known(state), one(2, spec__desiredState="Terminated")) is Verdict.STALE


@pytest.mark.parametrize("state", State)
def test_the_same_document_again_changes_nothing(state):
    assert judge(known(state), one(3)) is Verdict.SAME


def test_the_same_content_in_other_words_is_the_same():
    assert judge(known(), one(3, spec__restartPolicy="Never", spec__terminationGracePeriodSeconds=30)) is Verdict.SAME


@pytest.mark.parametrize("state", State)
def test_the_same_generation_with_other_content_is_a_conflict(state):
    refused = refusals(known(state), one(3, spec__desiredState="Suspended"))
    assert refused == [(Reason.GENERATION_CONFLICT, "metadata.generation")]


@pytest.mark.parametrize("state", LIVING)
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"spec__desiredState": "Suspended"},
        {"spec__snapshot": {"from": "None"}},
        {"spec__snapshot": {"uri": "file:///s"}},
        {"spec__restartPolicy": "OnFailure"},
    ],
)
def test_a_higher_generation_may_differ_in_what_is_wanted(state, changes):
    assert judge(known(state), one(4, **changes)) is Verdict.UPDATE


@pytest.mark.parametrize("state", LIVING)
def test_a_higher_generation_names_every_field_that_may_not_differ(state):
    refused = refusals(
        known(state),
        one(4, metadata__name="other", spec__terminationGracePeriodSeconds=5, spec__containers__0__command=["/x"]),
    )
    assert {reason for reason, _ in refused} == {Reason.IMMUTABLE_FIELD}
    assert [subject for _, subject in refused] == [
        "metadata.name",
        "spec.terminationGracePeriodSeconds",
        "spec.containers[0].args",
    ]


def test_after_the_end_a_higher_generation_begins_a_new_life_whatever_it_says():
    assert judge(known(State.TERMINATED), one(4, spec__containers__0__rootfs="other")) is Verdict.BEGIN
