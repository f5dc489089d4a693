"""`greenroom cdi list`, `show` and `validate`: for people who look for what is wrong on their own node."""

import json
import os

import pytest

import greenroom
from actors.cdi import CdiReason
from supervisor.cli.cdi_answers import HINTS
from tests.cdi.making import device, spec


def ran(capsys, *arguments):
    code = greenroom.run(["cdi", *map(str, arguments)])
    return code, *capsys.readouterr()


@pytest.fixture
def place(tmp_path):
    """A directory with specs in it, by their file names."""

    def made(**files):
        for name, content in files.items():
            path = tmp_path / name.replace("_", ".")
            path.write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())
        return tmp_path

    return made


GPU = spec(
    device("0", deviceNodes=[{"path": "/dev/null"}]),
    device("all", deviceNodes=[{"path": "/dev/null"}]),
    device("1", deviceNodes=[{"path": "/dev/zero"}], env=["A=b\nc"]),
)


BOMB = b"a0: &a0 [x, x, x, x, x, x, x, x, x]\n" + b"".join(
    b"a%d: &a%d [%s]\n" % (depth, depth, b", ".join([b"*a%d" % (depth - 1)] * 9)) for depth in range(1, 12)
)


def test_every_reason_has_a_hint():
    assert set(HINTS) == set(CdiReason)


def test_devices_are_listed_with_their_kind_their_file_and_those_with_the_same_nodes(place, capsys):
    folder = place(x_json=GPU)
    code, out, err = ran(capsys, "list", "--spec-dir", folder)
    assert (code, err) == (0, "")
    assert [line.split() for line in out.splitlines()] == [
        ["DEVICE", "KIND", "FILE", "SAME", "NODES", "AS"],
        ["vv.com/gpu=0", "vv.com/gpu", f"{folder}/x.json", "all"],
        ["vv.com/gpu=1", "vv.com/gpu", f"{folder}/x.json", "-"],
        ["vv.com/gpu=all", "vv.com/gpu", f"{folder}/x.json", "0"],
    ]
    listed = json.loads(ran(capsys, "list", "--spec-dir", folder, "--json")[1])
    assert [each["name"] for each in listed["devices"]] == ["vv.com/gpu=0", "vv.com/gpu=1", "vv.com/gpu=all"]
    assert listed["devices"][0]["aliases"] == ["vv.com/gpu=all"]
    assert listed["devices"][0]["nodes"] == ["/dev/null"]
    assert listed["files"][0]["devices"] == ["0", "all", "1"]


def test_a_broken_file_hides_no_other_device_and_is_told_with_place_value_and_reason(place, capsys):
    folder = place(a_json=GPU, b_yaml=b"cdiVersion: 1.1.0\nkind: vv.com/nic\ndevises: []\n")
    code, out, err = ran(capsys, "list", "--spec-dir", folder)
    assert code == 0
    assert "vv.com/gpu=0" in out
    assert f'warning: {folder}/b.yaml:3: devises: there is no field "devises" here; did you mean devices?' in err
    assert "(UnknownField)" in err


def test_a_conflict_names_both_files_once_and_whoever_asks_for_the_device_gets_both_too(place, capsys):
    folder = place(a_json=GPU, b_json=spec(device("0", env=["A=b"])))
    both = f"{folder}/a.json and by {folder}/b.json"
    code, out, err = ran(capsys, "list", "--spec-dir", folder)
    assert code == 0
    assert "vv.com/gpu=0 " not in out
    assert [line for line in err.splitlines() if both in line] == [
        f"warning: vv.com/gpu=0 is defined by {both} (Conflict)"
    ]
    code, _out, err = ran(capsys, "show", "vv.com/gpu=0", "--spec-dir", folder)
    assert code == 1
    assert err.splitlines()[-1].startswith("error: Unresolvable: ")
    assert both in err.splitlines()[-1]
    code, out, _err = ran(capsys, "validate", "--spec-dir", folder)
    assert code == 1
    assert [line.partition(": Conflict: ")[0] for line in out.splitlines()] == [f"{folder}/a.json", f"{folder}/b.json"]


def test_an_unknown_device_is_told_with_near_names_and_the_files_that_have_them(place, capsys):
    folder = place(x_json=GPU)
    code, out, err = ran(capsys, "show", "vv.com/gpu=2", "--spec-dir", folder)
    assert (code, out) == (1, "")
    hint, error = err.splitlines()
    assert hint == f"hint: vv.com/gpu has 0, all, 1 in {folder}/x.json"
    assert error.startswith('error: Unresolvable: no device is called "vv.com/gpu=2"; did you mean vv.com/gpu=')
    assert f"from {folder}/x.json?" in error
    document = json.loads(ran(capsys, "show", "zz.com/nic=2", "--spec-dir", folder, "--json")[1])
    assert document["ok"] is False
    assert document["error"]["reason"] == "Unresolvable"
    assert document["error"]["value"] == "zz.com/nic=2"
    assert document["error"]["hint"] == f"there are vv.com/gpu=0, vv.com/gpu=1, vv.com/gpu=all in {folder}/x.json"


def test_an_unknown_device_beside_a_broken_file_tells_what_is_wrong_with_the_file(place, capsys):
    folder = place(nvidia_yaml=b"cdiVersion: 0.4.1\nkind: nvidia.com/gpu\ndevices: [{name: 0}]\n")
    code, _out, err = ran(capsys, "show", "nvidia.com/gpu=0", "--spec-dir", folder)
    assert code == 1
    assert f"warning: {folder}/nvidia.yaml:1: cdiVersion: " in err
    assert f"{folder}/nvidia.yaml:3: devices[0].containerEdits: " in err
    assert f"it may be in a file that is broken: {folder}/nvidia.yaml" in err.splitlines()[-1]


def test_all_unknown_devices_are_told_the_first_of_them_last(place, capsys):
    err = ran(capsys, "show", "b.bb/cc=0", "a.aa/cc=0", "--spec-dir", place(x_json=GPU))[2]
    assert [line.split('"')[1] for line in err.splitlines() if line.startswith("error")] == ["a.aa/cc=0", "b.bb/cc=0"]


def test_what_a_container_gets_is_shown_and_which_nodes_are_on_this_host(place, capsys):
    everything = spec(
        device(
            "x",
            env=["A=b\nc"],
            deviceNodes=[
                {"path": "/dev/null"}, {"path": "/dev/absent"}, {"path": "/dev/made", "type": "c", "major": 9},
                {"path": "/etc/passwd"},
                {"path": "/dev/fifo", "type": "p", "fileMode": 0o600, "uid": 0, "permissions": "r"},
                {"path": "/dev/y", "hostPath": "/dev/zero", "type": "b"},
            ],
            mounts=[{"hostPath": "/lib/a", "containerPath": "/lib/b", "options": ["ro", "bind"]}],
            hooks=[{"hookName": "poststop", "path": "/bin/h", "args": ["h", "now"], "env": ["E=1"], "timeout": 3}],
            netDevices=[{"hostInterfaceName": "eth0", "name": "net0"}],
            intelRdt={"closID": "c1"},
            additionalGids=[44, 109],
        ),
    )  # fmt: skip
    folder = place(x_json=everything)
    code, out, err = ran(capsys, "show", "vv.com/gpu=x", "--spec-dir", folder)
    assert (code, err) == (0, "")
    assert out.splitlines() == [
        f"vv.com/gpu=x  from {folder}/x.json, version 1.1.0",
        r"env       A=b\nc",
        "node      /dev/null; on this host: c 1:3, mode 0666",
        'node      /dev/absent; on this host: NO: there is no device node at "/dev/absent"',
        "node      /dev/made, c 9:0; on this host: not there, made as it is written",
        'node      /etc/passwd; on this host: NO: what stands at "/etc/passwd" is no device node',
        "node      /dev/fifo, p 0:0, mode 0600, uid 0, permissions r; on this host: not there, made as it is written",
        'node      /dev/y, from /dev/zero, b 0:0; on this host: NO: the device node "/dev/zero" is of type c, not b',
        "mount     /lib/a at /lib/b (ro,bind)",
        "hook      poststop: /bin/h now E=1 (at most 3 s)",
        "network   eth0 as net0",
        "intelRdt  {'closID': 'c1'}",
        "groups    44, 109",
    ]
    shown = json.loads(ran(capsys, "show", "vv.com/gpu=x", "--spec-dir", folder, "--json")[1])
    assert shown["edits"] == everything["devices"][0]["containerEdits"]
    assert shown["hostNodes"][0] == {
        "path": "/dev/null", "hostPath": "/dev/null", "fault": None,
        "found": {"type": "c", "major": 1, "minor": 3, "mode": 0o666},
    }  # fmt: skip
    assert shown["hostNodes"][1]["found"] is None


def test_nodes_are_looked_for_below_the_root_that_holds_the_hosts_dev(place, tmp_path, capsys):
    out = ran(capsys, "show", "vv.com/gpu=0", "--spec-dir", place(x_json=GPU), "--dev-root", tmp_path)[1]
    assert f'NO: there is no device node at "{tmp_path}/dev/null"' in out


def test_validate_finds_every_fault_of_a_file_in_one_call_with_its_line(place, capsys):
    text = b"""cdiVersion: 0.5.0
kind: nvidia.com/gpu
devices:
  - name: 0/0
    containerEdits:
      env: [A]
      deviceNodes:
        - {path: /dev/x, fileMode: "0666"}
containerEdits:
  hooks:
    - {hookName: createcontainer, path: /bin/x}
"""
    folder = place(nvidia_yaml=text)
    code, out, err = ran(capsys, "validate", "--spec-dir", folder)
    assert code == 1
    file = f"{folder}/nvidia.yaml"
    assert [line.split(": ")[:3] for line in out.splitlines()] == [
        [f"{file}:4", "devices[0].name", "BadDeviceName"],
        [f"{file}:6", "devices[0].containerEdits.env[0]", "BadEnv"],
        [f"{file}:8", "devices[0].containerEdits.deviceNodes[0].fileMode", "WrongType"],
        [f"{file}:11", "containerEdits.hooks[0].hookName", "UnknownHookStage"],
    ]
    assert err.splitlines()[0].startswith("hint: ")
    assert err.splitlines()[1].startswith(f"error: BadDeviceName: {file}:4: devices[0].name: ")
    (found,) = json.loads(ran(capsys, "validate", folder / "nvidia.yaml", "--json")[1])
    assert [problem["line"] for problem in found["problems"]] == [4, 6, 8, 11]
    assert {"reason", "message", "hint", "path", "value", "device"} <= set(found["problems"][0])


def test_validate_says_of_a_file_that_is_right_what_is_in_it(place, capsys):
    folder = place(x_json=GPU, y_json=spec(kind="yy.com/gpu"))
    code, out, err = ran(capsys, "validate", folder / "x.json", folder / "y.json")
    assert (code, err) == (0, "")
    assert out == f"{folder}/x.json: ok: 3 devices of vv.com/gpu\n{folder}/y.json: ok: 1 device of yy.com/gpu\n"


def test_one_file_given_twice_or_two_that_define_the_same_are_judged_each_for_itself(place, capsys):
    folder = place(x_json=GPU, y_json=GPU)
    code, out, _err = ran(capsys, "validate", folder / "x.json", folder / "x.json", folder / "y.json")
    assert code == 0
    assert len(out.splitlines()) == 2


def test_what_engines_take_though_the_text_forbids_it_is_a_warning(place, capsys):
    folder = place(x_json=spec(device(hooks=[{"hookName": "poststop", "path": "/h", "timeout": 0}])))
    code, out, err = ran(capsys, "validate", folder / "x.json")
    assert code == 0
    assert out.endswith("ok: 1 device of vv.com/gpu\n")
    assert err.startswith(f"warning: {folder}/x.json:1: devices[0].containerEdits.hooks[0].timeout: ")


def test_a_directory_that_does_not_exist_is_the_same_as_an_empty_one_and_is_told(place, tmp_path, capsys):
    folder = place(x_json=GPU)
    absent = tmp_path / "absent"
    for command in (["list"], ["validate"]):
        code, out, err = ran(capsys, *command, "--spec-dir", absent, "--spec-dir", folder)
        assert code == 0
        assert "x.json" in out
        assert err == f"warning: {absent}: does not exist, which is the same as empty\n"
        code, out, err = ran(capsys, *command, "--spec-dir", absent)
        assert (code, len(out.splitlines())) == (0, int(command == ["list"]))
        assert "nothing has written a spec here" in err


def test_a_directory_that_is_none_is_a_problem(place, capsys):
    folder = place(x_json=GPU)
    code, out, _err = ran(capsys, "validate", "--spec-dir", folder / "x.json")
    assert code == 1
    assert out == f"{folder}/x.json: NotReadable: cannot be read: Not a directory\n"


@pytest.mark.parametrize("name", ["x_yml", "x_YAML", "x_JSON"])
def test_a_file_that_no_engine_reads_for_its_suffix_is_told(name, place, capsys):
    folder = place(**{name: GPU})
    path = folder / name.replace("_", ".")
    for arguments in (["list", "--spec-dir", folder], ["validate", path]):
        err = ran(capsys, *arguments)[2]
        assert f"warning: {path}: no engine reads it: its name must end in .json or .yaml\n" in err


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "EmptyDocument"), (b"\x7fELF\x02\x01\x01\x00\x00", "MalformedDocument"), (b"\xff\xfe\x00", "NotUtf8"),
        (b"#" * (50 << 20), "DocumentTooLarge"), (b"[" * 100_000, "TooDeep"), (b"{", "MalformedDocument"),
        (BOMB, "DocumentTooLarge"),
    ],
    ids=["empty", "a program", "another encoding", "50 MB", "deep", "cut off", "a bomb of aliases"],
)  # fmt: skip
def test_a_file_that_is_no_spec_is_a_reason(content, reason, place, capsys):
    folder = place(x_yaml=content)
    for arguments in (["validate", folder / "x.yaml"], ["validate", "--spec-dir", folder]):
        code, _out, err = ran(capsys, *arguments)
        assert code == 1
        assert err.splitlines()[-1].startswith(f"error: {reason}: {folder}/x.yaml")


def test_what_cannot_be_read_as_a_file_is_a_reason_and_not_waited_for(tmp_path, capsys):
    os.mkfifo(tmp_path / "fifo.yaml")
    for name in (tmp_path, tmp_path / "fifo.yaml", tmp_path / "absent", "/dev/zero", "/proc/self/mem"):
        code, out, err = ran(capsys, "validate", name)
        assert code == 1
        assert out.startswith(f"{name}: NotReadable: cannot be read: ")
        assert err.splitlines()[-1].startswith(f"error: NotReadable: {name}: ")
    # In a directory, a directory is no spec file whatever its name is.
    (tmp_path / "folder.json").mkdir()
    code, out, _err = ran(capsys, "list", "--spec-dir", tmp_path, "--json")
    assert [each["file"] for each in json.loads(out)["files"]] == [f"{tmp_path}/fifo.yaml"]


def test_names_that_a_terminal_would_act_upon_are_shown_by_escapes(tmp_path, capsys):
    awkward = tmp_path / os.fsdecode(b"a\xff\x1b[2J\n.json")
    awkward.write_text("{")
    for arguments in (["validate", awkward], ["validate", "--spec-dir", tmp_path], ["show", "a\x1b[2J\n"]):
        _code, out, err = ran(capsys, *arguments)
        assert all(line.isprintable() for line in (out + err).splitlines())
    (found,) = json.loads(ran(capsys, "validate", awkward, "--json")[1])
    assert found["file"].endswith(r"a\udcff\x1b[2J\n.json")


def test_a_command_line_that_is_wrong_is_usage(capsys):
    for arguments in ([], ["show"], ["inject"], ["nonsense"], ["list", "x"]):
        code, _out, err = ran(capsys, *arguments)
        assert code == greenroom.EXIT_USAGE
        assert "Traceback" not in err
