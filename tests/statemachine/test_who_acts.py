"""Every reason has somebody who acts on it, and docs/operating.md tells whom."""

from __future__ import annotations

import pytest

from statemachine import who_acts
from statemachine.catalogue import CATALOGUE
from statemachine.reasons import OF_THE_DOCUMENT, Reason
from statemachine.who_acts import WHO_ACTS, WhoActs
from tests.needs import ROOT


def test_every_reason_has_one_who_acts_on_it():
    assert sorted(set(Reason) - set(WHO_ACTS)) == []
    assert sum(len(reasons) for reasons in who_acts._BY_WHO.values()) == len(WHO_ACTS)


def test_what_a_document_is_refused_for_is_its_authors():
    assert {WHO_ACTS[reason] for reason in OF_THE_DOCUMENT} == {WhoActs.AUTHOR}


@pytest.mark.parametrize("reason", Reason)
def test_the_page_on_operation_has_the_hint_of_every_reason_in_the_group_of_who_acts(reason):
    text = (ROOT / "docs" / "operating.md").read_text()
    title, sentence = WHO_ACTS[reason].value
    (group,) = [part for part in text.split("\n### ") if part.startswith(f"{title}\n")]
    assert sentence in group
    (line,) = [line for line in group.splitlines() if line.startswith(f"| `{reason}` |")]
    assert CATALOGUE[reason].hint in line.replace("\\|", "|")
