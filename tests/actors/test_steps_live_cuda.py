"""Live CUDA contexts before a suspend: two witnesses, each alone enough; waiting; and what cuda-checkpoint needs."""

import errno
import json
from pathlib import Path

import anyio
import attrs
import pytest

from actors.assignment import OnLiveCuda, Suspend
from actors.bundle.given import CONFIG_BYTES_MAX
from actors.ports import OpenFile
from actors.runsc.checkpoint_flags import CUDA_FLAGS
from actors.steps import live_cuda
from actors.steps.suspend import save_snapshot
from actors.steps.thaw import thaw
from statemachine import events as e
from statemachine.problem import Problem, ProblemError, Step
from statemachine.reasons import Reason
from tests.actors.gpu_stage import a_desk
from tests.actors.step_stage import an_actor, reason_of, saved, shaped
from tests.gpu.making import gpu

pytestmark = pytest.mark.anyio

QUESTIONS = {"is_executing", "memory_bytes", "open_files"}
GPU0 = OpenFile(path="/dev/nvidia0", device=(195, 0))
UVM = OpenFile(path="/root/dev/nvidia-uvm", device=(511, 0))
IN_IMAGE = "/usr/local/bin/cuda-checkpoint"


class Flags:
    """What a runsc says of its checkpoint."""

    def __init__(self, known):
        self._known = known

    async def known(self):
        return self._known


def granted(*, on_live_cuda=OnLiveCuda.REFUSE, flags=CUDA_FLAGS, driver="580.65.06", containers=("main",)):
    """A stage whose containers have a GPU each, the last one of several none."""
    desk = a_desk(0, 1, driver=driver)
    stage, sandbox, marks = shaped(*containers, gpus=desk)
    stage.granted = {name: (gpu(number),) for number, name in enumerate(containers[:2])}
    stage.granted |= dict.fromkeys(containers[2:], ())
    stage.spec = desk.kept
    stage.assignment = attrs.evolve(stage.assignment, suspend=Suspend(on_live_cuda=on_live_cuda))
    stage.runtime = attrs.evolve(stage.runtime, checkpoint_flags=None if flags is None else Flags(flags))
    return stage, sandbox, desk, marks


def put_program(stage, name, path=IN_IMAGE, *, env=("PATH=/usr/local/bin:/bin",), mounts=()):
    """A container whose image has cuda-checkpoint at this path; None has none."""
    root = Path("/images") / name
    config = {"process": {"env": list(env)}, "root": {"path": str(root)}, "mounts": list(mounts)}
    files = stage.ports.files
    files.put(stage.activation / "bundles" / name / "config.json", json.dumps(config).encode())
    if path is not None:
        files.put(root / path[1:], b"ELF")
        files.modes[root / path[1:]] = 0o755


async def refusal_of(stage, sandbox):
    refused = await save_snapshot(stage, an_actor(*([None] * len(sandbox.containers)), names=sandbox.containers))
    assert isinstance(refused, e.SuspendRefused)
    assert await thaw(stage) == e.Thawed()
    assert set(sandbox.story) <= QUESTIONS
    assert not stage.ports.files.below(stage.directory.snapshots)
    return refused.problem


def unavailable():
    return ProblemError(
        Problem(step=Step.SUSPEND, reason=Reason.NVML_UNAVAILABLE, subject="nvml", message="NVML hangs")
    )


# ------------------------------------------------------------------------------------------------------- the witnesses


async def test_a_device_that_the_sandbox_holds_open_refuses_alone_and_at_once(monkeypatch):
    monkeypatch.setattr(live_cuda, "STALE_S", 3600.0)
    stage, sandbox, _, marks = granted()
    sandbox.held = (UVM, GPU0, OpenFile(path="/images/app/nvidia0"))
    with anyio.fail_after(60):
        problem = await refusal_of(stage, sandbox)
    assert (problem.reason, problem.subject) == (Reason.LIVE_CUDA_CONTEXT, stage.assignment.uid)
    assert problem.message == "a CUDA context is open: the sandbox holds /dev/nvidia-uvm, /dev/nvidia0 open"
    assert marks == []


async def test_a_process_that_nvml_tells_of_refuses_alone_with_pid_and_gpu(monkeypatch):
    monkeypatch.setattr(live_cuda, "STALE_S", 0.0)
    stage, sandbox, desk, _ = granted()
    desk.computing = [{"GPU-0": (4711,), "GPU-1": (5,)}]
    problem = await refusal_of(stage, sandbox)
    assert problem.reason is Reason.LIVE_CUDA_CONTEXT
    # The other GPU is nobody's here.
    assert problem.message == "a CUDA context is open: process computes on /dev/nvidia0: pid 4711"


async def test_what_nvml_alone_says_may_be_old_and_is_asked_again_after_its_next_look(monkeypatch):
    monkeypatch.setattr(live_cuda, "_LOOK_AGAIN_S", 0.0)
    stage, _, desk, _ = granted()
    desk.computing = [{"GPU-0": (4711,)}, {"GPU-0": (4711,)}, {}]
    await saved(stage)
    assert desk.story.count("compute processes") == 3


@pytest.mark.parametrize("on_live_cuda", OnLiveCuda)
async def test_a_witness_that_does_not_answer_has_not_said_no(monkeypatch, on_live_cuda):
    monkeypatch.setattr(live_cuda, "WAIT_S", 0.0)
    stage, sandbox, desk, _ = granted(on_live_cuda=on_live_cuda, flags=None)
    desk.fails["compute processes"] = unavailable()
    problem = await refusal_of(stage, sandbox)
    # Who would save a context is told what is missing for that.
    missing = Reason.CUDA_CHECKPOINT_UNSUPPORTED
    assert problem.reason is (missing if on_live_cuda is OnLiveCuda.CHECKPOINT else Reason.NVML_UNAVAILABLE)


async def test_a_sandbox_that_cannot_be_looked_at_refuses():
    stage, sandbox, _, _ = granted()
    sandbox.fails["open_files"] = PermissionError(errno.EACCES, "Permission denied")
    assert (await refusal_of(stage, sandbox)).reason is Reason.PROCESSES_UNREADABLE


async def test_one_witness_for_a_context_is_believed_while_the_other_does_not_answer():
    stage, sandbox, desk, _ = granted()
    desk.fails["compute processes"] = unavailable()
    sandbox.held = (GPU0,)
    assert (await refusal_of(stage, sandbox)).reason is Reason.LIVE_CUDA_CONTEXT


async def test_an_actor_without_a_grant_has_no_witness():
    stage, sandbox, desk, _ = granted()
    stage.granted = {"main": ()}
    sandbox.held = (GPU0,)
    desk.fails["compute processes"] = unavailable()
    await saved(stage)
    assert desk.story == []


async def test_a_device_that_is_opened_before_the_freeze_fails_the_suspend_before_anything_is_saved():
    stage, sandbox, _, _ = granted()
    freeze = sandbox.freeze

    async def freeze_with_an_open_device():
        await freeze()
        sandbox.held = (GPU0,)

    sandbox.freeze = freeze_with_an_open_device
    assert await reason_of(save_snapshot(stage, an_actor())) is Reason.LIVE_CUDA_CONTEXT
    assert not any(each.startswith("checkpoint") for each in sandbox.story)


# ---------------------------------------------------------------------------------------------------------------- Wait


async def test_a_wait_ends_by_itself_once_both_say_no_and_the_suspend_goes_on(monkeypatch):
    monkeypatch.setattr(live_cuda, "_LOOK_AGAIN_S", 0.0)
    stage, sandbox, desk, marks = granted(on_live_cuda=OnLiveCuda.WAIT)
    sandbox.held = (GPU0,)
    asked = 0

    async def compute_processes(uuids):
        nonlocal asked
        asked += 1
        sandbox.held = (GPU0,) if asked < 3 else ()
        return dict.fromkeys(uuids, (7,) if asked < 5 else ())

    desk.compute_processes = compute_processes
    await saved(stage)
    assert asked == 5
    assert marks[:2] == ["WaitingForCuda", "Paused"]


async def test_a_wait_that_is_in_vain_is_refused(monkeypatch):
    monkeypatch.setattr(live_cuda, "WAIT_S", 0.02)
    monkeypatch.setattr(live_cuda, "_LOOK_AGAIN_S", 0.005)
    stage, sandbox, _, _ = granted(on_live_cuda=OnLiveCuda.WAIT)
    sandbox.held = (GPU0,)
    problem = await refusal_of(stage, sandbox)
    assert problem.reason is Reason.LIVE_CUDA_CONTEXT
    assert "still open after 0.02 s" in problem.message


async def test_a_wait_can_be_given_up_and_has_touched_nothing():
    stage, sandbox, _, marks = granted(on_live_cuda=OnLiveCuda.WAIT)
    sandbox.held = (GPU0,)
    async with anyio.create_task_group() as group:
        group.start_soon(save_snapshot, stage, an_actor())
        with anyio.fail_after(60):
            while "WaitingForCuda" not in marks:
                await anyio.lowlevel.checkpoint()
        group.cancel_scope.cancel()
    assert await thaw(stage) == e.Thawed()
    assert set(sandbox.story) <= QUESTIONS


async def test_who_waits_for_nothing_marks_nothing():
    stage, _, _, marks = granted(on_live_cuda=OnLiveCuda.WAIT)
    await saved(stage)
    assert marks[0] == "Paused"


# ---------------------------------------------------------------------------------------------------------- Checkpoint


async def test_a_live_context_is_saved_by_the_program_in_the_container_and_looked_at_again():
    stage, sandbox, _, _ = granted(on_live_cuda=OnLiveCuda.CHECKPOINT)
    put_program(stage, "main")
    sandbox.held = (GPU0,)
    await saved(stage)
    look = ["inspect main", "is_executing"]
    assert sandbox.story[sandbox.story.index("freeze") :] == ["freeze", *look, f"checkpoint by {IN_IMAGE}", *look]


async def test_what_ended_while_the_sandbox_was_unfrozen_for_it_fails_the_suspend():
    stage, sandbox, _, _ = granted(on_live_cuda=OnLiveCuda.CHECKPOINT)
    put_program(stage, "main")
    sandbox.held, sandbox.stops_while_saved = (GPU0,), {"main"}
    assert await reason_of(save_snapshot(stage, an_actor())) is Reason.CONTAINER_EXITED


@pytest.mark.parametrize(
    ("changes", "places", "reason"),
    [
        ({"flags": None}, IN_IMAGE, Reason.CUDA_CHECKPOINT_UNSUPPORTED),
        ({"flags": frozenset({"image-path"})}, IN_IMAGE, Reason.CUDA_CHECKPOINT_UNSUPPORTED),
        ({"flags": frozenset({"cuda-checkpoint-path"})}, IN_IMAGE, Reason.CUDA_CHECKPOINT_UNSUPPORTED),
        ({"driver": "535.129.03"}, IN_IMAGE, Reason.CUDA_DRIVER_TOO_OLD),
        ({}, None, Reason.CUDA_CHECKPOINT_NOT_FOUND),
        ({}, "/opt/bin/cuda-checkpoint", Reason.CUDA_CHECKPOINT_NOT_FOUND),
    ],
)
async def test_each_piece_that_is_missing_for_a_live_context_has_its_reason(changes, places, reason):
    stage, sandbox, _, _ = granted(on_live_cuda=OnLiveCuda.CHECKPOINT, **changes)
    put_program(stage, "main", places)
    sandbox.held = (GPU0,)
    problem = await refusal_of(stage, sandbox)
    assert problem.reason is reason
    assert problem.message.endswith("an open CUDA context cannot be saved (the sandbox holds /dev/nvidia0 open)")


@pytest.mark.parametrize("missing", ["nothing", "all"])
async def test_without_a_context_nothing_is_needed_and_what_is_there_is_used_for_one_that_comes(missing):
    flags = None if missing == "all" else CUDA_FLAGS
    stage, sandbox, _, _ = granted(on_live_cuda=OnLiveCuda.CHECKPOINT, flags=flags)
    put_program(stage, "main")
    await saved(stage)
    assert ("checkpoint" if missing == "all" else f"checkpoint by {IN_IMAGE}") in sandbox.story


async def test_a_document_that_became_larger_than_a_given_one_may_be_is_read_all_the_same():
    stage, sandbox, _, _ = granted(on_live_cuda=OnLiveCuda.CHECKPOINT)
    put_program(stage, "main", env=["PATH=/usr/local/bin", "LARGE=" + "x" * CONFIG_BYTES_MAX])
    sandbox.held = (GPU0,)
    await saved(stage)
    assert f"checkpoint by {IN_IMAGE}" in sandbox.story


async def test_containers_with_a_gpu_need_the_program_at_one_path_and_others_do_not():
    stage, sandbox, _, _ = granted(on_live_cuda=OnLiveCuda.CHECKPOINT, containers=("one", "two", "log"))
    put_program(stage, "one", "/usr/bin/cuda-checkpoint", env=["PATH=/usr/local/bin:/usr/bin"])
    put_program(stage, "two", IN_IMAGE, env=["PATH=/usr/local/bin:/usr/bin"])
    put_program(stage, "log", None)
    sandbox.held = (GPU0,)
    problem = await refusal_of(stage, sandbox)
    assert (problem.reason, problem.subject) == (Reason.CUDA_CHECKPOINT_NOT_FOUND, "two")
    assert "where the other containers have it" in problem.message
    put_program(stage, "one", IN_IMAGE, env=["PATH=/usr/bin:/usr/local/bin"])
    await save_snapshot(stage, an_actor(None, None, None, names=("one", "two", "log")))
    assert f"checkpoint by {IN_IMAGE}" in sandbox.story
