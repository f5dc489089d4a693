"""A file that is written piece by piece is there when it is whole, and not before."""

import os
import stat
import sys
import threading
from pathlib import Path

import pytest

from supervisor.host.growing import growing


class _GaveUpError(Exception):
    pass


def test_until_it_is_whole_the_old_one_is_there_and_then_the_new_one(tmp_path):
    path = tmp_path / "page"
    path.write_text("old")
    with growing(path) as file:
        file.write(b"new")
        file.flush()
        assert path.read_text() == "old"
    assert path.read_text() == "new"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert list(tmp_path.iterdir()) == [path]


def test_who_gives_up_leaves_the_old_one_and_nothing_beside_it(tmp_path):
    path = tmp_path / "page"
    path.write_text("old")

    def give_up():
        with growing(path) as file:
            file.write(b"half")
            raise _GaveUpError

    with pytest.raises(_GaveUpError):
        give_up()
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("name", ["x" * 255, "\u00e9" * 127, "\u6587" * 85])
def test_a_name_may_be_as_long_as_names_can_be(tmp_path, name):
    path = tmp_path / name
    with growing(path) as file:
        file.write(b"it")
    assert path.read_bytes() == b"it"
    assert list(tmp_path.iterdir()) == [path]


def test_a_link_stays_one(tmp_path):
    (tmp_path / "link").symlink_to("page")
    with growing(tmp_path / "link") as file:
        file.write(b"it")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "page").read_bytes() == b"it"


def test_a_pipe_is_written_to_as_it_is(tmp_path):
    pipe, read = tmp_path / "pipe", []
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: read.append(pipe.read_bytes()))
    reader.start()
    with growing(pipe) as file:
        file.write(b"it")
    reader.join()
    assert read == [b"it"]
    assert list(tmp_path.iterdir()) == [pipe]


def test_a_dash_is_stdout(capfdbinary):
    with growing(Path("-")) as file:
        assert file is sys.stdout.buffer
        file.write(b"it")
    assert capfdbinary.readouterr().out == b"it"
