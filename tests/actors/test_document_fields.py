"""The field decoders: each type of field against each way of writing a scalar, and the paths they report."""

import enum

import pytest

from actors.document import Field, Findings, MappingNode, RefusedError, Spot, UnsetError, read_document
from actors.document.decoding import Origin, Record
from actors.document.fields import any_text, given_text, list_of, map_of, seconds, some_of, whole, word_of
from actors.document.limits import FINDINGS_MAX, TEXT_BYTES_MAX
from actors.document.wording import document_path, escaped, nearest, shown
from statemachine.problem import Step


class Word(enum.StrEnum):
    RUNNING = "Running"
    NONE = "None"


UNSET = "unset"
REFUSED = "refused"


def decoded(decoder, text):
    """What a decoder makes of the field `f` of a document."""
    findings = Findings(Step.ADMISSION)
    root = read_document(text.encode())
    assert isinstance(root, MappingNode)
    node = root.entries[0].value
    try:
        return decoder(node, Spot(findings, node.place))
    except UnsetError:
        return UNSET
    except RefusedError:
        (finding,) = findings.in_document_order()
        return f"{REFUSED}: {finding.problem.reason}"


WRONG_TYPE = "refused: WrongType"
INVALID = "refused: InvalidValue"


@pytest.mark.parametrize(
    ("scalar", "text", "number", "word"),
    [
        ("f: 1", "1", 1, INVALID),
        ("f: '1'", "1", WRONG_TYPE, INVALID),
        ('f: "1"', "1", WRONG_TYPE, INVALID),
        ('{"f": 1}', WRONG_TYPE, 1, WRONG_TYPE),
        ('{"f": "1"}', "1", WRONG_TYPE, INVALID),
        ("f: 0", "0", 0, INVALID),
        ("f: -0", "-0", WRONG_TYPE, INVALID),
        ("f: -5", "-5", INVALID, INVALID),
        ("f: +1", "+1", WRONG_TYPE, INVALID),
        ("f: 01", "01", WRONG_TYPE, INVALID),
        ("f: 1.0", "1.0", WRONG_TYPE, INVALID),
        ('{"f": 1.0}', WRONG_TYPE, WRONG_TYPE, WRONG_TYPE),
        ('{"f": 1e2}', WRONG_TYPE, WRONG_TYPE, WRONG_TYPE),
        ("f: 1e2", "1e2", WRONG_TYPE, INVALID),
        ("f: 1_000", "1_000", WRONG_TYPE, INVALID),
        ("f: 0x10", "0x10", WRONG_TYPE, INVALID),
        ("f: 1:30", "1:30", WRONG_TYPE, INVALID),
        ("f: \u0661", "\u0661", WRONG_TYPE, INVALID),
        ("f: 101", "101", INVALID, INVALID),
        ("f: " + "9" * 20_000, "9" * 20_000, INVALID, INVALID),
        ("f: on", "on", WRONG_TYPE, INVALID),
        ("f: true", "true", WRONG_TYPE, INVALID),
        ('{"f": true}', WRONG_TYPE, WRONG_TYPE, WRONG_TYPE),
        ("f: null", "null", UNSET, UNSET),
        ("f: ~", "~", UNSET, UNSET),
        ("f:", UNSET, UNSET, UNSET),
        ('{"f": null}', UNSET, UNSET, UNSET),
        ("f: ''", "", WRONG_TYPE, INVALID),
        ("f: 'null'", "null", WRONG_TYPE, INVALID),
        ("f: Running", "Running", WRONG_TYPE, Word.RUNNING),
        ("f: 'Running'", "Running", WRONG_TYPE, Word.RUNNING),
        ("f: running", "running", WRONG_TYPE, INVALID),
        ("f: None", "None", WRONG_TYPE, Word.NONE),
        ("f: |\n  a\n  b\n", "a\nb\n", WRONG_TYPE, INVALID),
        ("f: [1]", WRONG_TYPE, WRONG_TYPE, WRONG_TYPE),
        ("f: {a: 1}", WRONG_TYPE, WRONG_TYPE, WRONG_TYPE),
        ('f: "a\\0b"', INVALID, WRONG_TYPE, INVALID),
    ],
)
def test_the_field_types_the_scalar(scalar, text, number, word):
    assert decoded(any_text, scalar) == text
    assert decoded(given_text, scalar) == (UNSET if scalar in {"f: null", "f: ~"} else text)
    assert decoded(whole(0, 100), scalar) == number
    assert decoded(word_of(Word), scalar) == word


@pytest.mark.parametrize(
    ("scalar", "value"),
    [
        ("f: 3", 3.0),
        ("f: 0.5", 0.5),
        ('{"f": 2.5}', 2.5),
        ("f: 60", 60.0),
        ("f: 0", INVALID),
        ("f: 0.0", INVALID),
        ("f: 60.1", INVALID),
        ("f: -1", WRONG_TYPE),
        ("f: '3'", WRONG_TYPE),
        ("f: .5", WRONG_TYPE),
        ("f: 1e1", WRONG_TYPE),
        ("f: .inf", WRONG_TYPE),
        ("f: .nan", WRONG_TYPE),
        ("f: " + "9" * 400, INVALID),
        ("f: 30s", WRONG_TYPE),
        ("f: true", WRONG_TYPE),
        ("f: ~", UNSET),
        ("f: [1]", WRONG_TYPE),
    ],
)
def test_seconds_are_decimal_numbers_above_zero(scalar, value):
    assert decoded(seconds(60), scalar) == value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("f: [a, 'b', on]", ("a", "b", "on")),
        ("f: []", ()),
        ("f:", UNSET),
        ("f: null", UNSET),
        ("f: [a, b, c, d]", INVALID),
        ("f: a", WRONG_TYPE),
        ("f: {a: b}", WRONG_TYPE),
        ("f: [a, ]", ("a",)),
        ("f:\n- a\n-", WRONG_TYPE),
        ('{"f": ["a", null]}', WRONG_TYPE),
        ('{"f": ["a", 1]}', WRONG_TYPE),
        ("f: [null, ~]", ("null", "~")),
    ],
)
def test_a_list_of_texts(text, value):
    assert decoded(list_of(any_text, most=3), text) == value


def test_a_list_with_at_least_one_item():
    assert decoded(some_of(any_text, most=3), "f: []") == INVALID
    assert decoded(some_of(any_text, most=3), "f: [a]") == ("a",)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("f: {b: 1, a: 2}", {"b": 1, "a": 2}),
        ("f: {}", {}),
        ("f: ~", UNSET),
        ("f: {a: x}", WRONG_TYPE),
        ("f: {a: }", WRONG_TYPE),
        ("f: {a: 1, b: 2, c: 3, d: 4}", INVALID),
        ("f: [a]", WRONG_TYPE),
    ],
)
def test_a_map_keeps_the_order_of_its_keys(text, value):
    found = decoded(map_of(whole(0, 100), most=3), text)
    assert found == value
    assert not isinstance(value, dict) or list(found) == list(value)


def test_a_text_may_have_32_kib_and_no_more():
    assert decoded(any_text, f"f: {'x' * TEXT_BYTES_MAX}") == "x" * TEXT_BYTES_MAX
    assert decoded(any_text, f"f: {'é' * (TEXT_BYTES_MAX // 2)}") == "é" * (TEXT_BYTES_MAX // 2)
    assert decoded(any_text, f"f: {'x' * TEXT_BYTES_MAX}x") == INVALID
    assert decoded(any_text, f"f: {'é' * (TEXT_BYTES_MAX // 2)}x") == INVALID


def record_of(text, known=("a", "b", "spec")):
    node = read_document(text.encode())
    findings = Findings(Step.ADMISSION)
    return Record.closed(node, Spot(findings, node.place), known), findings


def reported(findings):
    return [(str(found.problem.reason), found.problem.subject) for found in findings.in_document_order()]


def test_a_record_reports_every_field_and_goes_on():
    record, findings = record_of("A: 1\na: x\nc: 2\nb: [1]")
    first, second = record.required("a", any_text), record.optional("b", any_text, "default")
    third = record.required("spec", any_text)
    assert (first.value, first.origin) == ("x", Origin.GIVEN)
    assert (second.is_usable, third.is_usable) == (False, False)
    assert reported(findings) == [
        ("UnknownField", "A"),
        ("MissingField", "spec"),
        ("UnknownField", "c"),
        ("WrongType", "b"),
    ]
    with pytest.raises(RefusedError):
        _ = second.value


@pytest.mark.parametrize("text", ["b: 1", "a:\nb: 1", '{"a": null, "b": 1}'])
def test_null_is_absent(text):
    record, findings = record_of(text)
    field = record.optional("a", any_text, "default")
    assert (field.value, field.is_given, "a" in record) == ("default", False, False)
    assert not record.required("a", any_text).is_usable
    assert reported(findings) == [("MissingField", "a")]


def test_an_open_record_ignores_what_it_does_not_know():
    node = read_document(b"a: 1\nz: 2")
    findings = Findings(Step.ADMISSION)
    record = Record.open(node, Spot(findings, node.place))
    assert record.optional("a", any_text, None).value == "1"
    assert reported(findings) == []


def test_fields_that_exclude_each_other():
    record, findings = record_of("b: 1\na: 2")
    with pytest.raises(RefusedError):
        record.require_one("a", "b")
    record, none = record_of("spec: 1")
    with pytest.raises(RefusedError):
        record.require_one("a", "b")
    assert reported(findings) == [("InvalidValue", "a")]
    assert reported(none) == [("MissingField", "document")]
    assert record_of("a: 1")[0].require_one("a", "b") == "a"


def test_findings_are_bounded():
    record, findings = record_of("\n".join(f"k{number}: 1" for number in range(FINDINGS_MAX + 50)))
    assert findings.is_full
    assert len(findings.in_document_order()) == FINDINGS_MAX
    assert not record.required("a", any_text).is_usable


def test_a_list_is_given_up_when_nothing_more_would_be_kept():
    findings = Findings(Step.ADMISSION)
    node = read_document(b"[" + b"[]," * (FINDINGS_MAX + 50) + b"[]]")
    seen = []

    def decode(item, spot):
        seen.append(item)
        return any_text(item, spot)

    with pytest.raises(RefusedError):
        list_of(decode, most=1024)(node, Spot(findings, node.place))
    assert len(seen) == FINDINGS_MAX


def test_a_refused_field_gives_no_value():
    spot = record_of("a: 1")[0].spot
    with pytest.raises(RefusedError):
        _ = Field(spot, Origin.REFUSED).value


@pytest.mark.parametrize(
    ("segments", "path"),
    [
        ([], "document"),
        (["spec", "containers", 1, "name"], "spec.containers[1].name"),
        (["limits", "nvidia.com/gpu"], 'limits["nvidia.com/gpu"]'),
        (["a", ""], 'a[""]'),
        (["a", "x\n\x1b[2J"], 'a["x\\n\\x1b[2J"]'),
        (["a", "k" * 200], f'a["{"k" * 80}…"]'),
        ([0], "[0]"),
    ],
)
def test_paths_can_be_read_and_printed(segments, path):
    assert document_path(segments) == path


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("plain", '"plain"'),
        ("é😀", '"é😀"'),
        ('say "hi" \\', '"say \\"hi\\" \\\\"'),
        ("a\tb\r\n", '"a\\tb\\r\\n"'),
        ("\x9b\u202e\U000e0001", '"\\x9b\\u202e\\U000e0001"'),
        ("x" * 81, f'"{"x" * 80}…"'),
    ],
)
def test_values_are_shown_cut_and_on_one_line(text, words):
    assert shown(text) == words
    assert escaped(text).isprintable()


@pytest.mark.parametrize(
    ("word", "guess"),
    [
        ("desiredSate", "desiredState"),
        ("DESIREDSTATE", "desiredState"),
        ("nothing-like-it", None),
        ("", None),
        ("x" * 10**6, None),
    ],
)
def test_the_nearest_known_word_is_suggested(word, guess):
    assert nearest(word, ["desiredState", "containers"]) == guess
