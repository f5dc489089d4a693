"""The records of activations on a simulated disk, for who looks from outside."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import orjson

from actors.runsc.record import RECORD_NAME

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


def records_in(files: Mapping[str, str | bytes | None]) -> Iterator[dict[str, Any]]:
    """Every record among files below `sandboxes/`; what a power cut has left of one says nothing."""
    for name, data in files.items():
        if name.endswith(f"/{RECORD_NAME}") and isinstance(data, bytes):
            try:
                yield orjson.loads(data)
            except orjson.JSONDecodeError:
                continue
