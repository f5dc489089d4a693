"""The library's own edge: real files and real nodes."""

import os
import stat
from pathlib import Path

import pytest

from actors.cdi import SPEC_BYTES_MAX, Existing, SpecFormat, encode, remove_spec, scan, write_spec
from actors.cdi.host import HostFiles, lstat
from tests.cdi.making import loaded, refusal, spec

SPEC = loaded(spec())


def test_what_is_written_is_found_and_what_is_removed_is_not(tmp_path):
    files, directories = HostFiles(), [str(tmp_path / "low"), str(tmp_path / "run" / "high")]
    path = write_spec(files, SPEC, "a", directories)
    assert stat.S_IMODE(Path(path).stat().st_mode) == 0o644 & ~umask()
    assert names(tmp_path / "run" / "high") == ["a.yaml"]
    assert scan(files, directories).names() == ("vv.com/gpu=d",)
    for _ in range(2):
        remove_spec(files, "a", directories)
    assert scan(files, directories).names() == ()


def names(directory):
    return sorted(path.name for path in directory.iterdir())


def umask():
    mask = os.umask(0)
    os.umask(mask)
    return mask


def test_what_is_there_is_replaced_or_kept(tmp_path):
    files, path = HostFiles(), tmp_path / "a.json"
    path.write_bytes(b"mine")
    assert refusal(write_spec, files, SPEC, "a.json", [str(tmp_path)], Existing.KEPT)[0].reason == "NotWritten"
    assert path.read_bytes() == b"mine"
    write_spec(files, SPEC, "a.json", [str(tmp_path)])
    assert path.read_bytes() == encode(SPEC, SpecFormat.JSON)
    write_spec(files, SPEC, "b.json", [str(tmp_path)], Existing.KEPT)
    assert names(tmp_path) == ["a.json", "b.json"]


def test_two_writers_do_not_share_a_temporary_file(tmp_path):
    (tmp_path / f"spec.{os.getpid()}.0.tmp").write_bytes(b"another's")
    write_spec(HostFiles(), SPEC, "a.json", [str(tmp_path)])
    assert (tmp_path / f"spec.{os.getpid()}.0.tmp").read_bytes() == b"another's"
    assert scan(HostFiles(), [str(tmp_path)]).names() == ("vv.com/gpu=d",)


def test_a_directory_that_is_none_is_told(tmp_path):
    (tmp_path / "file").write_bytes(b"")
    below = str(tmp_path / "file" / "x")
    assert refusal(write_spec, HostFiles(), SPEC, "a", [below])[0].reason == "NotWritten"
    assert refusal(remove_spec, HostFiles(), "a", [below])[0].reason == "NotWritten"
    found = scan(HostFiles(), [str(tmp_path / "file"), str(tmp_path / "none")])
    assert [str(each.reason) for each in found.errors[str(tmp_path / "file")]] == ["NotReadable"]


def test_what_is_no_regular_file_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "fifo.json")
    (tmp_path / "dir.json").mkdir()
    (tmp_path / "loop.json").symlink_to("loop.json")
    (tmp_path / "gone.json").symlink_to("nowhere")
    (tmp_path / "real").write_bytes(encode(SPEC, SpecFormat.JSON))
    (tmp_path / "link.json").symlink_to("real")
    with (tmp_path / "big.yaml").open("wb") as big:
        big.truncate(SPEC_BYTES_MAX + 1)
    found = scan(HostFiles(), [str(tmp_path)])
    assert found.names() == ("vv.com/gpu=d",)
    assert {Path(path).name: str(each[0].reason) for path, each in found.errors.items()} == {
        "big.yaml": "DocumentTooLarge",
        "fifo.json": "NotReadable",
        "loop.json": "NotReadable",
    }


def test_a_file_is_read_up_to_its_limit_and_not_a_byte_further(tmp_path):
    (tmp_path / "a").write_bytes(b"12345")
    assert HostFiles().read(str(tmp_path / "a"), limit_bytes=5) == b"12345"
    with pytest.raises(OSError, match="larger than 4 bytes"):
        HostFiles().read(str(tmp_path / "a"), limit_bytes=4)


def test_nodes_are_told_from_what_is_none(tmp_path):
    null = lstat("/dev/null")
    assert null is not None
    assert (null.type, null.major, null.minor, null.mode & 0o600) == ("c", 1, 3, 0o600)
    os.mkfifo(tmp_path / "fifo", 0o600)
    (tmp_path / "link").symlink_to("/dev/null")
    fifo = lstat(str(tmp_path / "fifo"))
    assert fifo is not None
    assert (fifo.type, fifo.mode) == ("p", 0o600)
    for path in (tmp_path, tmp_path / "link"):
        found = lstat(str(path))
        assert found is not None
        assert found.type == ""
    assert lstat(str(tmp_path / "none")) is None


def test_a_block_device_is_one(monkeypatch):
    status = os.stat_result((stat.S_IFBLK | 0o660, 0, 0, 1, 0, 0, 0, 0, 0, 0), {"st_rdev": os.makedev(7, 2)})
    monkeypatch.setattr(os, "lstat", lambda _path: status)
    found = lstat("/dev/loop2")
    assert found is not None
    assert (found.type, found.major, found.minor, found.mode) == ("b", 7, 2, 0o660)


@pytest.mark.parametrize("failing", ["write", "fsync"])
def test_a_write_that_fails_leaves_nothing(tmp_path, monkeypatch, failing):
    def full(*_args):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, failing, full)
    (problem,) = refusal(write_spec, HostFiles(), SPEC, "a", [str(tmp_path)])
    assert (problem.reason, "No space left" in problem.message) == ("NotWritten", True)
    assert names(tmp_path) == []
