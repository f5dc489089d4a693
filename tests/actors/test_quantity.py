"""Quantities, against a table taken from Kubernetes' own parser and against an oracle that reads the grammar anew."""

from fractions import Fraction
from math import ceil

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from actors.quantity import INT64_MAX, InvalidQuantityError, Quantity, parse_quantity

# A busy machine makes single examples slow, which is no fault of theirs.
UNHURRIED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
NANO = 10**9
# What resource.ParseQuantity of k8s.io/apimachinery v0.37.2 makes of each text, in billionths.
KUBERNETES = {
    "0": 0,
    "-0": 0,
    "0.0": 0,
    "0m": 0,
    "1": NANO,
    "+1": NANO,
    "-1": -NANO,
    "00001": NANO,
    "1.0": NANO,
    ".5": NANO // 2,
    "5.": 5 * NANO,
    "1000m": NANO,
    "500m": NANO // 2,
    "100m": NANO // 10,
    "1n": 1,
    "1u": 1000,
    "1k": 1000 * NANO,
    "1M": 10**6 * NANO,
    "1G": 10**9 * NANO,
    "1T": 10**12 * NANO,
    "1P": 10**15 * NANO,
    "1E": 10**18 * NANO,
    "1Ki": 1024 * NANO,
    "0.5Ki": 512 * NANO,
    "1.5Gi": 1610612736 * NANO,
    "1Ti": 1099511627776 * NANO,
    "1Pi": 1125899906842624 * NANO,
    "1Ei": 1152921504606846976 * NANO,
    "1e3": 1000 * NANO,
    "1E3": 1000 * NANO,
    "+1e3": 1000 * NANO,
    "1e+3": 1000 * NANO,
    "1e-3": NANO // 1000,
    "1e0": NANO,
    "10e-1": NANO,
    "0e3000": 0,
    "1e-9": 1,
    # Finer than nano is rounded away from zero, so that a little never becomes nothing.
    "0.1n": 1,
    "1e-10": 1,
    "1e-100": 1,
    "1e-999": 1,
    "-1e-10": -1,
    "0.00000000001Ki": 11,
    "1.23456789012": 1234567891,
    # A binary suffix caps at 2^63 - 1, a decimal one does not.
    "7.9999999999Ei": 9223372036739483657539315303,
    "8Ei": INT64_MAX * NANO,
    "9.3Ei": INT64_MAX * NANO,
    "-8Ei": -INT64_MAX * NANO,
    "9223372036854775807": INT64_MAX * NANO,
    "9223372036854775808": (INT64_MAX + 1) * NANO,
    "100000000000000000000": 10**20 * NANO,
    "1e20": 10**20 * NANO,
    "1e30": 10**30 * NANO,
}
REFUSED_BY_KUBERNETES = [
    "", " ", " 1", "1 ", "1\n", "\t1", "1_000", "0x10", "1.1.1", "1..5", "1+1", "--1", "+-1", "1e", "1E+", "1e-",
    "1e1.5", "1e3m", "1e5Ki", "1m5", "1m-3", "1k3", "1-3", "1mm", "1i", "1MM", "1K", "1ki", "1mi", "1ei", "Infinity",
    "NaN", "true", "null", "1,5", "1e9223372036854775808", "\u0661", "1\u00a0", "\u22121",
]  # fmt: skip
ZERO_FOR_KUBERNETES_ALONE = ["+", "-", ".", "+.", "m", "Ki", "E", "e3"]


@pytest.mark.parametrize(("text", "nanos"), KUBERNETES.items())
def test_a_quantity_is_what_kubernetes_makes_of_it(text, nanos):
    assert parse_quantity(text) == Quantity(nanos)


@pytest.mark.parametrize("text", REFUSED_BY_KUBERNETES)
def test_what_kubernetes_refuses_is_refused(text):
    with pytest.raises(InvalidQuantityError):
        parse_quantity(text)


@pytest.mark.parametrize("text", ZERO_FOR_KUBERNETES_ALONE)
def test_a_text_without_a_digit_is_never_taken_for_zero(text):
    with pytest.raises(InvalidQuantityError):
        parse_quantity(text)


@pytest.mark.parametrize("text", ["1e100", "1e2147483647", "9" * 60, "9" * 256])
def test_what_is_beyond_every_amount_is_held_as_one_bound(text):
    assert parse_quantity(text) == Quantity(10**49)


@pytest.mark.parametrize("text", ["1e2147483648", "1e-2147483648", "1e999999999999"])
def test_an_exponent_that_kubernetes_would_wrap_round_is_refused(text):
    with pytest.raises(InvalidQuantityError):
        parse_quantity(text)


@pytest.mark.parametrize("text", ["1" * 257, "0" * 100_000, "1." + "0" * 100_000, "9" * 1_000_000])
def test_a_text_over_256_characters_is_refused(text):
    with pytest.raises(InvalidQuantityError):
        parse_quantity(text)


@pytest.mark.parametrize(
    ("text", "milli", "units", "whole"),
    [
        ("1", 1000, 1, 1),
        ("500m", 500, 1, None),
        ("1000m", 1000, 1, 1),
        ("0.1m", 1, 1, None),
        ("1n", 1, 1, None),
        ("1.0001", 1001, 2, None),
        ("2Ki", 2048000, 2048, 2048),
        ("-1500m", -1500, -1, None),
        ("-2", -2000, -2, -2),
        ("0", 0, 0, 0),
    ],
)
def test_amounts_are_counted_upwards(text, milli, units, whole):
    quantity = parse_quantity(text)
    assert (quantity.milli_ceil, quantity.bytes_ceil, quantity.whole()) == (milli, units, whole)


@pytest.mark.parametrize(("text", "negative"), [("-1n", True), ("0", False), ("-0", False), ("1", False)])
def test_only_what_is_below_zero_is_negative(text, negative):
    assert parse_quantity(text).is_negative is negative


def oracle(sign, whole, fraction, suffix):
    """The same grammar, by fractions and without any of the parser's shortcuts."""
    scales = {"": Fraction(1)}
    scales |= {letter: Fraction(1000) ** power for power, letter in enumerate("kMGTPE", 1)}
    scales |= {letter: Fraction(1000) ** -power for power, letter in enumerate("mun", 1)}
    scales |= {f"{letter}i": Fraction(1024) ** power for power, letter in enumerate("KMGTPE", 1)}
    scale = scales[suffix] if suffix in scales else Fraction(10) ** int(suffix[1:])
    magnitude = ceil((Fraction(whole or "0") + Fraction(int(fraction or "0"), 10 ** len(fraction))) * scale * NANO)
    magnitude = min(magnitude, INT64_MAX * NANO) if suffix.endswith("i") else min(magnitude, 10**49)
    return -magnitude if sign == "-" else magnitude


DIGITS = st.text("0123456789", max_size=25)
SUFFIXES = st.sampled_from(["", *"numkMGTPE", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"]) | st.builds(
    "{}{}{}".format, st.sampled_from("eE"), st.sampled_from(["", "+", "-"]), st.integers(0, 60)
)


@UNHURRIED
@given(st.sampled_from(["", "+", "-"]), DIGITS, DIGITS, SUFFIXES)
def test_a_quantity_equals_the_fraction_it_stands_for(sign, whole, fraction, suffix):
    text = f"{sign}{whole}{'.' if fraction else ''}{fraction}{suffix}"
    if whole or fraction:
        assert parse_quantity(text).nanos == oracle(sign, whole, fraction, suffix)
    else:
        with pytest.raises(InvalidQuantityError):
            parse_quantity(text)


@UNHURRIED
@given(st.text() | st.text("0123456789.+-eEinumkKMGTP "))
def test_no_text_does_worse_than_being_refused(text):
    try:
        quantity = parse_quantity(text)
    except InvalidQuantityError:
        return
    assert abs(quantity.nanos) <= 10**49
