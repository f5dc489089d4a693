"""The stage of one actor: what its steps work with, and what they hand to one another within an activation."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Final

import anyio
import attrs

from actors.journal import Mark
from actors.runsc.nvproxy import Nvproxy
from statemachine.problem import Problem, ProblemError, Step
from statemachine.reasons import Reason

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection
    from pathlib import Path

    from actors.assignment import WorkerAssignment
    from actors.compatibility import Difference
    from actors.gpu.desk import GpuDesk, KeptSpec, SpecFacts
    from actors.gpu.inventory import Gpu, Inventory
    from actors.layout import ActorDir, StateDir
    from actors.manifest import Shape
    from actors.ports import Delegation, Ports
    from actors.runsc.activation import SandboxPlan
    from actors.runsc.checkpoint_flags import CheckpointFlags
    from actors.runsc.flags import GlobalFlags
    from actors.runsc.nvproxy import SupportedDrivers
    from actors.runsc.sandbox import Sandbox
    from actors.runsc.version import RuntimeVersion

RUNSC_ROOT: Final = "runsc"


async def _tell_nobody(_problem: Problem) -> None:
    """Nobody wants to know."""


@attrs.frozen(kw_only=True)
class Runtime:
    """The runsc of this worker, looked at once when it starts.

    Attributes:
        path: the executable.
        version: what it says of itself.
        sha256: hex digest of the executable.
        flags: the global flags that every sandbox has.
        machine: the architecture in the kernel's word, x86_64 or aarch64.
        cpu_features: what the processor can do, in the kernel's words; None when it is not known.
        greenroom: our own version, for manifests.
        nvproxy: whether gVisor passes calls on to the driver.
        drivers: which drivers this runsc knows; None does not ask.
        checkpoint_flags: which flags its `checkpoint` takes; None is none but those that every one has.
    """

    path: Path
    version: RuntimeVersion
    sha256: str
    flags: GlobalFlags
    machine: str
    greenroom: str
    cpu_features: tuple[str, ...] | None = None
    nvproxy: Nvproxy = Nvproxy.AUTO
    drivers: SupportedDrivers | None = None
    checkpoint_flags: CheckpointFlags | None = None


class Freeze(enum.Enum):
    """Whether we have frozen the sandbox; runsc counts pauses, so we do too."""

    NOT_FROZEN = "notFrozen"
    FROZEN = "frozen"


@attrs.define(kw_only=True)
class Stage:
    """What the steps of one actor share. Only the running step changes it, and there is one at a time.

    Attributes:
        ports: the world.
        state_dir: the worker's state directory.
        runtime: the worker's runsc.
        gpus: the worker's desk for its GPUs.
        cgroups: where the cgroups of activations are made; None where the worker has no cgroup of its own.
        assignment: the admitted assignment.
        note: journals a progress mark.
        tell: tells of a trouble with which the actor runs on.
        forced: what differs from the snapshot that the activation comes from, and was passed over.
        needed_by_others: the ids of snapshots that other actors may have to go back to; none of them is removed.
        uploading: the ids of this actor's snapshots that are being uploaded just now, and are not removed meanwhile.
        activation: directory of the live activation; None when there is none.
        flags: runsc's global flags in the live activation.
        plan: of the live activation, from when inject has written its bundles until they are taken.
        sandbox: the live sandbox; None before it is up and after it is ended.
        freeze: whether we have frozen it.
        inventory: the pod's GPUs as detect has found them.
        spec: the CDI spec that this actor's devices come from; what is known of it where an earlier life of the worker
            has used it.
        granted: the GPUs of each container, by ordinal; nothing while the actor holds none.
        exited: containers that had ended with 0 and were taken out of the live sandbox or were not restored.
        is_restored: whether the live sandbox was restored from an image; a cold start has nothing to resume.
        let_go: containers in which preSuspend was run for a suspend that is not over.
        confirmed: fired once the start of the live activation counts, with what it has put back into the volumes.
        told: by container, fired once the watcher has told of its end.
        shapes: of each container, what a restore must find again.
        unproven: directory of a snapshot that is being made, until the machine knows that it is proven.
        executions: how many commands are executed inside just now, beside those of the steps.
        recording: held while an assignment is written.
        directory: the actor's own.
    """

    ports: Ports
    state_dir: StateDir
    runtime: Runtime
    gpus: GpuDesk
    assignment: WorkerAssignment
    note: Callable[[Mark], Awaitable[None]]
    cgroups: Delegation | None = None
    tell: Callable[[Problem], Awaitable[None]] = _tell_nobody
    forced: tuple[Difference, ...] = ()
    needed_by_others: Callable[[], Collection[str]] = frozenset
    uploading: Callable[[], Collection[str]] = frozenset
    activation: Path | None = None
    flags: GlobalFlags = attrs.field(default=attrs.Factory(lambda stage: stage.runtime.flags, takes_self=True))
    plan: SandboxPlan | None = None
    sandbox: Sandbox | None = None
    freeze: Freeze = Freeze.NOT_FROZEN
    inventory: Inventory | None = None
    spec: KeptSpec | SpecFacts | None = None
    granted: dict[str, tuple[Gpu, ...]] = attrs.field(factory=dict)
    exited: dict[str, int] = attrs.field(factory=dict)
    is_restored: bool = False
    let_go: tuple[str, ...] = ()
    confirmed: anyio.Event = attrs.field(factory=anyio.Event)
    told: dict[str, anyio.Event] = attrs.field(factory=dict)
    shapes: dict[str, Shape] = attrs.field(factory=dict)
    unproven: Path | None = None
    executions: int = 0
    recording: anyio.Lock = attrs.field(factory=lambda: anyio.Lock(fast_acquire=True), init=False)
    directory: ActorDir = attrs.field(init=False)

    @directory.default
    def _its_directory(self) -> ActorDir:
        return self.state_dir.actor(self.assignment.uid)

    def live_sandbox(self, step: Step) -> Sandbox:
        """The sandbox that the step needs.

        Raises:
            ProblemError: SandboxDied when there is none.
        """
        if self.sandbox is None:
            raise ProblemError(
                Problem(
                    step=step,
                    reason=Reason.SANDBOX_DIED,
                    subject=self.assignment.uid,
                    message=f"actor {self.assignment.uid} has no sandbox",
                )
            )
        return self.sandbox

    async def mark(self, step: Step, mark: str) -> None:
        """Journal how far a step got."""
        await self.note(Mark(step=step, mark=mark))
