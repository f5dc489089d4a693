"""The gate that every call of every port of one life of the supervisor passes: counted, written down, and disturbed.

When that life is killed the gate closes: whatever is under way ends without another effect, and whatever still comes
does not begin. Both raise `FencedError`, which nobody but the world catches, so that what is left of the dead life
unwinds and cannot wait for anything.
"""

from __future__ import annotations

import contextlib
import math
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeVar

import attrs
import trio

from sim.faults import DEADLINE, STORE, Cut, Fail, Halfway, Hang, Kill, Lie, Slow
from sim.lies import Untruth, lie_about
from sim.world.cutting import Cuts
from sim.world.errors import error_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from contextlib import AbstractAsyncContextManager

    from sim.planting import Plan, Planted
    from sim.world.files import SimFiles
    from sim.world.processes import SimProcesses
    from sim.world.stores import SimStores

_Result = TypeVar("_Result")

LEFT_BEHIND: Final = frozenset({"free_bytes", "read_from", "stat"})
"""The calls of files that whoever is cancelled does not wait for."""
CHANGING: Final = frozenset(
    {
        ("cgroups", "make"),
        ("cgroups", "remove"),
        ("files", "append"),
        ("files", "append_durably"),
        ("files", "lock"),
        ("files", "make_directory"),
        ("files", "make_links"),
        ("files", "make_tree"),
        ("files", "make_volume"),
        ("files", "remove_file"),
        ("files", "remove_tree"),
        ("files", "rename"),
        ("files", "replace"),
        ("files", "replace_for_boot"),
        ("files", "sync_tree"),
        ("files", "truncate"),
        ("files", "unlock"),
        ("files", "unmount_below"),
        ("files", "unpack_archive"),
        ("files", "write_archive"),
        ("gpus", "monitor"),
        ("net", "close"),
        ("net", "connect_unix"),
        ("net", "listen_tcp"),
        ("net", "listen_unix"),
        ("net", "send"),
        ("processes", "adopt"),
        ("processes", "close"),
        ("processes", "kill_and_wait"),
        ("processes", "reclaim"),
        ("processes", "run"),
        ("processes", "signal"),
        ("processes", "spawn"),
        ("stores", "get_into"),
        ("stores", "put"),
        ("stores", "put_part_of"),
        ("stores", "remove"),
    }
)
"""The calls after which the world may be another: where a crash makes a difference."""


_WOKEN_BY_THEIR_FENCE: Final = frozenset({"files", "net", "processes"})
"""The ports whose calls do not wait any longer when the life is over."""


@attrs.define
class Call:
    """One call of a port. Nobody changes it; a frozen one, of which every call makes one, takes twice as long to make.

    Attributes:
        number: its place among all calls of the run, from 1.
        incarnation: which life of the supervisor called.
        at_s: virtual seconds.
        port: its name in `Ports`.
        method: its name in the port's protocol, or what is done with something that the port gave.
        argument: its main argument: a path, a command line, a pid.
    """

    number: int
    incarnation: int
    at_s: float
    port: str
    method: str
    argument: str

    @property
    def changes(self) -> bool:
        """Whether the world may be another after it."""
        return (self.port, self.method) in CHANGING


class FencedError(BaseException):
    """Raised out of every call of a life that was killed."""


class RunawayError(BaseException):
    """Raised when a run makes more calls than it may: something goes round in circles, and would catch an Exception."""


class Ledger:
    """Every call of a run, in order.

    Args:
        calls_max: how many there may be.
        now_s: virtual seconds.
        keeps: whether they are kept, or only counted.

    Attributes:
        calls: those that were kept.
        count: how many there were.
        now_s: virtual seconds.
        overrun: raised when there were too many; whoever unwinds may have replaced it by something else.
        observe: is told of each before it begins, when everything before it has its effect.
    """

    def __init__(self, *, calls_max: int, now_s: Callable[[], float], keeps: bool = True) -> None:
        self.calls: list[Call] = []
        self.count = 0
        self.overrun: RunawayError | None = None
        self.observe: Callable[[Call], None] | None = None
        self._calls_max = calls_max
        self.now_s = now_s
        self._keeps = keeps

    def enter(self, incarnation: int, port: str, method: str, argument: str) -> Call:
        """Write a call down.

        Raises:
            RunawayError: there have been too many.
        """
        self.count += 1
        if self.count > self._calls_max:
            self.overrun = self.overrun or RunawayError(
                f"more than {self._calls_max} calls; the last one was {port}.{method} {argument}"
            )
            raise self.overrun
        call = Call(self.count, incarnation, self.now_s(), port, method, argument)
        if self._keeps:
            self.calls.append(call)
        if self.observe is not None:
            self.observe(call)
        return call


class Gate:
    """The gate of one life.

    Args:
        incarnation: which life, from 1.
        ledger: where calls are written down.
        plan: the faults.
        kill: ends this life at once.
    """

    def __init__(self, *, incarnation: int, ledger: Ledger, plan: Plan, kill: Callable[[], None]) -> None:
        self._incarnation = incarnation
        self._ledger = ledger
        self._plan = plan
        self._kill = kill
        self._under_way: dict[trio.CancelScope, None] = {}
        self._cuts: Cuts | None = None
        self.is_closed = False

    def close(self) -> None:
        """The life is over: end what is under way. Its ports must have been fenced before."""
        self.is_closed = True
        for scope in self._under_way:
            scope.cancel()

    async def cross(
        self,
        port: str,
        method: str,
        argument: str,
        act: Callable[..., Awaitable[_Result]],
        /,
        *args: Any,
        **options: Any,
    ) -> _Result:
        """Make a call that waits.

        Raises:
            FencedError: the life is over, or ended during the call.
        """
        planted = self._enter(port, method, argument)
        if planted is None and port in _WOKEN_BY_THEIR_FENCE:
            # Nearly all calls. What they wait for ends with the fence, and `die_at_once` follows: they need no scope.
            try:
                return await act(*args, **options)
            finally:
                if self.is_closed:
                    raise FencedError
        scope = trio.CancelScope()
        self._under_way[scope] = None
        try:
            with scope:
                if planted is None:
                    return await act(*args, **options)
                return await self._disturbed(planted, (port, method), act, *args, **options)
        finally:
            del self._under_way[scope]
            if self.is_closed:
                raise FencedError
        raise FencedError  # only `close` cancels the scope

    @contextlib.asynccontextmanager
    async def opened(
        self, port: str, method: str, argument: str, opening: AbstractAsyncContextManager[_Result]
    ) -> AsyncIterator[_Result]:
        """Make a call that opens something, which is closed on leaving; closing passes no gate.

        Raises:
            FencedError: the life is over, or ended during the call.
        """
        async with contextlib.AsyncExitStack() as stack:
            yield await self.cross(port, method, argument, stack.enter_async_context, opening)

    def cross_now(self, port: str, method: str, argument: str, act: Callable[..., _Result], *args: Any) -> _Result:
        """Make a call that does not wait.

        Raises:
            FencedError: the life is over.
        """
        planted = self._enter(port, method, argument)
        if planted is None:
            return act(*args)
        match planted.fault.what:
            case Fail(error):
                raise error_of(error)
            case Kill(after):
                if after:
                    with contextlib.suppress(Exception):  # whatever comes of it, the caller does not live to see it
                        act(*args)
                self._kill()
                raise FencedError
            case Lie(how):
                lie = lie_about((port, method), how)
                answer: _Result = lie.answer(*args) if lie.answer is not None else lie.twist(act(*args))
                return answer
            case what:
                raise ValueError(f"{port}.{method} does not wait, so that it cannot meet {what}")

    def _enter(self, port: str, method: str, argument: str) -> Planted | None:
        if self.is_closed:
            raise FencedError
        call = self._ledger.enter(self._incarnation, port, method, argument)
        if self.is_closed:  # whoever looked on has ended the life
            raise FencedError
        return self._plan.meeting(call) if self._plan.planted else None

    async def _disturbed(
        self,
        planted: Planted,
        name: tuple[str, str],
        act: Callable[..., Awaitable[_Result]],
        /,
        *args: Any,
        **options: Any,
    ) -> _Result:
        match planted.fault.what:
            case Fail(error):
                await trio.lowlevel.checkpoint()
                raise error_of(error)
            case Slow(seconds):
                await self._slow(name, seconds, options.get("deadline_s"))
                return await act(*args, **options)
            case Hang(for_s):
                await self._hang(planted, name, for_s, options.get("deadline_s"))
                return await act(*args, **options)
            case Lie(how):
                answer: _Result = await self._lie(lie_about(name, how), act, *args, **options)
                return answer
            case Kill(after):
                try:
                    if after:
                        with contextlib.suppress(Exception):  # as above
                            await act(*args, **options)
                finally:
                    self._kill()  # also when the call is given up
                raise FencedError
            case Halfway() | Cut():
                return await self._cut(planted, name, act, *args, **options)

    async def _lie(self, lie: Untruth, act: Callable[..., Awaitable[Any]], /, *args: Any, **options: Any) -> Any:
        if lie.answer is None:
            args, options = lie.given(args, options)
            return lie.twist(await act(*args, **options))
        await trio.lowlevel.checkpoint()
        return lie.answer(*args)

    async def _wait(
        self, name: tuple[str, str], wait: Callable[..., Awaitable[object]], *args: Any, limit_s: float = math.inf
    ) -> bool:
        """Wait as this kind of call does; whether it was in vain.

        One of files sits in a thread, which nobody but the end of the life ends; few are left behind there.
        """
        is_waited_for = name[0] == "files" and name[1] not in LEFT_BEHIND
        with trio.CancelScope(shield=is_waited_for, deadline=trio.current_time() + limit_s) as scope:
            self._under_way[scope] = None
            try:
                await wait(*args)
            finally:
                del self._under_way[scope]
        if self.is_closed:
            raise FencedError
        return scope.cancelled_caught

    async def _slow(self, name: tuple[str, str], seconds: float, deadline_s: float | None) -> None:
        """Wait; a store's call ends at its deadline."""
        limit_s = deadline_s if name[0] == "stores" and deadline_s is not None else math.inf
        await self._wait(name, trio.sleep, min(seconds, limit_s))
        if seconds >= limit_s:
            raise error_of(STORE)

    async def _hang(
        self, planted: Planted, name: tuple[str, str], for_s: float | None, deadline_s: float | None
    ) -> None:
        """Wait for the release.

        Raises:
            DeadlineExceededError: it is a command, which is ended at its deadline.
            StoreError: it is a call of a store, as above.
        """
        bounds_s = (math.inf if for_s is None else for_s), (math.inf if deadline_s is None else deadline_s)
        was_in_vain = await self._wait(name, planted.released.wait, limit_s=min(bounds_s))
        if was_in_vain and bounds_s[1] <= bounds_s[0]:
            raise error_of(STORE if name[0] == "stores" else DEADLINE)

    # ---- in the middle

    def cut_with(self, files: SimFiles, stores: SimStores, processes: SimProcesses) -> None:
        """These are the life's; they say when a part of a call is done."""
        self._cuts = Cuts(files, stores, processes, self._kill)
        files.once_dead = die_at_once

    async def _cut(
        self,
        planted: Planted,
        name: tuple[str, str],
        act: Callable[..., Awaitable[_Result]],
        /,
        *args: Any,
        **options: Any,
    ) -> _Result:
        if self._cuts is None:
            raise ValueError(f"a call of {name[0]} has no parts that could be cut")
        return await self._cuts.cut(planted, name[0], act, *args, **options)


async def die_at_once() -> NoReturn:
    """What a call of the dead does that has not to be woken up first."""
    raise FencedError
