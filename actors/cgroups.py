"""What the cgroups of activations are called, what is laid on them, and how a command gets into one. Pure.

Source: Kubernetes, "Resource Management for Pods and Containers" (a pod's limit is the sum of its containers', where
all have one); admin-guide/cgroup-v2 of the kernel's documentation (cpu.weight, memory.oom.group).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from actors.ports import CPU_PERIOD_USEC, PROCESSES_FILE, CgroupLimits

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

    from actors.assignment import Container, Resources
    from actors.ports import Delegation

SANDBOX_LEAF: Final = "sandbox"
"""Where the sandbox's own processes are, and the gofer of its root container."""
_QUOTA_USEC_MIN: Final = 1000  # the kernel takes no less
_WEIGHT_OF_ONE_CPU: Final = 100
"""The kernel's default: without any request an actor has as much as one that requests a whole cpu."""
_WEIGHT_MIN, _WEIGHT_MAX = 1, 10_000
_MILLI: Final = 1000


def cgroup_name(uid: str, activation: str) -> str:
    """The name of an activation's cgroup. Neither part has a dot in it."""
    return f"{uid}.{activation}"


def activation_in(name: str) -> str:
    """Whose cgroup that is, by its name."""
    return name.partition(".")[2]


def container_leaf(container: str) -> str:
    """The leaf of a container's gofer; a container may be called `sandbox`."""
    return f"c-{container}"


def leaves_for(containers: Iterable[Container]) -> tuple[str, ...]:
    """Every leaf of an activation."""
    return (SANDBOX_LEAF, *(container_leaf(each.name) for each in containers))


def limits_for(containers: Sequence[Container]) -> CgroupLimits:
    """What is laid on an activation: sums, and of a limit nothing where a container has none."""
    cpu_milli = _sum_if_all(containers, lambda each: each.limits.cpu_milli)
    requested_milli = sum(_requested_cpu(each) or 0 for each in containers)
    return CgroupLimits(
        cpu_quota_usec=None if cpu_milli is None else max(cpu_milli * CPU_PERIOD_USEC // _MILLI, _QUOTA_USEC_MIN),
        cpu_weight=_weight(requested_milli) if requested_milli else None,
        memory_bytes=_sum_if_all(containers, lambda each: each.limits.memory_bytes),
    )


def enter_words(program: Path, delegation: Delegation, name: str, leaf: str) -> tuple[str, ...]:
    """What comes before a command that is to begin in a leaf (`actors.enter_elf`)."""
    return (str(program), str(delegation.actors / name / leaf / PROCESSES_FILE))


def _sum_if_all(containers: Sequence[Container], amount: Callable[[Container], int | None]) -> int | None:
    amounts = [amount(each) for each in containers]
    known = [each for each in amounts if each]  # 0 is no limit, as in Kubernetes
    return sum(known) if known and len(known) == len(amounts) else None


def _requested_cpu(container: Container) -> int | None:
    """As in Kubernetes, a limit without a request is one."""
    requests: Resources = container.requests
    return container.limits.cpu_milli if requests.cpu_milli is None else requests.cpu_milli


def _weight(cpu_milli: int) -> int:
    return min(max(cpu_milli * _WEIGHT_OF_ONE_CPU // _MILLI, _WEIGHT_MIN), _WEIGHT_MAX)
