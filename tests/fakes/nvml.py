"""NVML and the keeper of the CDI spec, as a worker's desk knows them: they say what a test lets them say."""

from pathlib import Path

import anyio

from actors.gpu.desk import KeptSpec
from actors.gpu.inventory import Inventory
from actors.gpu.view import SILENT, NvmlAnswers, NvmlFails
from actors.ports import DriverPlaces
from supervisor.gpu_desk import WorkerGpus
from supervisor.spec_keeper import SpecCounts
from supervisor.xid_reports import XidReports
from tests.actors.memory_files import DIRECTORY
from tests.fakes.files import FakeFiles
from tests.gpu.making import spec as a_spec

DRIVER = "580.65.06"
MAJOR = 195


class FakeNvml:
    """What the monitors' facts come to.

    Attributes:
        view: now.
        xids: those that came.
        used_bytes: how much memory of each GPU is in use.
    """

    def __init__(self, view=SILENT):
        self.view = view
        self.xids = XidReports()
        self.replaced = 0
        self.used_bytes: dict[str, int] = {}
        self._stir = anyio.Event()

    def answer(self, *gpus):
        self.say(NvmlAnswers(driver=DRIVER, inventory=Inventory(gpus)))

    def fail(self, why="nvmlInit: NVML_ERROR_DRIVER_NOT_LOADED"):
        self.say(NvmlFails(why=why))

    def say(self, view):
        self.view = view
        self._stir.set()
        self._stir = anyio.Event()

    async def first_word(self, limit_s):
        with anyio.move_on_after(limit_s):
            while self.view is SILENT:
                await self._stir.wait()
        return self.view

    async def changed(self, since=None):
        while self.view == since:
            await self._stir.wait()

    async def run(self):
        await anyio.sleep_forever()


class FakeKeeper:
    """Keeps a spec for whatever is asked.

    Attributes:
        started: for which inventories and drivers it was started.
        asked: likewise for those who waited.
    """

    def __init__(self):
        self.started, self.asked = [], []
        self.counts = SpecCounts()

    def start(self, inventory, driver):
        self.started.append((inventory, driver))

    async def spec(self, inventory, driver):
        self.asked.append((inventory, driver))
        return KeptSpec(
            identity=f"{len(self.asked):016x}",
            path=Path("/spec"),
            spec=a_spec(*(gpu.minor for gpu in inventory.gpus)),
            driver=driver,
            toolkit=None,
            libraries=(),
        )

    async def run(self):
        await anyio.sleep_forever()


def put_nodes(files: FakeFiles, *minors: int) -> None:
    """The device nodes of a pod; of these minors and no others."""
    files.content.setdefault(Path("/dev"), DIRECTORY)
    for path in [path for path in files.content if path.parent == Path("/dev")]:
        del files.content[path], files.devices[path]
    for minor in minors:
        files.put_device(Path(f"/dev/nvidia{minor}"), MAJOR, minor)


def desk_on(files: FakeFiles, nvml: FakeNvml, keeper: FakeKeeper | None = None) -> WorkerGpus:
    """A worker's desk."""
    return WorkerGpus(files=files, places=DriverPlaces(), watch=nvml, keeper=keeper or FakeKeeper(), specs={})
