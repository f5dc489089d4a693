"""Fixtures of tests that start real sandboxes."""

import pytest

from tests.actors.stage import make_rootfs
from tests.needs import Tool, need


@pytest.fixture(scope="session")
def _rootfs(tmp_path_factory):
    return make_rootfs(tmp_path_factory.mktemp("images") / "busybox")


@pytest.fixture
def rootfs(request):
    """A rootfs that all containers of all tests share, since nothing ever writes to it."""
    need(Tool.RUNSC, Tool.BUSYBOX, Tool.ROOT, Tool.NAMESPACES)
    return request.getfixturevalue("_rootfs")
