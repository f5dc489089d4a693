"""Any text at all: none does worse than being refused, and both ways of reading draw every line in one place."""

import json
import pickle

import attrs
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from actors.cdi import CdiError, load, read_spec
from actors.cdi.reading import CDI
from actors.document.findings import DocumentError
from actors.document.reading import read_document
from actors.document.values import read_values, value_of
from statemachine.problem import ProblemError

UNHURRIED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
FIELDS = [
    "cdiVersion",
    "kind",
    "devices",
    "name",
    "containerEdits",
    "env",
    "deviceNodes",
    "path",
    "hooks",
    "annotations",
]
ODD = [
    "intelRdt",
    "enableCMT",
    "additionalGids",
    "mounts",
    "<<",
    "0.5.0",
    "v.com/x",
    "A=b",
    "",
    "null",
    "on",
    "1:0",
    "\0",
]
WORDS = st.sampled_from(FIELDS + ODD)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | WORDS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(WORDS, inner, max_size=5),
    max_leaves=25,
)


def is_presentable(reading):
    told = (*reading.problems, *reading.warnings)
    return bool(reading.problems) == (reading.spec is None) and all(
        str(each).isprintable() and each.line for each in told
    )


@UNHURRIED
@given(VALUES)
def test_no_json_does_worse_than_being_refused(value):
    assert is_presentable(read_spec(json.dumps(value).encode(), "x.json"))


@UNHURRIED
@given(
    st.binary(max_size=200) | st.text(st.sampled_from("ab1{}[]:,-?&*!|>'\"%#<~ \n\t\\é\0"), max_size=60).map(str.encode)
)
@example(b"&a a: *a")
@example(b"? *a\n: &a b")
@example(b"a: &x b\n*x : c\n")
@example(b"!!int a: 1")
def test_no_bytes_do_worse_than_being_refused(content):
    assert is_presentable(read_spec(content, "x.yaml"))


@UNHURRIED
@given(VALUES.map(json.dumps) | st.text(st.sampled_from("ab1{}[]:,- \n'\"~"), max_size=40))
def test_the_quick_reading_reads_what_the_other_one_reads(content):
    data = content.encode()
    assert outcome(lambda: read_values(data, dialect=CDI)) == outcome(
        lambda: value_of(read_document(data, dialect=CDI))
    )


def outcome(read):
    try:
        value = read()
    except ProblemError as refused:
        return refused.problems
    return value, types(value)


@pytest.mark.parametrize("depth", [1, CDI.depth_max - 1, CDI.depth_max, CDI.depth_max + 1])
@pytest.mark.parametrize("brackets", ["[]", "{}"])
def test_the_quick_reading_is_as_deep_as_the_other_one(depth, brackets):
    opening, closing = ("[", "]") if brackets == "[]" else ('{"a":', "}")
    text = opening * (depth - 1) + brackets + closing * (depth - 1)
    for content in (text.encode(), f" {text} # YAML".encode()):
        quick = outcome(lambda content=content: read_values(content, dialect=CDI))
        assert quick == outcome(lambda content=content: value_of(read_document(content, dialect=CDI)))
        assert ("TooDeep" in str(quick)) == (depth > CDI.depth_max)


@pytest.mark.parametrize("items", range(5, 15))
@pytest.mark.parametrize("form", ['{{"a": [{}]}}', "{{a: [{}]}}", '{{"a,:[": [{}]}}'])
def test_the_quick_reading_counts_as_the_other_one_does(items, form):
    # Else a spec that is only read quickly while nothing is to be told would become too large by a warning.
    few = attrs.evolve(CDI, nodes_max=13)
    content = form.format(", ".join(["1"] * items)).encode()
    quick = outcome(lambda: read_values(content, dialect=few))
    assert quick == outcome(lambda: value_of(read_document(content, dialect=few)))
    assert ("DocumentTooLarge" in str(quick)) == (items > 10)


def types(value):
    match value:
        case dict():
            return {key: types(item) for key, item in value.items()}
        case list():
            return [types(item) for item in value]
        case _:
            return type(value)


def test_an_error_can_be_copied_and_sent_to_another_process():
    with pytest.raises(DocumentError) as refused:
        read_document(b"a: 1\na: 2", dialect=CDI)
    with pytest.raises(CdiError) as caught:
        load(b"[]", "x")
    for error in (refused.value, caught.value):
        again = pickle.loads(pickle.dumps(error))
        assert (type(again), again.problems, str(again)) == (type(error), error.problems, str(error))
    assert pickle.loads(pickle.dumps(refused.value)).root == refused.value.root
