"""Files: what is read, and what is neither waited for nor taken for a file."""

from __future__ import annotations

import errno
import os
import re
import threading
from pathlib import Path

import anyio
import blake3
import pytest

from actors.ports import FileKind, TooLargeError
from supervisor.host import reading
from supervisor.host.files import HostFiles

pytestmark = pytest.mark.anyio


async def test_a_file_is_read_up_to_its_limit(files: HostFiles, tmp_path: Path):
    path = tmp_path / "it"
    path.write_bytes(b"12345")
    (tmp_path / "link").symlink_to(path)
    assert await files.read(tmp_path / "link", limit_bytes=5) == b"12345"
    with pytest.raises(TooLargeError) as caught:
        await files.read(path, limit_bytes=4)
    assert caught.value.filename == str(path)
    assert await files.read(Path("/proc/sys/kernel/ostype"), limit_bytes=10) == b"Linux\n"


@pytest.mark.parametrize("size", [0, 1, (4 << 20) - 1, 4 << 20, (9 << 20) + 7])
async def test_digests_are_those_of_the_libraries(files: HostFiles, tmp_path: Path, size: int):
    content = os.urandom(1 << 10) * (size // 1024 + 1)
    (tmp_path / "it").write_bytes(content[:size])
    assert await files.digest(tmp_path / "it") == blake3.blake3(content[:size]).hexdigest()
    assert len(await files.sha256(tmp_path / "it")) == 64


HASHING_THREADS = 8
BUFFER_KB = 4096


def _anonymous_kb() -> int:
    found = re.search(r"RssAnon:\s+(\d+)", Path("/proc/self/status").read_text())
    assert found
    return int(found[1])


async def test_a_thread_that_has_hashed_keeps_no_memory_of_it(tmp_path: Path):
    big = tmp_path / "big"
    big.write_bytes(bytes(2 * BUFFER_KB * 1024))
    all_have_hashed = threading.Barrier(HASHING_THREADS + 1)

    def hash_and_stay():
        for _ in range(3):
            reading.sha256(big)
        all_have_hashed.wait(60)  # each has a thread of its own, with its own malloc arena
        all_have_hashed.wait(60)

    before_kb = _anonymous_kb()
    async with anyio.create_task_group() as threads:
        for _ in range(HASHING_THREADS):
            threads.start_soon(anyio.to_thread.run_sync, hash_and_stay)
        await anyio.to_thread.run_sync(all_have_hashed.wait, 60)
        grown_kb = _anonymous_kb() - before_kb
        await anyio.to_thread.run_sync(all_have_hashed.wait, 60)
    assert grown_kb < 2 * BUFFER_KB


async def test_names_are_listed_sorted(files: HostFiles, tmp_path: Path, monkeypatch):
    for name in ("b", "a", ".hidden"):
        (tmp_path / "d" / name).mkdir(parents=True)
    assert await files.list_directory(tmp_path / "d") == (".hidden", "a", "b")
    with pytest.raises(FileNotFoundError):
        await files.list_directory(tmp_path / "absent")
    (tmp_path / "file").touch()
    with pytest.raises(NotADirectoryError):
        await files.list_directory(tmp_path / "file")
    monkeypatch.setattr("supervisor.host.reading._ENTRIES_MAX", 2)
    with pytest.raises(OSError) as caught:
        await files.list_directory(tmp_path / "d")
    assert (caught.value.errno, caught.value.filename) == (errno.EOVERFLOW, str(tmp_path / "d"))


async def test_what_stands_somewhere_is_told(files: HostFiles, tmp_path: Path):
    (tmp_path / "file").write_bytes(b"123")
    (tmp_path / "file").chmod(0o640)
    (tmp_path / "link").symlink_to("file")
    (tmp_path / "dangling").symlink_to("nothing")
    os.mkfifo(tmp_path / "fifo")
    file = await files.stat(tmp_path / "link")
    assert file is not None
    assert (file.kind, file.size_bytes, file.mode, file.device) == (FileKind.REGULAR, 3, 0o640, None)
    assert (file.inode, file.mtime_ns) == ((tmp_path / "file").stat().st_ino, (tmp_path / "file").stat().st_mtime_ns)
    kinds = {
        "link": FileKind.SYMLINK,
        "dangling": FileKind.SYMLINK,
        "fifo": FileKind.OTHER,
        ".": FileKind.DIRECTORY,
        "absent": None,
        "file/below": None,
    }
    for name, kind in kinds.items():
        found = await files.lstat(tmp_path / name)
        assert (found and found.kind) == kind, name
    assert await files.stat(tmp_path / "dangling") is None
    null = await files.stat(Path("/dev/null"))
    assert null is not None
    assert (null.kind, null.device) == (FileKind.CHARACTER_DEVICE, (1, 3))


async def test_free_bytes_are_those_of_the_file_system(files: HostFiles, tmp_path: Path):
    found = os.statvfs(tmp_path)
    assert abs(await files.free_bytes(tmp_path) - found.f_bavail * found.f_frsize) < 1 << 30
