"""Every check, one after the other, in the order in which a person would look: ourselves, gVisor, the GPU, the pod."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import attrs

from actors.layout import CONTROL_SOCKET
from actors.runsc.version import RuntimeVersion
from statemachine.problem import Problem
from supervisor.nvml_look import ask_nvml
from supervisor.self_check import self_checks
from supervisor.settings import MAX_ACTORS
from supervisor.spec_source import spec_source_of

from .check import Status
from .devices import found_gpus, judge_inventory, judge_spec, judge_support, look_at_support, look_for_gpus, spec_or_why
from .directories import judge_run_dir, judge_state_dir, judge_unseen, look_at_directory
from .driver import judge_driver_libraries, judge_driver_root, judge_interpreter, linkage_or_why, look_at_driver
from .machine import judge_cgroups, judge_clock
from .mounts import mounts_of
from .nodes import judge_cdi_mode, judge_nodes, judge_params, look_at_nodes, read_params
from .nvml import judge_nvml
from .runtime import Trial, judge_platform, judge_runsc, look_at_platform, look_at_runsc
from .toolkit import judge_toolkit, look_at_toolkit

if TYPE_CHECKING:
    from collections.abc import Callable

    from actors.gpu.detection import Detected
    from actors.gpu.view import View
    from actors.ports import DriverPlaces, Files, Ports
    from actors.runsc.nvproxy import Nvproxy
    from supervisor.self_check import SelfFacts
    from supervisor.settings import CdiSource

    from .check import Check
    from .directories import DirectoryFacts
    from .mounts import MountPoint

MOUNTINFO: Final = Path("/proc/self/mountinfo")
_MOUNTINFO_BYTES_MAX: Final = 16 << 20


@attrs.frozen(kw_only=True)
class Subject:
    """The pod as a worker in it would be told.

    Attributes:
        runsc: the runsc, or why there is none.
        platform: gVisor's.
        places: where the driver is.
        toolkit_dir: where the toolkit is; None looks where it usually is.
        cdi_source: where the CDI spec comes from.
        nvproxy: whether gVisor passes calls on to the driver.
        state_dir: what outlives the worker.
        run_dir: the control socket's directory.
        interpreter: the program that runs us.
        is_root: whether we are root.
        may_change: whether we may write a file, use a device, or make entries in a directory.
        scratch: an empty directory to try things in.
        ourselves: what the kernel says about our own process.
    """

    runsc: Path | Problem
    platform: str
    places: DriverPlaces
    toolkit_dir: Path | None
    cdi_source: CdiSource
    nvproxy: Nvproxy
    state_dir: Path
    run_dir: Path
    interpreter: Path
    is_root: bool
    may_change: Callable[[Path], bool]
    scratch: Path
    ourselves: SelfFacts


async def examine(ports: Ports, subject: Subject) -> tuple[Check, ...]:
    """Look at everything and judge it."""
    mounts = await _mounts(ports.files)
    return (
        *self_checks(subject.ourselves, max_actors=MAX_ACTORS),
        *await _gvisor(ports, subject),
        *await _gpu(ports, subject),
        *await _pod(ports, subject, mounts),
    )


def is_sound(checks: tuple[Check, ...]) -> bool:
    """Whether nothing is in the way."""
    return all(check.status is not Status.FAIL for check in checks)


async def _gvisor(ports: Ports, subject: Subject) -> tuple[Check, ...]:
    path = subject.runsc
    version = path if isinstance(path, Problem) else await look_at_runsc(ports, path)
    trial = None
    if isinstance(path, Path) and isinstance(version, RuntimeVersion) and subject.is_root:
        trial = Trial(scratch=subject.scratch, runsc=path, version=version)
    facts = await look_at_platform(
        ports, subject.platform, trial, is_root=subject.is_root, may_change=subject.may_change
    )
    return judge_runsc(path, version), judge_platform(facts)


async def _gpu(ports: Ports, subject: Subject) -> tuple[Check, ...]:
    files, places = ports.files, subject.places
    driver = await look_at_driver(files, places.driver_root)
    toolkit = await look_at_toolkit(files, ports.processes, subject.toolkit_dir)
    view = await ask_nvml(ports.gpus, places)
    seen = await look_for_gpus(files, places)
    return (
        judge_nodes(await look_at_nodes(files, places)),
        judge_cdi_mode(seen if isinstance(seen, Problem) else seen.covers),
        judge_params(await read_params(files, places), places),
        judge_driver_root(driver),
        judge_driver_libraries(driver),
        judge_interpreter(subject.interpreter, await linkage_or_why(files, subject.interpreter)),
        judge_nvml(view),
        judge_toolkit(toolkit, source=subject.cdi_source),
        *await _devices(ports, subject, found_gpus(seen, view), view),
    )


async def _devices(ports: Ports, subject: Subject, found: Detected | Problem, view: View) -> tuple[Check, ...]:
    """What comes of all that together."""
    source = spec_source_of(
        ports,
        source=subject.cdi_source,
        places=subject.places,
        toolkit_dir=subject.toolkit_dir,
        directory=subject.scratch / "cdi",
    )
    spec = await spec_or_why(source, found)
    runsc = subject.runsc
    support = None if isinstance(runsc, Problem) else await look_at_support(ports.processes, runsc, view)
    return (
        judge_inventory(found),
        judge_spec(spec, source=subject.cdi_source),
        judge_support(support, view, nvproxy=subject.nvproxy),
    )


async def _pod(ports: Ports, subject: Subject, mounts: tuple[MountPoint, ...]) -> tuple[Check, ...]:
    try:
        boot_id = ports.wall.boot_id()
    except OSError:
        boot_id = None
    looked_at = partial(_directory, ports, subject, mounts=mounts)
    return (
        judge_cgroups(mounts),
        await looked_at("state-dir", subject.state_dir, judge_state_dir),
        await looked_at("run-dir", subject.run_dir, partial(judge_run_dir, socket=subject.run_dir / CONTROL_SOCKET)),
        judge_clock(ports.wall.now_s(), boot_id),
    )


async def _directory(
    ports: Ports,
    subject: Subject,
    name: str,
    path: Path,
    judge: Callable[[DirectoryFacts], Check],
    *,
    mounts: tuple[MountPoint, ...],
) -> Check:
    try:
        facts = await look_at_directory(
            ports.files, path, mounts=mounts, may_change=subject.may_change, is_root=subject.is_root
        )
    except OSError as error:
        return judge_unseen(name, path, error, is_root=subject.is_root)
    return judge(facts)


async def _mounts(files: Files) -> tuple[MountPoint, ...]:
    """What is mounted in this pod; nothing where that is not told."""
    try:
        data = await files.read(MOUNTINFO, limit_bytes=_MOUNTINFO_BYTES_MAX)
    except OSError:
        return ()
    return mounts_of(data.decode("utf-8", "surrogateescape"))
