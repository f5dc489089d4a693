"""What keeping the containers' logs needs of the real world, put together."""

from __future__ import annotations

from contextlib import ExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Final

import structlog

from statemachine.reasons import Reason
from supervisor.host.line_output import open_line_output
from supervisor.host.log_files import open_log_files
from supervisor.log_hearing import LogWorld
from supervisor.settings import ContainerOutput

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from supervisor.settings import Settings

_STDOUT: Final = 1

_log = structlog.get_logger("greenroom.logs")


@asynccontextmanager
async def open_log_world(settings: Settings) -> AsyncIterator[LogWorld]:
    """Below the state directory; lines are told on our stdout where that is wanted, and is there."""
    roots = (settings.state_dir,)
    with ExitStack() as opened:
        output = None
        if settings.container_output is ContainerOutput.STDOUT:
            try:
                output = opened.enter_context(open_line_output(_STDOUT))
            except OSError as error:
                message = f"containers' lines are not told: {error.strerror or error}"
                _log.error("unwritten", reason=str(Reason.OUTPUT_UNWRITABLE), subject="stdout", message=message)
        async with open_log_files(roots=roots) as files:
            yield LogWorld(files=files, output=output)
