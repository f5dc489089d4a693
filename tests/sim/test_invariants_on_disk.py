"""The checkers of what stands on the disk: each finds what it is for in a world that was spoilt for it."""

from pathlib import Path

import orjson
import pytest

from sim.documents import actor, container
from tests.sim.spoiling import files, names, put, rewritten, running, spoilt, suspended

# ---- StateFilesParse


@pytest.mark.parametrize("name", ["assignment.json", "status.json", "journal.jsonl"])
@pytest.mark.parametrize("data", [b"", b"{", b"[]\n", b'{"v": 2}\n'])
def test_a_state_file_that_cannot_be_read_is_found(name, data):
    assert "StateFilesParse" in names(spoilt(suspended, lambda here: put(here, files(here).root / name, data)))


@pytest.mark.parametrize("name", ["status.json", "journal.jsonl"])
def test_a_state_file_that_is_missing_is_found(name):
    def spoil(here):
        here.world.disk.remove(here.world.disk.find_directory(files(here).root), name)

    assert "StateFilesParse" in names(spoilt(suspended, spoil))


def test_a_torn_line_and_a_temporary_file_are_found():
    def spoil(here):
        put(here, files(here).journal, here.world.read(files(here).journal) + b'{"v":')
        put(here, files(here).root / ".status.json.0123456789abcdef.tmp", b"")

    messages = [each.message for each in spoilt(suspended, spoil)]
    assert "the last line is torn" in messages
    assert "a temporary file is left" in messages


def test_a_manifest_that_cannot_be_read_is_found():
    def spoil(here):
        (name,) = here.world.disk.find_directory(files(here).snapshots).entries
        put(here, files(here).snapshot(name) / "manifest.json", b"{}")

    assert {"StateFilesParse", "SnapshotsAreWhole", "LastGoodIsKept"} <= names(spoilt(suspended, spoil))


# ---- SnapshotsAreWhole, LastGoodIsKept


def test_a_snapshot_with_another_byte_is_found():
    def spoil(here):
        (name,) = here.world.disk.find_directory(files(here).snapshots).entries
        path = files(here).snapshot(name) / "pages.img"
        put(here, path, here.world.read(path)[:-1] + b"\0")

    assert names(spoilt(suspended, spoil)) == {"SnapshotsAreWhole", "LastGoodIsKept"}


def test_a_manifest_that_names_no_files_is_found():
    def spoil(here):
        (name,) = here.world.disk.find_directory(files(here).snapshots).entries
        path = files(here).snapshot(name) / "manifest.json"
        put(here, path, orjson.loads(here.world.read(path)) | {"files": []})

    assert names(spoilt(suspended, spoil)) == {"SnapshotsAreWhole", "LastGoodIsKept", "StateFilesParse"}


def test_a_snapshot_that_was_named_good_and_is_gone_is_found():
    def spoil(here):
        directory = here.world.disk.find_directory(files(here).snapshots)
        (name,) = directory.entries
        here.world.disk.rename(directory, name, here.world.disk.find_directory(Path("/var/lib")), name)

    found = spoilt(suspended, spoil)
    assert names(found) == {"LastGoodIsKept"}
    assert len(found) >= 2


# ---- JournalsReplay


def test_a_base_that_does_not_follow_from_the_lines_before_it_is_found():
    def spoil(here):
        def change(lines):
            memory = lines[0]["base"] | {"state": "Failed"}
            lines.append(lines[0] | {"seq": lines[-1]["seq"] + 1, "base": memory})

        rewritten(here, change)

    assert "JournalsReplay" in names(spoilt(suspended, spoil))


def test_a_base_that_forgets_the_last_snapshot_is_found():
    def spoil(here):
        def change(lines):
            memory = lines[0]["base"] | {"state": "Suspended", "lastGood": None}
            lines.append(lines[0] | {"seq": lines[-1]["seq"] + 1, "base": memory})

        rewritten(here, change)

    found = spoilt(suspended, spoil)
    assert any("has forgotten snapshot" in each.message for each in found)


def test_line_numbers_that_do_not_rise_are_found():
    def spoil(here):
        rewritten(here, lambda lines: lines[2].update(seq=1))

    assert names(spoilt(suspended, spoil)) == {"JournalsReplay"}


# ---- ExitCodesAreRight


ONCE = actor("a1", container("one"), container("two", ["sh", "-c", "sleep 0.1; exit 3"]))


@pytest.mark.parametrize(("code", "is_possible"), [(3, True), (137, True), (143, True), (0, False), (255, False)])
def test_an_exit_code_that_a_program_cannot_have_ended_with_is_found(code, is_possible):
    async def ended(here):
        await running(here, ONCE)
        await here.stop()

    def spoil(here):
        rewritten(here, lambda lines: [_set_code(line, code) for line in lines])

    found = {each.message for each in spoilt(ended, spoil) if each.name == "ExitCodesAreRight"}
    assert bool(found) is not is_possible


def _set_code(line, code):
    if line.get("event", {}).get("container") == "two":
        line["event"]["exitCode"] = code


def test_an_exit_code_that_is_not_the_one_in_the_living_sandbox_is_found():
    async def one_lives(here):
        await running(here, ONCE)

    def spoil(here):
        rewritten(here, lambda lines: [_set_code(line, 143) for line in lines])

    assert any("ended with 3, and is told as 143" in each.message for each in spoilt(one_lives, spoil))
