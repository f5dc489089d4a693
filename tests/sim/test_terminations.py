"""SIGTERM at every point of every life: a share of the points here, all in the campaign; and that it can fail."""

import anyio
import pytest

from sim.lives import LIVES
from sim.terminations import APART_MAX, TERMINATED, Asked, points_of_termination, terminate, walk_terminations
from sim.walker import every, named
from supervisor import draining, leaving, running
from supervisor.life import Life
from supervisor.shutdown import Shutdown

SHARES = {
    "run-stop": 19,
    "suspend-resume": 37,
    "three-containers": 139,
    "refused-suspend": 29,
    "failed-start": 19,
    "backing-off": 61,
    "ends-by-itself": 19,
    "new-generations": 97,
    "durable-volumes": 97,
    "claimed-gpus": 127,
    "lost-gpu": 97,
    "taken-over": 61,
    "crowd": 199,
    "stored": 61,
}
"""Every which point is walked in the long tests."""


@pytest.mark.parametrize("name", sorted(set(TERMINATED) - {"crowd"}))
def test_a_sigterm_at_any_point_ends_the_worker_in_time_leaves_nothing_and_tells_of_every_actor(name):
    """At three points that are far apart, at each asked in another way."""
    points, undisturbed = points_of_termination(TERMINATED[name], seed=1)
    assert undisturbed == ()
    third = len(points) // len(Asked)
    walked = [
        terminate(TERMINATED[name], points[(nth + 1) * third - 3], asked, seed=1) for nth, asked in enumerate(Asked)
    ]
    assert [each.violations for each in walked] == [(), (), ()], [each.repro for each in walked]


@pytest.mark.long
@pytest.mark.parametrize("name", TERMINATED)
def test_a_sigterm_at_more_points_asked_in_every_way_violates_nothing(name):
    report = walk_terminations(TERMINATED[name], seed=1, share=every(SHARES[name], first=4))
    assert len(report.walked) >= 3
    assert not report.violations, str(report)


@pytest.mark.campaign
@pytest.mark.parametrize("name", TERMINATED)
def test_a_sigterm_at_every_point_violates_nothing(name):
    nth = 7 if name == "crowd" else 1
    report = walk_terminations(TERMINATED[name], share=every(nth))
    assert not report.violations, str(report)


def of_the_second_signal(seed, apart):
    """A worker that suspends a running actor, and is asked again so many calls later."""
    running_actor = TERMINATED["stored"]
    points, _ = points_of_termination(running_actor, seed=seed)
    (point,) = named("Verifying -> Running")(points)[:1]
    return terminate(running_actor, point, Asked.TWICE, seed=seed, apart=apart)


@pytest.mark.parametrize("apart", [1, 12, 40])
def test_a_second_sigterm_at_any_point_of_the_drain_violates_nothing(apart):
    assert of_the_second_signal(0, apart).violations == ()


@pytest.mark.campaign
@pytest.mark.parametrize("apart", range(1, 2 * APART_MAX))
def test_a_second_sigterm_at_every_point_of_the_drain_violates_nothing(apart):
    for seed in range(3):
        assert of_the_second_signal(seed, apart).violations == ()


def test_the_lives_of_the_crash_walk_are_all_walked():
    assert set(LIVES) < set(TERMINATED)
    assert set(SHARES) == set(TERMINATED)


# ---- it can fail


async def never(*_args, **_options):
    await anyio.sleep_forever()


async def nothing(*_args, **_options):
    return


def plant_a_hang(monkeypatch):
    monkeypatch.setattr(running, "drain", never)


def plant_a_drain_that_does_nothing(monkeypatch):
    monkeypatch.setattr(Life, "drain", nothing)


def plant_no_end_of_leftovers(monkeypatch):
    monkeypatch.setattr(Life, "drain", nothing)
    monkeypatch.setattr(leaving, "end_leftovers", nothing)


def plant_silence(monkeypatch):
    monkeypatch.setattr(leaving, "_say", lambda _left: None)


def plant_forgetfulness(monkeypatch):
    tells = draining.Drained

    def forgetting(*, found, late, killed):
        return tells(found=frozenset(), late=late, killed=killed)

    monkeypatch.setattr(draining, "Drained", forgetting)


def plant_no_deadline(monkeypatch):
    """A second signal is not heard, and the first one not in its time."""
    monkeypatch.setattr(Shutdown, "ask", lambda _shutdown: None)


PLANTED = {
    "a drain that hangs": (plant_a_hang, "EndsInTime"),
    "a drain that does nothing": (plant_a_drain_that_does_nothing, "Accounted"),
    "sandboxes that are not ended": (plant_no_end_of_leftovers, "NothingLeft"),
    "a worker that leaves without a word": (plant_silence, "LastLine"),
    "a worker that forgets whom it had": (plant_forgetfulness, "Accounted"),
    "a signal that is not heard": (plant_no_deadline, "EndsInTime"),
}


@pytest.mark.parametrize("defect", PLANTED)
def test_a_planted_defect_is_found(defect, monkeypatch):
    life = TERMINATED["suspend-resume"]
    points, undisturbed = points_of_termination(life)
    assert undisturbed == ()
    # Of a worker that drains nothing can be asked that would make an actor leave where it is Suspended.
    at = {"a worker that forgets whom it had": "Releasing -> Suspended"}.get(defect, "Verifying -> Running")
    point = named(at)(points)[0]
    plant, name = PLANTED[defect]
    plant(monkeypatch)
    assert name in {each.name for each in terminate(life, point, Asked.ONCE).violations}


def test_a_point_that_does_not_come_is_a_violation():
    run_stop = TERMINATED["run-stop"]
    points, _ = points_of_termination(run_stop)
    late = type(points[0])(number=10**6, name="no such call")
    walked = terminate(run_stop, late, Asked.ONCE)
    assert {each.name for each in walked.violations} == {"PointReached"}
    assert walked.repro == "python -m sim.cli.walk run-stop --seed 0 --point 1000000 --how term"
