"""Fixtures of the acceptance suite: one rootfs for all, asyncio unless a test says otherwise."""

import pytest

from tests.actors.stage import make_rootfs
from tests.needs import Tool, need
from tests.real.onlookers import kill_below
from tests.real.process import SlowRunsc
from tests.stores.conftest import bucket, s3, s3_server

__all__ = ["bucket", "s3", "s3_server"]  # fixtures of theirs


@pytest.fixture
def anyio_backend():
    """The production backend; one smoke runs on trio."""
    return "asyncio"


@pytest.fixture(scope="session")
def _rootfs(tmp_path_factory):
    return make_rootfs(tmp_path_factory.mktemp("images") / "busybox")


@pytest.fixture
def rootfs(request):
    """A rootfs that all containers of all tests share, since nothing ever writes to it."""
    need(Tool.RUNSC, Tool.BUSYBOX, Tool.ROOT, Tool.NAMESPACES)
    return request.getfixturevalue("_rootfs")


@pytest.fixture
def slow(tmp_path):
    """A runsc that can be held in any of its commands."""
    return SlowRunsc.in_(tmp_path / "slow")


@pytest.fixture(autouse=True)
def _no_sandbox_outlives_its_test(tmp_path):
    """A test that failed must not leave its sandboxes to the next; one that passed has none left."""
    yield
    kill_below(tmp_path)
