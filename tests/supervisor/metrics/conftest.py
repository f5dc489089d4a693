"""Scrapes of stands: what they ask for is in memory, and is told however busy the machine is."""

import pytest

PATIENCE_S = 60.0


@pytest.fixture(autouse=True)
def patience(monkeypatch):
    """A test of what is told too late says itself when that is."""
    for name in ("DISK_S", "ACTORS_S"):
        monkeypatch.setattr(f"supervisor.metrics.exposing.{name}", PATIENCE_S)
