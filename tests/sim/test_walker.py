"""The crash-point walker: what it lists, what it walks, what it says; and a share of every life, walked."""

import signal

import pytest

from sim.engine import run
from sim.lives import LIVES, ActorLife
from sim.playing import Nothing, play
from sim.terminations import Asked, Signals
from sim.walker import Crash, How, Point, between, every, named, points_of, walk, walk_to
from statemachine import commands as c
from statemachine.states import State
from supervisor.life import Life

LIVES_OF_FEW = tuple(name for name in LIVES if name != "crowd")
SHARES = {
    "run-stop": 17,
    "deaf": 17,
    "suspend-resume": 31,
    "three-containers": 101,
    "refused-suspend": 29,
    "failed-start": 17,
    "backing-off": 61,
    "ends-by-itself": 23,
    "new-generations": 61,
    "durable-volumes": 83,
    "claimed-gpus": 97,
    "lost-gpu": 97,
    "taken-over": 101,
    "taken-over-gpus": 163,
    "crowd": 139,
    "stored": 83,
}
"""Every which point is walked in the usual run of the tests, of the crowd in the long tests; some 45 of 2,500."""


@pytest.mark.parametrize("name", [*LIVES_OF_FEW, pytest.param("crowd", marks=pytest.mark.long)])
def test_a_crash_at_any_point_violates_nothing(name):
    report = walk(LIVES[name], seed=1, share=every(SHARES[name], first=2), how=tuple(How))
    assert len(report.walked) >= 3
    assert not report.violations, str(report)


@pytest.mark.campaign
@pytest.mark.parametrize("name", LIVES)
def test_a_kill_at_every_third_point_violates_nothing(name):
    report = walk(LIVES[name], share=every(3), how=tuple(How))
    assert not report.violations, str(report)


def test_every_command_that_is_performed_today_is_performed_in_the_lives_together(monkeypatch):
    performed = set()
    perform = Life._perform

    async def noting(life, command, children):
        performed.add(type(command))
        await perform(life, command, children)

    monkeypatch.setattr(Life, "_perform", noting)
    for life in LIVES.values():
        points_of(life)
    assert performed == set(c.COMMANDS)


@pytest.mark.parametrize("seed", [1, 5])
def test_no_power_cut_brings_back_the_manifest_of_a_snapshot_that_is_removed(seed):
    def after_the_removal(points):
        removal = next(
            at for at, each in enumerate(points) if "remove_tree" in each.name and "/snapshots/" in each.name
        )
        return points[removal + 1 : removal + 3]

    report = walk(LIVES["three-containers"], seed=seed, share=after_the_removal, how=[How.POWER])
    assert not report.violations, str(report)


# ---- points


@pytest.fixture(scope="module")
def points():
    found, violations = points_of(LIVES["suspend-resume"])
    assert violations == ()
    return found


def test_the_lines_and_marks_of_a_journal_are_points_with_their_names(points):
    told = [point.name.rpartition(": ")[2] for point in points if "journal.jsonl" in point.name]
    assert told[:5] == [
        "base",
        "Assigned -> Creating",
        "Creating -> Verifying",
        "Verifying -> Running",
        "Running -> Suspending",
    ]
    assert told[5:9] == ["mark Paused", "mark FilesWritten", "mark FilesProven", "mark ManifestWritten"]
    assert told[-1] == "Stopping -> Terminated"


@pytest.mark.parametrize(
    "what",
    [
        "files.replace /var/lib/greenroom/actors/a1/status.json",
        "files.remove_tree",
        "files.sync_tree",
        "processes.run /usr/bin/runsc",
        "processes.adopt",
        "processes.signal",
        "net.send",
    ],
)
def test_whatever_changes_the_world_is_a_point(points, what):
    assert any(point.name.startswith(what) for point in points)


def test_the_same_seed_has_the_same_points(points):
    assert points_of(LIVES["suspend-resume"])[0] == points


@pytest.mark.parametrize("name", ["claimed-gpus", "taken-over"])
def test_what_is_to_come_changes_nothing_before_it_comes(name):
    """Else a point would be another call in the run that is disturbed there."""

    def calls(coming):
        async def scenario(here):
            await play(here, LIVES[name], [], coming)

        record = run(scenario, machine=LIVES[name].machine, prepare=coming.watch)
        return [(each.number, each.incarnation, each.at_s, each.method, each.argument) for each in record.calls]

    never = 10**6
    assert calls(Crash(never)) == calls(Signals({never: signal.SIGTERM})) == calls(Nothing())


def a_worker_starts_anew(points):
    """The points around the kill, after which another one takes over."""
    (_, at) = (at for at, each in enumerate(points) if each.name.endswith("make_directory /run/greenroom"))
    return points[at - 8 : at + 2]


@pytest.mark.parametrize("name", ["taken-over", pytest.param("taken-over-gpus", marks=pytest.mark.long)])
def test_a_life_does_not_kill_the_worker_itself_once_it_is_asked_to_leave_or_has_crashed(name):
    report = walk(LIVES[name], share=a_worker_starts_anew, how=(How.AFTER, Asked.ONCE))
    assert len(report.walked) == 20
    assert not report.violations, str(report)


def test_shares_choose_points():
    points = [Point(number=number, name=f"call {number % 3}") for number in range(10, 20)]
    assert [each.number for each in every(4)(points)] == [10, 14, 18]
    assert [each.number for each in every(4, first=1)(points)] == [11, 15, 19]
    assert [each.number for each in between(12, 13)(points)] == [12, 13]
    assert [each.number for each in named("call 0")(points)] == [12, 15, 18]


# ---- reports


async def a_life_that_forgets_its_actor(here):
    await LIVES["run-stop"].play(here)
    here.world.disk.remove(here.world.disk.find_directory(here.world.state.actor("a1").root), "status.json")


def test_a_violation_is_reported_with_its_point_its_name_and_a_line_that_repeats_it():
    life = ActorLife(name="run-stop", play=a_life_that_forgets_its_actor, document=LIVES["run-stop"].document)
    report = walk(life, share=named("nothing"))
    assert report.names == {"StateFilesParse"}
    assert "undisturbed: StateFilesParse: a1: is Terminated and has no status" in str(report)
    late = walk_to(life, Point(number=10**6, name="no such call"), How.AFTER, seed=3)
    assert late.repro == "python -m sim.cli.walk run-stop --seed 3 --point 1000000 --how after"
    assert {each.name for each in late.violations} >= {"PointReached"}


def test_a_supervisor_that_does_not_start_again_is_a_violation():
    def spoil(world):
        world.disk.find(world.settings.state_dir).volume.is_read_only = True

    life = ActorLife(name="run-stop", play=LIVES["run-stop"].play, document=LIVES["run-stop"].document, mend=spoil)
    report = walk(life, share=named("Verifying -> Running"), how=[How.AFTER])
    assert report.names == {"Restarts"}


def test_an_actor_that_cannot_go_on_is_a_violation():
    life = ActorLife(name="failed-start", play=LIVES["failed-start"].play, document=LIVES["failed-start"].document)
    report = walk(life, share=named("Creating -> RollingBack"), how=[How.AFTER])
    assert report.names == {"GoesOn"}
    assert str(State.FAILED) in str(report) or "CommandNotFound" in str(report)
