"""runsc, and whether it can start a sandbox here: that is tried, with nothing in it but `pause`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

import anyio
import attrs

from actors.bundle.activation_tree import activation_tree, bundle_directory, pause_bundle
from actors.layout import StateDir
from actors.ports import FileKind
from actors.runsc.activation import SandboxPlan, start_cold
from actors.runsc.driver import Runsc
from actors.runsc.flags import GlobalFlags
from actors.runsc.ids import fresh_activation, fresh_container_ids
from actors.runsc.record import ROOT_CONTAINER, SandboxRecord
from actors.runsc.teardown import end_activation
from actors.runsc.version import runtime_version
from actors.static_elf import UnsupportedMachineError
from actors.steps.stage import RUNSC_ROOT
from statemachine.problem import Problem, ProblemError, Step
from statemachine.reasons import Reason

from .check import fail, failed, ok, warn

if TYPE_CHECKING:
    from collections.abc import Callable

    from actors.ports import Files, FileStat, Ports
    from actors.runsc.version import RuntimeVersion

    from .check import Check

TRIAL_S: Final = 30.0
KVM: Final = Path("/dev/kvm")
_ENDING_S: Final = 15.0
_TRIAL_HINT: Final = (
    "gVisor needs root and the right to make user, mount and PID namespaces, in a pod most often: privileged, or "
    "CAP_SYS_ADMIN with seccomp and AppArmor unconfined."
)


async def look_at_runsc(ports: Ports, path: Path) -> RuntimeVersion | Problem:
    """Ask runsc for its version."""
    try:
        return await runtime_version(ports.processes, path, step=Step.SUPERVISE)
    except ProblemError as error:
        return error.problem


def judge_runsc(path: Path | Problem, version: RuntimeVersion | Problem) -> Check:
    """It is there, it answers, and it is not too old."""
    name = "runsc"
    if isinstance(path, Problem):
        return failed(name, path)
    if isinstance(version, Problem):
        return failed(name, version)
    return ok(name, f"{path}, version {version.text}")


@attrs.frozen(kw_only=True)
class PlatformFacts:
    """What was found of gVisor's platform.

    Attributes:
        name: the platform.
        is_root: whether a sandbox could be tried at all.
        was_tried: whether it was.
        kvm: what stands at /dev/kvm.
        may_use_kvm: whether we may open it.
        fault: why the sandbox could not be started; None when it was, or was not tried.
    """

    name: str
    is_root: bool
    was_tried: bool
    kvm: FileStat | None = None
    may_use_kvm: bool = False
    fault: Problem | None = None

    @property
    def is_kvm_there(self) -> bool:
        """Whether the machine has KVM and lets us use it."""
        return self.kvm is not None and self.kvm.kind is FileKind.CHARACTER_DEVICE and self.may_use_kvm


@attrs.frozen(kw_only=True)
class Trial:
    """What a sandbox is tried with: an empty directory of ours, and a runsc that has told its version."""

    scratch: Path
    runsc: Path
    version: RuntimeVersion


async def look_at_platform(
    ports: Ports, platform: str, trial: Trial | None, *, is_root: bool, may_change: Callable[[Path], bool]
) -> PlatformFacts:
    """Look at the platform, and try a sandbox on it unless there is nothing to try it with."""
    facts = PlatformFacts(
        name=platform,
        is_root=is_root,
        was_tried=False,
        kvm=await _kvm(ports.files),
        may_use_kvm=may_change(KVM),
    )
    if trial is None or (platform == "kvm" and not facts.is_kvm_there):
        return facts
    return attrs.evolve(facts, was_tried=True, fault=await _tried(ports, trial, platform))


def judge_platform(facts: PlatformFacts) -> Check:
    """A sandbox was started on it and ended again."""
    name = "platform"
    if facts.name == "kvm" and not facts.is_kvm_there:
        found = "cannot be opened" if facts.kvm is not None else "is not in this pod"
        hint = "Use --platform systrap, or give the pod /dev/kvm and a machine that lets it be used."
        return fail(name, Reason.RUNTIME_UNAVAILABLE, f"{KVM} {found}", hint)
    if facts.fault is not None:
        message = f"no sandbox can be started on {facts.name}: {facts.fault.message}"
        return fail(name, facts.fault.reason, message, _TRIAL_HINT)
    if not facts.is_root:
        hint = "Run the doctor as root, as the worker is run."
        return warn(name, Reason.RUNTIME_UNAVAILABLE, f"{facts.name} was not tried: that needs root", hint)
    if not facts.was_tried:
        return warn(
            name, Reason.RUNTIME_UNAVAILABLE, f"{facts.name} was not tried: there is no runsc for it", "See runsc."
        )
    return ok(name, f"a sandbox was started on {facts.name} and ended again")


async def _kvm(files: Files) -> FileStat | None:
    try:
        return await files.stat(KVM)
    except OSError:
        return None


async def _tried(ports: Ports, trial: Trial, platform: str) -> Problem | None:
    """Start a sandbox and end it; why that could not be done."""
    activation = StateDir(trial.scratch).activation(fresh_activation(ports.wall))
    try:
        with anyio.fail_after(TRIAL_S):
            await _start(ports, activation, trial, platform)
    except ProblemError as error:
        return error.problem
    except TimeoutError:
        return _unavailable(f"it was not up within {TRIAL_S:g} s")
    except UnsupportedMachineError as error:
        return _unavailable(str(error))
    except OSError as error:
        return _unavailable(f"its files cannot be written: {error.strerror or error}")
    finally:
        with anyio.CancelScope(shield=True):
            fault = await _ended(ports, activation)
    return fault


async def _start(ports: Ports, activation: Path, trial: Trial, platform: str) -> None:
    flags = GlobalFlags(platform=platform, extra=trial.version.flags)
    pause = pause_bundle(activation, hostname="doctor", machine=ports.wall.machine())
    await ports.files.make_tree(activation, activation_tree(pause, {}))
    plan = SandboxPlan(
        record=SandboxRecord(
            activation=activation.name,
            actor="doctor",
            boot_id=ports.wall.boot_id(),
            runtime_path=trial.runsc,
            runtime_version=trial.version.text,
            flags=flags,
            container_ids=fresh_container_ids(ports.wall, [ROOT_CONTAINER]),
        ),
        pause_bundle=bundle_directory(activation, ROOT_CONTAINER),
        containers=(),
    )
    driver = Runsc(
        path=trial.runsc, flags=flags, processes=ports.processes, files=ports.files, root=activation / RUNSC_ROOT
    )
    sandbox = await start_cold(driver, plan)
    sandbox.close()


async def _ended(ports: Ports, activation: Path) -> Problem | None:
    """End it, however far it came; a directory that was never made is ended already."""
    try:
        await end_activation(ports.processes, ports.files, activation, deadline_s=_ENDING_S)
    except ProblemError as error:
        return error.problem
    return None


def _unavailable(message: str) -> Problem:
    return Problem(step=Step.CREATE, reason=Reason.RUNTIME_UNAVAILABLE, subject="doctor", message=message)
