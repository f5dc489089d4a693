"""What hypothesis tries has all the time that a busy machine takes for it; tests/conftest.py says so."""

from hypothesis import HealthCheck, settings


def test_no_example_has_a_deadline_nor_is_one_that_is_made_slowly_a_fault():
    assert settings().deadline is None
    assert HealthCheck.too_slow in settings().suppress_health_check
