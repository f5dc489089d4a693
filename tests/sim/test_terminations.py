"""SIGTERM at every point of every life: a share of the points here, all in the campaign; and that it can fail."""

import math

import anyio
import pytest

from actors.concurrency import together
from sim.lives import LIVES
from sim.terminations import APART_MAX, Asked, terminate
from sim.walker import Point, every, named, points_of, walk, walk_to
from statemachine.actor import OnDrain
from supervisor import draining, leaving, recovering, running
from supervisor.life import Life
from supervisor.shutdown import Shutdown
from supervisor.uploading import Uploads

SHARES = {
    "run-stop": 19,
    "deaf": 19,
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
    "taken-over-gpus": 97,
    "crowd": 199,
    "stored": 61,
}
"""Every which point is walked in the long tests."""
FEW = (
    "run-stop",
    "suspend-resume",
    "refused-suspend",
    "failed-start",
    "durable-volumes",
    "claimed-gpus",
    "taken-over",
    "stored",
)
"""The lives that are walked in the usual run of the tests."""


@pytest.mark.parametrize("name", FEW)
def test_a_sigterm_at_any_point_ends_the_worker_in_time_leaves_nothing_and_tells_of_every_actor(name):
    """At points that are far apart, at each asked in another way."""
    points, undisturbed = points_of(LIVES[name], seed=1)
    assert undisturbed == ()
    part = len(points) // len(Asked)
    walked = [walk_to(LIVES[name], points[(nth + 1) * part - 3], asked, seed=1) for nth, asked in enumerate(Asked)]
    assert [each.violations for each in walked] == [()] * len(Asked), [each.repro for each in walked]


@pytest.mark.long
@pytest.mark.parametrize("name", LIVES)
def test_a_sigterm_at_more_points_asked_in_every_way_violates_nothing(name):
    report = walk(LIVES[name], seed=1, share=every(SHARES[name], first=4), how=tuple(Asked))
    assert len(report.walked) >= 3
    assert not report.violations, str(report)


@pytest.mark.campaign
@pytest.mark.parametrize("name", LIVES)
def test_a_sigterm_at_every_point_violates_nothing(name):
    report = walk(LIVES[name], how=tuple(Asked))
    assert not report.violations, str(report)


def of_the_second_signal(seed, apart):
    """A worker that suspends a running actor, and is asked again so many calls later."""
    points, _ = points_of(LIVES["stored"], seed=seed)
    (point,) = named("Verifying -> Running")(points)[:1]
    return terminate(LIVES["stored"], point, Asked.TWICE, seed=seed, apart=apart)


@pytest.mark.parametrize("apart", [1, 12, 40])
def test_a_second_sigterm_at_any_point_of_the_drain_violates_nothing(apart):
    assert of_the_second_signal(0, apart) == ()


@pytest.mark.campaign
@pytest.mark.parametrize("apart", range(1, 2 * APART_MAX))
def test_a_second_sigterm_at_every_point_of_the_drain_violates_nothing(apart):
    for seed in range(3):
        assert of_the_second_signal(seed, apart) == ()


def test_every_life_is_walked():
    assert set(SHARES) == set(LIVES)


# ---- it can fail


async def never(*_args, **_options):
    await anyio.sleep_forever()


async def nothing(*_args, **_options):
    return


def plant_a_hang(monkeypatch):
    monkeypatch.setattr(running, "drain", never)


def plant_a_drain_that_does_nothing(monkeypatch):
    monkeypatch.setattr(Life, "drain", nothing)


def plant_a_drain_that_overlooks_one(monkeypatch):
    """The last of its actors is asked nothing."""

    async def all_but_one(*jobs):
        await together(*jobs[:-1])

    monkeypatch.setattr(draining, "together", all_but_one)


def plant_a_drain_that_stops(monkeypatch):
    """Nobody is suspended, though there is time."""
    drain = Life.drain

    async def stop(life, _on_drain):
        await drain(life, OnDrain.STOP)

    monkeypatch.setattr(Life, "drain", stop)


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


def plant_deafness(monkeypatch):
    monkeypatch.setattr(Shutdown, "ask", lambda _shutdown: None)


def plant_deafness_to_the_second(monkeypatch):
    ask = Shutdown.ask
    monkeypatch.setattr(Shutdown, "ask", lambda shutdown: None if shutdown.is_asked else ask(shutdown))


def plant_no_deadline(monkeypatch):
    monkeypatch.setattr(Shutdown, "_end_of", lambda _shutdown, _phase: math.inf)


def plant_uploads_that_are_not_waited_for(monkeypatch):
    monkeypatch.setattr(Uploads, "finish", nothing)


def plant_uploads_that_are_forgotten(monkeypatch):
    """The same, and nobody tells."""
    plant_uploads_that_are_not_waited_for(monkeypatch)
    monkeypatch.setattr(Uploads, "owes", lambda _uploads, _life: False)


def plant_a_start_that_ends_what_stands(monkeypatch):
    monkeypatch.setattr(recovering, "LIVE", frozenset())


RUNS, STOPS = "Verifying -> Running", "Running -> Stopping"
PLANTED = {
    "a drain that hangs": (plant_a_hang, "suspend-resume", RUNS, Asked.ONCE, "EndsInTime"),
    "a drain that does nothing": (plant_a_drain_that_does_nothing, "suspend-resume", RUNS, Asked.ONCE, "Accounted"),
    "a drain that overlooks an actor": (
        plant_a_drain_that_overlooks_one, "taken-over", "mark Paused", Asked.ONCE, "Accounted",
    ),
    "a drain that stops whom it should suspend": (
        plant_a_drain_that_stops, "taken-over", "mark Paused", Asked.ONCE, "Suspended",
    ),
    "sandboxes that are not ended": (plant_no_end_of_leftovers, "suspend-resume", RUNS, Asked.ONCE, "NothingLeft"),
    "a worker that leaves without a word": (plant_silence, "suspend-resume", RUNS, Asked.ONCE, "LastLine"),
    # Of a worker that drains nothing can be asked that would make an actor leave where it is Suspended.
    "a worker that forgets whom it had": (
        plant_forgetfulness, "suspend-resume", "Releasing -> Suspended", Asked.ONCE, "Accounted",
    ),
    "a signal that is not heard": (plant_deafness, "suspend-resume", RUNS, Asked.ONCE, "EndsInTime"),
    "a second signal that is not heard": (plant_deafness_to_the_second, "deaf", STOPS, Asked.TWICE, "EndsInTime"),
    "a deadline that is ignored": (plant_no_deadline, "deaf", STOPS, Asked.SHORT, "EndsInTime"),
    "uploads that are not waited for": (
        plant_uploads_that_are_not_waited_for, "stored", RUNS, Asked.ONCE, "EndsInOrder",
    ),
    "uploads that are forgotten": (plant_uploads_that_are_forgotten, "stored", RUNS, Asked.ONCE, "Accounted"),
    "a start that ends what outlived a drain": (
        plant_a_start_that_ends_what_stands, "suspend-resume", RUNS, Asked.KILLED, "GoesOnWithIt",
    ),
}  # fmt: skip


@pytest.mark.parametrize("defect", PLANTED)
def test_a_planted_defect_is_found_and_nothing_without_it(defect, monkeypatch):
    plant, name, at, asked, violated = PLANTED[defect]
    life = LIVES[name]
    point = named(at)(points_of(life)[0])[0]
    assert terminate(life, point, asked, seed=0, apart=1) == ()
    plant(monkeypatch)
    assert violated in {each.name for each in terminate(life, point, asked, seed=0, apart=1)}


def test_a_point_that_does_not_come_is_a_violation():
    walked = walk_to(LIVES["run-stop"], Point(number=10**6, name="no such call"), Asked.ONCE)
    assert {each.name for each in walked.violations} == {"PointReached"}
    assert walked.repro == "python -m sim.cli.walk run-stop --seed 0 --point 1000000 --how term"
