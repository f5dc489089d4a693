"""What others wrote, repeated: bounded, nothing in it that a terminal acts upon, and the same when it is repeated."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from statemachine.wording import file_label, one_line, some_lines

ANYTHING = st.text(st.characters(exclude_categories=())) | st.text(alphabet="\x1b\n\t\\x7f…a", max_size=40)


@given(ANYTHING, st.integers(min_value=1, max_value=30))
def test_a_text_is_bounded_and_printable_and_saying_it_again_changes_nothing(text, most):
    once = one_line(text, most)
    assert len(once) <= most
    assert once.isprintable()
    assert one_line(once, most) == once
    lines = some_lines(text, most)
    assert len(lines) <= most
    assert all(line.replace("\t", "").isprintable() for line in lines.split("\n"))
    assert some_lines(lines, most) == lines


@pytest.mark.parametrize("text", ["", "plain", "ä 日本 …", "a\\nb", "x" * 30])
def test_what_is_short_and_printable_stays_as_it_is(text):
    assert one_line(text, 30) == some_lines(text, 30) == text


def test_control_characters_show_and_a_long_text_loses_its_middle():
    assert one_line("a\x1b[2J\nb\udcff\u202e", 60) == r"a\x1b[2J\nb\udcff\u202e"
    assert some_lines("a\n\tb\x07", 60) == "a\n\tb\\x07"
    assert one_line("begin" + "x" * 1000 + "the end", 20) == "beginxxxxx…xxthe end"


@given(ANYTHING, ANYTHING)
def test_two_files_never_have_one_label(one, other):
    assert file_label(one).isprintable()
    assert (file_label(one) == file_label(other)) == (one == other)
