"""Cgroups to test with: a directory with a cgroup's files in it, and a real cgroup that nobody else is in."""

from __future__ import annotations

import errno
import os
import shutil
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

import anyio

from supervisor.host import cgroup_files
from supervisor.host.cgroups import HostCgroups, KernelDirectories
from tests.host.waiting import eventually
from tests.needs import Tool, find

if TYPE_CHECKING:
    from collections.abc import Iterator

OF_EVERY_CGROUP = {
    "cgroup.procs": "",
    "cgroup.events": "populated 0\nfrozen 0\n",
    "cgroup.kill": "",
    "cgroup.subtree_control": "",
    "cpu.stat": "usage_usec 0\nuser_usec 0\nsystem_usec 0\n",
}
OF_A_CONTROLLER = {
    "cpu": {
        "cpu.max": "max 100000\n",
        "cpu.weight": "100\n",
        "cpu.stat": "usage_usec 0\nuser_usec 0\nsystem_usec 0\nnr_periods 0\nnr_throttled 0\nthrottled_usec 0\n",
    },
    "memory": {
        "memory.max": "max\n",
        "memory.oom.group": "0\n",
        "memory.current": "0\n",
        "memory.peak": "0\n",
        "memory.stat": "anon 0\nfile 0\ninactive_file 0\n",
        "memory.events": "low 0\nhigh 0\nmax 0\noom 0\noom_kill 0\noom_group_kill 0\n",
    },
}


class RecordedTree:
    """Directories that get a cgroup's files when they are made, as Linux 6.18 makes them, and nothing that acts."""

    def __init__(self, mount: Path, *, controllers: tuple[str, ...] = ("cpu", "memory")) -> None:
        self.mount, self.controllers = mount, controllers
        self.own = mount / "pod"
        self.membership = mount.with_name("self-cgroup")
        self.membership.write_text("0::/pod\n")
        mount.mkdir()
        (mount / "cgroup.controllers").write_text(" ".join(controllers))
        self.make(self.own)

    @property
    def port(self) -> HostCgroups:
        return HostCgroups(mount=self.mount, membership=self.membership, directories=self)

    def make(self, path: Path) -> None:
        path.mkdir()
        files = dict(OF_EVERY_CGROUP)
        for controller in self.controllers:
            files |= OF_A_CONTROLLER.get(controller, {})
        files["cgroup.controllers"] = " ".join(self.controllers)
        for name, text in files.items():
            (path / name).write_text(text)

    def remove(self, path: Path) -> None:
        if cgroup_files.is_populated(path) or any(each.is_dir() for each in path.iterdir()):
            raise OSError(errno.EBUSY, "Device or resource busy", str(path))
        shutil.rmtree(path)

    def actor(self, name: str) -> Path:
        return self.own / "actors" / name


@contextmanager
def a_real_cgroup() -> Iterator[Path]:
    """One of the kernel's, below nothing of ours; at the end whatever is in it is ended, and it is removed."""
    mount = find(Tool.CGROUPS)
    assert mount is not None
    cgroup = Path(mount, f"greenroom-test-{uuid4().hex}")
    cgroup.mkdir()
    try:
        yield cgroup
    finally:
        anyio.run(_clear, cgroup)


async def _clear(cgroup: Path) -> None:
    (cgroup / "cgroup.kill").write_text("1")
    await eventually(lambda: not cgroup_files.is_populated(cgroup), within_s=60)
    for directory, _, _ in os.walk(cgroup, topdown=False):
        KernelDirectories().remove(Path(directory))


def port_into(cgroup: Path, membership: Path) -> HostCgroups:
    """The real port, in the belief that this process is in that cgroup, in which nobody is."""
    membership.write_text(f"0::/{cgroup.name}\n")
    return HostCgroups(mount=cgroup.parent, membership=membership)
