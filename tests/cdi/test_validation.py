"""The rules of a spec (behaviours C1 to C23): what is refused, under which word, and what is not."""

import attrs
import pytest

from actors.cdi import HOOK_STAGES, Spec, load, read_spec, validate, validate_for_writing
from tests.cdi.making import MINIMAL, data, device, loaded, problems, reasons, refusal, spec

NODE = {"path": "/dev/a"}
HOOK = {"hookName": "prestart", "path": "/h"}
MOUNT = {"hostPath": "/a", "containerPath": "/b"}


def node(**more):
    return spec(device(deviceNodes=[{**NODE, **more}]))


def hook(**more):
    return spec(device(hooks=[{**HOOK, **more}]))


def rdt(**fields):
    return spec(device(intelRdt=fields))


@pytest.mark.parametrize("devices", [None, []])
def test_c1_a_spec_has_devices(devices):
    assert reasons({**spec(), "devices": devices}) == ["NoDevices"]
    without = spec()
    del without["devices"]
    assert reasons(without) == ["NoDevices"]


def test_c2_a_device_name_stands_once():
    (problem,) = problems(spec(MINIMAL, device("e", env=["A=b"]), MINIMAL))
    assert (problem.reason, problem.path, problem.device) == ("DuplicateDevice", "devices[2].name", "d")
    assert "devices[0]" in problem.message


@pytest.mark.parametrize(
    "empty",
    [
        {"name": "d", "containerEdits": {}},
        {"name": "d", "containerEdits": None},
        {"name": "d"},
        {"name": "d", "containerEdits": {"env": []}},
        {"name": "d", "containerEdits": {}, "annotations": {"a": "b"}},
    ],
)
def test_c3_a_device_edits_something(empty):
    assert reasons(spec(empty)) == ["EmptyEdits"]


def test_c5_a_group_that_is_ignored_is_an_edit_all_the_same():
    assert loaded(spec(device(additionalGids=[0]))).devices[0].container_edits.additional_gids == (0,)
    assert loaded(rdt())


@pytest.mark.parametrize("edits", [{}, {"containerEdits": None}, {"containerEdits": {}}])
def test_c6_a_spec_edits_something_or_nothing(edits):
    assert loaded(spec(**edits)).container_edits.is_empty


@pytest.mark.parametrize("entry", ["A=", "A=b=c", "A B = c", "A=b\nc", "é=ü"])
def test_c7_odd_variables_that_every_engine_takes(entry):
    assert loaded(spec(device(env=[entry]))).devices[0].container_edits.env == (entry,)


@pytest.mark.parametrize("entry", ["A", "=b", ""])
def test_c8_a_variable_has_a_name_and_a_value(entry):
    assert reasons(spec(device(env=[entry]))) == ["BadEnv"]


def test_c9_a_node_has_a_path():
    assert reasons(node(path="")) == ["BadNodePath"]
    assert reasons(spec(device(deviceNodes=[{}]))) == ["BadNodePath"]


def test_c10_a_relative_path_is_taken():
    assert loaded(node(path="dev/null"))


@pytest.mark.parametrize("word", ["b", "c", "u", "p", ""])
def test_c11_types_of_nodes(word):
    assert loaded(node(type=word)).devices[0].container_edits.device_nodes[0].type == word


@pytest.mark.parametrize("word", ["f", "cc", "C"])
def test_c11_other_types_are_none(word):
    assert reasons(node(type=word)) == ["BadNodeType"]


@pytest.mark.parametrize("permissions", ["", "r", "rw", "rwm", "mmm", "none"])
def test_c12_c13_permissions(permissions):
    assert loaded(node(permissions=permissions))


@pytest.mark.parametrize("permissions", ["rx", "rwx", "NONE", "rw none", "R", "nonee"])
def test_c12_other_permissions_are_none(permissions):
    assert reasons(node(permissions=permissions)) == ["BadPermissions"]


@pytest.mark.parametrize("field", ["hostPath", "containerPath"])
def test_c14_a_mount_has_both_paths(field):
    (problem,) = problems(spec(device(mounts=[{key: value for key, value in MOUNT.items() if key != field}])))
    assert (problem.reason, problem.path) == ("BadMount", f"devices[0].containerEdits.mounts[0].{field}")


@pytest.mark.parametrize("stage", HOOK_STAGES)
def test_c15_hooks_run_in_the_stages_of_oci(stage):
    assert loaded(hook(hookName=stage))


@pytest.mark.parametrize("stage", ["CreateContainer", "prestop", ""])
def test_c16_other_stages_are_none(stage):
    assert reasons(hook(hookName=stage)) == ["UnknownHookStage"]


def test_c17_a_hook_has_a_path_and_right_variables():
    assert reasons(hook(path="")) == ["BadHook"]
    assert reasons(hook(env=["A"])) == ["BadHook"]


@pytest.mark.parametrize("clos", ["", "/", "a" * 4095, "..."])
def test_c19_a_class_of_service_is_the_name_of_a_directory(clos):
    assert loaded(rdt(closID=clos))


@pytest.mark.parametrize("clos", [".", "..", "a/b", "a\nb", "a" * 4096, "//", "é" * 2048])
def test_c19_other_classes_of_service_are_none(clos):
    assert reasons(rdt(closID=clos)) == ["BadIntelRdt"]


@pytest.mark.parametrize(
    ("devices", "field"),
    [
        ([("a", "x"), ("a", "y")], "netDevices[1].hostInterfaceName"),
        ([("a", "x"), ("b", "x")], "netDevices[1].name"),
        ([("", "x")], "netDevices[0].hostInterfaceName"),
        ([("a", "")], "netDevices[0].name"),
    ],
)
def test_c20_network_devices_have_two_names_each_once(devices, field):
    items = [{"hostInterfaceName": host, "name": name} for host, name in devices]
    (problem,) = problems(spec(device(netDevices=items)))
    assert (problem.reason, problem.path) == ("BadNetDevice", f"devices[0].containerEdits.{field}")


def test_c21_a_field_that_was_removed_is_unknown():
    assert reasons(rdt(enableCMT=True)) == ["UnknownField"]


def test_c22_annotations_are_not_checked_when_they_are_read_but_warned_of():
    reading = read_spec(data(spec(annotations={"bad key!": "x"})), "x.json")
    assert reading.spec is not None
    assert reading.spec.annotations == {"bad key!": "x"}
    assert [str(warning.reason) for warning in reading.warnings] == ["BadAnnotation"]
    assert [str(problem.reason) for problem in validate_for_writing(reading.spec)] == ["BadAnnotation"]


BAD_ANNOTATIONS = {
    "a key of 64 characters": {"a" * 64: ""},
    "no DNS subdomain": {"a_b/c": ""},
    "nothing before the slash": {"/c": ""},
    "nothing after the slash": {"a.com/": ""},
    "an empty key": {"": ""},
    "a prefix of 254 characters": {"a" * 254 + "/c": ""},
    "more than 256 KiB": {"a": "x" * (256 << 10)},
}


@pytest.mark.parametrize("annotations", BAD_ANNOTATIONS.values(), ids=BAD_ANNOTATIONS)
def test_annotations_that_kubernetes_refuses_are_not_written(annotations):
    made = attrs.evolve(loaded(spec()), annotations=annotations)
    assert [str(problem.reason) for problem in validate_for_writing(made)] == ["BadAnnotation"]


@pytest.mark.parametrize("key", ["a", "A.com/B_c.d-e", "a" * 63, "a" * 253 + "/c"])
def test_annotations_that_kubernetes_takes_are_fine(key):
    assert not validate_for_writing(attrs.evolve(loaded(spec()), annotations={key: "x"}))


def test_c23_numbers_have_the_ranges_of_their_c_types():
    assert loaded(node(major=-1)).devices[0].container_edits.device_nodes[0].major == -1
    assert loaded(node(uid=4294967295, gid=0, fileMode=0, minor=2**63 - 1))
    for field, number in (("uid", -1), ("gid", 2**32), ("fileMode", -1), ("major", 2**63), ("minor", -(10**19))):
        assert reasons(node(**{field: number})) == ["OutOfRange"], (field, number)
    assert reasons(spec(device(additionalGids=[-1]))) == ["OutOfRange"]
    assert reasons(hook(timeout=2**63)) == ["OutOfRange"]


@pytest.mark.parametrize("timeout", [0, -1])
def test_a_timeout_that_is_none_is_read_and_warned_of_and_not_written(timeout):
    reading = read_spec(data(hook(timeout=timeout)), "x.json")
    assert reading.spec is not None
    assert [(str(each.reason), each.path) for each in reading.warnings] == [
        ("BadHook", "devices[0].containerEdits.hooks[0].timeout")
    ]
    assert [str(problem.reason) for problem in validate_for_writing(reading.spec)] == ["BadHook"]


def test_a_model_is_validated_without_a_file():
    problems_of_model = validate(Spec(cdi_version="1.1.0", kind="x", devices=()), file="made up")
    assert [(str(each.reason), each.file, each.line) for each in problems_of_model] == [
        ("BadKind", "made up", None),
        ("NoDevices", "made up", None),
    ]


def test_all_problems_are_told_with_file_line_path_value_and_device():
    content = b"""cdiVersion: 0.3.0
kind: 3com.com/x
surplus: 1
devices:
- name: gpu0
  containerEdits:
    deviceNodes:
    - {path: /dev/a, hostPath: /dev/b, permissions: rwx, uid: "0"}
    - null
    env: [A]
- name: gpu0
  containerEdits: {mounts: {}}
"""
    found = refusal(load, content, "/etc/cdi/x.yaml")
    assert [(str(each.reason), each.line, each.path, each.value, each.device) for each in found] == [
        ("VersionTooLow", 1, "cdiVersion", "0.3.0", ""),
        ("BadKind", 2, "kind", "3com.com/x", ""),
        ("UnknownField", 3, "surplus", "surplus", ""),
        ("BadPermissions", 8, "devices[0].containerEdits.deviceNodes[0].permissions", "rwx", "gpu0"),
        ("WrongType", 8, "devices[0].containerEdits.deviceNodes[0].uid", "0", "gpu0"),
        ("WrongType", 9, "devices[0].containerEdits.deviceNodes[1]", "null", "gpu0"),
        ("BadEnv", 10, "devices[0].containerEdits.env[0]", "A", "gpu0"),
        ("DuplicateDevice", 11, "devices[1].name", "gpu0", "gpu0"),
        ("WrongType", 12, "devices[1].containerEdits.mounts", "", "gpu0"),
    ]
    assert {each.file for each in found} == {"/etc/cdi/x.yaml"}


def test_what_was_refused_is_not_refused_again_for_being_empty():
    assert reasons({**spec(), "devices": "no"}) == ["WrongType"]
    assert reasons(spec({"name": ["x"], "containerEdits": []})) == ["WrongType", "WrongType"]
    assert reasons(spec(device(deviceNodes=[{"path": {}}]))) == ["WrongType"]
