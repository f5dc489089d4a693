"""A directory that was there before a worker, as a volume is, becomes the worker's own."""

from __future__ import annotations

import stat

import pytest

from supervisor.host.surroundings import take_rights_away

OTHERS = stat.S_IRWXG | stat.S_IRWXO
WRITING = stat.S_IWGRP | stat.S_IWOTH


def mode_of(path):
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.parametrize(
    ("before", "rights", "after"),
    [
        (0o777, OTHERS, 0o700),
        (0o777, WRITING, 0o755),
        (0o2775, OTHERS, 0o2700),
        (0o700, OTHERS, 0o700),
        (0o711, WRITING, 0o711),
        (0o1777, OTHERS, 0o1777),
    ],
)
def test_the_rights_of_others_are_taken_away_but_from_what_is_shared_on_purpose(tmp_path, before, rights, after):
    directory = tmp_path / "volume"
    directory.mkdir()
    directory.chmod(before)
    take_rights_away(directory, rights)
    assert mode_of(directory) == after


def test_what_is_not_there_or_is_no_directory_stays_as_it_is(tmp_path):
    file = tmp_path / "file"
    file.touch(0o666)
    before = mode_of(file)
    take_rights_away(file, OTHERS)
    take_rights_away(tmp_path / "absent", OTHERS)
    assert mode_of(file) == before
    assert not (tmp_path / "absent").exists()
