"""`greenroom snapshots list`, `show`, `verify`: one document or a text, exit codes, the last line of stderr."""

import json

import pytest

from actors.manifest import CHECKPOINT_FILES
from tests.supervisor.snapshots_command.place import ONE, THREE, TWO, last


def test_list_tells_all_of_a_worker_or_those_of_one_actor_oldest_first(place, ran):
    place.snapshot(ONE, minute=9)
    place.snapshot(TWO, minute=3)
    place.snapshot(THREE, "b2")
    (place.state.actor("a1").snapshot("half") / "x").mkdir(parents=True)
    place.state.actor("a1").snapshot("s00000000000000ff").mkdir()  # has no manifest (yet)
    code, out, err = ran("list", "--json")
    assert (code, err) == (0, "")
    found = json.loads(out)["snapshots"]
    assert [(each["actor"], each["id"]) for each in found] == [("a1", TWO), ("a1", ONE), ("b2", THREE)]
    size_bytes = sum(len(f"{each} of {TWO}") for each in CHECKPOINT_FILES)
    assert found[0] == {
        "actor": "a1", "id": TWO, "uri": place.state.actor("a1").snapshot(TWO).as_uri(), "generation": 4,
        "createdAt": "2026-11-29T15:03:00.000Z", "scope": "Full", "size_bytes": size_bytes, "error": None,
    }  # fmt: skip
    code, out, _ = ran("list", "b2")
    assert code == 0
    assert [line.split()[:2] for line in out.splitlines()] == [["UID", "ID"], ["b2", THREE]]


@pytest.mark.parametrize(
    ("damage", "reason"), [("cut", "SnapshotCorrupt"), ("newer", "NewerFormat"), ("a directory", "SnapshotMissing")]
)
def test_list_names_what_cannot_be_read_and_goes_on(place, ran, damage, reason):
    place.snapshot(ONE)
    manifest = place.snapshot(TWO) / "manifest.json"
    manifest.unlink()
    if damage == "a directory":
        manifest.mkdir()
    else:
        manifest.write_text({"cut": "{", "newer": '{"v": 2}'}[damage])
    code, out, _ = ran("list", "a1", "--json")
    found = {each["id"]: each["error"] for each in json.loads(out)["snapshots"]}
    assert code == 0
    assert found[ONE] is None
    assert found[TWO]["reason"] == reason
    assert reason in ran("list")[1]
    assert json.loads(ran("prune", "a1", "--keep", 1, "--json")[1])["damaged"] == [TWO]


def test_an_actor_that_nobody_knows_is_told_with_near_ones(place, ran):
    place.snapshot(ONE, "trainer-1")
    place.snapshot(TWO, "logger")
    code, out, err = ran("list", "trainer-2")
    assert (code, out) == (1, "")
    assert last(err).startswith("error: ActorNotFound: ")
    assert "trainer-1" in err
    assert "logger" not in err
    code, out, err = ran("list", "trainer-2", "--json")
    assert json.loads(out)["error"]["reason"] == "ActorNotFound"


def test_where_there_is_no_state_directory_there_is_no_snapshot_and_none_is_made(place, ran):
    assert json.loads(ran("list", "--json")[1]) == {"snapshots": []}
    assert last(ran("prune", "a1", "--keep", 1)[2]).startswith("error: ActorNotFound: ")
    assert not place.state.root.exists()


@pytest.mark.parametrize("by", ["id", "uri"])
def test_show_tells_a_manifest_by_its_id_or_its_uri(place, ran, by):
    directory = place.snapshot(ONE)
    name = ONE if by == "id" else directory.as_uri()
    code, out, err = ran("show", name, "--json")
    assert (code, err) == (0, "")
    assert json.loads(out) == {
        "uri": directory.as_uri(),
        "manifest": json.loads((directory / "manifest.json").read_bytes()),
    }
    code, out, _ = ran("show", name)
    assert code == 0
    assert f"snapshot    {ONE}" in out
    assert "'/bin/app' as 0:0" in out
    assert "pages.img" in out


@pytest.mark.parametrize("command", ["show", "verify"])
def test_an_unknown_id_is_told_with_near_ones(place, ran, command):
    place.snapshot(ONE)
    place.snapshot(TWO)
    code, out, err = ran(command, f"{ONE[:-1]}0")
    assert (code, out) == (1, "")
    assert last(err).startswith("error: SnapshotMissing: there is no snapshot")
    assert ONE in err
    assert json.loads(ran(command, "nonsense", "--json")[1])["error"]["reason"] == "SnapshotMissing"


@pytest.mark.parametrize(
    ("uri", "reason"),
    [
        ("file:///nowhere/at/all", "SnapshotMissing"),
        ("http://x/y", "NotSupported"),
        ("file:relative", "SnapshotMissing"),
    ],
)
def test_a_uri_of_no_snapshot_is_a_reason(ran, uri, reason):
    for command in ("show", "verify"):
        code, out, err = ran(command, uri, "--json")
        assert code == 1
        assert json.loads(out)["error"]["reason"] == reason
        assert last(err).startswith(f"error: {reason}: ")


def test_verify_reads_every_file_and_says_of_each_whether_it_is_right(place, ran):
    directory = place.snapshot(ONE)
    code, out, err = ran("verify", ONE)
    assert (code, err) == (0, "")
    assert out.splitlines()[1:] == ["checkpoint.img: ok", "pages.img: ok", "pages_meta.img: ok"]
    document = json.loads(ran("verify", directory.as_uri(), "--json")[1])
    assert (document["ok"], document["id"], len(document["files"])) == (True, ONE, 3)


@pytest.mark.parametrize("damage", ["flipped", "cut", "missing", "empty"])
def test_verify_names_the_file_that_is_damaged_and_ends_with_1(place, ran, damage):
    pages = place.snapshot(ONE) / "pages.img"
    data = pages.read_bytes()
    match damage:
        case "flipped":
            pages.write_bytes(bytes([data[0] ^ 1]) + data[1:])
        case "cut":
            pages.write_bytes(data[:-1])
        case "empty":
            pages.write_bytes(b"")
        case _:
            pages.unlink()
    code, out, err = ran("verify", ONE)
    assert code == 1
    assert next(line for line in out.splitlines()[1:] if not line.endswith(": ok")).startswith("pages.img: ")
    assert last(err).startswith(f"error: SnapshotCorrupt: snapshot {ONE}: pages.img ")
    code, out, err = ran("verify", ONE, "--json")
    document = json.loads(out)
    assert (code, document["ok"]) == (1, False)
    assert [each["name"] for each in document["files"] if each["fault"]] == ["pages.img"]


def test_snapshots_in_a_store_are_listed_shown_verified_and_checked_likewise(place, ran, stored):
    uri, store = stored
    listed = json.loads(ran("list", "a1", "--store", store, "--json")[1])["snapshots"]
    assert [(each["actor"], each["id"], each["uri"]) for each in listed] == [("a1", ONE, uri)]
    assert json.loads(ran("list", "--store", store, "--json")[1])["snapshots"] == listed
    assert json.loads(ran("show", uri, "--json")[1])["manifest"]["id"] == ONE
    assert ran("verify", uri)[0] == 0
    assert ran("check", uri, "--assignment", place.document, "--runsc", place.runsc)[1] == "restorable here\n"


def test_damage_in_a_store_is_told_by_the_file_that_has_it(place, ran, stored):
    uri, _ = stored
    size = len(f"pages.img of {ONE}")
    chunk = next(
        path for path in (place.root / "store").rglob("*") if path.is_file() and path.stat().st_size == size
        and path.read_bytes().startswith(b"pages.img")
    )  # fmt: skip
    chunk.write_bytes(b"x" * size)
    code, out, err = ran("verify", uri, "--json")
    document = json.loads(out)
    assert (code, document["ok"]) == (1, False)
    (damaged,) = (each for each in document["files"] if each["fault"])
    assert damaged["name"] == "pages.img"
    assert damaged["fault"].startswith("1 of 1 chunks ")
    assert last(err) == f"error: SnapshotCorrupt: snapshot {ONE}: pages.img {damaged['fault']}"


@pytest.mark.parametrize("arguments", [("prune", "a1"), ("prune", "a1", "--keep", "0"), ("check", ONE), ("show",)])
def test_a_wrong_command_line_ends_with_2(ran, arguments):
    assert ran(*arguments)[0] == 2
