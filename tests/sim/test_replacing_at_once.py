"""Where nobody is told of the parts of a replacement it is done at once: what comes of it is the same in every way."""

import random
from contextlib import suppress

import anyio
import pytest

from sim.world import scenery
from tests.sim.disks import ROOT, new_disk, new_files

NAMES = ("a", "b", "deep/c", "deep/d", "deep/deeper/e")


async def nobody_minds(_point):
    """Be told of every part, which makes the disk go through all of them."""


async def work(files, disk, seed):
    """Do whatever may come before, between and after replacements."""
    choose = random.Random(seed)
    for _ in range(choose.randrange(2, 14)):
        path, other = (ROOT / choose.choice(NAMES) for _ in range(2))
        with suppress(OSError):
            match choose.randrange(8):
                case 0:
                    await files.append(path, b"more")
                case 1:
                    await files.remove_file(path)
                case 2:
                    await files.rename(path, other)
                case 3:
                    await files.make_directory(path.parent)
                case 4:
                    # Made by somebody else, who syncs nothing.
                    holder = disk.find_directory(path.parent.parent)
                    disk.make_directory(holder, path.parent.name, 0o700)
                case _:
                    await files.replace(path, choose.choice((b"", b"text", b"x" * 300)))


def played(seed, at, *, capacity_bytes):
    disk = new_disk()
    disk.top.volume.capacity_bytes = capacity_bytes

    async def go():
        await work(new_files(disk, at), disk, seed)

    anyio.run(go, backend="trio")
    return disk


def sight(disk):
    top = disk.find_directory(ROOT)
    return scenery.snapshot(disk, ROOT), disk.top.volume.used_bytes, list(top.entries), list(top.synced_entries)


@pytest.mark.parametrize("capacity_bytes", [1 << 20, 700])
@pytest.mark.parametrize("seed", range(150))
def test_a_replacement_at_once_leaves_the_same_disk_also_after_a_power_cut(seed, capacity_bytes):
    at_once = played(seed, None, capacity_bytes=capacity_bytes)
    by_parts = played(seed, nobody_minds, capacity_bytes=capacity_bytes)
    assert sight(at_once) == sight(by_parts)
    for disk in (at_once, by_parts):
        disk.lose_power(random.Random(seed).randrange)
    assert sight(at_once) == sight(by_parts)
