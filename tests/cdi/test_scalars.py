"""What a plain scalar is worth to a field: the tables of the facts, row by row."""

import math
import struct

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from actors.cdi.scalars import as_int, as_text, plain_key, resolved
from actors.document.values import Plain
from tests.cdi.making import loaded, reasons

AS_TEXT = {
    "0": "0",
    "195": "195",
    "007": "7",
    "0x10": "16",
    "-0x10": "-16",
    "0b11": "3",
    "0B11": "3",
    "0o17": "15",
    "0O17": "15",
    "1_000": "1000",
    "+1": "1",
    "-0": "0",
    "yes": "true",
    "on": "true",
    "y": "true",
    "true": "true",
    "TRUE": "true",
    "no": "false",
    "off": "false",
    "n": "false",
    "false": "false",
    "~": "",
    "null": "",
    "": "",
    ".inf": "+Inf",
    "-.inf": "-Inf",
    ".nan": "NaN",
    "1e3": "1000",
    "1.50": "1.5",
    ".5": "0.5",
    "0.5": "0.5",
    "08": "8",
    "1e6": "1e+06",
    "1234567.0": "1.234567e+06",
    "123456.5": "123456.5",
    "1e-5": "1e-05",
    "0.0001": "0.0001",
    "-1.5e-7": "-1.5e-07",
    "3.14159265358979": "3.1415927",
    "16777217.0": "1.6777216e+07",
    "0.1": "0.1",
    "1e-50": "0",
    "1e300": "+Inf",
    "-1e300": "-Inf",
    "1e400": "1e400",
    "18446744073709551615": "18446744073709551615",
    "18446744073709551616": "1.8446744e+19",
    "1:0": "1:0",
    "0:0": "0:0",
    "1:30:00": "1:30:00",
    "2001-01-01": "2001-01-01",
    "2001-01-01T00:00:00Z": "2001-01-01T00:00:00Z",
    "0.5.0": "0.5.0",
    "=": "=",
    "<<": "<<",
    "0x": "0x",
    "0xg": "0xg",
    "0b2": "0b2",
    "+": "+",
    "-": "-",
    ".": ".",
    "._5": "._5",
    "1e": "1e",
    "tRue": "tRue",
    "nULL": "nULL",
    "a": "a",
    "GPU-0": "GPU-0",
}


@pytest.mark.parametrize(("plain", "text"), AS_TEXT.items())
def test_a_plain_scalar_becomes_text_by_way_of_what_it_is(plain, text):
    assert as_text(Plain(plain)) == text
    assert type(as_text(Plain(plain))) is str


@pytest.mark.parametrize(
    ("plain", "number"),
    [
        ("195", 195),
        ("195.0", 195),
        ("1e2", 100),
        ("0x10", 16),
        ("0666", 438),
        ("0o666", 438),
        ("0b11", 3),
        ("1_000", 1000),
        ("-1", -1),
        ("+7", 7),
        ("08", 8),
        ("1e20", 10**20),
    ],
)
def test_a_plain_scalar_is_an_integer_in_any_of_yamls_forms(plain, number):
    assert as_int(Plain(plain)) == number


@pytest.mark.parametrize("plain", ["1.5", "yes", "", "~", "a", "1:0", ".inf", ".nan", "1e21", "2001-01-01", "0x"])
def test_others_are_none(plain):
    assert as_int(Plain(plain)) is None


@pytest.mark.parametrize("plain", ["1" * 5000, "0" * 5000, "0x" + "f" * 5000, "1e" + "9" * 5000, "-" * 5000])
def test_a_number_without_end_is_soon_a_text(plain):
    assert as_text(Plain(plain)) == plain


def test_null_is_no_key():
    assert plain_key("~") is None
    assert plain_key("9223372036854775808") is None
    assert plain_key("9223372036854775807") == "9223372036854775807"
    assert plain_key("on") == "true"
    assert [plain_key(word) for word in (".inf", "-.INF", ".nan", "1.0")] == [".inf", "-.inf", ".nan", "1"]
    assert plain_key("cdiVersion") == "cdiVersion"


@given(st.floats(width=32, allow_nan=False))
def test_a_float_as_text_is_the_same_float_in_32_bits(number):
    written = repr(number) if math.isfinite(number) else repr(number).replace("inf", ".inf")
    text = as_text(Plain(written))
    assert math.isinf(number) or struct.pack("f", float(text)) == struct.pack("f", number)


@given(st.text(st.sampled_from("0123456789abcdefoxXBO+-._eE:~nyN"), max_size=12))
def test_no_scalar_does_worse_than_being_text(plain):
    assert isinstance(as_text(Plain(plain)), str)
    inner = resolved(plain)
    assert as_int(Plain(plain)) is None or isinstance(inner, int | float)


FIELDS = "cdiVersion: 0.5.0\nkind: v.com/x\ndevices:\n- name: {name}\n  containerEdits:\n    deviceNodes: [{node}]\n"


def of_yaml(name="0", node="{path: /d}"):
    return FIELDS.replace("{name}", name).replace("{node}", node)


@pytest.mark.parametrize(
    ("name", "device_name"), [("0", "0"), ("007", "7"), ("0x10", "16"), ("1_000", "1000"), ("1e3", "1000")]
)
def test_d9_d11_a_name_is_what_go_makes_of_it(name, device_name):
    assert loaded(of_yaml(name)).devices[0].name == device_name


@pytest.mark.parametrize(("name", "device_name"), [("on", "true"), ("n", "false"), ("1:0", "1:0"), ("'on'", "on")])
def test_d11_words_and_base_60(name, device_name):
    assert loaded(of_yaml(name)).devices[0].name == device_name


@pytest.mark.parametrize("mode", ["0666", "0o666", "438", "438.0", "0x1b6"])
def test_d13_a_mode_may_be_octal(mode):
    found = loaded(of_yaml(node=f"{{path: /d, fileMode: {mode}}}"))
    assert found.devices[0].container_edits.device_nodes[0].file_mode == 0o666


@pytest.mark.parametrize("field", ['fileMode: "0666"', "major: '195'", "major: yes", "uid: 1.5", "gid: a", "major: []"])
def test_d14_text_is_no_number(field):
    assert reasons(of_yaml(node=f"{{path: /d, {field}}}")) == ["WrongType"]


@pytest.mark.parametrize(("word", "value"), [("yes", True), ("on", True), ("False", False), ("n", False)])
def test_d24_a_boolean_has_yamls_words(word, value):
    content = (
        "{cdiVersion: 1.1.0, kind: v.com/x, devices: [{name: d, containerEdits: {intelRdt: {enableMonitoring: @}}}]}"
    )
    assert loaded(content.replace("@", word)).devices[0].container_edits.intel_rdt.enable_monitoring is value


@pytest.mark.parametrize("word", ["'yes'", "1", "maybe", "[]"])
def test_d24_others_are_none(word):
    content = (
        "{cdiVersion: 1.1.0, kind: v.com/x, devices: [{name: d, containerEdits: {intelRdt: {enableMonitoring: @}}}]}"
    )
    assert reasons(content.replace("@", word)) == ["WrongType"]


def test_pyyaml_would_lose_a_mig_device():
    # What all of this is for.
    assert yaml.safe_load("name: 1:0") == {"name": 60}
    assert loaded(of_yaml("1:0")).devices[0].name == "1:0"
