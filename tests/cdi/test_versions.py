"""Versions: which are known, and what makes a spec need more than it declares (behaviours A1 to A19)."""

import pytest

from actors.cdi import KNOWN_VERSIONS, minimum_version, needed
from tests.cdi.making import device, loaded, problems, reasons, refusal, spec

MOUNT = {"hostPath": "/a", "containerPath": "/b", "type": "bind"}
NODE = {"path": "/dev/a", "hostPath": "/dev/a"}
RDT = {"closID": "a"}


@pytest.mark.parametrize("version", ["0.3.0", "0.4.0", "0.5.0", "0.6.0", "0.7.0", "0.8.0", "1.0.0", "1.1.0"])
def test_a1_a_minimal_spec_loads_in_every_version_from_the_floor_on(version):
    assert loaded(spec(version=version)).cdi_version == version


def test_a2_one_leading_v_is_dropped_and_the_text_is_kept():
    assert loaded(spec(version="v0.5.0")).cdi_version == "v0.5.0"


@pytest.mark.parametrize("version", ["0.9.0", "1.0.1", "1.2.0", "0.5", "0.5.0+x", "vv0.5.0", "", " 0.5.0", "0.5.0 "])
def test_a4_a6_any_other_text_is_no_version(version):
    assert reasons(spec(version=version)) == ["UnknownVersion"]


def test_a4_a_missing_version_is_no_version():
    content = spec()
    del content["cdiVersion"]
    assert reasons(content) == ["UnknownVersion"]


@pytest.mark.parametrize("version", ["0.1.0", "0.2.0"])
def test_a5_what_is_below_the_floor_is_known_and_too_low(version):
    (problem,) = problems(spec(version=version))
    assert problem.reason == "VersionTooLow"
    assert "at least 0.3.0" in problem.message


NEEDS = {
    "a mount with a type": (spec(device(mounts=[MOUNT])), "0.4.0", "mounts[0].type"),
    "a hostPath that equals path": (spec(device(deviceNodes=[NODE])), "0.5.0", "deviceNodes[0].hostPath"),
    "a device name with a digit first": (spec(device("0", env=["A=b"])), "0.5.0", "devices[0].name"),
    "a class with a dot": (spec(kind="vv.com/bb.cc"), "0.6.0", "kind"),
    "annotations of the spec": (spec(annotations={"a": "b"}), "0.6.0", "annotations"),
    "annotations of a device": (
        spec({**device(env=["A=b"]), "annotations": {"a": "b"}}),
        "0.6.0",
        "devices[0].annotations",
    ),
    "additionalGids": (spec(device(additionalGids=[5])), "0.7.0", "additionalGids"),
    "additionalGids of the spec": (spec(containerEdits={"additionalGids": [0]}), "0.7.0", "additionalGids"),
    "intelRdt": (spec(device(intelRdt=RDT)), "0.7.0", "intelRdt"),
    "an empty intelRdt": (spec(device(intelRdt={})), "0.7.0", "intelRdt"),
    "netDevices": (spec(device(netDevices=[{"hostInterfaceName": "a", "name": "b"}])), "1.1.0", "netDevices"),
    "schemata": (spec(device(intelRdt={"schemata": ["a"]})), "1.1.0", "intelRdt.schemata"),
    "empty schemata": (spec(device(intelRdt={"schemata": []})), "1.1.0", "intelRdt.schemata"),
    "enableMonitoring": (spec(device(intelRdt={"enableMonitoring": True})), "1.1.0", "enableMonitoring"),
}


@pytest.mark.parametrize(("content", "version", "where"), NEEDS.values(), ids=NEEDS)
def test_a7_to_a18_a_feature_needs_its_version(content, version, where):
    below = KNOWN_VERSIONS[KNOWN_VERSIONS.index(version) - 1]
    (problem,) = problems({**content, "cdiVersion": below})
    assert problem.reason == "VersionTooLow"
    assert f"at least {version}" in problem.message
    assert where in problem.message
    assert minimum_version(loaded({**content, "cdiVersion": version})) == version


NO_NEEDS = {
    "empty lists": device(env=["A=b"], mounts=[], deviceNodes=[], hooks=[], additionalGids=[], netDevices=[]),
    "empty annotations": {**device(env=["A=b"]), "annotations": {}},
    "a mount with an empty type": device(mounts=[{**MOUNT, "type": ""}]),
    "a device node with an empty hostPath": device(deviceNodes=[{**NODE, "hostPath": ""}]),
    "permissions none": device(deviceNodes=[{"path": "/dev/a", "permissions": "none"}]),
    "a colon in the name": device("a:0", env=["A=b"]),
}


@pytest.mark.parametrize("content", NO_NEEDS.values(), ids=NO_NEEDS)
def test_a12_what_says_nothing_needs_nothing(content):
    assert minimum_version(loaded(spec(content, version="0.3.0"))) == "0.3.0"


@pytest.mark.parametrize("rdt", [{"enableMonitoring": False}, {"schemata": None}, {"closID": "a"}])
def test_a15_an_intel_rdt_that_uses_nothing_new_stays_old(rdt):
    assert minimum_version(loaded(spec(device(intelRdt=rdt), version="1.0.0"))) == "0.7.0"


def test_a19_the_trigger_of_the_minimum_is_said():
    need = needed(loaded(spec(device("0", intelRdt={"schemata": []}))))
    assert (need.version, need.trigger) == ("1.1.0", "intelRdt.schemata")
    assert need.at.segments == ("devices", 0, "containerEdits", "intelRdt", "schemata")


def test_removed_fields_are_ignored_where_they_were_known_and_refused_from_1_1_0_on():
    old = spec(device(intelRdt={"closID": "a", "enableCMT": True, "enableMBM": False}), version="0.7.0")
    assert loaded(old).devices[0].container_edits.intel_rdt.clos_id == "a"
    assert reasons({**old, "cdiVersion": "1.1.0"}) == ["UnknownField", "UnknownField"]
    wrong = spec(device(intelRdt={"enableCMT": "yes"}), version="0.7.0")
    assert reasons(wrong) == ["WrongType"]


def test_an_error_says_all_its_problems_one_a_line():
    found = refusal(loaded, spec(device("a b", env=["A"])))
    rule = "must begin and end with a letter or digit, and hold letters, digits, _ . : and - between"
    assert [str(problem) for problem in found] == [
        f'x.json:1: devices[0].name: the device name "a b" {rule} (BadDeviceName)',
        'x.json:1: devices[0].containerEdits.env[0]: "A" must be NAME=value (BadEnv)',
    ]
