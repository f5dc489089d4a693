"""The fault sweep over what durable volumes and hooks ask of the world."""

import pytest

from sim.sweep import sweep

EVERY = 37
"""Every which fault comes in the usual run of the tests; together some 7 of 265."""


def of_the_volumes(nth, *, first=0):
    """What is asked only because there is a volume, or a hook."""

    def share(spots):
        return [spot for spot in spots if "olumes" in f"{spot.method} {spot.argument}" or " exec " in spot.argument][
            first::nth
        ]

    return share


def test_a_fault_in_what_volumes_and_hooks_ask_for_ends_as_promised():
    report = sweep("durable", share=of_the_volumes(EVERY, first=5))
    assert len(report.swept) >= 5
    assert not report.violations, str(report)


@pytest.mark.campaign
@pytest.mark.parametrize("first", range(4))
def test_every_fault_in_what_volumes_and_hooks_ask_for_ends_as_promised(first):
    report = sweep("durable", share=of_the_volumes(4, first=first))
    assert not report.violations, str(report)
