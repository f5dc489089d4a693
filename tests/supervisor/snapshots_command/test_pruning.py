"""`greenroom snapshots prune`: never the last good one, nor one that somebody goes back to."""

import fcntl
import json

import pytest

from tests.supervisor.snapshots_command.place import FOUR, ONE, THREE, TWO, last


def test_prune_keeps_the_newest_good_ones_and_says_what_goes(place, ran):
    for minute, name in enumerate((ONE, TWO, THREE)):
        place.snapshot(name, minute=minute)
    code, out, _ = ran("prune", "a1", "--keep", 2, "--dry-run", "--json")
    assert code == 0
    assert json.loads(out) == {
        "actor": "a1", "dryRun": True, "kept": [THREE, TWO], "damaged": [], "removed": [ONE],
    }  # fmt: skip
    assert place.left() == sorted((ONE, TWO, THREE))
    code, out, err = ran("prune", "a1", "--keep", 2)
    assert (code, err) == (0, "")
    assert [line.split(",")[0] for line in out.splitlines()] == [f"{THREE}: kept", f"{TWO}: kept", f"{ONE}: removed"]
    assert place.left() == sorted((TWO, THREE))
    assert ran("prune", "a1", "--keep", 2)[0] == 0
    assert place.left() == sorted((TWO, THREE))


def test_prune_never_removes_the_last_good_one_however_many_damaged_ones_are_newer(place, ran):
    place.snapshot(ONE, minute=1)
    for minute, name in ((2, TWO), (3, THREE)):
        (place.snapshot(name, minute=minute) / "pages.img").write_bytes(b"x")
    document = json.loads(ran("prune", "a1", "--keep", 1, "--json")[1])
    assert document["kept"] == [ONE]
    assert set(document["damaged"]) == {TWO, THREE}
    assert document["removed"] == []
    assert place.left() == sorted((ONE, TWO, THREE))


def test_prune_keeps_what_another_actor_goes_back_to_until_it_is_over(place, ran):
    for minute, name in enumerate((ONE, TWO, THREE)):
        place.snapshot(name, minute=minute)
    place.status("b2", ONE)
    assert json.loads(ran("prune", "a1", "--keep", 1, "--json")[1])["removed"] == [TWO]
    assert place.left() == sorted((ONE, THREE))
    place.status("b2", ONE, state="Terminated")
    assert json.loads(ran("prune", "a1", "--keep", 1, "--json")[1])["removed"] == [ONE]


@pytest.mark.parametrize("has_status", [True, False])
def test_prune_keeps_the_snapshot_that_another_actor_is_assigned_until_it_is_over(place, ran, has_status):
    directories = [place.snapshot(name, minute=minute) for minute, name in enumerate((ONE, TWO, THREE))]
    place.assigned("b2", directories[0].as_uri())
    place.assigned("c3", "s3://bucket/prefix/a1/" + TWO)  # it is fetched again
    if has_status:
        place.status("b2", FOUR)  # its own, of a later suspend
    assert json.loads(ran("prune", "a1", "--keep", 1, "--json")[1])["removed"] == [TWO]
    assert place.left() == sorted((ONE, THREE))
    place.status("b2", FOUR, state="Terminated")
    assert json.loads(ran("prune", "a1", "--keep", 1, "--json")[1])["removed"] == [ONE]


@pytest.mark.parametrize("name", ["status", "assignment"])
@pytest.mark.parametrize("text", ["{", "[]", "{}", "\xff"])
def test_prune_touches_nothing_when_it_cannot_tell_what_is_needed(place, ran, name, text):
    for minute, each in enumerate((ONE, TWO)):
        place.snapshot(each, minute=minute)
    place.status("b2", None)
    getattr(place.state.actor("b2"), name).write_text(text, encoding="latin-1")
    code, _, err = ran("prune", "a1", "--keep", 1)
    assert code == 1
    assert last(err).startswith("error: StateCorrupt: ")
    assert place.left() == sorted((ONE, TWO))


def test_what_is_no_actor_needs_no_snapshot(place, ran):
    for minute, name in enumerate((ONE, TWO)):
        place.snapshot(name, minute=minute)
    (place.state.actors / "note.txt").write_text("x")
    assert json.loads(ran("prune", "a1", "--keep", 1, "--json")[1])["removed"] == [ONE]


def test_prune_is_refused_while_a_worker_holds_the_state_directory_but_may_be_tried_dry(place, ran):
    for minute, name in enumerate((ONE, TWO)):
        place.snapshot(name, minute=minute)
    with place.state.lock.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        code, out, err = ran("prune", "a1", "--keep", 1)
        assert (code, out) == (1, "")
        assert last(err).startswith("error: StateDirInUse: ")
        assert place.left() == sorted((ONE, TWO))
        assert ran("prune", "a1", "--keep", 1, "--dry-run")[0] == 0
    assert ran("prune", "a1", "--keep", 1)[0] == 0
    assert place.left() == [TWO]
