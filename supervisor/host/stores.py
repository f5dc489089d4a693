"""The real `Stores`: each call in a thread that it may leave behind.

A thread cannot be ended, and what it waits for is a network. So who is cancelled, or whose deadline has passed, leaves;
the thread notices with its next piece, and at the latest when the request stands still for too long. The port waits for
all of them when it is closed.
"""

from __future__ import annotations

import errno
import threading
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final, TypeVar

import anyio
from anyio import to_thread

from actors.ports import StoreError
from actors.stores.uris import names_of, read_uri
from supervisor.host.local_parts import Caller, GivenUpError, LocalPart
from supervisor.host.objects import Objects
from supervisor.host.obstores import RETRYING_S, STALLED_S, ObjectStores

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping
    from pathlib import Path

    from actors.ports import StoredObject
    from supervisor.host.beneath import Beneath

_CALLS_MAX: Final = 8
_THREADS_MAX: Final = 2 * _CALLS_MAX
"""With those that nobody waits for any more."""
_CLOSING_S: Final = 2 * (STALLED_S + RETRYING_S)

_Result = TypeVar("_Result")


class HostStores:
    """The real `Stores`.

    Args:
        beneath: the directories below which alone a local file is written.
        env: the environment, in which credentials and endpoints are.
    """

    def __init__(self, beneath: Beneath, env: Mapping[str, str]) -> None:
        self._beneath = beneath
        self._env = env
        self._stores = ObjectStores(env)
        self._threads = Threads()

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[None]:
        """The body may use them. On leaving, every thread is waited for; none can wait for long."""
        try:
            yield
        finally:
            self._stores.let_go()
            with anyio.CancelScope(shield=True):
                await self._threads.wait()

    def open(self, uri: str) -> HostStore:
        """The store of a URI; connections to its bucket are kept for whoever opens one there next.

        Raises:
            ValueError: no URI of a store.
        """
        objects = Objects(uri=read_uri(uri), env=self._env, stores=self._stores)
        return HostStore(objects, self._beneath, self._threads)


class HostStore:
    """One real `SnapshotStore`."""

    def __init__(self, objects: Objects, beneath: Beneath, threads: Threads) -> None:
        self._objects = objects
        self._beneath = beneath
        self._threads = threads

    async def put(self, key: str, data: bytes, *, deadline_s: float) -> None:
        """Put a small object, replacing one that is there."""
        await self._call(deadline_s, key, self._objects.put, data)

    async def put_part_of(self, key: str, path: Path, *, offset_bytes: int, size_bytes: int, deadline_s: float) -> str:
        """Put a part of a local file as an object, without holding it in memory; returns the BLAKE3 of what was sent.

        Raises:
            OSError: the file cannot be read, or is shorter; there is no object then.
        """
        part = LocalPart(path=path, offset_bytes=offset_bytes, size_bytes=size_bytes)
        return await self._call(deadline_s, key, self._objects.put_part_of, part)

    async def get(self, key: str, *, limit_bytes: int, deadline_s: float) -> bytes:
        """A small object.

        Raises:
            TooLargeError: larger than the limit.
        """
        return await self._call(deadline_s, key, self._objects.get, limit_bytes)

    async def get_into(self, key: str, path: Path, *, offset_bytes: int, size_bytes: int, deadline_s: float) -> str:
        """Write an object of just this size into a local file at an offset; the file is made when absent.

        Raises:
            OSError: the file cannot be written.
            StoreError: also when the object has another size.
        """
        part = LocalPart(path=path, offset_bytes=offset_bytes, size_bytes=size_bytes)
        return await self._call(deadline_s, key, self._objects.get_into, part, self._beneath)

    async def digest(self, key: str, *, size_bytes: int, deadline_s: float) -> str:
        """The BLAKE3 of an object of just this size.

        Raises:
            StoreError: also when the object has another size.
        """
        return await self._call(deadline_s, key, self._objects.digest, size_bytes)

    async def list(self, prefix: str, *, deadline_s: float) -> tuple[StoredObject, ...]:
        """Every object below these names, by key.

        Raises:
            StoreError: also for more than OBJECTS_MAX.
        """
        if prefix:
            names_of(prefix)
        return await self._bounded(deadline_s, prefix, self._objects.list)

    async def remove(self, key: str, *, deadline_s: float) -> None:
        """Remove an object; one that is absent is no error."""
        await self._call(deadline_s, key, self._objects.remove)

    async def _call(self, deadline_s: float, key: str, act: Callable[..., _Result], *args: object) -> _Result:
        names_of(key)
        return await self._bounded(deadline_s, key, act, *args)

    async def _bounded(self, deadline_s: float, key: str, act: Callable[..., _Result], *args: object) -> _Result:
        try:
            with anyio.fail_after(deadline_s):
                return await self._threads.run(act, key, *args)
        except TimeoutError:
            name = f"{self._objects.uri}/{key}"
            raise StoreError(errno.ETIMEDOUT, f"the store did not answer within {deadline_s:g} s", name) from None


class Threads:
    """The threads of all stores: counted, because some of them nobody waits for."""

    def __init__(self) -> None:
        self._limiter = anyio.CapacityLimiter(_CALLS_MAX)
        self._changed = threading.Condition()
        self._running = 0

    async def run(self, act: Callable[..., _Result], key: str, *args: object) -> _Result:
        """Do something in a thread; who is cancelled leaves it behind.

        Raises:
            StoreError: too many were left behind.
        """
        caller = Caller()
        try:
            return await to_thread.run_sync(
                self._counted, act, caller, key, *args, limiter=self._limiter, abandon_on_cancel=True
            )
        finally:
            if not caller.leave():
                with anyio.CancelScope(shield=True):
                    await to_thread.run_sync(caller.settle)

    async def wait(self) -> None:
        """Wait until none is left."""
        if self._running:
            await to_thread.run_sync(self._wait)

    def _counted(self, act: Callable[..., _Result], caller: Caller, key: str, *args: object) -> _Result:
        with self._changed:
            if self._running >= _THREADS_MAX:
                raise StoreError(errno.EBUSY, f"{self._running} calls to stores hang already")
            self._running += 1
        try:
            return act(caller, key, *args)
        except GivenUpError as error:
            raise StoreError(errno.ECANCELED, "nobody waits for it any more") from error
        finally:
            with self._changed:
                self._running -= 1
                self._changed.notify_all()

    def _wait(self) -> None:
        with self._changed:
            self._changed.wait_for(lambda: not self._running, timeout=_CLOSING_S)
