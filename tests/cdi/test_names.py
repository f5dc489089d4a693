"""Names and request annotations (behaviours B1 to B16, H1 to H6)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.cdi import (
    REQUEST_PREFIX,
    is_qualified,
    parse_kind,
    parse_name,
    request_key,
    request_value,
    requested_names,
    split_name,
    with_request,
)
from tests.cdi.making import device, loaded, reasons, refusal, spec

QUALIFIED = {
    "vendor.com/class=dev": ("vendor.com", "class", "dev"),
    "a/b=c": ("a", "b", "c"),
    "yet_another-vendor2.com/c-lass_2=dev_1:2.3": ("yet_another-vendor2.com", "c-lass_2", "dev_1:2.3"),
    "nvidia.com/gpu=0:0": ("nvidia.com", "gpu", "0:0"),
    "nvidia.com/gpu=a::b": ("nvidia.com", "gpu", "a::b"),
    "A.COM/GPU=x": ("A.COM", "GPU", "x"),
}


@pytest.mark.parametrize(("name", "parts"), QUALIFIED.items())
def test_b1_b2_b3_b8_a_qualified_name_has_three_parts(name, parts):
    found = parse_name(name)
    assert (found.vendor, found.class_name, found.device) == parts == split_name(name)
    assert str(found) == name
    assert found.kind == f"{parts[0]}/{parts[1]}"


@pytest.mark.parametrize("name", ["/dev/null", "", "vendor.com/class", "vendor.com=dev", "=x", "a.com/b=", "/=x", "d"])
def test_b4_what_does_not_have_them_is_not_qualified(name):
    assert split_name(name) == ("", "", name)
    assert [problem.reason for problem in refusal(parse_name, name)] == ["BadName"]


@pytest.mark.parametrize(
    "name", ["_i.com/c=d", "i.com-/c=d", "i.com/_c=d", "i.com/c_=d", "i.com/c=-d", "i.com/c=d:", "a.com/b=c\n"]
)
def test_b5_what_has_them_may_still_be_wrong(name):
    assert all(split_name(name))
    assert not is_qualified(name)


def test_b7_a_kind_is_cut_at_its_first_slash():
    (problem,) = refusal(parse_name, "a.com/b/c=d")
    assert problem.value == "a.com/b/c=d"
    assert 'the class "b/c"' in problem.message


def test_b10_a_mig_name_with_slashes_is_no_device_name():
    assert not is_qualified("v.com/gpu=MIG-x/3/0")


@pytest.mark.parametrize(
    "kind", ["3com.com/x", "vé.com/x", "v.com./x", "v.com", "v.com/", "/x", "", "a/b/c", "v com/x"]
)
def test_b11_b14_bad_kinds(kind):
    assert [problem.reason for problem in refusal(parse_kind, kind)] == ["BadKind"]
    assert reasons(spec(kind=kind)) == ["BadKind"]


@pytest.mark.parametrize("kind", ["A.COM/GPU", "v..com/x", "a/b", "a/b.c"])
def test_b12_odd_kinds_that_every_engine_takes(kind):
    assert loaded(spec(kind=kind)).kind == kind


@pytest.mark.parametrize("name", ["a::b", "Dev:0_a.b-c", "0", "a"])
def test_b15_good_device_names(name):
    assert loaded(spec(device(name, env=["A=b"]))).devices[0].name == name


@pytest.mark.parametrize("name", ["", ".a", ":a", "a:", "a b", "a=b", "a/b", "é", "a\n"])
def test_b16_bad_device_names(name):
    assert reasons(spec(device(name, env=["A=b"]))) == ["BadDeviceName"]


@given(st.text(st.sampled_from("a0./=:_-é "), max_size=12))
def test_a_name_that_is_qualified_is_the_sum_of_its_parts(name):
    vendor, class_name, device_name = split_name(name)
    if is_qualified(name):
        assert f"{vendor}/{class_name}={device_name}" == name
    else:
        assert refusal(parse_name, name)


def test_h1_a_slash_in_the_id_becomes_an_underscore():
    assert request_key("plugin", "a/b/c") == "cdi.k8s.io/plugin_a_b_c"


@pytest.mark.parametrize(
    ("plugin", "device_id"),
    [("", "a"), ("a", ""), ("-a", "b"), ("a", "b-"), ("a", "b:c"), ("a/b", "c"), ("a", "b" * 62), ("a", "é")],
)
def test_h2_what_is_no_kubernetes_name_is_refused(plugin, device_id):
    assert [problem.reason for problem in refusal(request_key, plugin, device_id)] == ["BadRequest"]


def test_h2_sixty_three_characters_are_allowed():
    assert len(request_key("a", "b" * 61)) == len(REQUEST_PREFIX) + 63


def test_h3_a_value_lists_names():
    names = ("a.com/b=c", "a.com/b=d")
    assert request_value(names) == "a.com/b=c,a.com/b=d"
    keys = ("cdi.k8s.io/x_0",)
    assert requested_names({"cdi.k8s.io/x_0": "a.com/b=c,a.com/b=d"}) == (keys, names)


@pytest.mark.parametrize("value", ["a.com/b=c, a.com/b=d", "/dev/null", "", "a.com/b=c,"])
def test_h4_one_bad_name_refuses_the_whole_map(value):
    found = refusal(requested_names, {"cdi.k8s.io/a_0": "a.com/b=c", "cdi.k8s.io/b_0": value})
    assert [(problem.reason, problem.path) for problem in found] == [("BadName", "cdi.k8s.io/b_0")]


def test_h4_every_bad_value_is_told():
    found = refusal(requested_names, {"cdi.k8s.io/b": "", "cdi.k8s.io/a": "x"})
    assert [problem.path for problem in found] == ["cdi.k8s.io/a", "cdi.k8s.io/b"]


@pytest.mark.parametrize("key", ["other.io/x", "cdi.k8s.io", "CDI.k8s.io/x", "x"])
def test_h5_other_keys_are_skipped(key):
    assert requested_names({key: "no name"}) == ((), ())


@pytest.mark.parametrize("key", ["cdi.k8s.io/-p_0", "cdi.k8s.io/"])
def test_what_follows_the_prefix_is_not_looked_at(key):
    assert requested_names({key: "a.com/b=c"}) == ((key,), ("a.com/b=c",))


def test_names_come_in_the_order_of_the_keys_and_repeats_are_kept():
    annotations = {"cdi.k8s.io/b": "a.com/b=c", "cdi.k8s.io/a": "a.com/b=d,a.com/b=c"}
    assert requested_names(annotations)[1] == ("a.com/b=d", "a.com/b=c", "a.com/b=c")


def test_h6_a_key_that_is_there_is_not_replaced():
    first = with_request({"x": "y"}, "p", "0", ["a.com/b=c"])
    assert first == {"x": "y", "cdi.k8s.io/p_0": "a.com/b=c"}
    (problem,) = refusal(with_request, first, "p", "0", ["a.com/b=d"])
    assert (problem.reason, problem.path, problem.value) == ("RequestTaken", "cdi.k8s.io/p_0", "a.com/b=c")
    assert refusal(with_request, {}, "p", "0", ["/dev/null"])[0].reason == "BadName"
