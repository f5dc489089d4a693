"""Fixtures of the supervisor's tests."""

import pytest
from structlog.testing import capture_logs

from supervisor import directory_intake
from tests.supervisor.intakes import RESCAN_S


@pytest.fixture(autouse=True)
def logs():
    """What is logged, as dictionaries; nothing is printed."""
    with capture_logs() as captured:
        yield captured


@pytest.fixture
def short_times(monkeypatch):
    """An intake that looks again soon, for tests that wait for it."""
    monkeypatch.setattr(directory_intake, "RESCAN_AFTER_S", RESCAN_S)
    monkeypatch.setattr(directory_intake, "RETRY_S", 0.01)
