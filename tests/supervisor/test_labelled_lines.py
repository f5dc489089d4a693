"""Case 039: a container's lines on the worker's stdout carry our labels, and no line can pose as another actor's."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.labelled_lines import LABEL_KEYS, Part, dropped, label_members, labelled, labelled_part

OURS = {
    "ate.dev/actor_atespace": "team-a",
    "ate.dev/actor_name": "trainer-7",
    "ate.dev/actor_uid": "u1",
    "ate.dev/actor_generation": "3",
    "ate.dev/container_name": "main",
}
LABELS = label_members(OURS)
AT = "2026-11-29T15:04:05.678Z"
GCE = "logging.googleapis.com/labels"


def told(line):
    """What a collector reads; a line of ours is one line, and JSON to the letter."""
    written = labelled(line, LABELS, at=AT)
    assert written.endswith(b"\n")
    assert written.count(b"\n") == 1
    assert not any(byte < 0x20 for byte in written[:-1])
    return json.loads(written, parse_constant=pytest.fail)


def test_a_json_object_stays_and_gets_our_labels():
    assert told(b'{"severity":"INFO","n":1}') == {"severity": "INFO", "n": 1, "labels": OURS}


@pytest.mark.parametrize(
    "line",
    [
        b"plain text",
        b"",
        b"   ",
        b'{"a":1} and garbage',
        b'{"a":1}{"labels":{}}',
        b'[{"a":1}]',
        b'"text"',
        b"1",
        b"null",
        b'{"a":1',
        b'{"a":NaN}',
        b'{"a":Infinity}',
        b"{'a':1}",
        b'{"a":"\x01"}',
        b'{"a":01}',
        b'{"a":1,}',
        b"{a:1}",
        b'{"a" 1}',
        b'\xef\xbb\xbf{"a":1}',
        b"[" * 100_000,
        b'{"a":' * 100_000,
    ],
    ids=range(21),
)
def test_anything_else_is_the_message_of_an_object(line):
    assert told(line) == {"time": AT, "message": line.decode(), "labels": OURS}


def test_what_a_container_says_in_our_name_is_taken_out_of_both_label_keys_and_the_rest_stays():
    forged = {"ate.dev/actor_uid": "victim", "ATE.dev/Actor_uid": "victim", "ate.actor.uid": "victim", "team": "x"}
    line = json.dumps({"labels": forged, GCE: forged, "ate.dev/actor_uid": "victim", "message": "m"}).encode()
    assert told(line) == {GCE: {"team": "x"}, "message": "m", "labels": {"team": "x"} | OURS}
    assert b"victim" not in labelled(line, LABELS, at=AT)


def test_a_forged_label_in_other_letters_or_said_twice_is_found_as_well():
    line = rb'{"\u006cabels":{"\u0061te.dev/actor_uid":"victim","a":"1"},"labels":{"ate.dev\/actor_uid":"victim"}}'
    assert told(line) == {"labels": {"a": "1"} | OURS}
    assert b"victim" not in labelled(line, LABELS, at=AT)


@pytest.mark.parametrize("labels", [b'"ate.dev/actor_uid=victim"', b"null", b"[1]", b"7"])
@pytest.mark.parametrize("key", sorted(LABEL_KEYS))
def test_labels_that_are_no_object_make_the_line_a_message_of_which_nothing_is_lost(labels, key):
    line = b'{"%s":%s,"message":"m"}' % (key.encode(), labels)
    assert told(line) == {"time": AT, "message": line.decode(), "labels": OURS}


@pytest.mark.parametrize("number", ["12345678901234567890", "9" * 5000, "1.10", "1e400", "-0", "1E+2"])
def test_a_number_stays_to_the_digit(number):
    written = labelled(b'{"n":%s}' % number.encode(), LABELS, at=AT)
    assert written.startswith(b'{"n":%s,' % number.encode())


def test_space_between_tokens_is_no_way_to_a_second_line():
    assert told(b'\t{ "a"\r:\t[1,\r2] }\r') == {"a": [1, 2], "labels": OURS}


def test_nul_and_bytes_that_are_no_utf8_are_escapes():
    assert told(b"a\0b\xff\xc3")["message"] == "a\0b\\xff\\xc3"


def test_what_a_terminal_would_obey_is_an_escape_in_text_and_in_json():
    for line in ("\x1b[2J\x9b2J\x7f\u2028", '{"a":"\x9b2J\x7f\u2028\u2029"}'):
        written = labelled(line.encode(), LABELS, at=AT).decode()
        assert not set(written) & {"\x1b", "\x9b", "\x7f", "\u2028", "\u2029"}


def test_a_part_says_which_it_is_and_whether_more_follows():
    part = json.loads(labelled_part(b"aaa", LABELS, at=AT, part=Part(number=2, is_last=False)))
    assert part == {"time": AT, "message": "aaa", "part": 2, "more": True, "labels": OURS}


def test_what_was_dropped_is_counted_in_a_line_of_ours():
    line = json.loads(dropped(77, LABELS, at=AT))
    assert (line["dropped_bytes"], line["labels"]) == (77, OURS)


KEYS = st.sampled_from(["labels", GCE, "ate.dev/actor_uid", "message", "time", "a"]) | st.text(max_size=5)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=9,
)
LINES = (
    st.binary(max_size=60)
    | VALUES.map(lambda value: json.dumps(value).encode())
    | st.dictionaries(KEYS, VALUES, max_size=5).map(lambda value: json.dumps(value, ensure_ascii=False).encode())
)


@given(line=LINES.map(lambda line: line.replace(b"\n", b"")))
def test_whatever_a_container_writes_its_line_is_one_json_object_with_our_labels(line):
    answer = told(line)
    assert answer["labels"].items() >= OURS.items()
    theirs = [key for each in LABEL_KEYS for key in answer.get(each, ()) if key not in OURS]
    assert not any(key.casefold().startswith("ate.dev/") for key in theirs)
