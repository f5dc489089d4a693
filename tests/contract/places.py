"""A real and a simulated place for the same test: furnished from outside, written through the port."""

from __future__ import annotations

import itertools
import os
import socket
import stat
import subprocess
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs

from sim.world import scenery
from sim.world.disk import SimDisk
from sim.world.files import SimFiles
from sim.world.nodes import Special
from supervisor.host.files import HostFiles
from tests.host.directories import tree
from tests.needs import Tool, need

if TYPE_CHECKING:
    from collections.abc import Iterator

    from actors.ports import Files


@attrs.frozen
class RealPlace:
    """Below a temporary directory."""

    base: Path

    @property
    def root(self) -> Path:
        return self.base / "root"

    def files(self, *roots: Path) -> Files:
        return HostFiles(roots=roots or [self.root])

    def put_directory(self, path: Path) -> None:
        if not path.is_dir():
            self.put_directory(path.parent)
            path.mkdir()
            path.chmod(0o755)

    def put_file(self, path: Path, data: bytes = b"") -> None:
        self.put_directory(path.parent)
        path.write_bytes(data)
        path.chmod(0o644)

    def put_symlink(self, path: Path, target: Path | str) -> None:
        path.symlink_to(target)

    def put_fifo(self, path: Path) -> None:
        os.mkfifo(path, 0o600)

    def put_socket(self, path: Path) -> None:
        with socket.socket(socket.AF_UNIX) as sock:
            sock.bind(str(path))
        path.chmod(0o600)

    def put_null(self, path: Path) -> None:
        os.mknod(path, stat.S_IFCHR | 0o600, os.makedev(1, 3))

    def rename(self, old: Path, new: Path) -> None:
        old.rename(new)

    @contextmanager
    def mounted(self, path: Path, *, capacity_bytes: int = 1 << 20) -> Iterator[None]:
        need(Tool.ROOT, Tool.NAMESPACES)
        self.mount(path, capacity_bytes=capacity_bytes)
        try:
            yield
        finally:
            subprocess.run(["umount", path], check=True)

    def mount(self, path: Path, *, capacity_bytes: int = 1 << 20) -> None:
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={capacity_bytes}", "none", path], check=True)

    def make_read_only(self, path: Path) -> None:
        subprocess.run(["mount", "-o", "remount,ro", path], check=True)

    def tree(self) -> dict[str, Any]:
        return tree(self.base)

    def mode(self, path: Path) -> int:
        return stat.S_IMODE(path.lstat().st_mode)


@attrs.frozen
class SimPlace:
    """On a simulated disk."""

    base: Path
    disk: SimDisk

    @classmethod
    def new(cls) -> SimPlace:
        ticks = itertools.count(1)
        place = cls(Path("/pod"), SimDisk(now_ns=lambda: next(ticks)))
        place.put_directory(place.base)
        scenery.put_special(place.disk, Path("/dev/null"), Special.CHARACTER_DEVICE, mode=0o666, device=(1, 3))
        return place

    @property
    def root(self) -> Path:
        return self.base / "root"

    def files(self, *roots: Path) -> Files:
        return SimFiles(self.disk, roots=roots or [self.root], owner=object())

    def put_directory(self, path: Path) -> None:
        scenery.put_directory(self.disk, path)

    def put_file(self, path: Path, data: bytes = b"") -> None:
        scenery.put_file(self.disk, path, data)

    def put_symlink(self, path: Path, target: Path | str) -> None:
        scenery.put_symlink(self.disk, path, str(target))

    def put_fifo(self, path: Path) -> None:
        scenery.put_special(self.disk, path, Special.FIFO)

    def put_socket(self, path: Path) -> None:
        scenery.put_special(self.disk, path, Special.SOCKET)

    def put_null(self, path: Path) -> None:
        scenery.put_special(self.disk, path, Special.CHARACTER_DEVICE, device=(1, 3))

    def rename(self, old: Path, new: Path) -> None:
        find = self.disk.find_directory
        self.disk.rename(find(old.parent), old.name, find(new.parent), new.name)

    @contextmanager
    def mounted(self, path: Path, *, capacity_bytes: int = 1 << 20) -> Iterator[None]:
        self.mount(path, capacity_bytes=capacity_bytes)
        yield
        self.disk.unmount(path)

    def mount(self, path: Path, *, capacity_bytes: int = 1 << 20) -> None:
        self.disk.mount(path, capacity_bytes=capacity_bytes)

    def make_read_only(self, path: Path) -> None:
        self.disk.find_directory(path).volume.is_read_only = True

    def tree(self) -> dict[str, Any]:
        found = scenery.snapshot(self.disk, self.base)
        return {name: f"-> {content}" if isinstance(content, str) else content for name, content in found.items()}

    def mode(self, path: Path) -> int:
        return self.disk.find(path, follow=False).mode


Place = RealPlace | SimPlace
