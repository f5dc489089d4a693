"""`greenroom run`: the whole life of a worker, from the lock on its state directory to its last actor's end.

Signal handlers stand before anything else. One scope owns every task. A SIGTERM or SIGINT drains: new work is refused,
every actor comes to rest (`supervisor.draining`), and the worker leaves (`supervisor.leaving`) before its deadline.
"""

from __future__ import annotations

import signal
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import anyio
import structlog

from actors.layout import StateDir
from statemachine.actor import OnDifference
from statemachine.problem import Problem, ProblemError, Step
from statemachine.reasons import Reason
from statemachine.states import State
from supervisor import control, operations
from supervisor.admitting import Admission
from supervisor.asked_by_signal import REQUESTS, answer_signals
from supervisor.cgroups import take_in_hand
from supervisor.control import ControlServer, open_control_socket
from supervisor.directory_intake import DirectoryIntake
from supervisor.draining import Present, drain
from supervisor.gpu_desk import desk_of
from supervisor.health import CONTROL, INTAKE, Health
from supervisor.host.background import open_background
from supervisor.http_pages import serving_pages
from supervisor.inbox import SignalInbox
from supervisor.leaving import leaving_nothing
from supervisor.leftovers import end_until_gone
from supervisor.looking_on import LookingOn
from supervisor.metrics.exposing import Metrics
from supervisor.peers import Peers
from supervisor.recovering import recover
from supervisor.reloading import Reloading
from supervisor.runtime import look_at_runtime
from supervisor.shutdown import Phase, Shutdown
from supervisor.surveying import survey
from supervisor.usage import measured_status, measured_worker_status
from supervisor.worker import Worker

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from anyio.abc import TaskGroup

    from actors.ports import Listener, Ports
    from statemachine.events import GpuLost
    from supervisor.left import Left
    from supervisor.log_hearing import LogWorld
    from supervisor.observing import Observer
    from supervisor.reloading import SettingsSource
    from supervisor.settings import Settings
    from supervisor.surveying import Survey
    from supervisor.tracing import SpanExport

SIGNALS: Final = (signal.SIGTERM, signal.SIGINT, *REQUESTS)
"""What a worker handles, from before it holds anything until it has left everything."""
WAIT_MAX_S = 24 * 3600.0
_log = structlog.get_logger("greenroom.run")


async def run_worker(
    ports: Ports,
    settings: Settings,
    *,
    source: SettingsSource | None = None,
    tell_left: Callable[[Left], None] = lambda _left: None,
    log_world: LogWorld | None = None,
    spans: SpanExport | None = None,
) -> None:
    """Run a worker until it is asked to end and has ended.

    Args:
        ports: the world.
        settings: what it is started with.
        source: where they came from, to be read anew at SIGHUP; None when there is no file of settings.
        tell_left: is told at the end what became of every actor.
        log_world: what keeping the containers' logs needs; None keeps none within bounds, and tells none.
        spans: where spans go; None makes none.

    Raises:
        ProblemError: it cannot start: StateDirInUse, StateUnwritable, RuntimeUnavailable, RuntimeTooOld,
            CgroupUnavailable; or it has ended and something of a sandbox may be left: ProcessesUnreadable,
            StepDeadlineExceeded; or it has drained, and not all in time: StepDeadlineExceeded, SnapshotNotUploaded.
    """
    state_dir, shutdown = StateDir(settings.state_dir), Shutdown(settings.drain_timeout_s)
    requests, health = SignalInbox(), Health(shutdown)
    metrics = Metrics(ports, state_dir, health)
    async with (
        ports.signals.receive(*SIGNALS) as signals,
        _listening(signals, shutdown, requests),
        _held(ports, settings, state_dir),
        serving_pages(ports, settings, health, metrics),
        # Before anything is taken over: a worker that fails after that ends all sandboxes, with what runs in them.
        open_control_socket(ports.net, settings.control_socket, Peers(settings.control_uids)) as listener,
    ):
        runtime = await look_at_runtime(ports, settings)
        cgroups = await take_in_hand(ports, settings.cgroups)
        async with (
            leaving_nothing(ports, state_dir, shutdown, tell_left) as leaving,
            anyio.create_task_group() as scope,
        ):
            gpus, looking_on = desk_of(ports, settings), LookingOn(ports, state_dir, scope, log_world, spans)
            worker = leaving.worker = health.worker = Worker(
                ports=ports,
                settings=settings,
                state_dir=state_dir,
                runtime=runtime,
                gpus=gpus,
                shutdown=shutdown,
                scope=scope,
                performer_for=looking_on.executions.performer,
                observer=looking_on.beside(metrics.counts),
                cgroups=cgroups,
            )
            present = Present(worker)
            shutdown.when_asked = present.note
            looking_on.look_on(worker)
            reloading = Reloading(ports.files, worker, source)
            scope.start_soon(answer_signals, requests, worker, reloading, name="requests")
            found, recovered = await survey(ports, state_dir, gpus), anyio.Event()
            scope.start_soon(gpus.run, partial(_tell_loss, worker, recovered), worker.tell_trouble, name="gpus")
            await _recover(ports, worker, found, scope)
            recovered.set()
            if not worker.draining:
                await _work(ports, worker, health, reloading, looking_on=looking_on, listener=listener, scope=scope)
            looking_on.executions.end()
            leaving.drained = await drain(ports, worker, present, looking_on.executions.ended)
            await looking_on.finish()
            scope.cancel_scope.cancel()
    if leaving.left is not None and leaving.left.problems:
        raise ProblemError(*leaving.left.problems)


@asynccontextmanager
async def _listening(signals: AsyncIterator[int], shutdown: Shutdown, requests: SignalInbox) -> AsyncIterator[None]:
    """Hear every signal, from before anything is held until all of it is left."""
    async with open_background() as tasks:
        tasks.start_soon(_listen, signals, shutdown, requests, name="signals")
        yield


async def _listen(signals: AsyncIterator[int], shutdown: Shutdown, requests: SignalInbox) -> None:
    async for signum in signals:
        if signum in REQUESTS:
            requests.put(signum)
        else:
            _ask_for_the_end(signum, shutdown)


def _ask_for_the_end(signum: int, shutdown: Shutdown) -> None:
    """SIGTERM or SIGINT. From here on the worker is not ready; nothing of it has happened yet."""
    if shutdown.is_over:
        return  # the last line is said
    left_s, name = shutdown.ask(), signal.Signals(signum).name
    if left_s is None:
        _log.info("signal", signal=name)
    else:
        _log.info("draining", signal=name, drain_timeout_s=left_s)


async def _tell_loss(worker: Worker, recovered: anyio.Event, uid: str, event: GpuLost) -> None:
    """A GPU may have been lost while nobody was there: told once its holder can hear it."""
    await recovered.wait()
    await worker.lose_gpu(uid, event)


async def _recover(ports: Ports, worker: Worker, found: Survey, scope: TaskGroup) -> None:
    """Take over what an earlier life left. Who asks for the end meanwhile waits for what lives, not for all actors."""
    with worker.shutdown.until(Phase.SAVING):
        recovery = await recover(ports, worker.state_dir, worker, found)
        worker.has_recovered = recovery.has_seen_all
        if recovery.unended:
            scope.start_soon(end_until_gone, ports, worker, recovery.unended, name="leftovers")


async def _work(
    ports: Ports,
    worker: Worker,
    health: Health,
    reloading: Reloading,
    *,
    looking_on: LookingOn,
    listener: Listener,
    scope: TaskGroup,
) -> None:
    """Take on work, over the socket and from the directory, until a signal asks for the end."""
    settings, state_dir = worker.settings, worker.state_dir
    admission = Admission(
        files=ports.files,
        stores=ports.stores,
        roster=worker,
        snapshots_of=lambda uid: state_dir.actor(uid).snapshots,
        observer=worker.observer,
    )
    server = ControlServer(
        listener=listener,
        operations=_operations(ports, worker, admission, looking_on),
        peers=Peers(settings.control_uids),
    )
    scope.start_soon(health.run, CONTROL, server.run, name=CONTROL)
    async with anyio.create_task_group() as intakes:
        if settings.assignments is not None:
            intake = DirectoryIntake(
                directory=settings.assignments.absolute(),
                ports=ports,
                state_dir=state_dir,
                worker=worker,
                admission=admission,
            )
            reloading.intake = intake
            intakes.start_soon(health.run, INTAKE, intake.run, name=INTAKE)
        _log.info(
            "ready",
            runsc=str(worker.runtime.path),
            runsc_version=worker.runtime.version.text,
            state_dir=str(settings.state_dir),
            control_socket=str(settings.control_socket),
            assignments=str(settings.assignments) if settings.assignments else None,
        )
        with health.taking_work():
            await worker.shutdown.asked.wait()
        intakes.cancel_scope.cancel()


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
    ports: Ports, worker: Worker, admission: Admission, looking_on: LookingOn
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
            return await measured_worker_status(worker, boot_id=ports.wall.boot_id())
        return await measured_status(worker, worker.require(control.text(request, "uid")))

    async def wait(request: dict[str, Any]) -> Any:
        timeout_s = control.number(request, "timeout_s", default=300.0, largest=WAIT_MAX_S)
        wanted = control.word(request, "state", State)
        life = await operations.wait(worker, control.text(request, "uid"), wanted, timeout_s=timeout_s)
        return worker.status_of(life)

    asked = partial(_telling_refusals, worker.observer)
    return {
        "submit": asked(submit),
        "suspend": asked(suspend),
        "resume": asked(resume),
        "stop": asked(stop),
        "status": status,
        "wait": wait,
        **looking_on.operations,
    }


def _telling_refusals(observer: Observer, operation: control.Operation) -> control.Operation:
    """What asks something of an actor can be refused."""

    async def told(request: dict[str, Any]) -> Any:
        try:
            return await operation(request)
        except ProblemError as error:
            observer.refused(error.problems)
            raise

    return told


def _state_problem(reason: Reason, state_dir: StateDir, message: str) -> Problem:
    return Problem(step=Step.SUPERVISE, reason=reason, subject=str(state_dir.root), message=message)
