"""A keeper of logs on real files, for tests that write as containers do."""

import json
import os
from contextlib import asynccontextmanager

import anyio

from actors.layout import StateDir
from statemachine.states import State
from supervisor import container_logs
from supervisor.container_logs import ContainerLogs
from supervisor.host.log_files import open_log_files
from supervisor.log_keeping import LogKeeper
from tests.actors.assignments import admitted, document

BOUND_S = 90.0
FILE_BYTES = 1 << 16


class FakeOutput:
    """Takes lines while it is open."""

    def __init__(self):
        self.taken = bytearray()
        self._lines = []
        self._read_bytes = 0
        self.is_open = anyio.Event()
        self.is_open.set()
        self.error = None
        self._more = anyio.Event()

    async def write(self, lines):
        await self.is_open.wait()
        await anyio.lowlevel.checkpoint()
        if self.error is not None:
            raise self.error
        self.taken += lines
        self._more.set()
        self._more = anyio.Event()

    @property
    def lines(self):
        """All of them; each is read once, however often it is asked for."""
        assert self.taken.endswith(b"\n") or not self.taken
        self._lines += map(json.loads, self.taken[self._read_bytes :].splitlines())
        self._read_bytes = len(self.taken)
        return self._lines

    async def until(self, condition):
        """Wait until so much was taken; returns the lines."""
        while not condition(self.lines):
            await self._more.wait()
        return self.lines


class Bench:
    """A keeper on real files, and two containers of one actor that write into them."""

    def __init__(self, root, group, files, **options):
        self.state_dir, self.files = StateDir(root), files
        self.output = FakeOutput()
        self.logs = ContainerLogs(files, self.state_dir, FILE_BYTES)
        self.keeper = LogKeeper(
            logs=self.logs,
            log_files=files,
            scope=group,
            directory_of=lambda uid: self.state_dir.actor(uid).logs,
            now_s=lambda: 0.0,
            **{"output": self.output, **options},
        )
        self.assignments = {}

    def assignment(self, uid="u1", generation=1):
        if uid not in self.assignments:
            containers = [{"name": name, "rootfs": "rootfs", "command": ["/bin/app"]} for name in ("main", "side")]
            about = {"uid": uid, "name": f"{uid}-name", "namespace": "team-a", "generation": generation}
            content = document(metadata=about, spec__containers=containers)
            self.state_dir.actor(uid).logs.mkdir(parents=True)
            self.assignments[uid] = admitted(content)
        return self.assignments[uid]

    def settle(self, state=State.RUNNING, uid="u1"):
        self.keeper.settle(self.assignment(uid), state)

    def write(self, data, container="main", uid="u1"):
        """In one write, as a container's."""
        fd = os.open(self.path(container, uid), os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        try:
            assert os.write(fd, data) == len(data)
        finally:
            os.close(fd)

    def path(self, container="main", uid="u1"):
        return self.state_dir.actor(uid).log(container)

    def size(self, container="main"):
        younger = self.path(container)
        paths = [younger, younger.with_name(younger.name + container_logs.OLDER)]
        return sum(path.stat().st_size for path in paths if path.exists())

    def messages(self, container="main", uid="u1"):
        return [
            line["message"]
            for line in self.output.lines
            if line["labels"]["ate.dev/container_name"] == container and line["labels"]["ate.dev/actor_uid"] == uid
        ]


@asynccontextmanager
async def a_bench(root, **options):
    with anyio.fail_after(BOUND_S):
        async with open_log_files(roots=[root]) as files, anyio.create_task_group() as group:
            yield Bench(root, group, files, **options)
            group.cancel_scope.cancel()
