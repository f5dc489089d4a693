"""One S3 server for all tests, and a store of each kind."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.needs import ROOT
from tests.stores.stands import KINDS, S3, real, simulated

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from tests.stores.stands import Stand

_BUCKETS = itertools.count(1)


@pytest.fixture(scope="session")
def s3_server() -> Iterator[S3]:
    """It is there before any test of this directory begins, and obstore's own threads with it: no test leaves them."""
    import obstore  # noqa: PLC0415 - only these tests pay for it

    obstore.put(obstore.store.MemoryStore(), "warm", b"")
    server = subprocess.Popen(
        [sys.executable, "-m", "tests.stores.s3_server"],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={"PATH": os.environ["PATH"]},
    )
    assert server.stdin is not None
    assert server.stdout is not None
    with server.stdin, server.stdout:
        port = server.stdout.readline().decode().strip()
        if port:
            yield S3(f"http://127.0.0.1:{port}")
    assert server.wait() == 0


@pytest.fixture
def s3(s3_server: S3, monkeypatch: pytest.MonkeyPatch) -> Iterator[S3]:
    for name, value in s3_server.env.items():
        monkeypatch.setenv(name, value)
    yield s3_server
    s3_server.clear()


@pytest.fixture
def bucket(s3: S3) -> str:
    name = f"bucket-{next(_BUCKETS)}"
    s3.make_bucket(name)
    s3.clear()
    return name


# What memory does a directory does too, by the same code of obstore's.
@pytest.fixture(params=[pytest.param(kind, marks=pytest.mark.long) if kind == "memory" else kind for kind in KINDS])
async def stand(request, anyio_backend, tmp_path, s3, bucket) -> AsyncIterator[Stand]:
    if request.param == "simulated":
        yield simulated()
        return
    async with real(request.param, tmp_path, bucket=bucket) as made:
        yield made


@pytest.fixture
async def on_s3(anyio_backend, tmp_path, s3, bucket) -> AsyncIterator[Stand]:
    async with real("s3", tmp_path, bucket=bucket) as made:
        yield made
