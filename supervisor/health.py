"""Whether the worker is alive, and whether it is ready: two questions that a probe asks, each with its reasons.

Alive is a worker whose loop turns, which the answer itself shows, and none of whose parts has ended that should go on.
It stays so while it takes over what an earlier life left, while actors start or are saved, and while it drains: to kill
it then would cost actors their memory. Ready is one that takes on work: it has recovered, was not asked to end, and
nothing is known that would make every start fail. What is known is looked at when somebody asks; nothing is polled.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import anyio

from statemachine.problem import Problem, Step
from statemachine.reasons import Reason
from supervisor.directory_intake import DIRECTORY
from supervisor.refusals import draining

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from supervisor.shutdown import Shutdown
    from supervisor.worker import Worker

CONTROL: Final = "control"
INTAKE: Final = "intake"


class Health:
    """What is known of a worker's health.

    Args:
        shutdown: whether its end was asked for.

    Attributes:
        worker: it, once there is one.
    """

    def __init__(self, shutdown: Shutdown) -> None:
        self.worker: Worker | None = None
        self._shutdown = shutdown
        self._takes_work = self._has_taken_work = False
        self._gone: dict[str, None] = {}

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        """The body is a part of the worker that goes on until it is cancelled; any other end of it is no health."""
        self._gone.pop(name, None)
        try:
            yield
        except anyio.get_cancelled_exc_class():
            raise
        except BaseException:
            self._gone[name] = None
            raise
        self._gone[name] = None

    async def run(self, name: str, part: Callable[[], Awaitable[object]]) -> None:
        """Run a part."""
        with self.part(name):
            await part()

    @contextmanager
    def taking_work(self) -> Iterator[None]:
        """While the body lasts, work is taken on; before it an earlier life's is taken over, after it all is ended."""
        self._takes_work = self._has_taken_work = True
        try:
            yield
        finally:
            self._takes_work = False

    def ailments(self) -> tuple[Problem, ...]:
        """Why it is not alive any more; none when it is."""
        return tuple(_has_ended(name) for name in self._gone)

    def obstacles(self) -> tuple[Problem, ...]:
        """Why it is not ready; none when it is."""
        if self._shutdown.is_asked:
            return (draining(),)
        if self._has_taken_work and not self._takes_work:
            return self.ailments() or (_leaving(),)
        if self.worker is None or not self._takes_work:
            return (_starting(),)
        return (*self.ailments(), *self.worker.refused.get(DIRECTORY, ()), *self.worker.gpus.problems())


def _has_ended(name: str) -> Problem:
    message = f"the worker's part {name} has ended, and nobody asked for it"
    return Problem(step=Step.SUPERVISE, reason=Reason.INTERNAL, subject=name, message=message)


def _starting() -> Problem:
    message = "the worker takes over what an earlier life of it left, and takes no work yet"
    return Problem(step=Step.RECOVER, reason=Reason.WORKER_STARTING, subject="worker", message=message)


def _leaving() -> Problem:
    message = "the worker ends, and takes no work any more"
    return Problem(step=Step.SUPERVISE, reason=Reason.WORKER_DRAINING, subject="worker", message=message)
