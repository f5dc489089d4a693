"""docs/security.md: every bound that it names is the one in the code, and every test that it names is there."""

import importlib
import re

import pytest

from tests.fuzzing.promises import CPU_S_MAX, MEMORY_MB_MAX
from tests.fuzzing.targets import TARGETS
from tests.needs import ROOT

TEXT = (ROOT / "docs" / "security.md").read_text()
BOUNDS = re.findall(
    r"^\| (?P<what>[^|]+) \| (?P<bound>[^|]+) \| `(?P<module>[a-z_.]+)\.(?P<name>_?[A-Z_]+)` \|", TEXT, re.MULTILINE
)
TESTS = sorted(set(re.findall(r"`(tests/[a-z0-9_/]+\.py)(?:::(test_[a-z0-9_]+))?`", TEXT)))


def shown(name, value):
    """As the table writes it."""
    if "BYTES" in name:
        for unit, size in (("MiB", 1 << 20), ("KiB", 1 << 10)):
            if value >= size and value % size == 0:
                return f"{value // size} {unit}"
        return f"{value} bytes"
    if name.endswith("_S"):
        return f"{value:,g} a second" if name.endswith("PER_S") else f"{value:,g} s"
    return f"{value:,g}"


@pytest.mark.parametrize(("what", "bound", "module", "name"), BOUNDS, ids=[f"{each[2]}.{each[3]}" for each in BOUNDS])
def test_a_bound_is_the_one_in_the_code(what, bound, module, name):
    assert bound == shown(name, getattr(importlib.import_module(module), name)), what


def test_there_are_bounds_for_every_kind_of_input():
    assert len(BOUNDS) > 60
    assert len({(module, name) for _, _, module, name in BOUNDS}) == len(BOUNDS)


@pytest.mark.parametrize(("path", "name"), TESTS, ids=[name or path for path, name in TESTS])
def test_a_test_that_is_named_is_there(path, name):
    assert (ROOT / path).exists()
    assert f"def {name}(" in (ROOT / path).read_text() if name else True


def test_every_fuzz_target_has_its_figures():
    assert re.findall(r"^\| `([a-z]+)` \| [^|]+ \| [0-9,]+ \|", TEXT, re.MULTILINE) == list(TARGETS)
    assert f"{CPU_S_MAX:g} s of a processor" in TEXT
    assert f"{MEMORY_MB_MAX} MB" in TEXT


def test_all_that_is_named_really_was_found():
    assert len(TESTS) > 30
