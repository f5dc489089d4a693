"""Fixtures of the supervisor's tests."""

import pytest
from structlog.testing import capture_logs


@pytest.fixture(autouse=True)
def logs():
    """What is logged, as dictionaries; nothing is printed."""
    with capture_logs() as captured:
        yield captured
