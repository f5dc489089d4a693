"""The import names `supervisor` and `statemachine` belong to other distributions too: here they must be Greenroom's."""

import tomllib
from importlib.metadata import packages_distributions
from importlib.util import find_spec

import pytest

from tests.needs import ROOT

NAMES = ["actors", "greenroom", "sim", "statemachine", "supervisor"]
RIVALS = {"supervisor": "supervisor", "python-statemachine": "statemachine"}


def foreign_owners(name: str, installed: dict[str, list[str]]) -> set[str]:
    return set(installed.get(name, [])) - {"greenroom"}


@pytest.mark.parametrize("name", NAMES)
def test_no_other_distribution_installs_a_package_of_this_name(name):
    assert foreign_owners(name, dict(packages_distributions())) == set()


@pytest.mark.parametrize("name", [*NAMES, "tests"])
def test_the_name_is_imported_from_this_checkout(name):
    spec = find_spec(name)
    assert spec is not None
    assert spec.origin is not None
    assert spec.origin.startswith(f"{ROOT}/{name}")


@pytest.mark.parametrize("rival", RIVALS)
def test_a_rival_distribution_is_kept_out_of_the_lock_and_cannot_be_resolved(rival):
    constraints = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["uv"]["constraint-dependencies"]
    assert f"{rival}<0" in constraints
    assert not any(line.startswith(f"{rival}==") for line in (ROOT / "requirements.lock").read_text().splitlines())


def test_a_rival_that_is_installed_is_seen():
    assert foreign_owners("supervisor", {"supervisor": ["greenroom", "supervisor"]}) == {"supervisor"}
