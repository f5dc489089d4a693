"""What runsc was given to start: of each container its config.json as it stood then, for those who look afterwards."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any, Final

import attrs
import orjson

from actors.runsc.record import RECORD_NAME

if TYPE_CHECKING:
    from sim.world.runsc.machine import CommandFiles

CONFIG: Final = "/config.json"


@attrs.frozen(kw_only=True)
class Given:
    """One config.json, when runsc read it.

    Attributes:
        activation: the directory, whose last part is its name.
        actor: whose activation it is, as its record said then; None when that could not be read.
        container: the bundle's name.
        config: the document.
    """

    activation: PurePosixPath
    actor: str | None
    container: str
    config: dict[str, Any]


def given(files: CommandFiles, path: str, data: bytes) -> Given | None:
    """What a file is that runsc has read; None for anything but a bundle's document."""
    if not path.endswith(CONFIG):
        return None  # nearly everything that runsc reads
    bundle = PurePosixPath(path).parent
    if bundle.parent.name != "bundles":
        return None
    activation = bundle.parent.parent
    try:
        config = orjson.loads(data)
    except ValueError:
        return None  # runsc refuses it
    return Given(activation=activation, actor=_actor(files, activation), container=bundle.name, config=config)


def _actor(files: CommandFiles, activation: PurePosixPath) -> str | None:
    try:
        record = orjson.loads(files.read(str(activation / RECORD_NAME)))
    except (OSError, ValueError):
        return None
    actor = record.get("actor") if isinstance(record, dict) else None
    return actor if isinstance(actor, str) else None
