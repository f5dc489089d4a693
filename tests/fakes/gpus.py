"""A desk that deals out the GPUs that a test puts into it."""

import attrs

from actors.gpu.inventory import Inventory
from actors.gpu.partition import Pool, admit, grant, release
from actors.ports import DriverPlaces
from statemachine.problem import Problem, ProblemError, Step
from statemachine.reasons import Reason


class FakeDesk:
    """Without anything in it, there is no GPU.

    Attributes:
        gpus: the inventory.
        kept: the spec.
        fails: what is asked -> the problem that it meets.
        story: what was asked, in order.
        computing: the pids on each GPU, one answer after the other; the last one stays.
    """

    def __init__(self, gpus=(), kept=None, places=DriverPlaces()):
        self.gpus, self.kept, self.places = Inventory(gpus), kept, places
        self.fails, self.story, self.pool = {}, [], Pool()
        self.computing: list[dict[str, tuple[int, ...]]] = [{}]

    def _ask(self, what):
        self.story.append(what)
        if what in self.fails:
            raise self.fails[what]

    async def inventory(self):
        self._ask("inventory")
        if not self.gpus.gpus:
            raise ProblemError(_absent(Step.DETECT))
        return self.gpus

    async def spec(self, uid):
        self._ask("spec")
        if self.kept is None:
            raise ProblemError(_absent(Step.GENERATE))
        return self.kept

    async def grant(self, uid, claims):
        self._ask("grant")
        try:
            self.pool = grant(admit(self.pool, self.gpus, uid, claims), self.gpus, uid)
        except ProblemError as error:
            raise ProblemError(*(attrs.evolve(each, step=Step.PARTITION) for each in error.problems)) from error
        return self.grants(uid)

    async def compute_processes(self, uuids):
        self._ask("compute processes")
        told = self.computing.pop(0) if len(self.computing) > 1 else self.computing[0]
        return {uuid: told.get(uuid, ()) for uuid in uuids}

    def grants(self, uid):
        ticket = self.pool.ticket(uid)
        return (ticket.grants or ()) if ticket is not None else ()

    def give_back(self, uid):
        self._ask("give back")
        self.pool = release(self.pool, uid)


def _absent(step):
    message = "this pod has no GPU"
    return Problem(step=step, reason=Reason.GPU_NOT_DETECTED, subject="nvidia.com/gpu", message=message)
