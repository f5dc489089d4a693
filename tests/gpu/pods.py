"""A pod with GPUs for tests of what makes specs: a simulated disk, driver and nvidia-ctk, on either event loop.

Nothing of it waits by itself: a run of nvidia-ctk ends at once, or when its `gate` is opened.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import attrs
import pytest

from actors.gpu.generating import Generator
from actors.gpu.host_specs import HostSpecs
from actors.gpu.inventory import Inventory
from actors.gpu.pod_specs import PodSpecs
from actors.ports import PROMPT_S, DeadlineExceededError, DriverPlaces, Exit, Finished, ProcessIdentity
from sim.world import scenery
from sim.world.disk import SimDisk
from sim.world.files import SimFiles
from sim.world.gpu_node import GpuNode
from sim.world.gpus import Driver, Toolkit, some_gpus
from sim.world.nvidia_ctk import Ctk
from sim.world.nvml import NvmlHangs
from statemachine.problem import ProblemError, Step
from supervisor.inbox import ChangeInbox
from tests.actors.scripted_processes import RunningProcesses
from tests.fakes.ports import FakeWall
from tests.gpu.making import inventory_of

CDI = Path("/state/cdi")
DRIVER = "580.65.06"
_SECOND_NS = 1_000_000_000


class CountingFiles(SimFiles):
    """Counts what is looked at, and makes a path fail on demand: (operation, path) -> the error."""

    def __init__(self, disk: SimDisk) -> None:
        super().__init__(disk, roots=[CDI.parent], owner=self)
        self.looks: list[Path] = []
        self.failures: dict[tuple[str, Path], OSError] = {}

    async def stat(self, path):
        self.looks.append(path)
        return await super().stat(path)

    async def stat_each(self, paths):
        self.looks += paths
        return await super().stat_each(paths)

    async def lstat_each(self, paths):
        self.looks += paths
        return await super().lstat_each(paths)

    async def rename(self, source, target):
        self._check("rename", source)
        await super().rename(source, target)

    async def replace(self, path, data):
        self._check("replace", path)
        await super().replace(path, data)

    async def make_directory(self, path):
        self._check("make_directory", path.parent)
        await super().make_directory(path)

    async def remove_tree(self, path):
        self._check("remove_tree", path)
        await super().remove_tree(path)

    def _check(self, operation, path):
        if (operation, path) in self.failures:
            raise self.failures[operation, path]


@attrs.define(slots=False)
class CtkProcesses(RunningProcesses):
    """Runs the simulated nvidia-ctk of a pod.

    Attributes:
        disk, gpus: of the pod.
        ends: how `cdi generate` ends instead: a Finished, or an error that is raised.
        output: what it has written by then, when it ends otherwise; None is nothing.
        gate: when set, a run waits for it.
        argvs, environments, deadlines: of every run of `cdi generate`.
        began: set when one begins.
        versions: how often it was asked for its version.
        cancelled: how many runs were.
        unkillable: those that do not die.
    """

    disk: SimDisk
    gpus: GpuNode
    ends: Any = None
    output: bytes | None = None
    gate: Any = None
    argvs: list[tuple[str, ...]] = attrs.field(factory=list)
    environments: list[dict[str, str]] = attrs.field(factory=list)
    deadlines: list[float] = attrs.field(factory=list)
    versions: int = 0
    cancelled: int = 0
    unkillable: set[ProcessIdentity] = attrs.field(factory=set)

    async def run(self, argv, *, deadline_s, env, **_more):
        await anyio.lowlevel.checkpoint()
        self.gpus.offers(argv[0])
        if argv[1:] == ("--version",):
            self.versions += 1
        else:
            self.argvs.append(tuple(argv))
            self.environments.append(dict(env))
            self.deadlines.append(deadline_s)
            await self._wait()
            if self.output is not None:
                scenery.put_file(self.disk, self.written(-1), self.output)
            if isinstance(self.ends, Exception):
                raise self.ends
            if self.ends is not None:
                return self.ends
        try:
            ended = Ctk(self.disk, self.gpus, env).call(argv[1:])
        except NvmlHangs:
            raise DeadlineExceededError(stderr=b"it hangs\n") from None
        return Finished(exit=Exit(code=ended.code), stdout=ended.stdout, stderr=ended.stderr)

    async def _wait(self):
        try:
            if self.gate is not None:
                await self.gate.wait()
        except BaseException:
            self.cancelled += 1
            raise

    def written(self, run: int) -> Path:
        """Where a run was to write."""
        (word,) = [word for word in self.argvs[run] if word.startswith("--output=")]
        return Path(word.removeprefix("--output="))

    async def kill_and_wait(self, identity, *, deadline_s):
        if identity in self.unkillable:
            raise DeadlineExceededError
        self.running.pop(identity, None)


class PodWatch:
    """Tells what `tell` is told to who watches a directory; `within_s` is what they asked for."""

    def __init__(self) -> None:
        self.within_s: dict[Path, float] = {}
        self._inboxes: dict[Path, ChangeInbox] = {}

    def tell(self, directory: Path, *names: str) -> None:
        self._inboxes[directory].put(names)

    @asynccontextmanager
    async def changes(self, directory: Path, *, within_s: float = PROMPT_S) -> AsyncIterator[ChangeInbox]:
        self.within_s[directory] = within_s
        self._inboxes[directory] = ChangeInbox()
        try:
            yield self._inboxes[directory]
        finally:
            del self._inboxes[directory]


class Pod:
    """The pod, and every port that a maker of specs needs; `as_ports` is none of its business but that of the type."""

    def __init__(self, *minors: int, driver: Any = None, toolkit: Any = None) -> None:
        self.wall = FakeWall()
        self.disk = SimDisk(now_ns=lambda: int(self.wall.time_s * _SECOND_NS))
        gpus = some_gpus(len(minors or (3, 2)), minors=minors or (3, 2))
        driver = driver or Driver()
        self.gpus = GpuNode(self.disk, gpus, driver=driver, toolkit=toolkit or Toolkit())
        self.gpus.boot()
        self.files = CountingFiles(self.disk)
        self.processes = CtkProcesses(self.disk, self.gpus)
        self.watch: Any = PodWatch()
        self.places = DriverPlaces(dev_root=driver.dev_root, proc_root=driver.proc_root, driver_root=driver.root)
        self.pass_s(10)

    @property
    def as_ports(self) -> Any:
        return self

    def pass_s(self, seconds: float) -> None:
        """What happened so far is long ago."""
        self.wall.time_s += seconds

    @property
    def inventory(self) -> Inventory:
        """As NVML and the nodes say."""
        return inventory_of(self.gpus.visible())

    def source(self, **more: Any) -> PodSpecs:
        return PodSpecs(
            files=self.files,
            processes=self.processes,
            wall=self.wall,
            directory=CDI,
            places=self.places,
            **more,
        )

    def host_source(self) -> HostSpecs:
        return HostSpecs(files=self.files, wall=self.wall, places=self.places)

    def generator(self, **more: Any) -> Generator:
        return Generator(
            processes=self.processes, files=self.files, wall=self.wall, directory=CDI, places=self.places, **more
        )

    def specs(self) -> dict[str, Any]:
        """What is below the directory of specs."""
        try:
            return scenery.snapshot(self.disk, CDI)
        except FileNotFoundError:
            return {}


async def made(pod, source=None, last=None, inventory=None, driver=DRIVER):
    """The spec that a source makes for a pod."""
    return await (source or pod.source()).make(inventory or pod.inventory, driver, last)


async def refused(pod, source=None, inventory=None):
    """The problem of a source that makes none."""
    with pytest.raises(ProblemError) as raised:
        await made(pod, source, inventory=inventory)
    assert {problem.step for problem in raised.value.problems} == {Step.GENERATE}
    return raised.value.problem
