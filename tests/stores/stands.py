"""A store of each kind, and a worker's files beside it, for the same test."""

from __future__ import annotations

import json
import os
import urllib.request
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import attrs
from blake3 import blake3

from actors.assignment import SnapshotScope
from actors.manifest import Manifest, RuntimeFacts, SnapshotFile, write_manifest
from actors.stores import snapshot_uri
from sim.world.beneath import SimBeneath
from sim.world.disk import SimDisk
from sim.world.files import SimFiles
from sim.world.scenery import put_directory
from sim.world.stores import SimObjects, SimStores
from supervisor.host.beneath import Beneath
from supervisor.host.files import HostFiles
from supervisor.host.stores import HostStores

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from actors.ports import Files, SnapshotStore, Stores

SOON_S: Final = 90.0
UID: Final = "a1"
CHUNK_BYTES: Final = 1000
KINDS: Final = ("simulated", "memory", "file", "s3")
DIGEST: Final = "0123456789abcdef" * 4


@attrs.define
class Stand:
    """Files and stores, and a place for a test in both.

    Attributes:
        kind: of the store.
        files: the worker's.
        stores: the port.
        root: the directory below which files may be written.
        uri: of a store that is empty.
        others: how often a snapshot was made.
    """

    kind: str
    files: Files
    stores: Stores
    root: Path
    uri: str
    made: int = 0

    @property
    def store(self) -> SnapshotStore:
        return self.stores.open(self.uri)

    @property
    def actor_uri(self) -> str:
        return f"{self.uri}/{UID}"

    async def objects(self) -> dict[str, bytes]:
        """All that is in the store."""
        listed = await self.store.list("", deadline_s=SOON_S)
        return {each.key: await self.get(each.key) for each in listed}

    async def keys(self) -> list[str]:
        return [each.key for each in await self.store.list("", deadline_s=SOON_S)]

    async def get(self, key: str) -> bytes:
        return await self.store.get(key, limit_bytes=1 << 30, deadline_s=SOON_S)

    async def put(self, key: str, data: bytes) -> None:
        """What somebody else writes there."""
        await self.store.put(key, data, deadline_s=SOON_S)

    async def remove(self, key: str) -> None:
        await self.store.remove(key, deadline_s=SOON_S)

    async def snapshot(self, content: Mapping[str, bytes], *, created_at: str = "", name: str = "") -> Path:
        """A proven snapshot of the worker; what every one must have is there, small."""
        self.made += 1
        name = name or f"s{self.made:016x}"
        directory = self.root / "snapshots" / name
        await self.files.make_directory(directory)
        whole = {"checkpoint.img": b"image", "pages_meta.img": b"meta", "pages.img": b"pages", **content}
        for each, data in whole.items():
            await self.files.replace(directory / each, data)
        created_at = created_at or f"2026-11-29T15:00:{self.made:02}.000Z"
        await write_manifest(self.files, directory, manifest_of(name, whole, created_at))
        return directory

    def uri_of(self, directory: Path) -> str:
        return snapshot_uri(self.uri, UID, directory.name)

    async def content(self, directory: Path) -> dict[str, bytes]:
        """Every file in a directory."""
        names = await self.files.list_directory(directory)
        return {name: await self.files.read(directory / name, limit_bytes=1 << 30) for name in names}


def manifest_of(name: str, content: Mapping[str, bytes], created_at: str, *, actor: str = UID) -> Manifest:
    return Manifest(
        actor=actor,
        id=name,
        created_at=created_at,
        generation=1,
        scope=SnapshotScope.FULL,
        greenroom="0.1.0",
        boot_id="b",
        arch="x86_64",
        runsc=RuntimeFacts(version="v", sha256=DIGEST, platform="systrap", flags=()),
        driver=None,
        toolkit=None,
        containers=(),
        volumes=(),
        files=tuple(
            SnapshotFile(name=each, size_bytes=len(data), blake3=blake3(data).hexdigest())
            for each, data in content.items()
        ),
    )


@attrs.frozen
class S3:
    """The server of this run, and its faults."""

    endpoint: str

    @property
    def env(self) -> dict[str, str]:
        return {
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_ACCESS_KEY_ID": "AKIATHEKEYSID",
            "AWS_SECRET_ACCESS_KEY": "the-secret-itself",
            "AWS_REGION": "us-east-1",
        }

    def ask(self, method: str, path: str, data: Any = None) -> Any:
        body = None if data is None else json.dumps(data).encode()
        request = urllib.request.Request(f"{self.endpoint}{path}", data=body, method=method)
        with urllib.request.urlopen(request, timeout=SOON_S) as answer:
            said = answer.read()
        return json.loads(said) if said.startswith(b"{") else None

    def make_bucket(self, name: str) -> None:
        self.ask("PUT", f"/{name}")

    def plan(self, what: str, *, method: str = "PUT", path: str = "", times: int | None = None) -> None:
        self.ask("POST", "/-/faults", [{"what": what, "method": method, "path": path, "times": times}])

    def clear(self) -> None:
        self.ask("POST", "/-/clear", [])

    @property
    def fired(self) -> list[int]:
        return [each["fired"] for each in self.ask("GET", "/-/faults")["faults"]]

    @property
    def requests(self) -> list[str]:
        return list(self.ask("GET", "/-/faults")["seen"])


def simulated(at: Any = None) -> Stand:
    disk, root = SimDisk(now_ns=lambda: 0), Path("/state")
    put_directory(disk, root)
    beneath = SimBeneath(disk, [root])
    stores = SimStores(SimObjects(), beneath, at=at)
    return Stand(
        kind="simulated",
        files=SimFiles(disk, roots=[root], owner=disk),
        stores=stores,
        root=root,
        uri="s3://bucket/pre",
    )


@asynccontextmanager
async def real(kind: str, directory: Path, *, bucket: str = "bucket") -> AsyncIterator[Stand]:
    root = directory / "root"
    root.mkdir(exist_ok=True)
    uris = {"memory": "memory://", "file": f"file://{directory}/store", "s3": f"s3://{bucket}/a/b"}
    stores = HostStores(Beneath([root]), os.environ)
    async with stores.opened():
        yield Stand(kind=kind, files=HostFiles(roots=[root]), stores=stores, root=root, uri=uris[kind])
