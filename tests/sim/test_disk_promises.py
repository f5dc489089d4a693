"""The simulated disk, by whatever is done on it: what was promised survives every power failure."""

from __future__ import annotations

import random
from contextlib import suppress
from pathlib import Path
from typing import Final

import attrs
from hypothesis import given, settings
from hypothesis import strategies as st

from sim.world import scenery
from sim.world.disk import SimDisk
from sim.world.files import SimFiles
from sim.world.nodes import Directory, Regular
from tests.sim.disks import ROOT, new_disk, run

NAMES: Final = st.sampled_from(["a", "b", "d/a", "d/b", "e/a"])
CALLS: Final = st.sampled_from(["replace", "append", "append_durably", "remove_file", "replace_for_boot"])


@attrs.define
class Promise:
    """What was acknowledged of one name.

    Attributes:
        floor: the beginning that a file must have at least; None when the name may be absent.
        allowed: everything that may be found there, and of every one of them any beginning that has the floor.
    """

    floor: bytes | None = None
    allowed: list[bytes | None] = attrs.field(factory=lambda: [None])


@settings(max_examples=300, deadline=None)
@given(
    deeds=st.lists(st.tuples(CALLS, NAMES, st.binary(min_size=1, max_size=3)), max_size=12),
    seed=st.integers(0, 2**32),
)
def test_what_was_acknowledged_as_durable_survives(deeds: list[tuple[str, str, bytes]], seed: int):
    disk = new_disk()
    promises: dict[str, Promise] = {}
    now: dict[str, bytes] = {}
    for_boot: dict[str, list[bytes]] = {}

    async def work(files: SimFiles) -> None:
        for directory in ("d", "e"):
            await files.make_directory(ROOT / directory)
        for call, name, data in deeds:
            if call == "replace_for_boot":
                # Of a name of its own, of which nothing is promised: only the others must not suffer.
                for_boot.setdefault(f"{name}.boot", []).append(data)
                await files.replace_for_boot(ROOT / f"{name}.boot", data)
                continue
            promise = promises.setdefault(name, Promise())
            if call == "remove_file":
                await files.remove_file(ROOT / name)
                now.pop(name, None)
                promise.floor = None
                promise.allowed.append(None)
                continue
            await getattr(files, call)(ROOT / name, data)
            now[name] = data if call == "replace" else now.get(name, b"") + data
            if call == "append":
                # The name is durable; of the content nothing but what was before.
                promise.floor = promise.floor or b""
                promise.allowed[:] = [*(found for found in promise.allowed if found is not None), now[name]]
            else:
                promise.floor = now[name]
                promise.allowed[:] = [now[name]]

    run(work, disk)
    disk.lose_power(random.Random(seed).randrange)
    found = {name: each for name, each in scenery.snapshot(disk, ROOT).items() if not name.endswith(".tmp")}
    for name, written in for_boot.items():
        content = found.pop(name, b"")
        assert isinstance(content, bytes)
        assert any(whole.startswith(content) for whole in written), (name, content)
    assert {"d", "e"} <= found.keys()
    for name, promise in promises.items():
        content = found.get(name)
        assert not isinstance(content, str)
        if content is None:
            assert None in promise.allowed, name
            assert promise.floor is None, name
        else:
            assert any(whole is not None and whole.startswith(content) for whole in promise.allowed), (name, content)
            assert content.startswith(promise.floor or b""), (name, content)
    assert found.keys() - {"d", "e"} <= promises.keys()


DIRECTORIES: Final = ("a", "b", "b/x")
PRECIOUS: Final = ("0", "a/1", "b/x/2")
SOMEWHERE: Final = st.sampled_from([*DIRECTORIES, *PRECIOUS, "n", "a/n", "b/n", "n/n"])
MOVES: Final = st.tuples(
    st.sampled_from(["rename", "rename", "rename", "make_directory", "remove_directory", "sync", "create"]),
    SOMEWHERE,
    SOMEWHERE,
)


def disturb(disk: SimDisk, call: str, path: Path, other: Path) -> None:
    """One step of somebody who moves and removes directories, and overwrites no file."""
    directory = disk.find_directory(path.parent)
    if call == "rename":
        target = disk.find_directory(other.parent)
        if not isinstance(target.entries.get(other.name), Regular):
            disk.rename(directory, path.name, target, other.name)
    elif call == "sync":
        disk.sync(disk.find(path))
    elif call == "remove_directory":
        disk.remove_directory(directory, path.name)
    else:
        getattr(disk, call)(directory, path.name, 0o700)


@settings(max_examples=500, deadline=None)
@given(moves=st.lists(MOVES, max_size=25), seeds=st.lists(st.integers(0, 2**32), min_size=1, max_size=3))
def test_what_was_synced_is_never_lost_by_moves_that_were_not(moves: list[tuple[str, str, str]], seeds: list[int]):
    """It is where it was, or where it was moved to, and only there."""
    disk = new_disk()
    for name in DIRECTORIES:
        scenery.put_directory(disk, ROOT / name)
    for name in PRECIOUS:
        scenery.put_file(disk, ROOT / name, name[-1].encode())
    for seed in seeds:
        for call, path, other in moves:
            with suppress(OSError):
                disturb(disk, call, ROOT / path, ROOT / other)
        disk.lose_power(random.Random(seed).randrange)
        check_whole(disk)
        found = scenery.snapshot(disk, ROOT)
        assert sorted(content for content in found.values() if content) == [b"0", b"1", b"2"]
        # A second failure right after takes nothing more.
        disk.lose_power(random.Random(seed + 1).randrange)
        assert scenery.snapshot(disk, ROOT) == found


def check_whole(disk: SimDisk) -> None:
    """Every node once, knowing where it is; the used bytes are those of the files."""
    seen: set[int] = set()
    used_bytes = 0
    pending = [disk.top]
    while pending:
        directory = pending.pop()
        assert directory.entries == directory.synced_entries
        assert not directory.changes
        for name, node in directory.entries.items():
            assert (node.parent, node.name) == (directory, name)
            assert node.inode not in seen
            seen.add(node.inode)
            if isinstance(node, Directory):
                pending.append(node)
            elif isinstance(node, Regular):
                used_bytes += len(node.content)
    assert disk.top.volume.used_bytes == used_bytes
