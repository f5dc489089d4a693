"""What hypothesis tries has all the time that a busy machine takes for it; tests/conftest.py says so."""

from hypothesis import HealthCheck, settings

from tests.needs import in_ci


def test_no_example_has_a_deadline_nor_is_one_that_is_made_slowly_a_fault():
    assert settings().deadline is None
    assert HealthCheck.too_slow in settings().suppress_health_check


def test_ci_tries_the_same_examples_each_time_and_nobody_else_does():
    assert settings().derandomize is in_ci()
