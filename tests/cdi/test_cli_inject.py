"""`greenroom cdi inject`: an OCI document in, an OCI document out, or a reason and nothing written."""

import json
import os
import stat
import subprocess
import sys

import pytest

import greenroom
from tests.cdi.making import device, spec
from tests.needs import ROOT

DOCUMENT = {"ociVersion": "1.2.0", "process": {"env": ["A=old"]}, "vendor.key": {"kept": [1, None, 1.5, "\u00e9"]}}
NULL = spec(
    device("null", env=["A=new"], deviceNodes=[{"path": "/dev/null"}]), device("gone", deviceNodes=[{"path": "/x"}])
)


@pytest.fixture
def stage(tmp_path):
    """A spec, an OCI document, and a directory for what comes out."""
    (tmp_path / "specs").mkdir()
    (tmp_path / "specs" / "x.json").write_text(json.dumps(NULL))
    (tmp_path / "config.json").write_text(json.dumps(DOCUMENT))
    return tmp_path


def ran(capsys, stage, *arguments):
    if "--spec-dir" not in arguments and "--spec" not in arguments:
        arguments = (*arguments, "--spec-dir", stage / "specs")
    if "--in" not in arguments:
        arguments = (*arguments, "--in", stage / "config.json")
    code = greenroom.run(["cdi", "inject", *map(str, arguments)])
    return code, *capsys.readouterr()


def process(*arguments, **more):
    argv = [sys.executable, str(ROOT / "greenroom.py"), "cdi", "inject", *map(str, arguments)]
    return subprocess.run(argv, capture_output=True, timeout=60, check=False, **more)


def test_a_document_goes_in_by_stdin_and_comes_out_by_stdout_with_all_that_it_had(stage):
    ended = process("--device", "vv.com/gpu=null", "--spec-dir", stage / "specs", input=json.dumps(DOCUMENT).encode())
    assert (ended.returncode, ended.stderr) == (0, b"")
    made = json.loads(ended.stdout)
    assert made["vendor.key"] == DOCUMENT["vendor.key"]
    assert made["process"]["env"] == ["A=new"]
    assert made["linux"]["devices"] == [{"path": "/dev/null", "type": "c", "major": 1, "minor": 3, "fileMode": 0o666}]
    again = process("--device", "vv.com/gpu=null", "--spec-dir", stage / "specs", input=ended.stdout)
    assert again.stdout == ended.stdout


def test_files_are_read_and_replaced_for_the_owner_alone_even_in_place(stage, capsys):
    config = stage / "config.json"
    code, out, err = ran(capsys, stage, "--device", "vv.com/gpu=null", "--out", config)
    assert (code, out, err) == (0, "", "")
    assert json.loads(config.read_text())["process"]["env"] == ["A=new"]
    assert stat.S_IMODE(config.stat().st_mode) == 0o600
    code, out, _err = ran(capsys, stage, "--device", "vv.com/gpu=null", "--out", stage / "b.json", "--json")
    assert (code, json.loads(out)) == (0, {"file": f"{stage}/b.json", "devices": ["vv.com/gpu=null"]})
    assert (stage / "b.json").read_bytes() == config.read_bytes()
    assert sorted(path.name for path in stage.iterdir()) == ["b.json", "config.json", "specs"]


def test_with_json_the_answer_on_stdout_is_the_document(stage, capsys):
    plain = ran(capsys, stage, "--device", "vv.com/gpu=null")[1]
    assert ran(capsys, stage, "--device", "vv.com/gpu=null", "--json")[1] == plain


def test_a_spec_that_is_named_is_used_in_place_of_the_directories(stage, capsys):
    (stage / "own.cdi").write_text(json.dumps(spec(device("null", env=["A=own"]))))
    code, out, err = ran(capsys, stage, "--device", "vv.com/gpu=null", "--spec", stage / "own.cdi")
    assert (code, err) == (0, "")
    assert json.loads(out)["process"]["env"] == ["A=own"]
    code, _out, err = ran(capsys, stage, "--device", "vv.com/gpu=gone", "--spec", stage / "own.cdi")
    assert code == 1
    assert "directory" not in err
    assert "/etc/cdi" not in err


def test_a_spec_that_is_named_wins_over_a_directory_that_is_named_too(stage, capsys):
    (stage / "own.cdi").write_text(json.dumps(spec(device("null", env=["A=own"]))))
    more = ("--spec", stage / "own.cdi", "--spec-dir", stage / "specs", "--dev-root", "/")
    out = ran(capsys, stage, "--device", "vv.com/gpu=null", *more)[1]
    assert json.loads(out)["process"]["env"] == ["A=own"]
    assert ran(capsys, stage, "--device", "vv.com/gpu=gone", *more)[2].endswith('there is no device node at "/x"\n')


def test_a_spec_that_is_named_and_broken_is_told_whole(stage, capsys):
    (stage / "own.json").write_text("{}")
    code, out, err = ran(capsys, stage, "--device", "vv.com/gpu=null", "--spec", stage / "own.json", "--json")
    assert code == 1
    assert [each["reason"] for each in json.loads(out)["errors"]] == ["UnknownVersion", "BadKind", "NoDevices"]
    assert err.splitlines()[-1].startswith(f"error: UnknownVersion: {stage}/own.json:1: cdiVersion: ")


def test_devices_are_injected_all_or_nothing(stage, capsys):
    config = stage / "config.json"
    before = config.read_bytes()
    many = ("--device", "vv.com/gpu=null", "--device", "vv.com/gpu=gone")
    code, out, err = ran(capsys, stage, *many, "--out", config)
    assert (code, out) == (1, "")
    assert err.splitlines()[-1] == 'error: HostNodeMissing: /x: there is no device node at "/x"'
    code, out, err = ran(capsys, stage, "--device", "vv.com/gpu=nil", "--out", config)
    assert (code, out) == (1, "")
    assert "did you mean vv.com/gpu=null, from" in err.splitlines()[-1]
    assert config.read_bytes() == before


def test_nodes_are_looked_for_below_the_root_that_holds_the_hosts_dev(stage, capsys):
    err = ran(capsys, stage, "--device", "vv.com/gpu=null", "--dev-root", stage)[2]
    assert err.endswith(f'there is no device node at "{stage}/dev/null"\n')


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"[]", b"1", b'{"a": 1, "a": 2}', b'{"a": NaN}', b"\xff", b"[" * 100_000, b"\x7fELF",
     b'{"process": []}', b'{"process": {"env": {}}}', b'{"linux": {"devices": 5}}'],
)  # fmt: skip
def test_what_is_no_oci_document_is_a_reason(content, stage, capsys):
    (stage / "config.json").write_bytes(content)
    code, out, err = ran(capsys, stage, "--device", "vv.com/gpu=null")
    assert (code, out) == (1, "")
    assert err.splitlines()[-1].startswith("error: BadOciDocument: ")


def test_a_document_that_cannot_be_read_or_is_too_large_is_a_reason_and_not_waited_for(stage, capsys):
    os.mkfifo(stage / "fifo")
    (stage / "large").write_bytes(b" " * (50 << 20))
    for source in ("fifo", "large", "absent", "specs"):
        code, out, err = ran(capsys, stage, "--device", "vv.com/gpu=null", "--in", stage / source)
        assert (code, out) == (1, "")
        assert err.splitlines()[-1].startswith(f"error: BadOciDocument: {stage}/{source}: it cannot be read: ")
    ended = process("--device", "vv.com/gpu=null", "--spec-dir", stage / "specs", input=b" " * (50 << 20))
    assert ended.returncode == 1
    assert ended.stderr.splitlines()[-1].startswith(b"error: BadOciDocument: -: ")


def test_only_a_regular_file_is_replaced_and_only_where_its_directory_is(stage, capsys):
    (stage / "link").symlink_to(stage / "config.json")
    os.mkfifo(stage / "fifo")
    for target in ("link", "fifo", "specs", "absent/config.json"):
        code, out, err = ran(capsys, stage, "--device", "vv.com/gpu=null", "--out", stage / target)
        assert (code, out) == (1, "")
        assert err.splitlines()[-1].startswith(f"error: NotWritten: {stage}/{target}: ")
    assert (stage / "link").is_symlink()
    assert not (stage / "absent").exists()


@pytest.mark.parametrize("command", [["list"], ["show", "vv.com/gpu=null"], ["validate"], ["inject"]], ids=" ".join)
@pytest.mark.parametrize("as_json", [[], ["--json"]], ids=["text", "json"])
def test_a_stdout_that_cannot_be_written_is_one_reason(command, as_json, stage):
    more = ["--device", "vv.com/gpu=null", "--in", str(stage / "config.json")] if command == ["inject"] else []
    line = 'exec "$0" "$@" >/dev/full'
    argv = [sys.executable, str(ROOT / "greenroom.py"), "cdi", *command, "--spec-dir", str(stage / "specs"), *more]
    ended = subprocess.run(
        ["/bin/sh", "-c", line, *argv, *as_json], stderr=subprocess.PIPE, text=True, timeout=60, check=False
    )
    assert ended.returncode == 1
    assert ended.stderr.splitlines()[-1] == "error: OutputUnwritable: stdout cannot be written: No space left on device"


def test_a_failure_that_cannot_be_printed_as_json_is_still_told_on_stderr(stage):
    argv = [
        sys.executable,
        str(ROOT / "greenroom.py"),
        "cdi",
        "show",
        "vv.com/gpu=x",
        "--json",
        "--spec-dir",
        str(stage),
    ]
    ended = subprocess.run(
        ["/bin/sh", "-c", 'exec "$0" "$@" >/dev/full', *argv],
        stderr=subprocess.PIPE,
        text=True,
        timeout=60,
        check=False,
    )
    assert ended.returncode == 1
    assert ended.stderr.splitlines()[-1].startswith("error: Unresolvable: ")
