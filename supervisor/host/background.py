"""Tasks that serve a block of code and end with it."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import anyio

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from anyio.abc import TaskGroup


@asynccontextmanager
async def open_background() -> AsyncIterator[TaskGroup]:
    """A task group for the tasks that serve the body: they are cancelled when it ends, however it ends.

    An exception of the body comes out as it was raised. A plain task group would wrap it in an ExceptionGroup, and who
    opens a port would have to know that there are tasks inside. Exceptions of the tasks themselves are bugs of ours and
    do come out as a group.
    """
    failure: Exception | None = None
    try:
        async with anyio.create_task_group() as group:
            try:
                yield group
            except Exception as error:  # noqa: BLE001  it is raised again, outside the group
                failure = error
            finally:
                group.cancel_scope.cancel()
    except Exception as consequence:
        if failure is None:
            raise
        # A task that also fails while it is ended must not hide why.
        raise failure from consequence
    if failure is not None:
        raise failure
