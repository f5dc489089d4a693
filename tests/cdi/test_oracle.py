"""Specs read by the CDI Go library and by ours: the same files are taken, and the same is in them.

What differs stands in `tests.cdi.oracle.differences` and in docs/cdi.md, by the same names.
"""

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from actors.cdi import (
    CdiError,
    CdiReason,
    SpecFormat,
    encode,
    minimum_version,
    parse_name,
    read_spec,
    request_key,
    requested_names,
    to_dict,
)
from tests.cdi.oracle.corpus import TOKENS, bad_samples, files, good_samples, spoilt_samples
from tests.cdi.oracle.differences import DIFFERENCES, Comparison, as_versions_see, spec
from tests.cdi.oracle.library import RELEASES, running
from tests.needs import ROOT

QUICK = settings(max_examples=150, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
LONG = settings(max_examples=20_000, deadline=None, suppress_health_check=list(HealthCheck))


@pytest.fixture(params=sorted(RELEASES), scope="module")
def library(request):
    with running(request.param) as answering:
        yield answering


@pytest.fixture(scope="module")
def newest():
    with running(max(RELEASES)) as answering:
        yield answering


def differences(library):
    return tuple(each for each in DIFFERENCES if library.release in each.releases)


def pruned(model):
    """A model as both write it: what is absent or empty left out."""
    if isinstance(model, dict):
        pairs = {key: pruned(value) for key, value in model.items()}
        return {
            key: value
            for key, value in pairs.items()
            if key == "intelRdt" or not (value in ({}, [], "", None) or (key in {"major", "minor"} and value == 0))
        }
    return [pruned(item) for item in model] if isinstance(model, list) else model


def compared(library, data):
    reading, answer = read_spec(data, "x.yaml"), library.read(data)
    comparison = Comparison(
        data=data,
        reading=reading,
        ours=pruned(to_dict(reading.spec)) if reading.spec else None,
        theirs=pruned(answer["model"]) if answer["ok"] else None,
        error=answer.get("error", "") + answer.get("crash", ""),
    )
    if reading.spec and comparison.is_equal:  # of two readings that differ, each has a minimum of its own
        assert minimum_version(as_versions_see(reading.spec)) == answer["minimum"]
    return comparison


def unexplained(library, data):
    """What is left of the differences when the listed ones are taken away; empty when nothing is."""
    comparison = compared(library, data)
    is_fine = comparison.is_equal or comparison.is_explained_by(differences(library))
    return "" if is_fine else str(comparison)


@pytest.mark.parametrize("difference", DIFFERENCES, ids=lambda difference: difference.name)
def test_a_listed_difference_is_there_in_the_releases_named_and_is_documented(library, difference):
    comparison = compared(library, difference.example)
    assert comparison.is_equal is (library.release not in difference.releases)
    if not comparison.is_equal:
        assert comparison.is_explained_by((difference,))
        others = tuple(each for each in differences(library) if each is not difference)
        assert not comparison.is_explained_by(others)
    assert f"| {difference.name} |" in (ROOT / "docs" / "cdi.md").read_text()


@pytest.mark.skipif(not good_samples(), reason="the samples are not beside this checkout")
def test_every_sample_is_read_alike(library):
    paths = good_samples() + bad_samples()
    assert len(paths) > 30
    for path in paths:
        assert not unexplained(library, path.read_bytes())


PLACES = {
    "text": "annotations: {{k: {}}}", "key": "annotations: {{{}: v}}", "version": "x", "name": "x",
    "item of texts": "env: [A=b, {}]", "integer": "deviceNodes: [{{path: /a, major: {}}}]",
    "unsigned": "deviceNodes: [{{path: /a, fileMode: {}}}]", "item of numbers": "additionalGids: [1, {}]",
    "timeout": "hooks: [{{hookName: poststop, path: /h, timeout: {}}}]",
    "boolean": "intelRdt: {{enableMonitoring: {}}}",
}  # fmt: skip
MORE_TOKENS = (
    "!!str 5", "!foo 7", "!!int 5", '!!int "5"', "!!binary aGk=", '"\\/"', '"\\u00e9"', "'it''s'", '"\\x41"', "-0.0",
    "!!bool yes", "'yes'", '"5"', '"\\ud800"', '"null"', "&x y", "[]", "{}", '"a\\0b"', "*x", "? a", "!!null x", "@a",
    "`", "%a", "a: b", "a #b", "'", '"', "|", "-", "?", ":", ",", "]",
)  # fmt: skip


@pytest.mark.parametrize("place", sorted(PLACES))
def test_scalars_are_worth_the_same_in_every_place(library, place):
    for token in (*TOKENS, *MORE_TOKENS):
        match place:
            case "version":
                data = spec(version=token)
            case "name":
                data = spec(name=token)
            case "text" | "key":
                data = spec(head=PLACES[place].format(token))
            case _:
                data = spec(PLACES[place].format(token))
        assert not unexplained(library, data)


@pytest.mark.parametrize("token", [token for token in TOKENS if not token.startswith("!!")])
def test_a_text_that_newer_releases_read_otherwise_is_warned_of_and_no_other(newest, token):
    comparison = compared(newest, spec(head=f"annotations: {{k: {token}}}"))
    warned = [each.value for each in comparison.reading.warnings if each.reason is CdiReason.READ_DIFFERENTLY]
    assert warned == ([] if comparison.is_equal else [token])


def test_files_are_read_alike(library):
    @QUICK
    @given(st.one_of(files(), files(), spoilt_samples()))
    def check(data):
        assert not unexplained(library, data)

    check()


@pytest.mark.campaign
def test_many_files_are_read_alike(library):
    @LONG
    @given(st.one_of(files(), files(), spoilt_samples()))
    def check(data):
        assert not unexplained(library, data)

    check()


def test_what_we_write_is_read_alike(library):
    @QUICK
    @given(files(), st.sampled_from(SpecFormat))
    def check(data, spec_format):
        read = read_spec(data, "x.yaml")
        try:
            written = encode(read.spec, spec_format) if read.spec else None
        except CdiError:
            written = None  # read with a warning
        if written is not None:
            assert read_spec(written, "x.yaml").spec is not None
            assert not unexplained(library, written)

    check()


NAMES = st.one_of(
    st.text(alphabet="aZ09_-.:/= \u00e9\n", max_size=12),
    st.tuples(*[st.text(alphabet="aZ0_-.:\u00e9", max_size=4)] * 3).map(lambda parts: "{}/{}={}".format(*parts)),
)


def test_names_are_parsed_alike(library):
    @settings(QUICK, max_examples=500)
    @example("a/b=c")
    @example("vendor.com/class=dev/x")
    @given(NAMES)
    def check(name):
        answer = library.ask("name", text=name)
        try:
            parsed = parse_name(name)
        except CdiError:
            assert not answer["ok"]
            return
        # 1.1.0 crashes at a vendor or class of one letter.
        crashed = "slice bounds" in answer.get("crash", "")
        assert answer["ok"] or (crashed and library.release == "1.1.0")
        assert crashed or answer["parts"] == [parsed.vendor, parsed.class_name, parsed.device]

    check()


WORDS = st.text(alphabet="aZ09_-./:\u00e9", max_size=8) | st.just("a" * 40)


def test_requests_are_made_and_read_alike(library):
    @settings(QUICK, max_examples=500)
    @example("plugin", "a/b/c", ["a.com/bb=c", "a.com/bb=d"])
    @example("p", "i", ["a.com/bb=c", " a.com/bb=d"])
    @example("p", "i", [""])
    @given(WORDS, WORDS, st.lists(NAMES, min_size=1, max_size=2))
    def check(plugin, device_id, names):
        made = library.ask("request", text=plugin, id=device_id)
        assert taken(request_key, plugin, device_id) == (made["parts"][0] if made["ok"] else None)
        value = ",".join(names)
        read = library.ask("requested", text=value)
        if "slice bounds" not in read.get("crash", ""):
            found = taken(requested_names, {"cdi.k8s.io/x": value})
            assert (list(found[1]) if found else None) == (read["parts"] if read["ok"] else None)

    check()


def taken(call, *arguments):
    """What a call returns, or None when it refuses."""
    try:
        return call(*arguments)
    except CdiError:
        return None
