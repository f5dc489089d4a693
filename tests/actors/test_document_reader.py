"""The reader: what each text becomes, what each bad text is called, and that none of them takes long."""

import json
import time

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from actors.document import MappingNode, Place, ScalarKind, ScalarNode, SequenceNode, read_document
from actors.document.limits import DEPTH_MAX, DOCUMENT_BYTES_MAX, FINDINGS_MAX, NODES_MAX
from statemachine.problem import ProblemError, Step
from statemachine.reasons import Reason


def plain(node):
    """The tree as Python values: every scalar as its kind and text."""
    match node:
        case MappingNode():
            return {entry.key: plain(entry.value) for entry in node.entries}
        case SequenceNode():
            return [plain(item) for item in node.items]
        case ScalarNode():
            return (node.kind, node.text)


def refusal(data):
    with pytest.raises(ProblemError) as caught:
        read_document(data if isinstance(data, bytes) else data.encode())
    return caught.value.problems


def only_reason(data):
    problems = refusal(data)
    assert len(problems) == 1, problems
    return problems[0].reason


# A busy machine makes single examples slow, which is no fault of theirs.
UNHURRIED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
PLAIN, TEXT, NUMBER = ScalarKind.PLAIN, ScalarKind.TEXT, ScalarKind.NUMBER
SAME_MEANING = {
    "block": "a: 1\nb: [x, 'y']\n",
    "flow": "{a: 1, b: [x, 'y']}",
    "flow after a line": "\n {a: 1, b: [x, 'y']}",
    "document start": "---\na: 1\nb:\n- x\n- 'y'\n",
    "document end": 'a: 1\nb: [x, "y"]\n...\n',
    "comments": "# c\na: 1 # c\nb: [x, 'y']\n# c",
    "windows lines": "a: 1\r\nb: [x, 'y']\r\n",
    "byte order mark": "\ufeffa: 1\nb: [x, 'y']\n",
    "quoted keys": "'a': 1\n\"b\": [x, 'y']\n",
    "trailing comma": "{a: 1, b: [x, 'y',],}",
    "yaml directive": "%YAML 1.1\n---\na: 1\nb: [x, 'y']\n",
}


@pytest.mark.parametrize("text", SAME_MEANING.values(), ids=SAME_MEANING)
def test_every_style_of_yaml_gives_the_same_tree(text):
    tree = {"a": (PLAIN, "1"), "b": [(PLAIN, "x"), (TEXT, "y")]}
    assert plain(read_document(text.encode())) == tree


@pytest.mark.parametrize(
    "text",
    ["on", "1:30", "0x10", "1_000", "~", "null", "yes", "1.0", "true", "007", "2001-01-01", "=", "1e3", ".inf", "a b"],
)
def test_a_plain_scalar_is_kept_as_written(text):
    assert plain(read_document(f"- {text}\n".encode())) == [(PLAIN, text)]


def test_json_says_the_types_of_its_scalars():
    text = '{"a": ["x", 1, -1.5e3, true, false, null, {}, []]}'
    values = [
        (TEXT, "x"),
        (NUMBER, "1"),
        (NUMBER, "-1.5e3"),
        (ScalarKind.BOOLEAN, "true"),
        (ScalarKind.BOOLEAN, "false"),
        (ScalarKind.NULL, "null"),
        {},
        [],
    ]
    assert plain(read_document(text.encode())) == {"a": values}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('["\\ud83d\\ude00"]', "😀"),
        ('["\\/"]', "/"),
        ('["\\u00e9\\n\\t\\"\\\\"]', 'é\n\t"\\'),
        ('["\\u0000"]', "\0"),
        ('\t[\t"x"\t]\t', "x"),
        ('\n\r\n ["x"]', "x"),
        ('\ufeff["x"]', "x"),
    ],
)
def test_json_has_its_escapes_and_tabs(text, value):
    assert plain(read_document(text.encode())) == [(TEXT, value)]


@pytest.mark.parametrize("text", ["[NaN]", "[x]", "['x']", "[01]", "[+1]", "[1_0]", "{a: 1}", "[1,]", "[1] # note"])
def test_what_begins_like_json_and_is_none_is_read_as_yaml(text):
    root = read_document(text.encode())
    assert isinstance(root, MappingNode | SequenceNode)


@pytest.mark.parametrize("opener", ["", "{ "])
def test_places_are_lines_and_columns_from_one(opener):
    text = opener + 'a: "x"' if not opener else '{\n  "é": "x",\n  "b": [1,\n 2]}'
    root = read_document(text.encode())
    assert isinstance(root, MappingNode)
    places = [(entry.key, entry.key_place, entry.value.place) for entry in root.entries]
    if opener:
        assert places == [("é", Place(2, 3), Place(2, 8)), ("b", Place(3, 3), Place(3, 8))]
        items = root.entries[1].value
        assert isinstance(items, SequenceNode)
        assert [item.place for item in items.items] == [Place(3, 9), Place(4, 2)]
    else:
        assert places == [("a", Place(1, 1), Place(1, 4))]


def test_places_sort_in_document_order():
    assert sorted([Place(2, 1), Place(1, 9), Place(1, 10)]) == [Place(1, 9), Place(1, 10), Place(2, 1)]


NESTED = DEPTH_MAX + 1
ONE_REASON = {
    "nothing": (b"", Reason.EMPTY_DOCUMENT),
    "spaces": (b" \n \n", Reason.EMPTY_DOCUMENT),
    "a byte order mark": (b"\xef\xbb\xbf", Reason.EMPTY_DOCUMENT),
    "a comment": (b"# nothing\n", Reason.EMPTY_DOCUMENT),
    "null": (b"null", Reason.EMPTY_DOCUMENT),
    "a document start": (b"---\n", Reason.EMPTY_DOCUMENT),
    "latin-1": (b"a: \xe9", Reason.NOT_UTF8),
    "utf-16": ("a: b".encode("utf-16"), Reason.NOT_UTF8),
    "an encoded surrogate": (b"a: \xed\xa0\x80", Reason.NOT_UTF8),
    "an overlong slash": (b"a: \xc0\xaf", Reason.NOT_UTF8),
    "beyond Unicode": (b"a: \xf4\x90\x80\x80", Reason.NOT_UTF8),
    "an ELF": (b"\x7fELF\x02\x01\x01" + bytes(9) + b"\xff\xfe", Reason.NOT_UTF8),
    "1 MiB and a byte": (b"#" * (DOCUMENT_BYTES_MAX + 1), Reason.DOCUMENT_TOO_LARGE),
    "too many values": (b"- \n" * NODES_MAX, Reason.DOCUMENT_TOO_LARGE),
    "too many JSON values": (b"[" + b"1," * NODES_MAX + b"1]", Reason.DOCUMENT_TOO_LARGE),
    "deep flow": (b"[" * NESTED + b"]" * NESTED, Reason.TOO_DEEP),
    "deep JSON": (b'{"a":' * NESTED + b"1" + b"}" * NESTED, Reason.TOO_DEEP),
    "deep blocks": (b"- " * NESTED + b"a", Reason.TOO_DEEP),
    "64 KiB of openings": (b"[" * 65536, Reason.TOO_DEEP),
    "64 KiB of YAML openings": (b"{" * 65536, Reason.TOO_DEEP),
    "64 KiB of dashes": (b"- " * 32768, Reason.TOO_DEEP),
    "an anchor": (b"a: &x 1", Reason.ALIASES_REFUSED),
    "an anchor on a mapping": (b"&x\na: 1", Reason.ALIASES_REFUSED),
    "a merge key": (b"<<: {a: 1}", Reason.ALIASES_REFUSED),
    "a tag": (b"a: !!python/object:os.system x", Reason.ALIASES_REFUSED),
    "a core tag": (b"a: !!str 1", Reason.ALIASES_REFUSED),
    "a bare tag": (b"a: ! 1", Reason.ALIASES_REFUSED),
    "two documents": (b"a: 1\n---\nb: 2\n", Reason.MULTIPLE_DOCUMENTS),
    "an empty second document": (b"a: 1\n---\n", Reason.MULTIPLE_DOCUMENTS),
    "JSON lines": (b'{"a": 1}\n{"b": 2}\n', Reason.MULTIPLE_DOCUMENTS),
    "JSON and YAML": (b'{"a": 1}\n---\nb: 2\n', Reason.MULTIPLE_DOCUMENTS),
    "a key twice": (b"a: 1\na: 2", Reason.DUPLICATE_KEY),
    "a key twice, once quoted": (b"a: 1\n'a': 2", Reason.DUPLICATE_KEY),
    "a JSON key twice": (b'{"a": 1, "\\u0061": 2}', Reason.DUPLICATE_KEY),
    "a list as a key": (b"[a]: 1", Reason.WRONG_TYPE),
    "a mapping as a key": (b"? {a: 1}\n: 1", Reason.WRONG_TYPE),
    "NUL": (b"a: \0", Reason.MALFORMED_DOCUMENT),
    "a bell": (b"a: \x07", Reason.MALFORMED_DOCUMENT),
    "an escape": (b"\x1b[2J", Reason.MALFORMED_DOCUMENT),
    "DEL": (b"a: \x7f", Reason.MALFORMED_DOCUMENT),
    "C1": (b"a: \xc2\x9b", Reason.MALFORMED_DOCUMENT),
    "a tab as indentation": (b"a:\n\tb: 1", Reason.MALFORMED_DOCUMENT),
    "an open bracket": (b"[1, 2", Reason.MALFORMED_DOCUMENT),
    "an open quote": (b'{"a": "b', Reason.MALFORMED_DOCUMENT),
    "half a JSON object": (b'{"a": 1, "b":', Reason.MALFORMED_DOCUMENT),
    "a closing bracket": (b"]", Reason.MALFORMED_DOCUMENT),
    "the wrong bracket": (b'["a"}', Reason.MALFORMED_DOCUMENT),
    "half a surrogate pair": (b'["\\ud83d"]', Reason.MALFORMED_DOCUMENT),
    "half a surrogate pair in YAML": (b'a: "\\ud83d"', Reason.MALFORMED_DOCUMENT),
    "a raw line break in JSON": (b'{"a": "x\ny" "b"}', Reason.MALFORMED_DOCUMENT),
    "an unknown alias": (b"a: *", Reason.MALFORMED_DOCUMENT),
    "an unknown directive": (b"%\n---\na: 1", Reason.MALFORMED_DOCUMENT),
    "a JSON key without a colon": (b'{"a" "b"}', Reason.MALFORMED_DOCUMENT),
    "text after a value": (b"'a' b", Reason.MALFORMED_DOCUMENT),
}


@pytest.mark.parametrize(("data", "reason"), ONE_REASON.values(), ids=ONE_REASON)
def test_a_bad_text_has_one_reason(data, reason):
    assert only_reason(data) is reason


def test_the_limits_themselves_are_allowed():
    for data in (
        b"[" * DEPTH_MAX + b"]" * DEPTH_MAX,
        b"a: 1\n#" + b"-" * (DOCUMENT_BYTES_MAX - 6),
        b"- \n" * (NODES_MAX - 1),
    ):
        assert not isinstance(read_document(data), ScalarNode)


def test_a_quoted_merge_key_is_a_key_like_any_other():
    assert plain(read_document(b"'<<': 1")) == {"<<": (PLAIN, "1")}


def test_a_billion_laughs_are_refused_at_the_first_anchor():
    lines = ["a: &a [lol]"] + [
        f"{x}: &{x} [{', '.join([f'*{y}'] * 9)}]" for x, y in zip("bcdefghi", "abcdefgh", strict=True)
    ]
    problems = refusal("\n".join(lines))
    assert {problem.reason for problem in problems} == {Reason.ALIASES_REFUSED}
    assert len(problems) <= FINDINGS_MAX


def test_all_that_can_be_read_past_is_reported_at_once_with_paths():
    problems = refusal("a: &x 1\nspec:\n  b: [1, *x, !t 2]\n  c: 1\n  c: 2\n[z]: 1\n")
    assert [(problem.reason, problem.subject) for problem in problems] == [
        (Reason.ALIASES_REFUSED, "a"),
        (Reason.ALIASES_REFUSED, "spec.b[1]"),
        (Reason.ALIASES_REFUSED, "spec.b[2]"),
        (Reason.DUPLICATE_KEY, "spec.c"),
        (Reason.WRONG_TYPE, "document"),
    ]
    assert "line 4" in problems[3].message
    assert problems[3].message.endswith("(line 5)")


def test_a_problem_where_reading_stops_comes_after_those_before_it():
    assert [problem.reason for problem in refusal("a: 1\na: 2\n---\nb: 1")] == [
        Reason.DUPLICATE_KEY,
        Reason.MULTIPLE_DOCUMENTS,
    ]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"a": 1,, "b": 2}', "not JSON"),
        ('{"a": 1, "b":', "not JSON"),
        ("{a: [1, 2}", "not YAML"),
        ("a: b: c", "not YAML"),
    ],
)
def test_what_is_neither_is_explained_by_the_reader_that_got_further(text, words):
    (problem,) = refusal(text)
    assert words in problem.message
    assert "column" in problem.message


def test_the_place_of_a_bad_character_is_named():
    (problem,) = refusal("a: 1\nbc\x07")
    assert problem.message == "the control character U+0007 at column 3 must be escaped (line 2)"
    (problem,) = refusal(b"a: 1\nb\xff")
    assert problem.message == "byte 6 (0xff) is not UTF-8 (line 2)"


def test_problems_name_the_step_that_reads():
    with pytest.raises(ProblemError) as caught:
        read_document(b"", step=Step.GENERATE)
    assert caught.value.problem.step is Step.GENERATE


MIB = DOCUMENT_BYTES_MAX
HALF = NODES_MAX // 2 - 100
SLOW = {
    "flow scalars": "[" + "a," * (MIB // 2 - 1) + "]",
    "flow pairs": "{" + "?," * (MIB // 2 - 1) + "}",
    "flow keys": "{" + "a," * (MIB // 2 - 1) + "}",
    "question marks": "?\n" * (MIB // 2),
    "dashes": "-\n" * (MIB // 2),
    "possible keys at depth": "[" * 60 + "a," * (MIB // 2 - 100),
    "many small lists": "[" + "[a]," * (MIB // 4 - 1) + "]",
    "anchors": "[" + "&a b," * (MIB // 5 - 1) + "]",
    "aliases": "[" + "*a," * (MIB // 3 - 1) + "]",
    "JSON numbers": "[" + "1," * (MIB // 2 - 2) + "1]",
    "JSON lists": "[" + "[[[[[1]]]]]," * (MIB // 12 - 2) + "1]",
    "JSON keys": "{" + ",".join(f'"{number}":1' for number in range(90_000)) + "}",
    "JSON that fails late": "[" + "1," * HALF + "a" + ",1" * HALF + "]",
    "an open string": '["' + "x" * (MIB - 2),
    "an open string of escapes": '["' + "\\n" * (MIB // 2 - 1),
    "escapes": '["' + "\\u0041" * (MIB // 6 - 1) + '"]',
    "white space": "[" + " \n" * (MIB // 2 - 1) + "]",
    "digits": "[" + "1" * (MIB - 2) + "]",
    "minus signs": "[" + "-" * (MIB - 2) + "]",
    "colons": ": " * (MIB // 2),
    "quotes": "'" * MIB,
    "block scalar": "a: |\n" + " x\n" * (MIB // 3 - 2),
    "folded scalar": "a: >\n" + " x\n\n" * (MIB // 4 - 2),
    "plain lines": "a\n" * (MIB // 2),
    "line separators": "[" + "\u2028" * (MIB // 3 - 1) + "]",
    "percent signs": "%a\n" * (MIB // 3),
}


@pytest.mark.parametrize("text", SLOW.values(), ids=SLOW)
def test_the_worst_mebibyte_is_read_or_refused_soon(text):
    # CPU time of this process, so that a busy machine does not fail the test; measured at most 0.5 s.
    data = text.encode()
    assert len(data) <= MIB
    began = time.process_time()
    problems = problems_of(data)
    assert time.process_time() - began < 2
    assert len(problems) <= FINDINGS_MAX + 1


def problems_of(data):
    try:
        read_document(data)
    except ProblemError as error:
        return error.problems
    return ()


def is_presentable(problem):
    return all(text.isprintable() and len(text) < 2000 for text in (problem.message, problem.subject))


@UNHURRIED
@given(st.binary(max_size=200))
@example(b"\xef\xbb\xbf\xef\xbb\xbf")
def test_no_bytes_do_worse_than_being_refused(data):
    assert all(map(is_presentable, problems_of(data)))


YAML_TEXT = st.text(st.sampled_from("ab1{}[]:,-?&*!|>'\"%#@`<~ \n\t\\u\ufeff\u2028é😀\0"), max_size=60)


@UNHURRIED
@given(YAML_TEXT | st.text(max_size=60))
def test_no_text_does_worse_than_being_refused(text):
    assert all(map(is_presentable, problems_of(text.encode(errors="surrogatepass"))))


JSON_TEXT = st.text(st.characters(codec="utf-8"), max_size=20)
JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | JSON_TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(JSON_TEXT, inner, max_size=4),
    max_leaves=20,
)


def from_json(value):
    """The tree that a JSON value must become."""
    match value:
        case dict():
            return {key: from_json(item) for key, item in value.items()}
        case list():
            return [from_json(item) for item in value]
        case None:
            return (ScalarKind.NULL, "null")
        case bool():
            return (ScalarKind.BOOLEAN, json.dumps(value))
        case str():
            return (TEXT, value)
        case _:
            return (NUMBER, json.dumps(value))


@UNHURRIED
@given(JSON_VALUES, st.sampled_from([None, 2, "\t"]))
def test_whatever_the_standard_library_writes_as_json_is_read_back(value, indent):
    text = json.dumps([value], indent=indent)
    assert plain(read_document(text.encode())) == [from_json(value)]
