"""Defects to be planted, one at a time: each takes one guard away, as a slip of a hand would. A campaign finds each.

A campaign that finds none of them could not find anything: `greenroom sim chaos --plant NAME` shows that it can.
"""

from __future__ import annotations

import math
from contextlib import contextmanager
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

import attrs

from actors import proof, snapshots
from actors.generations import Verdict, judge
from actors.gpu import partition as pool
from actors.gpu.quarantine import Quarantine
from actors.runsc.sandbox import Sandbox
from actors.steps import (
    inject,
    origin,
    partition,
    performer,
    recover,
    release,
    restore,
    suspend,
    teardown,
    thaw,
)
from actors.steps.stage import Freeze
from actors.stores import retention
from statemachine.actor import OnDrain
from statemachine.problem import Problem, ProblemError, Step
from statemachine.reasons import Reason
from supervisor import admitting, draining, recovering, spec_keeper, uploading
from supervisor.gpu_desk import WorkerGpus
from supervisor.life import Life
from supervisor.spec_keeper import SpecKeeper

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

Exchange = tuple[Any, str, Any]
"""Where a name is, the name, and what it means from now on."""


@attrs.frozen(kw_only=True)
class Defect:
    """One guard taken away.

    Attributes:
        what: in one sentence.
        exchanges: by what.
    """

    what: str
    exchanges: tuple[Exchange, ...]


# ---- GPUs


def _take_the_lowest(grant: Any, known: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(sorted(known.values(), key=lambda gpu: gpu.minor))[: len(grant.gpus)]


_gpus = partition._gpus  # noqa: SLF001 - a guard within is what is taken away


def _give_to_everybody(grant: Any, known: dict[str, Any]) -> Any:
    return _gpus(grant, known) if grant.gpus else tuple(known.values())[:1]


_dealt = pool._dealt  # noqa: SLF001 - as above


def _deal_from_above(claims: Any, gpus: Any) -> Any:
    return _dealt(claims, reversed(list(gpus)))


def _inject_nothing(pristine: Any, _plan: Any, **_options: Any) -> Any:
    return pristine


def _give_nothing_back(_desk: Any, _uid: str) -> None:
    return


_stop_containers = teardown.stop_containers


async def _give_back_and_stop(stage: Any, command: Any) -> Any:
    partition.give_back(stage, command.undo)
    return await _stop_containers(stage, command)


# ---- suspend and resume

_checkpoint_into = Sandbox.checkpoint_into
_save_snapshot = suspend.save_snapshot


async def _kill_before_the_proof(sandbox: Any, *args: Any, **options: Any) -> None:
    await _checkpoint_into(sandbox, *args, **options)
    await sandbox.runsc.processes.kill_and_wait(sandbox.process.identity, deadline_s=5)


class _Unsynced:
    """Files whose trees are never brought to the platter."""

    def __init__(self, files: Any) -> None:
        self._files = files

    def __getattr__(self, name: str) -> Any:
        return getattr(self._files, name)

    async def sync_tree(self, _path: Any) -> None:
        return


_prove = proof.prove


async def _prove_without_syncing(files: Any, directory: Any, **options: Any) -> Any:
    return await _prove(_Unsynced(files), directory, **options)


async def _write_no_manifest(_files: Any, _directory: Any, _manifest: Any) -> None:
    return


async def _stay_frozen(stage: Any, _step: Any) -> None:
    stage.freeze = Freeze.NOT_FROZEN


async def _delete_and_save(stage: Any, actor: Any) -> Any:
    await stage.ports.files.remove_tree(stage.directory.snapshots)
    return await _save_snapshot(stage, actor)


# ---- the worker


def _generous(known: Any, new: Any) -> Verdict:
    verdict = judge(known, new)
    return Verdict.UPDATE if verdict is Verdict.STALE else verdict


_suspend_or_stop = draining._suspend_or_stop  # noqa: SLF001 - a guard within is what is taken away


async def _forget_one(worker: Any, life: Any, *others: Any) -> None:
    if life is not worker.lives[0]:
        await _suspend_or_stop(worker, life, *others)


def _all_at_rest(_lives: Any) -> tuple[str, ...]:
    return ()


def _set_no_deadline(life: Any) -> None:
    life._deadline_at = math.inf  # noqa: SLF001 - as above


async def _leave_the_sandbox(stage: Any) -> None:
    stage.activation, stage.sandbox, stage.freeze = None, None, Freeze.NOT_FROZEN


# ---- restarts


async def _never_go_on(_stage: Any, _survivor: Any, _actor: Any) -> Any:
    raise ProblemError(_planted(Step.RECOVER, Reason.SUPERVISOR_RESTARTED))


async def _forget_the_wish(_worker: Any, _life: Any) -> None:
    return


async def _take_for_running(_reclaimed: Any, _actor: Any) -> bool:
    return False


async def _stop_at_once(_worker: Any, life: Any, *_others: Any) -> None:
    await life.drain(OnDrain.STOP)


async def _adopt_in_memory(stage: Any, assignment: Any) -> None:
    stage.assignment = assignment


# ---- restores and stores

_restore_sandbox = restore.restore_sandbox


async def _restore_an_older(stage: Any, command: Any) -> Any:
    older = [each for each in await _kept(stage) if each.created_at < command.snapshot.created_at]
    return await _restore_sandbox(stage, attrs.evolve(command, snapshot=older[-1]) if older else command)


async def _kept(stage: Any) -> list[Any]:
    files, directory = stage.ports.files, stage.directory.snapshots
    return await snapshots._believed(files, directory, await snapshots._names(files, directory))  # noqa: SLF001 - as above


async def _find_it_incompatible(_stage: Any, _manifest: Any) -> Any:
    raise ProblemError(_planted(Step.RESTORE, Reason.SNAPSHOT_INCOMPATIBLE))


async def _send_nothing(*_args: Any, **_options: Any) -> None:
    return


def _any_chunk(found: Any) -> tuple[str, ...]:
    return tuple(sorted(found.sizes))[:1]


def _planted(step: Step, reason: Reason) -> Problem:
    return Problem(step=step, reason=reason, subject="the defect", message="it is planted")


# ---- GPUs and their spec


def _withhold_nothing(_quarantine: Any, _now_s: float) -> Mapping[str, str]:
    return {}


async def _believe_it_holds(_files: Any, _stamps: Any) -> bool:
    return True


async def _remove_every_other(keeper: Any, current: str) -> None:
    await keeper._remove([name for name in await keeper._names() if name != current])  # noqa: SLF001 - as above


DEFECTS: Final[Mapping[str, Defect]] = MappingProxyType(
    {
        "gpu-granted-twice": Defect(
            what="A grant takes the lowest GPUs, whoever holds them.",
            exchanges=((partition, "_gpus", _take_the_lowest),),
        ),
        "grants-descend": Defect(
            what="The containers of an actor take its GPUs from the highest down.",
            exchanges=((pool, "_dealt", _deal_from_above),),
        ),
        "grant-kept": Defect(
            what="Who has ended does not give back its GPUs.",
            exchanges=((WorkerGpus, "give_back", _give_nothing_back),),
        ),
        "grant-given-back-early": Defect(
            what="A GPU is given back while the sandbox that has it is still being ended.",
            exchanges=((performer, "stop_containers", _give_back_and_stop),),
        ),
        "cpu-only": Defect(
            what="Who claims a GPU is started without its devices.",
            exchanges=((inject, "with_gpus", _inject_nothing),),
        ),
        "device-without-claim": Defect(
            what="A container beside one with a GPU gets that one, too.",
            exchanges=((partition, "_gpus", _give_to_everybody),),
        ),
        "killed-before-proof": Defect(
            what="The sandbox is ended as soon as its files are written, and not when they are proven.",
            exchanges=((Sandbox, "checkpoint_into", _kill_before_the_proof),),
        ),
        "manifest-before-files": Defect(
            what="The manifest is written before the files are on the platter.",
            exchanges=((suspend, "prove", _prove_without_syncing),),
        ),
        "promoted-not-written": Defect(
            what="The machine is told of a snapshot whose manifest nobody has written.",
            exchanges=((suspend, "write_manifest", _write_no_manifest),),
        ),
        "last-good-deleted": Defect(
            what="Older snapshots go before the newer one is there.",
            exchanges=((performer, "save_snapshot", _delete_and_save),),
        ),
        "no-thaw": Defect(
            what="After a save that has failed the sandbox stays frozen.",
            exchanges=((thaw, "resume_once", _stay_frozen),),
        ),
        "stale-generation": Defect(
            what="An older generation is followed.",
            exchanges=((admitting, "judge", _generous),),
        ),
        "drain-forgets": Defect(
            what="A worker that is asked to end forgets its first actor.",
            exchanges=(
                (draining, "_suspend_or_stop", _forget_one),
                (draining, "_not_at_rest", _all_at_rest),
            ),
        ),
        "no-deadline": Defect(
            what="A state has no deadline: what hangs has no way out.",
            exchanges=((Life, "_start_deadline", _set_no_deadline),),
        ),
        "never-taken-over": Defect(
            what="What runs on when a worker is killed is ended by the next one.",
            exchanges=((performer, "take_over", _never_go_on),),
        ),
        "frozen-taken-over": Defect(
            what="A sandbox that stands still is taken over as one that runs.",
            exchanges=((recover, "_stands_still", _take_for_running),),
        ),
        "update-not-written": Defect(
            what="A newer generation is followed, and not written down.",
            exchanges=((performer, "adopt_assignment", _adopt_in_memory),),
        ),
        "wish-forgotten": Defect(
            what="A generation that was written down when the worker was killed is not acted on.",
            exchanges=((recovering, "_follow", _forget_the_wish),),
        ),
        "drain-stops": Defect(
            what="A drain stops who could be suspended.",
            exchanges=((draining, "_suspend_or_stop", _stop_at_once),),
        ),
        "older-restored": Defect(
            what="A resume takes the snapshot before the newest.",
            exchanges=((performer, "restore_sandbox", _restore_an_older),),
        ),
        "found-incompatible": Defect(
            what="A snapshot that fits is refused as one that does not.",
            exchanges=((origin, "verdict", _find_it_incompatible),),
        ),
        "stored-not-sent": Defect(
            what="A snapshot is said to be in its store, and was never sent.",
            exchanges=((uploading, "upload", _send_nothing),),
        ),
        "upload-given-up": Defect(
            what="An upload that has failed is not tried again.",
            exchanges=((uploading, "HOPELESS", uploading.HOPELESS | {Reason.SNAPSHOT_NOT_UPLOADED}),),
        ),
        "chunk-removed": Defect(
            what="The store is rid of a chunk that a snapshot needs.",
            exchanges=((retention, "nobodys_chunks", _any_chunk),),
        ),
        "ill-gpu-granted": Defect(
            what="A GPU that was lost is granted as soon as it answers again.",
            exchanges=((Quarantine, "withheld", _withhold_nothing),),
        ),
        "spec-stale": Defect(
            what="A CDI spec is kept though the toolkit that made it is another one by now.",
            exchanges=((spec_keeper, "still_hold", _believe_it_holds),),
        ),
        "spec-removed": Defect(
            what="A CDI spec goes while a container still lives on its links.",
            exchanges=((SpecKeeper, "_prune", _remove_every_other),),
        ),
        "sandbox-left": Defect(
            what="The undo of an activation leaves its sandbox.",
            exchanges=((teardown, "end_sandbox", _leave_the_sandbox), (release, "end_sandbox", _leave_the_sandbox)),
        ),
    }
)
"""By name."""


@contextmanager
def planted(name: str | None) -> Iterator[None]:
    """Plant a defect while the body runs; None plants none.

    Raises:
        KeyError: there is none of this name.
    """
    exchanges = () if name is None else DEFECTS[name].exchanges
    before = [(where, attribute, getattr(where, attribute)) for where, attribute, _ in exchanges]
    try:
        for where, attribute, value in exchanges:
            setattr(where, attribute, value)
        yield
    finally:
        for where, attribute, value in before:
            setattr(where, attribute, value)
