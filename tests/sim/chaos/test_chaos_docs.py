"""docs/simulator.md names every kind of fault, invariant, defect and setting of chaos that there is."""

import re

import attrs
import pytest

from sim.chaos.config import CampaignConfig
from sim.chaos.defects import DEFECTS
from sim.chaos.kinds import MISHAP_KINDS, PORT_KINDS
from sim.chaos.watching import ALWAYS, CHECKED
from tests.needs import ROOT

TEXT = (ROOT / "docs" / "simulator.md").read_text()


@pytest.mark.parametrize("name", [*MISHAP_KINDS, *DEFECTS, *CHECKED, *ALWAYS])
def test_it_is_named(name):
    assert f"`{name}`" in TEXT


def test_every_word_for_a_fault_of_a_port_is_named():
    assert {kind.partition(".")[2] for kind in PORT_KINDS} == set(re.findall(r"`(?:PORT)?\.(\w+)`", TEXT))


@pytest.mark.parametrize("field", [each.name for each in attrs.fields(CampaignConfig)])
def test_a_setting_is_named_with_its_default(field):
    assert re.search(rf"^    \[?{field}\b", TEXT, re.MULTILINE)
