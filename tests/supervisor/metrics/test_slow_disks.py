"""A scrape of a disk that hangs or is broken: what it does not tell is left out, and hides nothing else."""

import threading

import anyio
import pytest

from actors.manifest import CHECKPOINT_FILES, read_manifest
from supervisor.host import reading
from supervisor.host.files import HostFiles
from supervisor.metrics import snapshot_sizes
from tests.supervisor.metrics.scraping import a_watched_stand
from tests.supervisor.storing import suspended

pytestmark = pytest.mark.anyio

SIZE = len(b"page") * len(CHECKPOINT_FILES)


async def test_a_thread_that_hangs_in_the_disk_holds_up_no_scrape(monkeypatch, tmp_path):
    released = threading.Event()
    monkeypatch.setattr(reading, "free_bytes", lambda _path: released.wait(60))
    monkeypatch.setattr("supervisor.metrics.exposing.DISK_S", 0.01)
    real = HostFiles(roots=[tmp_path])
    try:
        async with a_watched_stand() as watched:
            monkeypatch.setattr(watched.stand.files, "free_bytes", real.free_bytes, raising=False)
            with anyio.fail_after(30):
                for _ in range(8):
                    scraped = await watched.scrape()
                    assert scraped.value("greenroom_state_free_bytes") is None
                    assert scraped.value("greenroom_ready") is not None
            assert not released.is_set()
    finally:
        released.set()


async def test_manifests_that_hang_do_not_hide_how_much_room_there_is(monkeypatch):
    async with a_watched_stand() as watched:
        await suspended(watched.stand, 1, "a1", spec__suspend={})

        async def hang(_files, _directory):
            await anyio.sleep_forever()

        monkeypatch.setattr(snapshot_sizes, "read_manifest", hang)
        monkeypatch.setattr("supervisor.metrics.exposing.DISK_S", 0.01)
        with anyio.fail_after(30):  # on a busy machine the disk may be late by itself
            while (scraped := await watched.scrape()).value("greenroom_state_free_bytes") is None:
                pass
    assert scraped.value("greenroom_snapshots") is None


@pytest.mark.parametrize("is_slow", [False, True], ids=["broken", "hanging"])
async def test_manifests_that_cannot_be_read_cost_no_other_its_turn(monkeypatch, is_slow):
    tried = []

    async def read_all_but_two(files, directory):
        tried.append(directory)
        if "a3" in str(directory):
            return await read_manifest(files, directory)
        if is_slow:
            await anyio.sleep_forever()
        raise OSError

    async def scrape_within(watched, disk_s):
        monkeypatch.setattr("supervisor.metrics.exposing.DISK_S", disk_s)
        return await watched.scrape()

    monkeypatch.setattr(snapshot_sizes, "READS_MAX", 1)
    monkeypatch.setattr(snapshot_sizes, "read_manifest", read_all_but_two)
    async with a_watched_stand() as watched:
        for number, uid in enumerate(("a1", "a2", "a3"), 1):
            await suspended(watched.stand, number, uid, spec__suspend={})
        for number in (1, 2):
            while len(tried) < number:  # one may be over before it has come to any
                await scrape_within(watched, 0.01)
        await scrape_within(watched, 30.0)
        assert list(watched.metrics._sizes._known.values()) == [SIZE]
        tried.clear()
        while len(tried) < 2:
            await scrape_within(watched, 0.01)
        assert set(tried) == set(watched.metrics._sizes._failed)  # both are tried again, in turn
        monkeypatch.setattr(snapshot_sizes, "read_manifest", read_manifest)
        monkeypatch.setattr(snapshot_sizes, "READS_MAX", 2)
        healed = await scrape_within(watched, 30.0)
    assert [healed.value("greenroom_snapshots"), healed.value("greenroom_snapshot_bytes")] == [3, 3 * SIZE]
