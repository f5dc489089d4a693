"""What only the real stores have: a directory that others may read, an environment with secrets, threads, obstore."""

from __future__ import annotations

import errno
import os
import stat
import subprocess
import sys
import threading
from pathlib import Path
from typing import Final

import anyio
import pytest

from actors.ports import StoreError
from actors.stores.uris import read_uri
from supervisor.host.local_parts import Caller, GivenUpError
from supervisor.host.obstores import ObjectStores, make_store, said_by
from supervisor.host.stores import Threads
from tests.needs import ROOT
from tests.stores.stands import SOON_S, real

WITHOUT_A_STORE: Final = """
import sys, pathlib, anyio
from actors.stores import find_stored
from supervisor.host.composition import open_host_ports

async def main():
    root = pathlib.Path(sys.argv[1])
    async with open_host_ports(roots=[root]) as ports:
        assert await find_stored(ports.stores, (root / "snapshot").as_uri()) is None
        ports.stores.open("s3://bucket/a")

anyio.run(main)
print(*(name for name in sys.modules if name.partition(".")[0] == "obstore"))
"""


def test_who_has_no_store_does_not_load_obstore(tmp_path):
    argv = [sys.executable, "-c", WITHOUT_A_STORE, str(tmp_path)]
    finished = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=60, check=True)
    assert finished.stdout.strip() == ""


@pytest.fixture
async def on_file(anyio_backend, tmp_path, s3):
    async with real("file", tmp_path) as made:
        yield made


def path_of(stand):
    return Path(stand.uri.removeprefix("file://"))


@pytest.mark.anyio
async def test_what_lies_in_a_directory_is_for_nobody_else(on_file):
    await on_file.put("a1/chunks/c1", b"memory of a sandbox")
    for path in (path_of(on_file), path_of(on_file) / "a1", path_of(on_file) / "a1" / "chunks"):
        assert stat.S_IMODE(path.stat().st_mode) == 0o700


@pytest.mark.anyio
async def test_what_lies_in_a_directory_lasts(on_file, monkeypatch):
    synced = []
    fsync = os.fsync

    def noting(fd):
        synced.append(str(Path(f"/proc/self/fd/{fd}").readlink()))
        fsync(fd)

    monkeypatch.setattr(os, "fsync", noting)
    await on_file.put("a1/chunks/c1", b"x")
    top = str(path_of(on_file))
    assert synced[-2:] == [f"{top}/a1/chunks/c1", f"{top}/a1/chunks"]
    assert set(synced) >= {str(path_of(on_file).parent), top, f"{top}/a1"}


@pytest.mark.anyio
async def test_a_store_that_is_no_directory_is_an_error_of_the_store(on_file):
    path_of(on_file).write_bytes(b"")
    with pytest.raises(StoreError) as caught:
        await on_file.put("a1/chunks/c1", b"x")
    assert caught.value.errno == errno.ENOTDIR
    assert await on_file.keys() == []
    with pytest.raises(FileNotFoundError):
        await on_file.get("a1/chunks/c1")


@pytest.mark.anyio
async def test_an_upload_into_a_directory_that_was_killed_is_not_listed(on_file):
    """What obstore has not renamed yet is called NAME#1 there; tests/stores/test_host.py saw it so in 0.12.1."""
    await on_file.put("a1/chunks/c1", b"x")
    (path_of(on_file) / "a1" / "chunks" / "c2#1").write_bytes(b"half")
    assert await on_file.keys() == ["a1/chunks/c1"]


@pytest.mark.anyio
async def test_memory_is_one_store_with_many_places(anyio_backend, tmp_path):
    async with real("memory", tmp_path) as stand:
        for uri in ("memory://", "memory:///a", "memory://x/a"):
            await stand.stores.open(uri).put("k", uri.encode(), deadline_s=SOON_S)
        assert await stand.stores.open("memory:///a").get("k", limit_bytes=99, deadline_s=SOON_S) == b"memory:///a"
        assert await stand.keys() == ["a/k", "k", "x/a/k"]
    async with real("memory", tmp_path) as stand:
        assert await stand.keys() == []


# ---- what it says


@pytest.mark.parametrize(
    ("text", "env", "said"),
    [
        ("plain", {}, "plain"),
        ("two\n  lines\n\nDebug source:\nSecret { }", {}, "two lines"),
        ("at https://a.blob/c/k?sv=1&sig=abcd in 1ms", {}, "at https://a.blob/c/k"),
        ("PUT http://a/k in 476.649076ms - refused", {}, "PUT http://a/k - refused"),
        ("GET k in 10.2s, after 2 retries, max_retries: 3, retry_timeout: 10s: 503", {}, "GET k: 503"),
        ("written in 2 parts", {}, "written in 2 parts"),
        ("with hunter22 in it", {"AWS_SECRET_ACCESS_KEY": "hunter22"}, "with *** in it"),
        ("with sas-sas in it", {"AZURE_STORAGE_SAS_TOKEN": "sas-sas"}, "with *** in it"),
        ("on 1 and on", {"AWS_USE_TOKEN": "on"}, "on 1 and on"),
        (
            "403: <?xml?><Error><Code>C</Code><Message>M</Message><AWSAccessKeyId>ID</AWSAccessKeyId></Error>",
            {},
            "403: C: M",
        ),
        ("404: <Error><Code>C</Code><Message>M\nRequestId:1\nTime:2</Message></Error>", {}, "404: C: M"),
        ("", {}, "ValueError"),
        ("x" * 5000, {}, "x" * 400),
    ],
)
def test_an_error_is_told_in_one_line_without_secrets(text, env, said):
    assert said_by(ValueError(text), env) == said


def test_without_an_account_there_is_no_azure_store(monkeypatch):
    for name in [name for name in os.environ if name.startswith("AZURE_")]:
        monkeypatch.delenv(name)
    with pytest.raises(StoreError, match="Account must be specified"):
        make_store(read_uri("az://container/a"), {})


@pytest.mark.parametrize("uri", ["gs://bucket/a", "s3://bucket/a", "file:///"])
def test_a_store_is_made_without_reaching_it(uri):
    assert make_store(read_uri(uri), {}) is not None


@pytest.mark.anyio
async def test_a_panic_of_obstore_is_an_error_of_the_store(anyio_backend, on_file, monkeypatch):
    import obstore  # noqa: PLC0415 - only these tests pay for it

    class PanicError(BaseException):
        __module__ = "pyo3_runtime"

    def panics(*_args, **_options):
        raise PanicError("index out of bounds")

    monkeypatch.setattr(obstore, "put", panics)
    with pytest.raises(StoreError, match="obstore broke down: index out of bounds"):
        await on_file.put("a1/chunks/c1", b"x")


# ---- threads


def test_nothing_is_done_for_who_has_left():
    caller = Caller()
    done: list[int] = []
    caller.do(done.append, 1)
    caller.require()
    assert caller.leave()
    with pytest.raises(GivenUpError):
        caller.do(done.append, 2)
    with pytest.raises(GivenUpError):
        caller.require()
    assert done == [1]


@pytest.mark.anyio
async def test_who_leaves_in_the_middle_of_a_write_waits_for_it_and_keeps_nobody_else_waiting(anyio_backend):
    threads, writing, disk, written = Threads(), threading.Event(), threading.Event(), []

    def writes():
        writing.set()
        disk.wait()
        written.append("one")

    def fetches(caller, _key):
        caller.do(writes)
        caller.do(written.append, "two")

    async def leave():
        with anyio.CancelScope() as scope:
            scopes.append(scope)
            await threads.run(fetches, "k")
        assert written == ["one"]

    scopes: list[anyio.CancelScope] = []
    async with anyio.create_task_group() as group:
        group.start_soon(leave)
        await anyio.to_thread.run_sync(writing.wait)
        scopes[0].cancel()
        await anyio.wait_all_tasks_blocked()  # who leaves waits; whoever else there is goes on
        assert written == []
        disk.set()
    await threads.wait()
    assert written == ["one"]


@pytest.mark.anyio
async def test_closing_waits_for_a_thread_that_was_left_behind(anyio_backend):
    threads, begun, release, ended = Threads(), threading.Event(), threading.Event(), threading.Event()

    def hangs(_caller, _key):
        begun.set()
        release.wait()
        ended.set()

    async with anyio.create_task_group() as group:
        group.start_soon(threads.run, hangs, "k")
        await anyio.to_thread.run_sync(begun.wait)
        group.cancel_scope.cancel()
    assert not ended.is_set()
    release.set()
    await threads.wait()
    assert ended.is_set()


def test_all_of_a_bucket_is_reached_over_the_same_connections_and_those_of_few_buckets_are_kept():
    stores = ObjectStores({})
    first = stores.find(read_uri("s3://bucket/a"))
    assert all(stores.find(read_uri(f"s3://bucket/{n}/a")) is first for n in range(20))
    assert stores.find(read_uri("gs://bucket/a")) is not first
    for n in range(20):
        stores.find(read_uri(f"s3://bucket-{n}"))
    assert stores.find(read_uri("s3://bucket/a")) is not first


def test_a_directory_is_a_store_of_its_own_and_memory_is_never_let_go():
    stores = ObjectStores({})
    first, memory = stores.find(read_uri("file:///tmp")), stores.find(read_uri("memory://a"))
    assert stores.find(read_uri("file:///tmp")) is first
    assert stores.find(read_uri("file:///")) is not first
    stores.let_go()
    assert stores.find(read_uri("file:///tmp")) is not first
    assert stores.find(read_uri("memory://b/c")) is memory


# ---- memory

UPLOADING: Final = """
import json, os, sys, threading, pathlib, anyio
from blake3 import blake3
from actors.stores import upload, download
from supervisor.host.beneath import Beneath
from supervisor.host.files import HostFiles
from supervisor.host.stores import HostStores
from tests.stores.stands import Stand

def anonymous():
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("RssAnon:"))

async def main():
    root, uri, size = pathlib.Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    stores, files = HostStores(Beneath([root]), os.environ), HostFiles(roots=[root])
    stand = Stand(kind="s3", files=files, stores=stores, root=root, uri=uri)
    warm = await stand.snapshot({})
    await upload(files, stores, warm, stand.uri_of(warm))
    directory = await stand.snapshot({})
    hasher, block = blake3(), os.urandom(1 << 20)
    with open(directory / "pages.img", "wb") as file:
        for n in range(size >> 20):
            block = n.to_bytes(4, "big") + block[4:]
            file.write(block)
            hasher.update(block)
    document = json.loads((directory / "manifest.json").read_text())
    for each in document["files"]:
        if each["name"] == "pages.img":
            each.update(size=size, blake3=hasher.hexdigest())
    (directory / "manifest.json").write_text(json.dumps(document))
    before, peak, stop = anonymous(), [0], threading.Event()

    def watch():
        while not stop.wait(0.002):
            peak[0] = max(peak[0], anonymous())

    watcher = threading.Thread(target=watch)
    watcher.start()
    stored = await upload(files, stores, directory, stand.uri_of(directory))
    sent = peak[0]
    peak[0] = 0
    await download(files, stores, stored.uri, root / "there")
    stop.set()
    watcher.join()
    print(before, sent, peak[0], anonymous())

anyio.run(main)
"""


@pytest.mark.long
@pytest.mark.parametrize("kind", ["file", "s3"])
def test_a_large_snapshot_is_sent_and_fetched_without_being_held_in_memory(tmp_path, s3, bucket, kind, record_property):
    root = tmp_path / "root"
    root.mkdir()
    uri = f"s3://{bucket}/a" if kind == "s3" else f"file://{tmp_path}/store"
    argv = [sys.executable, "-c", UPLOADING, str(root), uri, str(256 << 20)]
    finished = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=300, check=True)
    before, sending, fetching, after = (int(each) / 1024 for each in finished.stdout.split())
    record_property("mib", f"before {before:.1f}, sending {sending:.1f}, fetching {fetching:.1f}, after {after:.1f}")
    assert sending - before < 24
    assert fetching - before < 24
    assert after - before < 16
