"""`greenroom run`: the whole life of a worker, from the lock on its state directory to its last actor's end.

Signal handlers stand before anything else. One scope owns every task. A SIGTERM or SIGINT drains: new work is refused,
every actor is asked to end, and the worker leaves when all have, or when the drain's deadline is over.
"""

from __future__ import annotations

import errno
import signal
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import anyio
import structlog

from actors.layout import StateDir
from statemachine.actor import OnDifference
from statemachine.problem import Problem, ProblemError, Step
from statemachine.reasons import Reason
from statemachine.states import INACTIVE, State
from supervisor import control, operations
from supervisor.admitting import Admission
from supervisor.control import ControlServer
from supervisor.directory_intake import DirectoryIntake
from supervisor.gpu_desk import desk_of
from supervisor.log_reading import read_log
from supervisor.recovering import end_leftovers, recover
from supervisor.runtime import look_at_runtime
from supervisor.status import worker_status
from supervisor.surveying import survey
from supervisor.worker import Worker

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from anyio.abc import TaskGroup

    from actors.ports import Ports
    from statemachine.events import GpuLost
    from supervisor.settings import Settings
    from supervisor.surveying import Survey

SIGNALS: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
"""What a worker handles, from before it holds anything until it has left everything."""
WAIT_MAX_S = 24 * 3600.0
LEFTOVERS_S = 30.0
"""How long the end of what a drain left may take."""

_log = structlog.get_logger("greenroom.run")


async def run_worker(ports: Ports, settings: Settings) -> None:
    """Run a worker until it is asked to end and has ended.

    Raises:
        ProblemError: it cannot start: StateDirInUse, StateUnwritable, RuntimeUnavailable, RuntimeTooOld; or it has
            ended and something of a sandbox may be left: ProcessesUnreadable, StepDeadlineExceeded.
    """
    state_dir = StateDir(settings.state_dir)
    async with (
        ports.signals.receive(*SIGNALS) as signals,
        _held(ports, settings, state_dir),
    ):
        runtime = await look_at_runtime(ports, settings)
        async with _leaving_no_sandbox(ports, state_dir), anyio.create_task_group() as scope:
            gpus = desk_of(ports, settings)
            worker = Worker(
                ports=ports, settings=settings, state_dir=state_dir, runtime=runtime, gpus=gpus, scope=scope
            )
            found, recovered = await survey(ports, state_dir, gpus), anyio.Event()
            scope.start_soon(gpus.run, partial(_tell_loss, worker, recovered), name="gpus")
            await _recover(ports, worker, signals, found)
            recovered.set()
            if not worker.draining:
                await _work(ports, settings, worker, signals, scope)
            await _drain(worker, settings)
            scope.cancel_scope.cancel()
    _log.info("left", actors={life.uid: str(life.actor.state) for life in worker.lives})


@asynccontextmanager
async def _leaving_no_sandbox(ports: Ports, state_dir: StateDir) -> AsyncIterator[None]:
    """However the body ends, by a drain, a fault or a cancellation: no sandbox outlives its worker."""
    try:
        yield
    except BaseException:
        with suppress(Exception):  # it is told, and hides not why we end
            await _end_what_is_left(ports, state_dir)
        raise
    await _end_what_is_left(ports, state_dir)


async def _end_what_is_left(ports: Ports, state_dir: StateDir) -> None:
    try:
        with anyio.fail_after(LEFTOVERS_S, shield=True):
            await end_leftovers(ports, state_dir)
    except ProblemError as error:
        _log.error("leftovers", reason=str(error.problem.reason), message=error.problem.message)
        raise
    except TimeoutError as error:
        problem = _left_behind(state_dir)
        _log.error("leftovers", reason=str(problem.reason), message=problem.message)
        raise ProblemError(problem) from error
    except Exception:
        _log.exception("fault", reason=str(Reason.INTERNAL))
        raise


async def _tell_loss(worker: Worker, recovered: anyio.Event, uid: str, event: GpuLost) -> None:
    """A GPU may have been lost while nobody was there: told once its holder can hear it."""
    await recovered.wait()
    await worker.lose_gpu(uid, event)


async def _recover(ports: Ports, worker: Worker, signals: AsyncIterator[int], found: Survey) -> None:
    """Take over what an earlier life left. Who asks for the end meanwhile waits for what lives, not for all actors."""
    async with anyio.create_task_group() as group:
        group.start_soon(_drain_when_asked, worker, signals)
        await recover(ports, worker.state_dir, worker, found)
        group.cancel_scope.cancel()


async def _work(
    ports: Ports, settings: Settings, worker: Worker, signals: AsyncIterator[int], scope: TaskGroup
) -> None:
    """Take on work, over the socket and from the directory, until a signal asks for the end."""
    state_dir = worker.state_dir
    admission = Admission(
        files=ports.files,
        stores=ports.stores,
        roster=worker,
        snapshots_of=lambda uid: state_dir.actor(uid).snapshots,
    )
    server = ControlServer(
        ports=ports, path=settings.control_socket, operations=_operations(ports, worker, admission, state_dir)
    )
    scope.start_soon(_serve, server, name="control")
    await server.listening.wait()
    async with anyio.create_task_group() as intakes:
        if settings.assignments is not None:
            intake = DirectoryIntake(
                directory=settings.assignments.absolute(),
                ports=ports,
                state_dir=state_dir,
                worker=worker,
                admission=admission,
            )
            intakes.start_soon(intake.run, name="intake")
        _log.info(
            "ready",
            runsc=str(worker.runtime.path),
            runsc_version=worker.runtime.version.text,
            state_dir=str(settings.state_dir),
            control_socket=str(settings.control_socket),
            assignments=str(settings.assignments) if settings.assignments else None,
        )
        await _drain_when_asked(worker, signals)
        intakes.cancel_scope.cancel()


async def _drain_when_asked(worker: Worker, signals: AsyncIterator[int]) -> None:
    """Wait for SIGTERM or SIGINT. A terminal that is closed (SIGHUP) is no reason to end anybody's actors."""
    while (signum := await anext(signals)) == signal.SIGHUP:
        _log.info("signal", signal="SIGHUP")
    drain_timeout_s = worker.settings.drain_timeout_s
    _log.info("draining", signal=signal.Signals(signum).name, drain_timeout_s=drain_timeout_s)
    worker.draining = True


async def _drain(worker: Worker, settings: Settings) -> None:
    with anyio.move_on_after(settings.drain_timeout_s) as patience:
        await worker.drain()
        # A pod that goes takes its disk with it: what is not in its store by then may be lost.
        await worker.uploads.finish()
    if patience.cancelled_caught:
        left = [life.uid for life in worker.lives if life.actor.state not in INACTIVE]
        not_uploaded = list(worker.uploads.left)
        _log.error("drain", reason=str(Reason.STEP_DEADLINE_EXCEEDED), left=left, not_uploaded=not_uploaded)


async def _serve(server: ControlServer) -> None:
    """The control socket is the way in for a person: without it the worker does not run."""
    try:
        await server.run()
    except OSError as error:
        raise ProblemError(_socket_problem(server.path, error)) from error


@asynccontextmanager
async def _held(ports: Ports, settings: Settings, state_dir: StateDir) -> AsyncIterator[None]:
    """Hold the directories: the state directory by its lock, the run directory by being there."""
    try:
        for directory in (
            settings.run_dir,
            state_dir.root,
            state_dir.actors,
            state_dir.sandboxes,
            state_dir.cdi,
            state_dir.refused,
        ):
            await ports.files.make_directory(directory)
        lock = await ports.files.lock(state_dir.lock)
    except BlockingIOError as error:
        message = f"another worker holds {state_dir.root}"
        raise ProblemError(_state_problem(Reason.STATE_DIR_IN_USE, state_dir, message)) from error
    except OSError as error:
        message = f"{error.filename or state_dir.root} cannot be used: {error.strerror or error}"
        raise ProblemError(_state_problem(Reason.STATE_UNWRITABLE, state_dir, message)) from error
    try:
        yield
    finally:
        lock.close()


def _operations(
    ports: Ports, worker: Worker, admission: Admission, state_dir: StateDir
) -> dict[str, control.Operation]:
    """What the control socket can do, by the name of the operation."""

    async def submit(request: dict[str, Any]) -> Any:
        base = control.absolute_path(request, "base")
        admitted = await admission.submit(control.text(request, "document").encode(), base=base)
        return {"uid": admitted.uid, "generation": admitted.generation, "effect": str(admitted.effect)}

    async def suspend(request: dict[str, Any]) -> Any:
        return {"state": str(await operations.suspend(worker, control.text(request, "uid")))}

    async def resume(request: dict[str, Any]) -> Any:
        uid = control.text(request, "uid")
        on_difference = OnDifference.REFUSE
        if "onDifference" in request:
            on_difference = control.word(request, "onDifference", OnDifference)
        starts_anew = operations.starts_anew(worker, uid)
        return {"state": str(await operations.resume(worker, uid, on_difference)), "startsAnew": starts_anew}

    async def stop(request: dict[str, Any]) -> Any:
        return {"state": str(await operations.stop(worker, control.text(request, "uid")))}

    async def status(request: dict[str, Any]) -> Any:
        if request.get("uid") is None:
            return worker_status(worker, boot_id=ports.wall.boot_id())
        return worker.status_of(worker.require(control.text(request, "uid")))

    async def wait(request: dict[str, Any]) -> Any:
        timeout_s = control.number(request, "timeout_s", default=300.0, largest=WAIT_MAX_S)
        wanted = control.word(request, "state", State)
        life = await operations.wait(worker, control.text(request, "uid"), wanted, timeout_s=timeout_s)
        return worker.status_of(life)

    async def logs(request: dict[str, Any]) -> Any:
        life = worker.require(control.text(request, "uid"))
        offset_bytes = int(control.number(request, "offset_bytes", default=0, largest=1 << 62))
        name = control.text(request, "container")
        return await read_log(ports.files, state_dir.actor(life.uid), life.assignment, name, offset_bytes=offset_bytes)

    return {
        "submit": submit,
        "suspend": suspend,
        "resume": resume,
        "stop": stop,
        "status": status,
        "wait": wait,
        "logs": logs,
    }


def _socket_problem(path: Path, error: OSError) -> Problem:
    if error.errno == errno.EADDRINUSE:
        return Problem(
            step=Step.SUPERVISE,
            reason=Reason.STATE_DIR_IN_USE,
            subject=str(path),
            message=f"another worker listens at {path}, or something that is no socket is there",
            hint="Stop the other worker (`greenroom status --run-dir` shows it), or use another --run-dir.",
        )
    return Problem(
        step=Step.SUPERVISE,
        reason=Reason.STATE_UNWRITABLE,
        subject=str(path),
        message=f"the control socket {path} cannot be made: {error.strerror or error}",
        hint="Use another --run-dir; a socket's path has at most 107 bytes.",
    )


def _left_behind(state_dir: StateDir) -> Problem:
    return Problem(
        step=Step.SUPERVISE,
        reason=Reason.STEP_DEADLINE_EXCEEDED,
        subject=str(state_dir.sandboxes),
        message=f"what is left of sandboxes below {state_dir.sandboxes} did not end within {LEFTOVERS_S:g} s",
        hint="The worker's next start ends what is left.",
    )


def _state_problem(reason: Reason, state_dir: StateDir, message: str) -> Problem:
    return Problem(step=Step.SUPERVISE, reason=reason, subject=str(state_dir.root), message=message)
