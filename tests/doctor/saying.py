"""What is asserted of a check."""

from statemachine.problem import Problem, Step
from supervisor.doctor.check import Check, Status

OK, WARN, FAIL = Status.OK, Status.WARN, Status.FAIL


def problem(reason, message="why"):
    return Problem(step=Step.DETECT, reason=reason, subject="x", message=message)


def said(check, status, reason, *words):
    """The check is so, and its message has these words."""
    assert isinstance(check, Check)
    missing = [word for word in words if word not in check.message]
    return (check.status, check.reason, missing) == (status, reason, []) and bool(check.hint) == (status is not OK)
