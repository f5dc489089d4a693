"""Writing (behaviours E12 to E15): the smallest version, the same bytes, read back as the same spec by anybody."""

import json

import attrs
import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from actors.cdi import (
    KNOWN_VERSIONS,
    ContainerEdits,
    Device,
    DeviceNode,
    Existing,
    Hook,
    IntelRdt,
    Mount,
    NetDevice,
    Spec,
    SpecFormat,
    encode,
    load,
    minimum_version,
    read_spec,
    remove_spec,
    scan,
    spec_name,
    spec_path,
    to_dict,
    transient_name,
    validate,
    write_spec,
)
from actors.cdi.scanning import DEFAULT_DIRECTORIES
from tests.cdi.making import HIGH, LOW, MemoryFiles, device, loaded, refusal, spec

SIMPLE = Spec(
    cdi_version="1.1.0",
    kind="vv.com/gpu",
    devices=(Device(name="d", container_edits=ContainerEdits(env=("A=b",))),),
)


def test_e12_a_spec_goes_to_the_highest_directory_as_yaml_unless_its_name_says_json():
    files = MemoryFiles()
    assert write_spec(files, SIMPLE, "a", [LOW, HIGH]) == f"{HIGH}/a.yaml"
    assert write_spec(files, SIMPLE, "b.json", [LOW, HIGH]) == f"{HIGH}/b.json"
    as_yaml, as_json = (files.read(f"{HIGH}/{name}", limit_bytes=1000) for name in ("a.yaml", "b.json"))
    assert json.loads(as_json)["kind"] == "vv.com/gpu"
    assert not as_yaml.startswith(b"{")
    assert {load(content, "x").devices for content in (as_yaml, as_json)} == {SIMPLE.devices}
    assert write_spec(files, SIMPLE, "c.d", []) == "/var/run/cdi/c.d.yaml"


def test_e13_a_wrong_spec_is_not_written():
    files = MemoryFiles()
    wrong = attrs.evolve(SIMPLE, devices=())
    assert [str(each.reason) for each in refusal(write_spec, files, wrong, "a", [LOW])] == ["NoDevices"]
    assert not files.content


def test_e14_removing_twice_is_fine():
    files = MemoryFiles()
    write_spec(files, SIMPLE, "a", [LOW, HIGH])
    for _ in range(2):
        remove_spec(files, "a", [LOW, HIGH])
    assert not files.content


def test_what_is_there_may_be_kept():
    files = MemoryFiles({f"{LOW}/a.yaml": b"mine"})
    (problem,) = refusal(write_spec, files, SIMPLE, "a", [LOW], Existing.KEPT)
    assert (problem.reason, problem.file) == ("NotWritten", f"{LOW}/a.yaml")
    assert files.content[f"{LOW}/a.yaml"] == b"mine"
    assert write_spec(files, SIMPLE, "b", [LOW], Existing.KEPT)


def test_e15_names_of_files():
    assert spec_name("vendor.com/dev") == "vendor.com-dev"
    assert transient_name("vendor.com/dev", "a/b") == "vendor.com-dev_a_b"
    assert refusal(spec_name, "dev")[0].reason == "BadKind"


@pytest.mark.parametrize("name", ["", "a/b", "../a", ".", "..", "a\0"])
def test_a_name_leads_nowhere_else(name):
    assert refusal(spec_path, name, DEFAULT_DIRECTORIES)[0].reason == "BadName"


def test_the_version_is_the_smallest_whatever_was_declared():
    assert load(encode(SIMPLE, SpecFormat.JSON), "x").cdi_version == "0.3.0"
    low = attrs.evolve(SIMPLE, cdi_version="v0.3.0", annotations={"a": "b"})
    assert load(encode(low, SpecFormat.JSON), "x").cdi_version == "0.6.0"
    assert load(encode(attrs.evolve(low, cdi_version=""), SpecFormat.YAML), "x").cdi_version == "0.6.0"
    assert refusal(encode, attrs.evolve(SIMPLE, cdi_version="9"), SpecFormat.JSON)[0].reason == "UnknownVersion"


REFUSED = {
    "a timeout of 0": (spec(device(hooks=[{"hookName": "poststop", "path": "/h", "timeout": 0}])), "BadHook"),
    "a negative number": (spec(device(deviceNodes=[{"path": "/d", "type": "c", "minor": -1}])), "OutOfRange"),
    "annotations": (spec(annotations={"bad key!": ""}), "BadAnnotation"),
}


@pytest.mark.parametrize(("content", "reason"), REFUSED.values(), ids=REFUSED)
def test_what_is_read_and_forbidden_is_not_written(content, reason):
    assert [str(each.reason) for each in refusal(encode, loaded(content), SpecFormat.YAML)] == [reason]


@pytest.mark.parametrize("text", ["A=\0", "A=\ud800"])
def test_what_no_text_file_holds_is_not_written(text):
    made = attrs.evolve(SIMPLE, container_edits=ContainerEdits(env=(text,)))
    (problem,) = refusal(encode, made, SpecFormat.JSON)
    assert (problem.reason, problem.path) == ("BadText", "containerEdits.env.0")


def test_a_spec_as_a_dict_leaves_out_what_is_absent_and_keeps_an_owner_of_zero():
    nodes = (DeviceNode(path="/d", uid=0, gid=0, file_mode=0), DeviceNode(path="/e", major=0, minor=5))
    made = attrs.evolve(SIMPLE, container_edits=ContainerEdits(device_nodes=nodes, intel_rdt=IntelRdt()))
    assert to_dict(made)["containerEdits"] == {
        "deviceNodes": [{"path": "/d", "fileMode": 0, "uid": 0, "gid": 0}, {"path": "/e", "minor": 5}],
        "intelRdt": {},
    }


def test_yaml_looks_like_what_people_write():
    made = attrs.evolve(SIMPLE, annotations={"b": "on", "a.com/x": "1"})
    assert encode(made, SpecFormat.YAML).decode() == (
        'cdiVersion: "0.6.0"\nkind: "vv.com/gpu"\nannotations:\n  "a.com/x": "1"\n  "b": "on"\n'
        'devices:\n  - name: "d"\n    containerEdits:\n      env:\n        - "A=b"\n'
    )


UNHURRIED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
TEXTS = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=8)
SOME = TEXTS.filter(bool)
ENV = st.lists(st.builds("{}={}".format, SOME.filter(lambda text: "=" not in text), TEXTS), max_size=2).map(tuple)
UINT32 = st.integers(0, 2**32 - 1)
DEVICE_NUMBER = st.integers(0, 2**63 - 1)
EDITS = st.builds(
    ContainerEdits,
    env=ENV,
    device_nodes=st.lists(
        st.builds(
            DeviceNode,
            path=SOME,
            host_path=TEXTS,
            type=st.sampled_from(["", "b", "c", "u", "p"]),
            major=DEVICE_NUMBER,
            minor=DEVICE_NUMBER,
            file_mode=st.none() | UINT32,
            permissions=st.sampled_from(["", "r", "mmm", "none"]),
            uid=st.none() | UINT32,
            gid=st.none() | UINT32,
        ),
        max_size=2,
    ).map(tuple),
    net_devices=st.lists(st.builds(NetDevice, host_interface_name=SOME, name=SOME), max_size=1).map(tuple),
    hooks=st.lists(
        st.builds(
            Hook,
            hook_name=st.sampled_from(["prestart", "poststop"]),
            path=SOME,
            args=st.lists(TEXTS, max_size=2).map(tuple),
            env=ENV,
            timeout=st.none() | st.integers(1, 2**63 - 1),
        ),
        max_size=1,
    ).map(tuple),
    mounts=st.lists(
        st.builds(
            Mount, host_path=SOME, container_path=SOME, options=st.lists(TEXTS, max_size=2).map(tuple), type=TEXTS
        ),
        max_size=1,
    ).map(tuple),
    intel_rdt=st.none()
    | st.builds(
        IntelRdt,
        clos_id=st.sampled_from(["", "/", "a"]),
        l3_cache_schema=TEXTS,
        schemata=st.none() | st.lists(TEXTS, max_size=2).map(tuple),
        enable_monitoring=st.booleans(),
    ),
    additional_gids=st.lists(UINT32, max_size=2).map(tuple),
)
ANNOTATIONS = st.dictionaries(st.sampled_from(["a", "on", "null", "1", "a.com/b"]), TEXTS, max_size=2)
SPECS = st.builds(
    Spec,
    cdi_version=st.just("1.1.0"),
    kind=st.sampled_from(["v.com/x", "v.com/x.y"]),
    devices=st.lists(
        st.builds(
            Device,
            name=st.sampled_from(["a", "0", "on", "1:0", "007"]),
            container_edits=EDITS.filter(lambda edits: not edits.is_empty),
            annotations=ANNOTATIONS,
        ),
        min_size=1,
        max_size=2,
        unique_by=lambda each: each.name,
    ).map(tuple),
    annotations=ANNOTATIONS,
    container_edits=EDITS,
)


@UNHURRIED
@given(SPECS, st.sampled_from(SpecFormat))
def test_what_is_written_is_read_back(made, spec_format):
    data = encode(made, spec_format)
    assert data == encode(made, spec_format)
    assert load(data, "x") == attrs.evolve(made, cdi_version=minimum_version(made))


@UNHURRIED
@given(SPECS)
def test_other_readers_read_the_same(made):
    as_json = json.loads(encode(made, SpecFormat.JSON))
    # JSON is YAML, and what is YAML needs no resolver to be guessed right: every text is quoted.
    assert yaml.load(encode(made, SpecFormat.JSON), Loader=yaml.CSafeLoader) == as_json
    assert yaml.load(encode(made, SpecFormat.YAML), Loader=yaml.CSafeLoader) == as_json


@UNHURRIED
@given(SPECS)
def test_the_minimum_version_is_one_that_loads_and_none_below_does(made):
    minimum = minimum_version(made)
    for version in KNOWN_VERSIONS:
        loads = KNOWN_VERSIONS.index(version) >= KNOWN_VERSIONS.index(minimum)
        assert (not validate(attrs.evolve(made, cdi_version=version))) == loads


@UNHURRIED
@given(SPECS, st.sampled_from(["0.2.0", "0.3.0", "0.7.0", "1.1.0", "2"]))
def test_what_validates_is_what_loads(made, version):
    wrong = attrs.evolve(made, cdi_version=version)
    reading = read_spec(json.dumps(to_dict(wrong)).encode(), "x")
    assert reading.spec == (None if reading.problems else wrong)
    assert [each.reason for each in reading.problems] == [each.reason for each in validate(wrong)]


def test_a_registry_finds_what_was_written():
    files = MemoryFiles()
    write_spec(files, SIMPLE, spec_name(SIMPLE.kind), [LOW])
    assert scan(files, [LOW]).names() == ("vv.com/gpu=d",)
