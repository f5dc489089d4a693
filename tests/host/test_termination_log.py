"""The file of the termination message, which is written in place."""

import os
import stat
from pathlib import Path

import pytest

from supervisor.host import termination_log
from supervisor.host.termination_log import find_termination_log, write_termination_log


def test_what_was_there_is_overwritten_in_place(tmp_path):
    path = tmp_path / "log"
    path.write_text("something longer")
    inode = path.stat().st_ino
    write_termination_log(path, b"short\n")
    assert path.read_bytes() == b"short\n"
    assert path.stat().st_ino == inode, "Kubernetes has mounted this very file"


def test_a_file_that_is_not_there_is_made(tmp_path):
    write_termination_log(tmp_path / "new", b"x")
    assert (tmp_path / "new").read_bytes() == b"x"
    assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == 0o644


@pytest.mark.parametrize("what", ["fifo", "link", "directory", "absent directory"])
def test_what_is_no_file_is_refused_at_once(tmp_path, what):
    path, target = tmp_path / "log", tmp_path / "target"
    if what == "fifo":
        os.mkfifo(path)
    elif what == "link":
        path.symlink_to(target)
    elif what == "directory":
        path.mkdir()
    else:
        path = tmp_path / "no" / "log"
    with pytest.raises(OSError):
        write_termination_log(path, b"x")
    assert not target.exists()


def test_the_usual_file_is_taken_only_where_kubernetes_has_made_it(tmp_path, monkeypatch):
    usual = tmp_path / "termination-log"
    monkeypatch.setattr(termination_log, "USUAL", usual)
    assert find_termination_log(None) is None
    assert find_termination_log(Path("/given")) == Path("/given")
    usual.touch()
    assert find_termination_log(None) == usual
