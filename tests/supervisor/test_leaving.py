"""How a worker leaves: all parts of it in the same last seconds, and what became of its actors is told for certain."""

from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import anyio
import pytest
import trio
from trio.testing import MockClock

from statemachine.problem import ProblemError
from statemachine.reasons import Reason
from supervisor import leaving, shutdown
from supervisor.leaving import leaving_nothing
from supervisor.shutdown import LAST_S, Shutdown
from tests.supervisor.stands import STATE

if TYPE_CHECKING:
    from actors.ports import Ports
    from supervisor.worker import Worker

pytestmark = pytest.mark.anyio

PARTS = ("what was not recovered", "the leftovers", "the sweep")
TIME_S = 60.0


class Ending:
    """A worker without actors that leaves; what each part of that does is the test's to say."""

    def __init__(self, monkeypatch, time_s, **acts):
        self.shutdown, self.acts, self.told = Shutdown(time_s), acts, []
        self.worker = SimpleNamespace(
            lives=(),
            has_recovered=False,
            cgroups=SimpleNamespace(sweep=lambda *_: self._do("the sweep")),
        )
        self.files = SimpleNamespace(list_directory=lambda _: self._do("what was not recovered"))
        monkeypatch.setattr(leaving, "end_leftovers", lambda *_: self._do("the leftovers"))

    async def _do(self, part):
        act = self.acts.get(part)
        if act is not None:
            await act()
        return ("a1",)

    async def leave(self):
        """Leave after the signal; returns the reason of the error that it ends with, None when all is well."""
        try:
            ports = SimpleNamespace(files=self.files)
            async with leaving_nothing(cast("Ports", ports), STATE, self.shutdown, self.told.append) as end:
                end.worker = cast("Worker", self.worker)
                self.shutdown.ask()
        except ProblemError as error:
            return error.problem.reason
        return None


def doing(act, *parts):
    return dict.fromkeys(parts or PARTS, act)


async def fault():
    await anyio.lowlevel.checkpoint()
    raise ZeroDivisionError


async def test_all_parts_have_the_same_last_seconds(monkeypatch):
    deadlines = []

    async def look():
        deadlines.append(anyio.current_effective_deadline())

    assert await Ending(monkeypatch, 0.0, **doing(look)).leave() is None
    assert len(deadlines) == len(PARTS)
    assert len(set(deadlines)) == 1


@pytest.mark.parametrize("parts", [PARTS, *((part,) for part in PARTS)])
def test_whatever_hangs_it_is_over_some_seconds_after_the_deadline(monkeypatch, parts):
    """As many as docs/cli.md says, so that a pod has time for its last words."""
    ending = Ending(monkeypatch, 0.0, **doing(trio.sleep_forever, *parts))

    async def measured():
        before = trio.current_time()
        await ending.leave()
        return trio.current_time() - before

    took_s = trio.run(measured, clock=MockClock(autojump_threshold=0))
    assert took_s == pytest.approx(LAST_S)
    assert len(ending.told) == 1


@pytest.mark.parametrize("part", PARTS)
async def test_what_became_of_the_actors_is_told_whatever_hangs(monkeypatch, logs, part):
    monkeypatch.setattr(shutdown, "LAST_S", 0.5)
    ending = Ending(monkeypatch, 0.0, **doing(anyio.sleep_forever, part))
    reason = await ending.leave()
    assert reason == (Reason.STEP_DEADLINE_EXCEEDED if part == "the leftovers" else None)
    (left,) = ending.told
    assert left.not_recovered == (() if part == "what was not recovered" else ("a1",))
    assert "left" in [entry["event"] for entry in logs]


async def test_a_fault_of_the_sweep_is_told_as_one_and_hides_nothing(monkeypatch, logs):
    ending = Ending(monkeypatch, TIME_S, **doing(fault, "the sweep"))
    assert await ending.leave() is None
    assert len(ending.told) == 1
    assert [(entry["event"], entry.get("reason")) for entry in logs] == [("fault", "Internal"), ("left", None)]


async def test_leftovers_that_fail_and_a_sweep_that_fails_as_well_are_told_and_so_are_the_actors(monkeypatch):
    ending = Ending(monkeypatch, TIME_S, **doing(fault, "the sweep", "the leftovers"))
    with pytest.raises(ZeroDivisionError):
        await ending.leave()
    assert len(ending.told) == 1
