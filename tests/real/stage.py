"""A whole real worker on the test's own event loop, and what a test may ask of it and see of it from outside."""

import contextlib
import os
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import anyio
import attrs
import orjson

from actors.layout import StateDir
from actors.ports import Cgroups, Net
from statemachine.actor import OnDrain
from statemachine.problem import ProblemError
from supervisor.client import call
from supervisor.host.composition import open_host_ports
from supervisor.running import run_worker
from supervisor.settings import Settings
from tests.needs import Tool, find
from tests.real.gates import Gates
from tests.real.onlookers import our_children, pids_below
from tests.real.scenery import goes_on, whole_lines

POLL_S: Final = 0.005
SOON_S: Final = 90.0
"""Far more than anything takes that is asked of a worker here, for machines that do other things too."""


async def eventually(condition: Callable[[], Any], *, within_s: float = SOON_S) -> Any:
    """Look until something outside of this process is so, and return it."""
    with anyio.fail_after(within_s):
        while not (found := condition()):
            await anyio.sleep(POLL_S)
    return found


@attrs.frozen(kw_only=True)
class RealWorker:
    """A worker that is ready."""

    settings: Settings
    net: Net
    gates: Gates

    @property
    def state(self) -> StateDir:
        return StateDir(self.settings.state_dir)

    # ---- asked

    async def ask(self, op: str, **arguments: Any) -> Any:
        """One operation; raises ProblemError when it is refused."""
        return await call(self.net, self.settings.control_socket, op, bound_s=SOON_S, **arguments)

    async def refusal(self, op: str, **arguments: Any) -> str:
        """The reason why an operation is refused."""
        try:
            answer = await self.ask(op, **arguments)
        except ProblemError as error:
            return str(error.problem.reason)
        raise AssertionError(f"{op} was not refused: {answer}")

    async def submit(self, document: dict[str, Any]) -> dict[str, Any]:
        """Hand in an assignment."""
        result: dict[str, Any] = await self.ask("submit", document=orjson.dumps(document).decode(), base="/")
        return result

    async def reach(self, uid: str, state: str, *, within_s: float = SOON_S) -> dict[str, Any]:
        """Wait for a state by the worker's own operation, and return the actor's status."""
        status: dict[str, Any] = await self.ask("wait", uid=uid, state=state, timeout_s=within_s)
        return status

    async def start(self, document: dict[str, Any]) -> dict[str, Any]:
        """Hand in an assignment and wait until its actor is Running."""
        await self.submit(document)
        return await self.reach(document["metadata"]["uid"], "Running")

    async def become(self, uid: str, op: str, state: str) -> dict[str, Any]:
        """Suspend, resume or stop an actor and wait until it is so."""
        await self.ask(op, uid=uid)
        return await self.reach(uid, state)

    async def suspend(self, uid: str) -> dict[str, Any]:
        return await self.become(uid, "suspend", "Suspended")

    async def resume(self, uid: str) -> dict[str, Any]:
        return await self.become(uid, "resume", "Running")

    async def stop(self, uid: str) -> dict[str, Any]:
        return await self.become(uid, "stop", "Terminated")

    async def status(self, uid: str) -> dict[str, Any]:
        status: dict[str, Any] = await self.ask("status", uid=uid)
        return status

    async def status_when(self, uid: str, condition: Callable[[dict[str, Any]], Any]) -> dict[str, Any]:
        """The status as soon as a condition holds of it."""
        with anyio.fail_after(SOON_S):
            while not condition(status := await self.status(uid)):
                await anyio.sleep(POLL_S)
        return status

    # ---- seen

    def lines(self, uid: str, container: str) -> list[str]:
        return whole_lines(self.state.actor(uid).log(container))

    async def counted_on(self, uid: str, container: str, *, by: int = 3) -> list[str]:
        """Wait until a counter has counted on, and return all its lines, which must be whole."""
        before = len(self.lines(uid, container))
        await eventually(lambda: len(self.lines(uid, container)) >= before + by)
        lines = self.lines(uid, container)
        assert goes_on(lines), f"{container} did not count cleanly: {lines}"
        return lines

    def snapshots(self, uid: str) -> list[Path]:
        return sorted(self.state.actor(uid).snapshots.glob("*"))

    def activation(self) -> Path:
        """The directory of the only activation there is."""
        (path,) = self.state.sandboxes.glob("*")
        return path

    def record(self) -> dict[str, Any]:
        """The record of the only activation there is."""
        record: dict[str, Any] = orjson.loads((self.activation() / "sandbox.json").read_bytes())
        return record

    def sandbox_pid(self) -> int:
        """The sandbox of the only activation there is."""
        return int(self.record()["sandbox"]["pid"])

    def left(self) -> list[str]:
        """What is left of any activation: directories and processes."""
        return [*map(str, self.state.sandboxes.glob("*")), *map(str, pids_below(self.state.root))]

    def states(self, uid: str) -> list[str]:
        """The states that an actor came into since its journal begins."""
        lines = map(orjson.loads, self.state.actor(uid).journal.read_bytes().splitlines())
        return [line["to"] for line in lines if "to" in line]


def settings_in(directory: Path, **more: Any) -> Settings:
    """Settings of a worker that lives below a directory."""
    found = find(Tool.RUNSC)
    assert found is not None
    given = {"assignments": None, "runsc": Path(found), "drain_timeout_s": 60.0, "on_drain": OnDrain.STOP, **more}
    return Settings(state_dir=directory / "state", run_dir=directory / "run", **given)


@asynccontextmanager
async def open_worker(
    directory: Path, *, gates: Gates | None = None, cgroups: Cgroups | None = None, **more: Any
) -> AsyncIterator[RealWorker]:
    """Run a worker below a directory while the context is open; leaving asks it to end, and it must leave nothing.

    It divides the cgroup that it is in, unless it is given others: this process's own is not to be touched.
    """
    settings = settings_in(directory, **more)
    gates = gates or Gates()
    before = our_children()
    async with open_host_ports(roots=(settings.state_dir, settings.run_dir)) as opened:
        ports = attrs.evolve(opened, cgroups=cgroups or opened.cgroups)
        ended = anyio.Event()

        async def run() -> None:
            try:
                await run_worker(gates.around(ports), settings)
            finally:
                ended.set()

        async with anyio.create_task_group() as group:
            group.start_soon(run, name="worker")
            worker = RealWorker(settings=settings, net=ports.net, gates=gates)
            try:
                await is_ready(worker, ended)
                yield worker
            finally:
                with anyio.CancelScope(shield=True):
                    for gate in gates.closed.values():
                        gate.open()
                    await _end(ended)
                    # The stubs of a sandbox die a moment after it, and nobody takes them once the ports are closed.
                    with contextlib.suppress(TimeoutError):
                        await eventually(lambda: our_children() <= before, within_s=30)
        assert worker.left() == []


async def is_ready(worker: RealWorker, ended: anyio.Event | None = None) -> None:
    """Wait until it answers, or has ended."""
    with anyio.fail_after(SOON_S):
        while ended is None or not ended.is_set():
            try:
                await worker.ask("status")
            except ProblemError:
                await anyio.sleep(POLL_S)
            else:
                return


async def _end(ended: anyio.Event) -> None:
    """Ask as a pod's runtime does, and wait; a signal that comes before its handler stands would end the tests."""
    with anyio.fail_after(2 * SOON_S):
        while not ended.is_set() and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
            await anyio.sleep(POLL_S)
        if not ended.is_set():
            os.kill(os.getpid(), signal.SIGTERM)
        await ended.wait()
