"""The demo for real: its stories (`supervisor.cli.story`, `gpu_story`) with the real worker and gVisor.

All that is made, the GPU node too, is in a scratch directory that goes away.

The command itself, `greenroom demo`, is in `sim.cli.demo`, which can play the same story in the simulated world.
"""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING, Final

import anyio
import attrs
import click

from actors.layout import StateDir
from actors.runsc.nvproxy import Nvproxy
from actors.runsc.teardown import find_leftovers
from statemachine.problem import Problem, ProblemError, Step
from statemachine.reasons import Reason
from supervisor.cli.gpu_story import GpuStory, LogEyes
from supervisor.cli.story import RUNSC, Story
from supervisor.cli.telling import Telling, require
from supervisor.host.composition import open_host_ports
from supervisor.host.net import HostNet
from supervisor.host.scratch import make_busybox_rootfs, scratch_directory
from supervisor.host.signals import interrupting
from supervisor.host.surroundings import effective_uid, find_busybox, find_runsc, in_chroot, read_small
from supervisor.logs import LogFormat, configure_logs
from supervisor.running import SIGNALS, run_worker
from supervisor.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from actors.ports import DriverPlaces

ENDING: Final = (signal.SIGTERM, signal.SIGINT)
"""What ends the demo; a shell that starts it in its background has it ignore SIGINT."""
LOG_TAIL_BYTES: Final = 4000
NOT_PERMITTED: Final = ("not permitted", "permission denied", "don't have cap_", "namespace", "pivot_root", "seccomp")
"""Words of runsc's that mean: this machine does not let gVisor run, rather than: something is wrong."""


@attrs.frozen(kw_only=True)
class GpuNode:
    """A node with GPUs for the second story.

    Attributes:
        places: where its driver is.
        toolkit_dir: where its nvidia-ctk is.
        gpu_monitor: who tells of its GPUs, if that is not our own monitor.
        where: what is said of it.
    """

    places: DriverPlaces
    toolkit_dir: Path
    gpu_monitor: Path | None
    where: str


def play_for_real(make_gpu_node: Callable[[Path], GpuNode | str]) -> str | None:
    """Play the stories with gVisor; returns why that is not possible on this machine, or None when it was played.

    Args:
        make_gpu_node: makes a mock GPU node in a directory that is not there yet, or says why it cannot.

    Raises:
        ProblemError: gVisor can run here, and something went wrong; or what is told cannot be written.
        KeyboardInterrupt: a signal asked for the end, and everything is undone.
    """
    busybox = find_busybox()
    obstacle = _obstacle(busybox)
    if busybox is None or obstacle is not None:
        return obstacle or ""
    with (
        interrupting(signal.SIGTERM),
        scratch_directory("greenroom-demo-") as scratch,
        (scratch / "worker.log").open("wb", buffering=0) as log,
    ):
        configure_logs(LogFormat.JSON, level="info", stream=log)
        make_busybox_rootfs(scratch / "rootfs", busybox)
        try:
            gpus = make_gpu_node(scratch / "gpus")
            was_interrupted = anyio.run(_play, scratch, gpus)
        except (ProblemError, BaseExceptionGroup) as error:
            problem = _first_problem(error)
            if problem is not None and _says_not_permitted(problem):
                chroot = "; this is a chroot, in which the kernel refuses user namespaces" if in_chroot() else ""
                return f"gVisor cannot run here: {problem.message}{chroot}"
            if problem is not None and problem.reason is not Reason.OUTPUT_UNWRITABLE:
                click.echo(read_small(scratch / "worker.log")[-LOG_TAIL_BYTES:], err=True)
            raise
        if was_interrupted:
            raise KeyboardInterrupt
    return None


def _settings(scratch: Path, gpus: GpuNode | str) -> Settings:
    settings = Settings(state_dir=scratch / "state", run_dir=scratch / "run", assignments=None, runsc=find_runsc(None))
    if isinstance(gpus, str):
        return settings
    return attrs.evolve(
        settings,
        places=gpus.places,
        toolkit_dir=gpus.toolkit_dir,
        gpu_monitor=gpus.gpu_monitor,
        nvproxy=Nvproxy.OFF,  # no driver is behind the nodes
    )


async def _play(scratch: Path, gpus: GpuNode | str) -> bool:
    """Play it, from an empty directory to an empty directory; whether a signal asked for the end before its end."""
    settings = _settings(scratch, gpus)
    roots = (settings.state_dir, settings.run_dir)
    asked = anyio.Event()
    # What removes the scratch directory afterwards is not interrupted any more.
    async with open_host_ports(roots=roots, gpu_monitor=settings.gpu_monitor, ignored_afterwards=SIGNALS) as ports:
        telling = Telling(net=HostNet(), files=ports.files, settings=settings, say=click.echo)
        where = f"real gVisor, {RUNSC}"
        story = Story(telling=telling, base=scratch, where=where, verdict="proven")
        async with ports.signals.receive(*ENDING) as signals, anyio.create_task_group() as group:

            async def listen() -> None:
                await anext(signals)
                asked.set()
                group.cancel_scope.cancel()

            group.start_soon(listen)
            group.start_soon(run_worker, ports, settings)
            await story.play()
            await _play_with_gpus(telling, scratch, gpus)
            group.cancel_scope.cancel()
        left = await find_leftovers(ports.processes, ports.files, StateDir(settings.state_dir).sandboxes)
        require(not left, f"sandboxes are left: {[each.activation for each in left]}")
    return asked.is_set()


async def _play_with_gpus(telling: Telling, scratch: Path, gpus: GpuNode | str) -> None:
    if isinstance(gpus, str):
        telling.say(f"\nwithout GPUs, as no mock GPU node can be made here: {gpus}")
        return
    eyes = LogEyes(telling)
    await GpuStory(telling=telling, base=scratch, eyes=eyes, where=gpus.where, verdict="proven").play()


def _obstacle(busybox: Path | None) -> str | None:
    """What on this machine speaks against gVisor before it is tried."""
    try:
        find_runsc(None)
    except ProblemError as error:
        return f"{error.problem.message}; `make setup` installs it where Debian's packages can be had"
    if busybox is None:
        return "there is no busybox for the demo's root filesystem; `make setup` installs it"
    if effective_uid() != 0:
        return f"gVisor needs root to make its namespaces, and this is uid {effective_uid()}; run it as root"
    return None


def _says_not_permitted(problem: Problem) -> bool:
    words = f"{problem.message}\n{problem.detail}".lower()
    runtime = problem.reason in {Reason.RUNTIME_FAILED, Reason.RUNTIME_UNAVAILABLE, Reason.SANDBOX_DIED}
    return runtime and problem.step in {Step.CREATE, Step.SUPERVISE} and any(word in words for word in NOT_PERMITTED)


def _first_problem(error: BaseException) -> Problem | None:
    """The first cause, out of the groups that task groups made; None when it is something else than a problem."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error.problem if isinstance(error, ProblemError) else None
