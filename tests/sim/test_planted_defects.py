"""Defects, planted one at a time: the walk of a fitting life finds each by the fitting invariant; without it, nothing.

Each is one function that is exchanged for one that does a little less, as a slip of a hand would.
"""

import contextlib
from typing import Any

import attrs
import pytest

from actors.generations import Verdict, judge
from actors.gpu import partition
from actors.manifest import CHECKPOINT_FILES, SnapshotFile
from actors.ports import Exit
from actors.runsc.driver import Runsc
from actors.runsc.sandbox import Sandbox
from actors.snapshots import prune
from actors.steps import performer, release, suspend, teardown, thaw
from actors.steps.stage import Freeze
from sim.documents import actor
from sim.lives import LIVES, ActorLife, claiming
from sim.sweep import look_on
from sim.walker import How, Share, every, named, walk
from sim.world.gpus import Driver, some_gpus
from sim.world.processes import SimChild
from sim.world.world import Machine
from statemachine.problem import ProblemError
from statemachine.states import State
from supervisor import admitting, gpu_desk

KILLED = (How.BEFORE, How.AFTER)


def skip_the_thaw(monkeypatch):
    async def resume_once(stage, step):
        stage.freeze = Freeze.NOT_FROZEN

    monkeypatch.setattr(thaw, "resume_once", resume_once)


def write_the_manifest_first(monkeypatch):
    """The files are only looked at before the manifest is written, and nobody syncs them."""

    async def prove(files, directory, **_options):
        found = [(name, await files.lstat(directory / name)) for name in CHECKPOINT_FILES]
        digests = [await files.digest(directory / name) for name in CHECKPOINT_FILES]
        return tuple(
            SnapshotFile(name=name, size_bytes=stat.size_bytes, blake3=digest)
            for (name, stat), digest in zip(found, digests, strict=True)
        )

    monkeypatch.setattr(suspend, "prove", prove)


def do_not_undo_the_sandbox(monkeypatch):
    async def end_sandbox(stage):
        stage.activation, stage.sandbox, stage.freeze = None, None, Freeze.NOT_FROZEN

    monkeypatch.setattr(teardown, "end_sandbox", end_sandbox)


def steal_exit_codes(monkeypatch):
    """Somebody else waits for the process that tells a container's exit code, so that its own is lost."""
    collect = SimChild._collect

    def late(child):
        collect(child)
        if child._exit is not None and "wait" in child._process.arguments:
            child._exit = Exit(code=None)

    monkeypatch.setattr(SimChild, "_collect", late)


def let_a_stale_generation_win(monkeypatch):
    def generous(known, new):
        verdict = judge(known, new)
        return Verdict.UPDATE if verdict is Verdict.STALE else verdict

    monkeypatch.setattr(admitting, "judge", generous)


DEFECTS: dict[str, tuple[Any, str, Share, tuple[How, ...], str]] = {
    "the thaw is skipped": (skip_the_thaw, "refused-suspend", every(20), KILLED, "FrozenIsNotRunning"),
    "the manifest is written first": (
        write_the_manifest_first,
        "suspend-resume",
        named("manifest.json"),
        (How.AFTER, How.POWER),
        "SnapshotsAreWhole",
    ),
    "the sandbox is not undone": (do_not_undo_the_sandbox, "run-stop", every(20), KILLED, "NothingLeft"),
    "the reaper steals": (steal_exit_codes, "ends-by-itself", every(20), KILLED, "ExitCodesAreRight"),
    "a stale generation wins": (let_a_stale_generation_win, "new-generations", every(60), KILLED, "WhatWasToldIsKept"),
}


@pytest.mark.parametrize("defect", DEFECTS)
def test_a_planted_defect_is_found_and_nothing_without_it(monkeypatch, defect):
    plant, life, share, how, invariant = DEFECTS[defect]
    sound = walk(LIVES[life], share=share, how=how)
    assert sound.walked
    assert not sound.violations, str(sound)
    plant(monkeypatch)
    assert invariant in walk(LIVES[life], share=share, how=how).names


def test_only_a_power_cut_shows_that_the_manifest_came_too_early(monkeypatch):
    write_the_manifest_first(monkeypatch)
    report = walk(LIVES["suspend-resume"], share=named("manifest.json"), how=tuple(How))
    assert report.undisturbed == ()
    assert {each.how for each in report.walked if each.violations} == {How.POWER}


# ---- those that need no crash


def kill_before_the_proof(monkeypatch):
    """The sandbox is ended as soon as its files are written, and not when they are proven."""
    checkpoint = Sandbox.checkpoint_into

    async def and_kill(sandbox, *args, **options):
        await checkpoint(sandbox, *args, **options)
        await sandbox.runsc.processes.kill_and_wait(sandbox.process.identity, deadline_s=5)

    monkeypatch.setattr(Sandbox, "checkpoint_into", and_kill)


def promote_what_is_not_written(monkeypatch):
    """The machine is told of a snapshot whose manifest nobody has written."""

    async def write_manifest(_files, _directory, _manifest):
        return

    monkeypatch.setattr(suspend, "write_manifest", write_manifest)


def delete_the_last_good_one(monkeypatch):
    """Older snapshots go before the newer one is there."""
    save = suspend.save_snapshot

    async def remove_and_save(stage, actor):
        await stage.ports.files.remove_tree(stage.directory.snapshots)
        return await save(stage, actor)

    monkeypatch.setattr(performer, "save_snapshot", remove_and_save)


def prune_the_one_just_proven(monkeypatch):
    async def prune_all(files, snapshots, *, proven, **options):
        await prune(files, snapshots, proven=proven, **options)
        await files.remove_tree(snapshots / proven)

    monkeypatch.setattr(release, "prune", prune_all)


def save_twice(monkeypatch):
    """The first image is thrown away, and another one made in the same freeze."""
    checkpoint = Sandbox.checkpoint_into

    async def twice(sandbox, directory, **options):
        await checkpoint(sandbox, directory, **options)
        await sandbox.runsc.files.remove_tree(directory)
        await checkpoint(sandbox, directory, **options)

    monkeypatch.setattr(Sandbox, "checkpoint_into", twice)


def freeze_twice(monkeypatch):
    """Nested in the sandbox, which takes two resumes then; that of its own that runsc would refuse is not asked for."""
    pause = Runsc.pause

    async def twice(runsc, target, **options):
        await pause(runsc, target, **options)
        with contextlib.suppress(ProblemError):
            await pause(runsc, target, **options)

    monkeypatch.setattr(Runsc, "pause", twice)


UNDISTURBED = {
    "killed before the proof": (kill_before_the_proof, "suspend-resume", "NeverLost"),
    "promoted and not written": (promote_what_is_not_written, "suspend-resume", "LastGoodIsKept"),
    "the last good one is deleted": (delete_the_last_good_one, "three-containers", "NeverLost"),
    "the one just proven is pruned": (prune_the_one_just_proven, "suspend-resume", "NeverLost"),
    "saved twice": (save_twice, "suspend-resume", "FreezesArePaired"),
    "frozen twice": (freeze_twice, "suspend-resume", "FreezesArePaired"),
}


@pytest.mark.parametrize("defect", UNDISTURBED)
def test_a_planted_defect_is_found_without_any_crash_and_nothing_without_it(monkeypatch, defect):
    plant, life, invariant = UNDISTURBED[defect]
    assert look_on(LIVES[life]) == ()
    plant(monkeypatch)
    assert invariant in {each.name for each in look_on(LIVES[life])}


# ---- case 042


def leak_one_gpu(monkeypatch):
    """Of all that an actor gives back, one stays booked in its name."""

    def all_but_one(pool, uid):
        ticket, rest = pool.ticket(uid), partition.release(pool, uid)
        if ticket is None or not ticket.grants:
            return rest
        kept = attrs.evolve(ticket, claims=ticket.claims[-1:], grants=ticket.grants[-1:])
        return partition.Pool((*rest.tickets, kept))

    monkeypatch.setattr(gpu_desk, "release", all_but_one)


async def fail_to_start(here):
    await here.submit(UNSTARTABLE)
    await here.until(State.FAILED)


UNSTARTABLE = actor("a1", claiming("trainer", 1), {**claiming("eval", 1), "command": ["/bin/no-such-thing"]})
FAILING_WITH_GPUS = ActorLife(
    name="failed-start-with-gpus",
    play=fail_to_start,
    document=UNSTARTABLE,
    machine=Machine(gpus=some_gpus(2, minors=(5, 2)), driver=Driver(version="550.90.07")),
    can_run=False,
)


def test_case_042_a_gpu_that_leaks_from_a_failed_start_is_found_with_its_actor_and_nothing_without(monkeypatch):
    assert look_on(FAILING_WITH_GPUS) == ()
    leak_one_gpu(monkeypatch)
    (found,) = look_on(FAILING_WITH_GPUS)
    assert (found.name, found.subject) == ("GpusHaveOneHolder", "a1")
    assert "is Failed, and its status says that eval holds" in found.message
