"""How often logs are looked at: as often for many actors that write without end as for one. In a simulated clock."""

from pathlib import Path

import anyio
import pytest
import trio
from trio.testing import MockClock

from actors.layout import StateDir
from actors.ports import FileKind, FileStat
from statemachine.states import State
from supervisor.container_logs import ContainerLogs
from supervisor.log_files import PACE_S
from supervisor.log_keeping import LogKeeper
from tests.actors.assignments import admitted, document

STATE = StateDir(Path("/state"))
LINE_S = 0.02
FOR_S = 10.0
NAMES = ("main", "side")


class LogsInMemory:
    """Knows at which instants something was asked of it; nothing is ever cut."""

    def __init__(self):
        self.data, self.asked_s = {}, set()
        self._more = anyio.Event()

    def write(self, path, data):
        self.data[path] = self.data.get(path, b"") + data
        self._more.set()
        self._more = anyio.Event()

    def size_bytes(self, path):
        return len(self.data.get(path, b""))

    async def _ask(self):
        self.asked_s.add(anyio.current_time())
        await anyio.lowlevel.checkpoint()

    async def changed(self, directory, sizes):
        while True:
            await self._ask()
            found = {name: self.size_bytes(directory / name) for name in sizes}
            if found != sizes:
                return found
            await self._more.wait()

    async def lstat(self, path):
        await self._ask()
        if path not in self.data:
            return None
        return FileStat(kind=FileKind.REGULAR, size_bytes=self.size_bytes(path), mode=0o600, inode=1, mtime_ns=0)

    async def read_from(self, path, *, offset_bytes, limit_bytes):
        await self._ask()
        return self.data.get(path, b"")[offset_bytes : offset_bytes + limit_bytes]

    async def cut(self, path, *, into, keep_bytes):
        raise AssertionError("nothing grows that large here")


class Output:
    """Knows when each line came."""

    def __init__(self):
        self.told_s = []

    async def write(self, lines):
        await anyio.lowlevel.checkpoint()
        self.told_s += [anyio.current_time()] * lines.count(b"\n")


def an_actor(uid):
    containers = [{"name": name, "rootfs": "rootfs", "command": ["/bin/app"]} for name in NAMES]
    return admitted(document(metadata={"uid": uid, "generation": 1}, spec__containers=containers))


async def written_by(actors):
    """So many actors write a line every 20 ms; the files, and when each line was told."""
    files, output = LogsInMemory(), Output()
    async with anyio.create_task_group() as group:
        keeper = LogKeeper(
            logs=ContainerLogs(files, STATE),
            log_files=files,
            scope=group,
            directory_of=lambda uid: STATE.actor(uid).logs,
            output=output,
            now_s=lambda: 0.0,
        )
        uids = [f"u{number}" for number in range(actors)]
        for uid in uids:
            keeper.settle(an_actor(uid), State.RUNNING)
        await anyio.wait_all_tasks_blocked()
        for _ in range(round(FOR_S / LINE_S)):
            for path in (STATE.actor(uid).log(name) for uid in uids for name in NAMES):
                files.write(path, b"a line\n")
            await anyio.sleep(LINE_S)
        group.cancel_scope.cancel()
    return files, output


@pytest.mark.parametrize("actors", [1, 40])
def test_a_worker_looks_at_the_logs_of_all_actors_at_the_same_beats_and_lines_are_told_by_the_next_one(actors):
    files, output = trio.run(written_by, actors, clock=MockClock(autojump_threshold=0))
    assert len(files.asked_s) <= FOR_S / PACE_S + 1
    lines = round(FOR_S / LINE_S)
    written_s = [number * LINE_S for number in range(lines) for _ in range(actors * len(NAMES))]
    waited_s = [told - written for written, told in zip(written_s, sorted(output.told_s), strict=False)]
    assert len(waited_s) >= actors * len(NAMES) * (lines - PACE_S / LINE_S - 1)
    assert max(waited_s) <= PACE_S
