"""The files of a snapshot: proven when saved, verified before they are restored."""

import errno
from pathlib import Path

import anyio
import attrs
import blake3
import pytest

from actors.manifest import SnapshotFile
from actors.proof import prove, verify
from statemachine.problem import ProblemError
from statemachine.reasons import Reason
from tests.actors.memory_files import DIRECTORY, MemoryFiles
from tests.actors.test_manifest import MANIFEST

pytestmark = pytest.mark.anyio

HERE = Path("/s/s1")
CONTENT = {"checkpoint.img": b"state", "pages_meta.img": b"meta", "pages.img": b"pages" * 100}


def saved(**changes):
    content = {**CONTENT, **{name.replace("_img", ".img"): data for name, data in changes.items()}}
    return MemoryFiles({HERE: DIRECTORY, **{HERE / name: data for name, data in content.items() if data is not None}})


def expected(content=CONTENT):
    return tuple(
        SnapshotFile(name=name, size_bytes=len(data), blake3=blake3.blake3(data).hexdigest())
        for name, data in sorted(content.items())
    )


async def refused(act):
    with pytest.raises(ProblemError) as failed:
        await act
    return failed.value.problems


async def test_what_is_proven_is_durable_and_verifies():
    files = saved()
    proven = await prove(files, HERE)
    assert proven == expected()
    assert files.synced == [HERE]
    await verify(files, HERE, attrs.evolve(MANIFEST, volumes=(), files=proven))


async def test_further_files_become_part_of_the_snapshot_and_files_that_come_later_do_not():
    files = saved()
    files.content[HERE / "volumes.tar"] = b""
    proven = await prove(files, HERE)
    assert proven == expected({**CONTENT, "volumes.tar": b""})
    files.content[HERE / "manifest.json"] = files.content[HERE / "note"] = b"x"
    await verify(files, HERE, attrs.evolve(MANIFEST, volumes=(), files=proven))


async def test_syncing_and_hashing_overlap():
    files, seen = saved(), []
    both = anyio.Event()

    async def sync_tree(_path):
        seen.append("sync begins")
        await both.wait()
        seen.append("sync ends")

    async def digest(path):
        both.set()
        seen.append("hash")
        return blake3.blake3(CONTENT[path.name]).hexdigest()

    files.sync_tree, files.digest = sync_tree, digest
    with anyio.fail_after(60):
        await prove(files, HERE)
    assert set(seen) == {"sync begins", "hash", "sync ends"}


@pytest.mark.parametrize(
    ("files", "says"),
    [
        (saved(pages_img=None), "pages.img is missing"),
        (saved(pages_img=b""), "pages.img is empty"),
        (saved(folder=DIRECTORY), "'folder' is no file"),
        (MemoryFiles({HERE: DIRECTORY, HERE / "manifest.json": b"{}"}), "'manifest.json' is no file"),
        (MemoryFiles({HERE: DIRECTORY}), "checkpoint.img is missing"),
    ],
)
async def test_a_checkpoint_without_all_its_files_is_runscs_failure(files, says):
    [problem] = await refused(prove(files, HERE))
    assert problem.reason is Reason.RUNTIME_FAILED
    assert says in problem.message


@pytest.mark.parametrize(
    ("operation", "path", "number", "reason"),
    [
        ("sync_tree", HERE, errno.ENOSPC, Reason.INSUFFICIENT_DISK),
        ("sync_tree", HERE, errno.EDQUOT, Reason.INSUFFICIENT_DISK),
        ("sync_tree", HERE, errno.EIO, Reason.STATE_UNWRITABLE),
        ("digest", HERE / "pages.img", errno.EIO, Reason.STATE_UNWRITABLE),
        ("list_directory", HERE, errno.ENOENT, Reason.STATE_UNWRITABLE),
    ],
)
async def test_files_that_cannot_be_made_durable_are_a_problem(operation, path, number, reason):
    files = saved()
    files.fail(operation, path, number)
    [problem] = await refused(prove(files, HERE))
    assert problem.reason is reason


@pytest.mark.parametrize(
    ("files", "says"),
    [
        (saved(pages_img=None), "pages.img is missing"),
        (saved(pages_img=b""), "pages.img has 0 bytes, the manifest says 500"),
        (saved(pages_img=b"pageZ" * 100), "pages.img has BLAKE3"),
        (saved(pages_img=DIRECTORY), "pages.img is not a regular file"),
    ],
)
async def test_a_file_that_differs_is_named(files, says):
    [problem] = await refused(verify(files, HERE, attrs.evolve(MANIFEST, volumes=(), files=expected())))
    assert (problem.reason, problem.subject) == (Reason.SNAPSHOT_CORRUPT, str(HERE / "pages.img"))
    assert problem.message.startswith(f"snapshot {HERE.name}: {says}")


async def test_a_file_that_no_full_snapshot_is_without_is_missing_though_the_manifest_does_not_name_it():
    some = tuple(file for file in expected() if file.name != "pages.img")
    [problem] = await refused(verify(saved(), HERE, attrs.evolve(MANIFEST, volumes=(), files=some)))
    assert (problem.reason, problem.subject) == (Reason.SNAPSHOT_CORRUPT, str(HERE / "pages.img"))


async def test_every_file_that_differs_is_named_in_the_manifests_order():
    files = saved(pages_img=b"x" * 500, checkpoint_img=b"STATE")
    problems = await refused(verify(files, HERE, attrs.evolve(MANIFEST, volumes=(), files=expected())))
    assert [Path(problem.subject).name for problem in problems] == ["checkpoint.img", "pages.img"]


@pytest.mark.parametrize("operation", ["lstat", "digest"])
async def test_a_file_that_cannot_be_read_cannot_be_believed(operation):
    files = saved()
    files.fail(operation, HERE / "pages.img", errno.EIO)
    [problem] = await refused(verify(files, HERE, attrs.evolve(MANIFEST, volumes=(), files=expected())))
    assert problem.reason is Reason.SNAPSHOT_CORRUPT
