"""The real ports, with the test's own directory as the only root."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from supervisor.host.composition import open_host_ports
from supervisor.host.files import HostFiles

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from actors.ports import Ports


@pytest.fixture
async def ports(anyio_backend: str, tmp_path: Path) -> AsyncIterator[Ports]:
    async with open_host_ports(roots=[tmp_path]) as opened:
        yield opened


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "root").mkdir()
    return tmp_path / "root"


@pytest.fixture
async def files(anyio_backend: str, root: Path) -> HostFiles:
    return HostFiles(roots=[root])
