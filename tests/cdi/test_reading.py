"""Texts of spec files (behaviours D1 to D25), and texts that were made to hurt."""

import json

import pytest

from actors.cdi import SPEC_BYTES_MAX, CdiReason, load, read_spec
from tests.cdi.making import data, device, loaded, problems, reasons, spec

YAML = """\
cdiVersion: 0.5.0
kind: vv.com/gpu
devices:
- name: d
  containerEdits:
    env: [A=b]
"""
SURPLUS = {
    "at the top": {**spec(), "foo": 1},
    "in a device": spec({**device(env=["A=b"]), "foo": 1}),
    "in edits": spec(device(env=["A=b"], foo=1)),
    "in a node": spec(device(deviceNodes=[{"path": "/d", "foo": 1}])),
    "in intelRdt": spec(device(intelRdt={"schema": []})),
}


@pytest.mark.parametrize("content", SURPLUS.values(), ids=SURPLUS)
def test_d1_a_field_that_nobody_knows_is_refused(content):
    assert reasons(content) == ["UnknownField"]


def test_d1_the_field_that_was_meant_is_named():
    (problem,) = problems(spec(device(deviceNodes=[{"path": "/d", "filemode_": 1}])))
    assert "did you mean fileMode?" in problem.message
    assert problem.path == "devices[0].containerEdits.deviceNodes[0].filemode_"


@pytest.mark.parametrize(
    "content",
    [
        YAML + "kind: other.com/x\n",
        json.dumps(spec())[:-1] + ', "kind": "other.com/x"}',
        YAML.replace("env: [A=b]", "{env: [A=b], env: [C=d]}"),
    ],
)
def test_d2_a_key_stands_once(content):
    assert reasons(content) == ["DuplicateKey"]


def test_d2_a_key_stands_once_in_any_spelling():
    # The Go library takes one of the two and does not tell.
    assert reasons(YAML + "KIND: other.com/x\n") == ["DuplicateKey"]
    assert reasons("KIND: other.com/x\n" + YAML) == ["DuplicateKey"]
    assert reasons(YAML.replace("kind", "Kind") + "KIND: other.com/x\n") == ["DuplicateKey"]


def test_d3_keys_have_no_case():
    content = {
        "CDIVERSION": "1.1.0",
        "KIND": "v.com/x",
        "Devices": [
            {"NAME": "d", "containeredits": {"ENV": ["A=b"], "DeviceNodes": [{"PATH": "/d", "HOSTPATH": "/e"}]}}
        ],
    }
    found = loaded(content)
    assert (found.kind, found.devices[0].container_edits.device_nodes[0].host_path) == ("v.com/x", "/e")
    assert loaded(YAML.replace("kind", "\u212aind")).kind == "vv.com/gpu"


@pytest.mark.parametrize(
    ("old", "new", "path", "value"),
    [
        ("name: d", "name: 007", "devices[0].name", "007"),
        ("name: d", "name: on", "devices[0].name", "on"),
        ("kind: ", "KIND: ", "kind", "KIND"),
    ],
)
def test_what_newer_engines_read_differently_is_warned_of(old, new, path, value):
    reading = read_spec(YAML.replace(old, new).encode(), "x.yaml")
    assert reading.spec is not None
    assert [(str(each.reason), each.path, each.value) for each in reading.warnings] == [
        ("ReadDifferently", path, value)
    ]


def test_what_all_engines_read_alike_is_not_warned_of():
    content = YAML.replace("name: d", "name: 1:0").replace(
        "[A=b]", "[A=b]\n    intelRdt: {closID: ~, l3CacheSchema: 7}"
    )
    reading = read_spec(content.replace("0.5.0", "0.7.0").encode(), "x.yaml")
    assert reading.spec is not None
    assert reading.warnings == ()
    assert read_spec(data(spec({"name": True, "containerEdits": {"env": ["A=b"]}})), "x.json").warnings == ()


def test_d4_the_name_of_a_file_says_nothing_about_its_text():
    assert load(YAML.encode(), "x.json").kind == "vv.com/gpu"
    assert load(data(spec()), "x.yaml").kind == "vv.com/gpu"


@pytest.mark.parametrize(
    "content",
    [
        '{"cdiVersion": "0.5.0", "kind": "v/x", "devices": [{"name": "d", "containerEdits": {"env": ["A=b",],},},],}',
        json.dumps(spec()) + "\n# a comment",
        "# a comment\n" + json.dumps(spec()),
        json.dumps(spec(), indent="\t"),
        json.dumps(spec(), indent="\t").replace("]", ",]"),
        "\ufeff" + json.dumps(spec()),
        "\ufeff" + YAML,
        json.dumps(spec(), indent=1).replace("\n", "\r\n"),
        YAML.replace("\n", "\r\n"),
        "---\n" + YAML,
        YAML.replace("0.5.0", "'0.5.0'"),
        YAML.replace("kind: vv.com/gpu", "kind: !foo vv.com/gpu"),
        YAML.replace("name: d", "name: !!str 0"),
        json.dumps(spec()).replace("vv.com/gpu", "vv.com\\/gpu"),
    ],
)
def test_d5_d23_d25_texts_that_people_write(content):
    assert loaded(content).devices[0].container_edits.env == ("A=b",)


def test_json_has_the_escapes_of_json():
    found = loaded(spec(device(env=["A=\U0001f600"])))
    assert found.devices[0].container_edits.env == ("A=\U0001f600",)


@pytest.mark.parametrize("rest", ["---\nanything\n", "---\n]]\n", "...\n", "--- {a: 1}\n"])
def test_d6_only_the_first_document_is_read(rest):
    assert loaded(YAML + rest).kind == "vv.com/gpu"
    assert loaded(json.dumps(spec()) + "\n" + rest.removeprefix("...\n")).kind == "vv.com/gpu"


@pytest.mark.parametrize("content", ["", "# nothing", "null", "~", "---\n---\n" + YAML, "\n \n"])
def test_a_text_without_content_is_told(content):
    assert reasons(content) == ["EmptyDocument"]


@pytest.mark.parametrize("content", ["[]", "- a", "a", '"a"', "5", "true"])
def test_d8_a_spec_is_a_mapping(content):
    found = reasons(content)
    assert found == ["WrongType"]


def test_d12_a_json_number_is_a_name_too():
    assert loaded(spec({"name": 0, "containerEdits": {"env": ["A=b"]}})).devices[0].name == "0"
    assert loaded(spec({"name": True, "containerEdits": {"env": ["A=b"]}})).devices[0].name == "true"


@pytest.mark.parametrize(
    ("item", "reason"), [("1", "BadEnv"), ("A=b: c", "WrongType"), ("null", "BadEnv"), ("", "BadEnv")]
)
def test_d16_items_of_env(item, reason):
    assert reasons(YAML.replace("[A=b]", f"\n    - {item}")) == [reason]


def test_d17_annotations_are_texts():
    assert loaded(spec(annotations={"k": 5})).annotations == {"k": "5"}
    assert reasons(spec(annotations={"k": {"a": "b"}})) == ["WrongType"]
    assert loaded("annotations: {on: 1, 5: x, ~a: z}\n" + YAML.replace("0.5.0", "0.6.0")).annotations == {
        "true": "1",
        "5": "x",
        "~a": "z",
    }
    assert reasons("annotations: {~: 1}\n" + YAML.replace("0.5.0", "0.6.0")) == ["WrongType"]


def test_d18_group_ids_have_two_spellings():
    assert loaded(spec(device(additionalGIDs=[5, None, 0]))).devices[0].container_edits.additional_gids == (5, 0, 0)


def test_d21_containers_have_their_type():
    assert reasons({**spec(), "containerEdits": []}) == ["WrongType"]
    mount = {"hostPath": "/a", "containerPath": "/b", "options": "ro"}
    assert reasons(spec(device(mounts=[mount]))) == ["WrongType"]
    assert reasons({**spec(), "devices": {"name": "d"}}) == ["WrongType"]
    assert reasons(spec("d")) == ["WrongType"]


SHARED = """\
cdiVersion: 0.5.0
kind: vv.com/gpu
devices:
- name: d
  containerEdits: &edits
    env: &env [A=b]
- {name: e, containerEdits: *edits}
- name: f
  containerEdits: {<<: *edits}
- name: g
  containerEdits: {<<: [*edits, {hooks: []}], mounts: []}
- name: &h h
  containerEdits: {env: *env}
"""


def test_d22_anchors_and_aliases_are_followed():
    found = loaded(SHARED)
    assert {each.container_edits.env for each in found.devices} == {("A=b",)}


def test_a_merge_key_whose_content_is_overridden_is_a_duplicate():
    assert reasons(SHARED.replace("mounts: []", "env: []")) == ["DuplicateKey"]


@pytest.mark.parametrize("merged", ["1", "[1]", "*h", "[[]]"])
def test_a_merge_key_takes_mappings(merged):
    content = SHARED + f"- name: i\n  containerEdits: {{<<: {merged}, env: *env}}\n"
    assert reasons(content) == ["WrongType"]


@pytest.mark.parametrize("content", ["a: *b", "a: &b [*b]", "a: &b {c: *b}"])
def test_an_alias_needs_a_complete_anchor(content):
    assert "MalformedDocument" in reasons(content)


def laughs(levels, width):
    lines = [f"a0: &a0 [{', '.join(['lol'] * width)}]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * width)}]" for n in range(1, levels)]
    return YAML + "\n".join(lines)


def test_a_billion_laughs_are_counted_as_if_written_out():
    assert reasons(laughs(9, 10)) == ["DocumentTooLarge"]


def test_aliases_do_not_nest_deeper_than_text():
    lines = ["a0: &a0 [x]"] + [f"a{n}: &a{n} [*a{n - 1}]" for n in range(1, 1000)]
    assert reasons(YAML + "\n".join(lines)) == ["TooDeep"]
    merged = ["a0: &a0 {x: {}}"] + [f"a{n}: &a{n} {{x: {{<<: *a{n - 1}}}}}" for n in range(1, 1000)]
    assert reasons(YAML + "\n".join(merged)) == ["TooDeep"]


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"a: \0", "MalformedDocument"),
        (b"\0", "MalformedDocument"),
        (b"a: \xff", "NotUtf8"),
        (b"\x7fELF\x02\x01\x01", "MalformedDocument"),
        (b"[" * 100_000, "TooDeep"),
        (b'{"a":' * 100_000, "TooDeep"),
        (b"- " * 100_000, "TooDeep"),
        (b"a: b: c", "MalformedDocument"),
        (b'{"a": NaN', "MalformedDocument"),
        (b'{"a": "\\ud800"}', "MalformedDocument"),
        (b" " * (SPEC_BYTES_MAX + 1), "DocumentTooLarge"),
        (b"[" + b"1," * 250_000 + b"1]", "DocumentTooLarge"),
    ],
    ids=range(12),
)
def test_a_text_that_is_no_spec_has_a_reason(content, reason):
    assert reasons(content) == [reason]


def test_fifty_megabytes_are_refused_before_they_are_read():
    # One copy is what handing it over costs; more would have been a look inside.
    (problem,) = problems(bytes(50 << 20))
    assert (problem.reason, problem.line) == ("DocumentTooLarge", 1)


def test_nul_is_no_text():
    assert reasons(spec(device(env=["A=\0"]))) == ["BadText"]
    assert reasons(YAML.replace("A=b", '"A=\\0"')) == ["BadText"]


@pytest.mark.parametrize("field", ["deviceNodes", "mounts", "hooks", "netDevices"])
def test_a_null_entry_is_a_wrong_type(field):
    # The Go library crashes.
    (problem,) = problems(spec(device(env=["A=b"], **{field: [None]})))
    assert (problem.reason, problem.path) == ("WrongType", f"devices[0].containerEdits.{field}[0]")
    assert reasons(spec(None)) == ["WrongType"]


@pytest.mark.parametrize(
    "content",
    [
        spec(device(env=["A=b"], deviceNodes=None, mounts=None, hooks=None, intelRdt=None, additionalGids=None)),
        spec(device(deviceNodes=[{"path": "/d", "hostPath": None, "major": None, "fileMode": None}])),
        spec(annotations=None, containerEdits=None),
        spec(device(hooks=[{"hookName": "poststop", "path": "/h", "args": None, "timeout": None}])),
        spec(device(mounts=[{"hostPath": "/a", "containerPath": "/b", "options": [None], "type": None}])),
    ],
)
def test_null_is_the_same_as_absent(content):
    assert loaded(content)


def test_what_can_be_read_to_the_end_is_judged_to_the_end():
    found = problems(YAML + "kind: other\nfoo: 1\n")
    assert [(str(each.reason), each.line) for each in found] == [("DuplicateKey", 7), ("UnknownField", 8)]


def test_problems_of_all_kinds_come_in_the_order_of_the_file():
    found = problems("foo: 1\n" + YAML + "kind: other\nbar: 1\n")
    assert [(str(each.reason), each.line) for each in found] == [
        ("UnknownField", 1),
        ("DuplicateKey", 8),
        ("UnknownField", 9),
    ]


def test_half_of_a_surrogate_pair_is_no_text():
    content = json.dumps(spec(device(env=["A=@"])))
    assert loaded(content.replace("@", "\\ud83d\\ude00")).devices[0].container_edits.env == ("A=\U0001f600",)
    assert reasons(content.replace("@", "\\ud83d")) == ["MalformedDocument"]


def test_no_file_has_more_problems_than_somebody_reads():
    assert len(problems(spec(*[device(f"d{n}", env=["A"]) for n in range(5000)]))) == 200


def test_every_reason_of_the_document_reader_has_its_word():
    # `refusal` of these would be a ValueError, not a problem.
    words = (
        "EmptyDocument",
        "NotUtf8",
        "DocumentTooLarge",
        "TooDeep",
        "MalformedDocument",
        "DuplicateKey",
        "WrongType",
    )
    assert all(CdiReason(word) for word in words)
