"""A test marked `anyio` runs on the backend that its name says."""

from __future__ import annotations

import asyncio

import pytest
import trio

pytestmark = pytest.mark.anyio


async def test_the_plugin_runs_the_backend_it_says(anyio_backend_name: str):
    """With trio_mode on, the plugin of pytest-trio would silently run all of them on trio."""
    assert trio.lowlevel.in_trio_run() == (anyio_backend_name == "trio")
    assert _is_in_asyncio() == (anyio_backend_name == "asyncio")


def _is_in_asyncio() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
