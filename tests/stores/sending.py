"""A snapshot that is sent, and what comes of it."""

from __future__ import annotations

import orjson
import pytest
from blake3 import blake3

from actors.stores import upload
from statemachine.problem import ProblemError
from tests.stores.stands import CHUNK_BYTES, UID

PAGES = {"pages.img": b"".join(bytes([n]) * CHUNK_BYTES for n in (1, 2, 3, 2)) + b"the rest", "empty": b""}
PARTS = 7
"""Chunks of such a snapshot: four of pages.img, of which two are equal, so three, and its rest; two small files."""


async def sent(stand, directory):
    return await upload(stand.files, stand.stores, directory, stand.uri_of(directory), chunk_bytes=CHUNK_BYTES)


def chunk_key(data):
    return f"{UID}/chunks/{blake3(data).hexdigest()}"


async def reasons_of(awaitable):
    with pytest.raises(ProblemError) as caught:
        await awaitable
    return [problem.reason for problem in caught.value.problems]


def changed(data, **members):
    return orjson.dumps({**orjson.loads(data), **members})
