"""Every row of the shared list of behaviours is named by a test.

The rows A to H are of the library: the modules that test them say which in their first sentence. Those of I are of the
toolkit and all over the tree: a test of each has it in its own name.
"""

import ast
import re
from pathlib import Path

import pytest

from tests.needs import ROOT

LIST = Path(ROOT).parent / "shared" / "data" / "cdi" / "behaviours.md"
# Numbers that were taken out of the list are not used again.
ROWS = {
    "A": {*range(1, 20)} - {3, 8, 14, 16, 17},
    "B": {*range(1, 17)} - {6, 9, 13},
    "C": {*range(1, 24)} - {4, 18},
    "D": {*range(1, 26)} - {7, 10, 15, 19, 20},
    "E": {*range(1, 16)} - {8, 9},
    "F": {*range(1, 10)} - {7},
    "G": {*range(1, 29)} - {2, 10, 17, 19, 22},
    "H": {*range(1, 7)},
    "I": {*range(1, 21)} - {10},
}
IDS = frozenset(f"{letter}{number}" for letter, numbers in ROWS.items() for number in numbers)
OF_THE_TOOLKIT = frozenset(name for name in IDS if name.startswith("I"))
_RANGE = re.compile(r"\b([A-I])(\d+) to \1(\d+)\b")
_IN_A_NAME = re.compile(r"^\s*(?:async )?def test_((?:i\d+_)+)", re.MULTILINE)


def texts():
    return [path.read_text() for path in sorted((ROOT / "tests").rglob("*.py")) if path != Path(__file__)]


def told_in_docstrings(text):
    sentence = (ast.get_docstring(ast.parse(text)) or "").partition("\n\n")[0]
    found = _RANGE.findall(sentence) if "behaviours" in sentence else []
    return {f"{letter}{number}" for letter, low, high in found for number in range(int(low), int(high) + 1)}


def told_in_names(text):
    return {row.upper() for group in _IN_A_NAME.findall(text) for row in group.strip("_").split("_")}


def test_every_row_of_the_library_is_named_by_a_module():
    named = set().union(*(told_in_docstrings(text) for text in texts() if "behaviours" in text))
    assert named >= IDS - OF_THE_TOOLKIT


def test_every_row_of_the_toolkit_is_named_by_a_test_and_no_other_row_is():
    named = set().union(*map(told_in_names, texts()))
    assert named == OF_THE_TOOLKIT


@pytest.mark.skipif(not LIST.exists(), reason="the list is not beside this checkout")
def test_the_rows_here_are_those_of_the_list():
    assert {*re.findall(r"^\| ([A-I]\d+) \|", LIST.read_text(), re.MULTILINE)} == IDS


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("def test_i9_i11_groups():\n    pass\n", {"I9", "I11"}),
        ("    async def test_i4_none(): ...", {"I4"}),
        ("def test_is_it(): ...\ndef test_i4none(): ...", set()),
    ],
)
def test_a_row_in_a_name_is_found(text, names):
    assert told_in_names(text) == names


def test_a_row_in_a_docstring_is_found():
    assert told_in_docstrings('"""Two things (behaviours A1 to A3, B2 to B2).\n\nD1 to D2."""\n') == {
        "A1", "A2", "A3", "B2"}  # fmt: skip
