"""Names of activations and containers: random, of one length, so that none is a prefix of another and none comes twice.

Measured on runsc 20240729: a container is looked up by a PREFIX of its id (`delete app` finds `application`), and
creating an id that exists loses the living container's state.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from actors.ports import Wall


def fresh_activation(wall: Wall) -> str:
    """Return the name of a new activation: a letter and 16 hex digits."""
    return f"a{wall.fresh_id()}"


def fresh_container_ids(wall: Wall, names: Iterable[str]) -> dict[str, str]:
    """Return an id for each container, the root included: a letter and 16 hex digits.

    Raises:
        ValueError: the source of ids gave one twice, or of differing length.
    """
    ids = {name: f"c{wall.fresh_id()}" for name in names}
    if len(set(ids.values())) != len(ids) or len({len(each) for each in ids.values()}) > 1:
        message = f"ids must be distinct and of one length: {sorted(ids.values())}"
        raise ValueError(message)
    return ids
