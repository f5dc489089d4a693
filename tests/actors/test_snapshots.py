"""Which snapshots there are, which stay, and what a URI may name."""

import errno
from pathlib import Path

import pytest
from blake3 import blake3

from actors.assignment import SnapshotScope
from actors.manifest import (
    CHECKPOINT_FILES,
    MANIFEST_NAME,
    Manifest,
    RuntimeFacts,
    Shape,
    ShapeUser,
    SnapshotContainer,
    SnapshotFile,
    write_manifest,
)
from actors.snapshots import (
    REMOVED_NAME,
    directory_of,
    find_snapshot,
    has_no_manifest,
    is_snapshot_id,
    look_at_snapshot,
    newest,
    prune,
    remove_unproven,
    uri_of,
)
from statemachine.problem import ProblemError, Step
from statemachine.reasons import Reason
from tests.fakes.files import FakeFiles
from tests.fakes.performer import a_snapshot

pytestmark = pytest.mark.anyio

HOME = Path("/state/actors/a1/snapshots")
PAGE = blake3(b"page").hexdigest()
ONE, TWO, THREE, FOUR = (a_snapshot(number).id for number in (1, 2, 3, 4))


def a_manifest(snapshot_id, created_at="2026-11-29T15:00:00.000Z", exited=None, digest=PAGE):
    """Of an actor whose checkpoint files all say the same four bytes."""
    shape = Shape(args=("/bin/app",), user=ShapeUser(uid=0, gid=0), mounts=(), devices=(), capabilities=())
    return Manifest(
        actor="a1", id=snapshot_id, created_at=created_at, generation=1, scope=SnapshotScope.FULL, greenroom="0.1.0",
        boot_id="boot-1", arch="x86_64",
        runsc=RuntimeFacts(version="release-1", sha256="0" * 64, platform="systrap", flags=()),
        driver=None, toolkit=None, volumes=(),
        containers=(SnapshotContainer(name="main", image_digest=None, shape=shape, gpus=(), exited=exited),),
        files=tuple(SnapshotFile(name=name, size_bytes=4, blake3=digest) for name in CHECKPOINT_FILES),
    )  # fmt: skip


async def a_snapshot_in(files, name, *, created_at, home=HOME, snapshot_id=None):
    for each in CHECKPOINT_FILES:
        files.put(home / name / each, b"page")
    await write_manifest(files, home / name, a_manifest(snapshot_id or name, created_at))


async def the_newest(files):
    found = await newest(files, HOME)
    assert found is not None
    return found


async def names(files):
    return set(await files.list_directory(HOME))


async def three(*times):
    files = FakeFiles()
    for name, minute in zip((ONE, TWO, THREE), times or (1, 2, 3), strict=True):
        await a_snapshot_in(files, name, created_at=f"2026-11-29T15:{minute:02d}:00.000Z")
    return files


async def test_the_newest_is_the_one_that_was_made_last():
    assert (await the_newest(await three(2, 3, 1))).id == TWO


async def test_there_is_no_newest_where_there_is_none():
    assert await newest(FakeFiles(), HOME) is None


async def test_a_damaged_manifest_is_passed_over():
    files = await three()
    files.put(HOME / THREE / MANIFEST_NAME, b"{")
    assert (await the_newest(files)).id == TWO


async def test_a_copy_under_another_name_is_no_snapshot_of_ours():
    files = await three()
    await a_snapshot_in(files, FOUR, created_at="2026-11-29T16:00:00Z", snapshot_id=THREE)
    assert (await the_newest(files)).uri == uri_of(HOME / THREE)


async def test_the_proven_one_and_the_newest_of_the_others_stay():
    files = await three()
    await prune(files, HOME, proven=THREE)
    assert await names(files) == {TWO, THREE}


async def test_the_proven_one_stays_when_the_clock_went_back():
    files = await three(8, 9, 1)
    await prune(files, HOME, proven=THREE)
    assert await names(files) == {TWO, THREE}


@pytest.mark.parametrize("manifest", [b'{"v": 2}', b"{", b"\xff", b""])
async def test_what_cannot_be_read_is_never_removed(manifest):
    files = await three()
    files.put(HOME / ONE / MANIFEST_NAME, manifest)
    await prune(files, HOME, proven=THREE)
    assert await names(files) == {ONE, TWO, THREE}


async def test_what_is_not_ours_is_never_removed():
    files = await three()
    for name in ("backup", "lost+found", "s1", "s" + "g" * 16):
        files.put(HOME / name / "file", b"x")
    files.put(HOME / "note.txt", b"x")
    await prune(files, HOME, proven=THREE)
    assert {"backup", "lost+found", "s1", "s" + "g" * 16, "note.txt"} <= await names(files)


async def test_what_never_became_a_snapshot_is_removed():
    files = await three()
    files.put(HOME / FOUR / "pages.img", b"half")
    await remove_unproven(files, HOME)
    assert await names(files) == {ONE, TWO, THREE}


async def test_what_cannot_be_looked_at_may_be_a_snapshot_and_stays():
    files = await three()
    files.put(HOME / FOUR / "pages.img", b"half")
    files.fail("lstat", HOME / FOUR / MANIFEST_NAME, errno.EIO)
    await remove_unproven(files, HOME)
    assert FOUR in await names(files)


async def test_a_snapshot_whose_manifest_was_overlooked_is_not_removed(monkeypatch):
    files = await three()

    async def absent(_path):
        return None

    monkeypatch.setattr(files, "lstat", absent)
    await remove_unproven(files, HOME)
    monkeypatch.undo()
    assert await names(files) == {ONE, TWO, THREE}
    assert (await the_newest(files)).id == THREE


async def test_a_manifest_that_was_overlooked_keeps_its_name_so_that_a_power_cut_costs_nothing(monkeypatch):
    files, renamed = await three(), []

    async def absent(_path):
        return None

    async def rename(source, target):
        renamed.append((source, target))

    monkeypatch.setattr(files, "lstat", absent)
    monkeypatch.setattr(files, "rename", rename)
    await remove_unproven(files, HOME)
    assert renamed == []


async def test_a_directory_that_is_gone_has_no_manifest():
    assert await has_no_manifest(FakeFiles(), HOME / FOUR)


@pytest.mark.parametrize("operation", ["remove_tree", "list_directory"])
async def test_what_cannot_be_removed_is_tried_again_another_time(operation):
    files = await three()
    files.fail(operation, "*", errno.EBUSY)
    await prune(files, HOME, proven=THREE)
    files.failures.clear()
    await prune(files, HOME, proven=THREE)
    assert await names(files) == {TWO, THREE}


async def test_what_is_left_of_a_removal_that_was_cut_off_is_no_snapshot():
    files = await three()
    files.fail("remove_tree", "*", errno.EIO)
    await prune(files, HOME, proven=THREE)
    assert set(files.below(HOME / ONE)) == {*CHECKPOINT_FILES, REMOVED_NAME}


@pytest.mark.parametrize(
    "uri",
    ["file://[", "file:///a%00b", "file:relative", "file:", "file:///a\x00b"],
)
async def test_a_uri_that_names_no_path_is_a_missing_snapshot(uri):
    with pytest.raises(ProblemError) as caught:
        await find_snapshot(FakeFiles(), uri, step=Step.ADMISSION)
    assert caught.value.problem.reason is Reason.SNAPSHOT_MISSING


@pytest.mark.parametrize("uri", ["s3://bucket/x", "http://host/x", "file://elsewhere/x", "x", ""])
async def test_a_uri_of_elsewhere_is_not_supported(uri):
    with pytest.raises(ProblemError) as caught:
        directory_of(uri)
    assert caught.value.problem.reason is Reason.NOT_SUPPORTED


@pytest.mark.parametrize("name", ["plain", "with space", "a?b#c%", "ünïcode", "not-utf8-\udcff", "semi;colon"])
async def test_the_uri_of_a_directory_names_that_directory(name):
    assert directory_of(uri_of(HOME / name)) == HOME / name


@pytest.mark.parametrize("created_at", ["", "yesterday", "0001-01-01T00:00:00", "9999-12-31T23:59:59-23:59"])
async def test_a_manifest_with_an_impossible_time_is_still_a_snapshot(created_at):
    files = FakeFiles()
    await a_snapshot_in(files, ONE, created_at=created_at)
    assert (await look_at_snapshot(files, uri_of(HOME / ONE), step=Step.RECOVER)).id == ONE


async def test_a_snapshot_is_verified_when_it_is_named():
    files = FakeFiles()
    await a_snapshot_in(files, ONE, created_at="")
    assert (await find_snapshot(files, uri_of(HOME / ONE), step=Step.ADMISSION)).id == ONE
    files.put(HOME / ONE / "pages.img", b"PAGE")
    with pytest.raises(ProblemError) as caught:
        await find_snapshot(files, uri_of(HOME / ONE), step=Step.ADMISSION)
    assert caught.value.problem.reason is Reason.SNAPSHOT_CORRUPT
    assert caught.value.problem.step is Step.ADMISSION


def test_the_names_that_we_give_are_known_as_ours():
    assert is_snapshot_id(ONE)
    assert not is_snapshot_id(f"{ONE}0")
    assert not is_snapshot_id("../" + ONE)
