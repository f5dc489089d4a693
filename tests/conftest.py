"""Fixtures for all tests: both backends, and a look at what a test leaves behind."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

from tests.leaks import watch_for_leaks
from tests.needs import in_ci

if TYPE_CHECKING:
    from collections.abc import Iterator

# How long an example takes to make or to try says something about the machine only, which may be busy. CI tries the
# same examples each time, so that what it says is about the change; everybody else's runs look for new ones.
settings.register_profile("unhurried", deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=in_ci())
settings.load_profile("unhurried")

# Whoever starts the tests in the background of a script has them born with SIGINT ignored, and what they start, too.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    """A test marked `anyio` runs on both."""
    backend: str = request.param
    return backend


@pytest.fixture(autouse=True)
def nothing_is_left_behind(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fails the test that leaves a child, a zombie, a descriptor, a mount, a temporary file or a sandbox behind.

    It is set up before the other fixtures of the test and torn down after them. Files are looked at below the test's
    `tmp_path`, if it asks for one.
    """
    directory = request.getfixturevalue("tmp_path") if "tmp_path" in request.fixturenames else None
    check = watch_for_leaks(directory)
    yield
    if leaks := check():
        pytest.fail("left behind:\n" + "\n".join(f"  {leak}" for leak in leaks), pytrace=False)
