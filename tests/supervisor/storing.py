"""Actors on fakes that are suspended into real snapshots, a store, and the pauses between two tries."""

import re
from types import SimpleNamespace

import anyio

from actors.manifest import CHECKPOINT_FILES, write_manifest
from actors.snapshots import uri_of
from statemachine import commands as c
from statemachine import events as e
from statemachine.actor import Snapshot
from statemachine.states import State
from supervisor import operations, uploading
from tests.actors.test_snapshots import a_manifest
from tests.supervisor.lives import settled
from tests.supervisor.stands import STATE

STORE = "s3://bucket/snapshots"
TO_STORE = {"spec__suspend": {"uri": STORE}}


def paused(monkeypatch):
    """The pauses between two tries, none of which lasts; a test may let one last by what `lasts` holds."""
    made = SimpleNamespace(all=[], lasts=None)

    async def sleep(delay_s):
        if delay_s:
            made.all.append(delay_s)
        await anyio.lowlevel.checkpoint()
        if delay_s and made.lasts is not None:
            await made.lasts.wait()

    kept = {name: getattr(anyio, name) for name in ("Event", "Semaphore", "current_time")}
    monkeypatch.setattr(uploading, "anyio", SimpleNamespace(sleep=sleep, **kept))
    return made


async def a_snapshot_of(stand, number=1, uid="a1", directory=None):
    """A whole snapshot in the actor's own directory, as the machine remembers it."""
    name = f"s{number:016x}"
    directory = directory or STATE.actor(uid).snapshot(name)
    for each in CHECKPOINT_FILES:
        stand.files.put(directory / each, b"page")
    digest = await stand.files.digest(directory / "pages.img")
    await write_manifest(stand.files, directory, a_manifest(name, digest=digest))
    return Snapshot(id=name, uri=uri_of(directory), created_at=float(number))


async def suspended(stand, number=1, uid="a1", **changes):
    """An actor that was suspended into this snapshot."""
    await stand.running(uid, **{**TO_STORE, **changes})
    return await suspended_again(stand, await a_snapshot_of(stand, number, uid), uid)


async def suspended_again(stand, snapshot, uid="a1"):
    stand.performers[uid].answers[c.SaveSnapshot] = e.SnapshotProven(snapshot=snapshot)
    await operations.suspend(stand.worker, uid)
    await stand.until(State.SUSPENDED, uid=uid)
    return snapshot


async def uploaded(stand):
    """Nothing is on its way any more."""
    await settled()
    with anyio.fail_after(60):
        await stand.worker.uploads.finish()


def stored(stand, uid="a1"):
    """The ids of an actor's snapshots that have a manifest in the store."""
    named = (re.fullmatch(rf"{STORE}/{uid}/(s\w+)/manifest.json", uri) for uri in stand.ports.stores.content)
    return sorted(match[1] for match in named if match)


class Gate:
    """Lets no object be put before it is opened."""

    def __init__(self, stand):
        self.reached, self.opened, self.most, self._now = anyio.Event(), anyio.Event(), 0, 0
        store_class = type(stand.ports.stores.open(STORE))
        self._put, self._class = store_class.put_part_of, store_class

    def close(self, monkeypatch):
        async def put_part_of(store, *values, **named):
            self._now += 1
            self.most = max(self.most, self._now)
            self.reached.set()
            try:
                await self.opened.wait()
                return await self._put(store, *values, **named)
            finally:
                self._now -= 1

        monkeypatch.setattr(self._class, "put_part_of", put_part_of)
        return self
