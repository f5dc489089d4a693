"""The reason catalogue: whole, readable, and nothing in it that no one uses."""

from __future__ import annotations

import re

import pytest

from statemachine.catalogue import CATALOGUE
from statemachine.reasons import Reason
from tests.needs import ROOT

LATER = {
    Reason.CANCELLED,
    Reason.NETWORK_UNAVAILABLE, Reason.PORT_TAKEN,
}  # fmt: skip
"""Reasons of steps that are not built yet; a reason that comes into use is taken off here."""


def used() -> set[Reason]:
    """Reasons that the code names, as `Reason.NAME`."""
    code = [path for layer in ("statemachine", "actors", "supervisor", "sim") for path in (ROOT / layer).rglob("*.py")]
    code += [path for path in [ROOT / "greenroom.py"] if path.exists()]
    tables = {ROOT / "statemachine" / f"{name}.py" for name in ("reason_table", "reasons", "catalogue")}
    text = "\n".join(path.read_text() for path in code if path not in tables)
    return {Reason[name] for name in re.findall(r"\bReason\.([A-Z][A-Z0-9_]*)\b", text) if name in Reason.__members__}


def test_every_reason_has_its_row_in_the_order_of_the_enum():
    assert list(CATALOGUE) == list(Reason)


@pytest.mark.parametrize("reason", Reason)
def test_a_reason_is_a_camel_case_word_with_a_sentence_and_a_hint(reason):
    assert re.fullmatch(r"([A-Z][a-z0-9]+)+", reason.value)
    assert reason.name.replace("_", "").lower() == reason.value.lower()
    for text in (CATALOGUE[reason].sentence, CATALOGUE[reason].hint):
        assert re.match(r"[A-Z`]|apiVersion\b|metadata\b|gVisor\b|nvidia-ctk\b", text)
        assert text.endswith((".", "…}."))
        assert ".." not in text
        assert text == " ".join(text.split())


def test_no_two_reasons_mean_the_same():
    assert len({text.sentence for text in CATALOGUE.values()}) == len(Reason)
    assert len({reason.value.lower() for reason in Reason}) == len(Reason)


def test_every_reason_is_used_or_belongs_to_a_later_step():
    assert sorted(set(Reason) - used() - LATER) == []


def test_the_list_of_later_reasons_has_none_that_is_in_use():
    assert sorted(LATER & used()) == []
