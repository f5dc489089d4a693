"""What cannot be used is set aside and named, never deleted: whoever wrote it may be able to read it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog

from statemachine.reasons import Reason

if TYPE_CHECKING:
    from pathlib import Path

    from actors.ports import Ports

_log = structlog.get_logger("greenroom.recover")


async def set_aside(ports: Ports, path: Path, *, beside: Path | None = None) -> None:
    """Rename a file to `NAME.aside-<id>`, where it is or beside another one; what cannot be is told."""
    target = beside or path
    aside = target.with_name(f"{target.name}.aside-{ports.wall.fresh_id()}")
    try:
        await ports.files.rename(path, aside)
        _log.warning("set_aside", file=str(path), kept_as=str(aside))
    except FileNotFoundError:
        return
    except OSError as error:
        message = error.strerror or str(error)
        _log.error("unwritten", file=str(path), reason=str(Reason.STATE_UNWRITABLE), message=message)
