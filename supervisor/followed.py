"""Which actors were admitted from a followed directory, written down for a later life of the worker.

`actors/<uid>/followed.json`. A file may be removed while nobody is there to see it; its actor is ended by the rule for
every other one. What cannot be written or read ends nobody: it is replaced without a sync.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Final

import orjson

if TYPE_CHECKING:
    from pathlib import Path

    from actors.layout import ActorDir, StateDir
    from actors.ports import Files

FORMAT: Final = 1
LIMIT_BYTES: Final = 1 << 16


async def note_followed(files: Files, actor: ActorDir, directory: Path, *, generation: int) -> None:
    """Write down that this generation came from that directory."""
    document = {"v": FORMAT, "directory": str(directory), "generation": generation}
    with suppress(OSError):
        await files.replace_for_boot(actor.followed, orjson.dumps(document) + b"\n")


async def followed_before(files: Files, state_dir: StateDir, directory: Path) -> dict[str, int]:
    """The uids that an earlier life of the worker admitted from a directory, with the generation."""
    found: dict[str, int] = {}
    with suppress(OSError):
        for uid in await files.list_directory(state_dir.actors):
            generation = await _generation(files, state_dir.actor(uid), directory)
            if generation is not None:
                found[uid] = generation
    return found


async def _generation(files: Files, actor: ActorDir, directory: Path) -> int | None:
    try:
        document = orjson.loads(await files.read(actor.followed, limit_bytes=LIMIT_BYTES))
    except (OSError, ValueError):
        return None
    if not isinstance(document, dict) or document.get("v") != FORMAT or document.get("directory") != str(directory):
        return None
    generation = document.get("generation")
    return generation if type(generation) is int else None
