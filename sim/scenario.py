"""The stage of a scenario: a world with a supervisor in it, and short words for what is done to both.

    async with stage(world) as here:
        await here.submit(counter())
        await here.reach(State.SUSPENDING)

`reach` asks for what leads to a state and returns in the moment in which the actor has come to it, also where that
lasts only milliseconds.
"""

from __future__ import annotations

import signal
from contextlib import asynccontextmanager
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

import orjson
import trio

from statemachine.problem import ProblemError
from statemachine.states import State
from supervisor import client

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from sim.faults import Fault
    from sim.hearing import Said
    from sim.planting import Planted
    from sim.world.incarnation import Incarnation
    from sim.world.world import World

PATIENCE_S: Final = 1000.0
"""Virtual seconds after which something that a scenario waits for will not come."""
_SUSPEND: Final = ((State.RUNNING, "suspend"),)
WAYS: Final[Mapping[State, tuple[tuple[State, str], ...]]] = MappingProxyType(
    {
        State.SUSPENDING: _SUSPEND,
        State.RELEASING: _SUSPEND,
        State.SUSPENDED: _SUSPEND,
        State.RESTORING: (*_SUSPEND, (State.SUSPENDED, "resume")),
        State.STOPPING: ((State.RUNNING, "stop"),),
        State.TERMINATED: ((State.RUNNING, "stop"),),
    }
)
"""What is asked for, and in which state, to come to a state. The others come by themselves, or because of a fault."""


class NotReachedError(Exception):
    """Raised when an actor does not come to a state."""


class Stage:
    """A world and its supervisor, for one scenario.

    Attributes:
        world: the world.
    """

    def __init__(self, world: World) -> None:
        self.world = world
        self._socket = world.settings.control_socket

    @property
    def worker(self) -> Incarnation:
        """The newest life of the supervisor."""
        return self.world.worker

    # ---- the supervisor

    async def start(self, **settings: Any) -> Incarnation:
        """Start a supervisor and wait until it takes requests, or has ended.

        Args:
            settings: what is different from the world's.
        """
        worker = self.world.start(**settings)

        def is_ready(said: Said) -> bool:
            return said.event == "ready" and said.incarnation == worker.number

        with self.world.hearing.expecting(is_ready) as ready, trio.fail_after(PATIENCE_S):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(_pass_on, worker.ended, ready)
                await ready.wait()
                nursery.cancel_scope.cancel()
        return worker

    def kill(self) -> None:
        """SIGKILL it."""
        self.world.kill()

    async def restart(self, **settings: Any) -> Incarnation:
        """Kill it and start another one on what it left."""
        self.kill()
        return await self.start(**settings)

    async def reboot(self, **settings: Any) -> Incarnation:
        """Cut the power and start a supervisor after it."""
        await self.world.reboot()
        return await self.start(**settings)

    async def drain(self, signum: int = signal.SIGTERM) -> None:
        """Ask it to end, and wait until it has."""
        self.worker.signal(signum)
        with trio.fail_after(PATIENCE_S):
            await self.worker.ended.wait()

    # ---- requests

    async def ask(self, op: str, **arguments: Any) -> Any:
        """One request over the control socket, as any client makes it.

        Raises:
            ProblemError: what the worker refused or failed with.
        """
        return await client.call(self.world.client, self._socket, op, bound_s=PATIENCE_S, **arguments)

    async def submit(self, document: Mapping[str, Any]) -> Any:
        """Submit an assignment; returns at admission."""
        return await self.ask("submit", document=orjson.dumps(document).decode(), base="/")

    async def suspend(self, uid: str = "a1") -> Any:
        """Suspend, and wait for it."""
        return await self._become(uid, "suspend", State.SUSPENDED)

    async def resume(self, uid: str = "a1") -> Any:
        """Resume, and wait for it."""
        return await self._become(uid, "resume", State.RUNNING)

    async def stop(self, uid: str = "a1") -> Any:
        """Stop, and wait for it."""
        return await self._become(uid, "stop", State.TERMINATED)

    async def wait(self, state: State, uid: str = "a1") -> Any:
        """Wait until the worker says that the actor is in a state; returns its status.

        Raises:
            ProblemError: it cannot come.
        """
        return await self.ask("wait", uid=uid, state=str(state), timeout_s=PATIENCE_S)

    async def status(self, uid: str = "a1") -> Any:
        """What the worker says of an actor."""
        return await self.ask("status", uid=uid)

    async def _become(self, uid: str, op: str, state: State) -> Any:
        await self.ask(op, uid=uid)
        return await self.wait(state, uid)

    # ---- states

    def state(self, uid: str = "a1") -> str | None:
        """Where the actor is, as its supervisor last told; None when it never told."""
        return self.world.hearing.states.get(uid)

    async def reach(self, state: State, uid: str = "a1") -> None:
        """Do what leads to a state, and return when the actor has come to it.

        Raises:
            ProblemError: what was asked for was refused.
            NotReachedError: it did not come.
        """
        if self.state(uid) == state:
            return
        refusals: list[ProblemError] = []
        going, patience = trio.CancelScope(), trio.CancelScope()
        # Beside, and not waited for: in the turns that its end takes the actor would go on.
        self.world.beside(self._go, state, uid, refusals, going, patience)
        try:
            with patience:
                await self.until(state, uid)
        finally:
            going.cancel()
        if refusals:
            raise refusals[0]

    async def until(self, state: State, uid: str = "a1") -> None:
        """Wait until the actor comes to a state, or is there; whatever leads to it.

        Raises:
            NotReachedError: it did not come.
        """
        if self.state(uid) == state:
            return

        def is_there(said: Said) -> bool:
            return said.event == "transition" and said.fields["actor"] == uid and said.fields["to"] == state

        with self.world.hearing.expecting(is_there) as come, trio.move_on_after(PATIENCE_S):
            await come.wait()
            return
        moves = [move for move in self.world.hearing.moves if move.actor == uid]
        why = next((f", last problem {move.reason}" for move in reversed(moves) if move.reason), "")
        raise NotReachedError(f"actor {uid} is {self.state(uid)} after {PATIENCE_S:g} s and not {state}{why}")

    async def _go(
        self,
        state: State,
        uid: str,
        refusals: list[ProblemError],
        going: trio.CancelScope,
        patience: trio.CancelScope,
    ) -> None:
        """Ask for what leads to a state, from where the actor is now; a refusal ends the patience."""
        with going:
            try:
                for where, op in WAYS.get(state, ()):
                    await self.until(where, uid)
                    await self.ask(op, uid=uid)
            except NotReachedError:
                return  # whoever waits for what comes after it learns that
            except ProblemError as error:
                refusals.append(error)
                patience.cancel()

    # ---- faults

    def plant(self, fault: Fault) -> Planted:
        """Plan a fault from now on; the answer tells whether it has fired, and releases who hangs by it."""
        return self.world.plan.plant(fault)

    # ---- what there is to see

    def journal(self, uid: str = "a1") -> list[dict[str, Any]]:
        """The actor's journal."""
        return [orjson.loads(line) for line in self.world.read(self.world.state.actor(uid).journal).splitlines()]

    def status_file(self, uid: str = "a1") -> dict[str, Any]:
        """The actor's status.json."""
        document: dict[str, Any] = orjson.loads(self.world.read(self.world.state.actor(uid).status))
        return document

    def output(self, uid: str = "a1", container: str = "main") -> list[str]:
        """What a container has written, in whole lines."""
        try:
            data = self.world.read(self.world.state.actor(uid).log(container))
        except FileNotFoundError:
            return []
        return data.decode().rpartition("\n")[0].splitlines()

    def left(self) -> list[str]:
        """What is there of any activation: processes, then directories."""
        names = self.world.files_below(self.world.state.sandboxes)
        return [*self.world.sandbox_processes(), *(name for name in names if "/" not in name)]


@asynccontextmanager
async def stage(world: World, *, starts: bool = True) -> AsyncIterator[Stage]:
    """Open a world and start a supervisor in it; at the end it is killed.

    Args:
        world: a fresh one.
        starts: whether a supervisor is started.
    """
    async with world.open():
        here = Stage(world)
        if starts:
            await here.start()
        yield here


async def _pass_on(first: trio.Event, second: trio.Event) -> None:
    """Set an event when another one is."""
    await first.wait()
    second.set()
