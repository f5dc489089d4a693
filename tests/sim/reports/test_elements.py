"""Elements of a page: text means itself, whatever is in it."""

from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.reports.elements import Markup, element, joined, number


class _Read(HTMLParser):
    """What a browser makes of it."""

    def __init__(self):
        super().__init__(convert_charrefs=True)
        self.text, self.elements = "", []

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))

    def handle_data(self, data):
        self.text += data


def read(markup):
    found = _Read()
    found.feed(markup)
    found.close()
    return found


TEXTS = st.text(st.characters(codec="utf-8", exclude_characters="\r\0"))


@given(text=TEXTS, value=TEXTS)
def test_any_text_comes_back_as_it_was_and_makes_no_element(text, value):
    found = read(element("td", text, class_=value))
    assert found.text == text
    assert found.elements == [("td", {"class": value})]


def test_markup_is_taken_as_it_is():
    assert element("p", Markup("<b>x</b>"), "<") == "<p><b>x</b>&lt;</p>"
    assert joined((Markup("<br>"), "&")) == "<br>&amp;"


def test_an_attribute_without_a_value_is_left_out_and_dashes_are_written_with_underscores():
    assert element("line", x1=1.25, stroke_width=2, class_=None) == '<line x1="1.2" stroke-width="2"></line>'
    assert element("meta", name="a") == '<meta name="a">'


@pytest.mark.parametrize(("value", "text"), [(0.0, "0"), (-0.01, "0"), (3.0, "3"), (3.14, "3.1"), (100, "100")])
def test_a_coordinate_is_no_longer_than_it_must_be(value, text):
    assert number(value) == text
