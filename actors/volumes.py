"""The durable volumes of an actor on disk: made, saved into an archive, put back from one.

    volumes/<name>/            as the containers see them
    .volumes-incoming/<name>/  what a snapshot holds, while it is unpacked
    .volumes-replaced/<name>/  as they were before, until the start from that snapshot has succeeded
    .volumes-removed/          what is being removed

Putting back is undone as long as `.volumes-replaced` is there, whatever else is: `confirm` takes it away by one rename,
and until then `settle` brings every volume that is in it back. So whoever is cut off between any two steps leaves what
`settle` makes one of the two whole states of, each volume in turn, and again when it is cut off itself. Removing what
was replaced takes as long as it is large, and nobody has to wait for that: it is `discard`'s.
"""

from __future__ import annotations

import errno
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from actors.ports import FileKind

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from actors.layout import ActorDir
    from actors.ports import Archived, Files

NOTHING: Final = ()


async def make(files: Files, actor: ActorDir, names: Sequence[str]) -> None:
    """Make the volumes that are not there yet, open to whoever runs in the containers.

    Raises:
        OSError: one cannot be made.
    """
    for name in names:
        await files.make_volume(actor.volume(name))


async def save(files: Files, actor: ActorDir, names: Sequence[str], archive: Path) -> Archived:
    """Write the volumes into a new file. Nothing may change them meanwhile.

    Raises:
        OSError: it cannot be written, or a volume cannot be read.
    """
    await make(files, actor, names)  # one that somebody took away is empty
    return await files.write_archive(archive, actor.volumes, names)


async def put_back(files: Files, actor: ActorDir, names: Sequence[str], archive: Path) -> None:
    """Give the volumes the content of an archive. It counts once it is confirmed; until then `settle` undoes it.

    Raises:
        DamagedArchiveError: it holds something else.
        OSError: it cannot be unpacked, or not put in place.
    """
    await settle(files, actor)
    await make(files, actor, names)  # so that there is something to replace, and to bring back, for each
    await files.unpack_archive(archive, actor.incoming_volumes, names)
    await files.sync_tree(actor.incoming_volumes)
    await files.make_directory(actor.replaced_volumes)
    for name in names:
        await files.rename(actor.volume(name), actor.replaced_volumes / name)
        await files.rename(actor.incoming_volumes / name, actor.volume(name))
    await _require_empty(files, actor.incoming_volumes)
    await files.remove_tree(actor.incoming_volumes)


async def confirm(files: Files, actor: ActorDir) -> None:
    """What was put back counts: what it has replaced is to be discarded. Does nothing where nothing was put back.

    Raises:
        OSError: it still counts for nothing.
    """
    if await files.lstat(actor.replaced_volumes) is None:
        return
    await files.remove_tree(actor.removed_volumes)
    await files.rename(actor.replaced_volumes, actor.removed_volumes)
    await _require_gone(files, actor)


async def discard(files: Files, actor: ActorDir) -> None:
    """Remove what was replaced by a start that counts. What cannot be removed now goes with the next start."""
    with suppress(OSError):
        await files.remove_tree(actor.removed_volumes)


async def settle(files: Files, actor: ActorDir) -> None:
    """Bring back what was replaced by a start that was not confirmed, and remove what is left of any.

    Nothing may use the volumes. Repeating it does no harm.

    Raises:
        OSError: some of it stays as it was, to be settled another time.
    """
    for name in await _names(files, actor.replaced_volumes):
        await files.remove_tree(actor.volume(name))
        await files.rename(actor.replaced_volumes / name, actor.volume(name))
    await _require_empty(files, actor.replaced_volumes)
    for leftover in (actor.replaced_volumes, actor.incoming_volumes, actor.removed_volumes):
        await files.remove_tree(leftover)


async def _require_empty(files: Files, directory: Path) -> None:
    """Whatever is in it is all that there is of a volume, and it is about to be removed."""
    if await _names(files, directory):
        raise OSError(errno.ENOTEMPTY, "a volume is not where it was moved to", str(directory))


async def _require_gone(files: Files, actor: ActorDir) -> None:
    """As long as it is there, the next start would bring it back, over all that is written from now on."""
    if await files.lstat(actor.replaced_volumes) is not None:
        raise OSError(errno.EEXIST, "what was replaced is still there", str(actor.replaced_volumes))


async def _names(files: Files, directory: Path) -> tuple[str, ...]:
    found = await files.lstat(directory)
    return NOTHING if found is None or found.kind is not FileKind.DIRECTORY else await files.list_directory(directory)
