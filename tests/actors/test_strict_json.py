"""Strict JSON: what is refused, and where the complaint points."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.strict_json import DEPTH_MAX, StrictJsonError, canonical, parse, parse_object

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


def nested(depth):
    return b"[" * depth + b"]" * depth


@pytest.mark.parametrize(
    ("data", "path", "says"),
    [
        (b"", "$", "line 1 column 1"),
        (b"{} {}", "$", "Extra data"),
        (b"\xff", "$", "not UTF-8 at byte 0"),
        (b'{"a": 1, "a": 2}', "$.a", "twice"),
        (b'{"x": [{"b c": 1, "b c": 1}]}', '$.x[0]["b c"]', "twice"),
        (b"NaN", "$", "NaN"),
        (b"[-Infinity]", "$", "-Infinity"),
        (b"1e999", "$", "out of range"),
        (b"9" * 5000, "$", "digits"),
        (nested(DEPTH_MAX + 1), "$" + "[0]" * DEPTH_MAX, "deeper"),
        (nested(100_000), "$", "deeper"),
        (b'{"a":' * 100_000 + b"1" + b"}" * 100_000, "$", "deeper"),
    ],
)
def test_what_is_not_one_strict_document_is_refused_with_its_place(data, path, says):
    with pytest.raises(StrictJsonError) as refused:
        parse(data)
    assert refused.value.path == path
    assert says in refused.value.message


def test_the_deepest_document_that_is_allowed_is_read():
    assert parse(nested(DEPTH_MAX)) is not None


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (b"[]", "an array"),
        (b'"x"', "a string"),
        (b"null", "null"),
        (b"true", "a boolean"),
        (b"1", "a number"),
        (b"1.5", "a number"),
    ],
)
def test_a_document_that_is_no_object_is_called_by_its_kind(data, kind):
    with pytest.raises(StrictJsonError, match=kind):
        parse_object(data)


@given(JSON)
def test_the_canonical_form_reads_back_and_is_the_same_each_time(document):
    data = canonical(document)
    assert parse(data) == document
    assert canonical(parse(data)) == data


def test_the_canonical_form_does_not_depend_on_the_order_of_keys_and_keeps_lone_surrogates():
    assert canonical({"b": 1, "a": "\ud800"}) == canonical({"a": "\ud800", "b": 1})
    assert json.loads(canonical({"a": "\ud800"})) == {"a": "\ud800"}


@given(JSON)
def test_the_canonical_form_is_that_of_pythons_own_writer(document):
    assert canonical(document) == (json.dumps(document, sort_keys=True, indent=2) + "\n").encode()


@pytest.mark.parametrize("value", [1 << 70, 1.5, 1e16, 1e-7, "ä", "\ud800", (1, 2), [], {}, [{}, []], "\x7f\x00"])
def test_what_another_writer_writes_otherwise_has_one_canonical_form_too(value):
    assert canonical({"a": [value]}) == (json.dumps({"a": [value]}, sort_keys=True, indent=2) + "\n").encode()


def test_what_is_no_json_has_no_canonical_form():
    with pytest.raises(ValueError, match="JSON"):
        canonical({"a": float("nan")})
    with pytest.raises(TypeError):
        canonical({"a": object()})
