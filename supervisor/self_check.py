"""What we are and may do, judged before anything is held: as PID 1 of a pod all of a worker's promises hang on it.

The facts are gathered at the edge (`host.self_look`). `greenroom run` refuses to start when a check fails, and its log
tells each; `greenroom doctor` shows the same checks.

Which capabilities are needed was measured: a start, a suspend, a resume and a stop under runsc 20240729 on Linux 6.18,
by a worker that lacked one capability, for each of the 41; the four below are those without which a start fails, and
they alone are enough. Which system calls a seccomp profile must let pass was measured in a container of runc's that
refused one after the other.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Final

import attrs
import structlog

from statemachine.problem import Problem, ProblemError, Step
from statemachine.reasons import Reason
from supervisor.doctor.check import Status, fail, ok, warn

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from supervisor.doctor.check import Check

NEEDED_CAPABILITIES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "SYS_ADMIN": "the namespaces and mounts of a sandbox",
        "SETUID": "the users of a sandbox's own user namespace",
        "SETGID": "its groups",
        "SETFCAP": "root in that namespace, which Linux 5.12 and newer map for nobody else",
    }
)
"""No sandbox can be started without any of these; with what each is for."""
WANTED_CAPABILITIES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "CHOWN": "durable volumes come back with their owners",
        "DAC_OVERRIDE": "files that other users own are read and removed",
        "FOWNER": "their modes and times are restored",
    }
)
"""What some actors cannot do without; every container engine gives them to root."""
CAPABILITY_NUMBERS: Final[Mapping[str, int]] = MappingProxyType(
    {"CHOWN": 0, "DAC_OVERRIDE": 1, "FOWNER": 3, "SETGID": 6, "SETUID": 7, "SYS_ADMIN": 21, "SETFCAP": 31}
)
"""Source: include/uapi/linux/capability.h."""
FILES_OF_THE_WORKER: Final = 256
FILES_PER_ACTOR: Final = 8
"""Measured: 3 descriptors of an actor with one container, 1 more for each further one; the rest is for its steps."""

_log = structlog.get_logger("greenroom.self")


@attrs.frozen(kw_only=True)
class SelfFacts:
    """What the kernel says about us.

    Attributes:
        pid: ours, as we see it ourselves.
        is_root: whether our effective user is root.
        adopts_orphans: whether we are PID 1, or could be made a subreaper.
        proc_pids: our pid as /proc tells it, in its own PID namespace and each one below, down to ours; empty when it
            does not know us; None when no /proc is there.
        lists_children: whether /proc has the children files (CONFIG_PROC_CHILDREN).
        pidfd_fault: why no process can be held by a descriptor; empty when it can.
        capabilities: the effective ones, a bit for each; None when they are not told.
        refused_calls: system calls that are refused whatever they are asked for.
        files_max: to how many the limit of open files can be raised.
    """

    pid: int
    is_root: bool
    adopts_orphans: bool
    proc_pids: tuple[int, ...] | None
    lists_children: bool
    pidfd_fault: str
    capabilities: int | None
    refused_calls: tuple[str, ...]
    files_max: int


def self_checks(facts: SelfFacts, *, max_actors: int) -> tuple[Check, ...]:
    """Judge everything, in the order in which one thing builds on another."""
    return (
        judge_adoption(facts),
        judge_proc(facts),
        judge_pidfd(facts),
        judge_capabilities(facts),
        judge_system_calls(facts),
        judge_open_files(facts, max_actors=max_actors),
    )


def refuse_what_is_in_the_way(checks: Iterable[Check]) -> None:
    """Tell every check in the log.

    Raises:
        ProblemError: the first that is in the way of a start.
    """
    found = tuple(checks)
    for check in found:
        log = _log.bind(name=check.name, message=check.message)
        if check.status is Status.OK:
            log.debug("self_check")
        elif check.status is Status.WARN:
            log.warning("self_check", reason=str(check.reason), hint=check.hint)
        else:
            log.error("self_check", reason=str(check.reason), hint=check.hint)
    for problem in _obstacles(found):
        raise ProblemError(problem)


def _obstacles(checks: Iterable[Check]) -> tuple[Problem, ...]:
    return tuple(
        Problem(step=Step.SUPERVISE, reason=check.reason, subject=check.name, message=check.message, hint=check.hint)
        for check in checks
        if check.status is Status.FAIL and check.reason is not None
    )


def judge_adoption(facts: SelfFacts) -> Check:
    """A sandbox outlives the runsc that started it, and is then a child of PID 1 or of the next subreaper above it."""
    name = "orphans"
    if not facts.adopts_orphans:
        return fail(
            name,
            Reason.SUBREAPER_REFUSED,
            f"this is process {facts.pid}, and it could not be made a subreaper: what a sandbox leaves is never ours",
        )
    if facts.pid == 1:
        return ok(name, "this is PID 1, to which all orphans of the pod come")
    return ok(name, f"this is process {facts.pid}; as a subreaper it takes the orphans of what it starts")


def judge_proc(facts: SelfFacts) -> Check:
    """By /proc we know our children, and what an earlier life left."""
    name = "proc"
    if facts.proc_pids is None:
        return fail(name, Reason.PROC_UNAVAILABLE, "no /proc is mounted: no process could be told from another")
    if facts.proc_pids != (facts.pid,):
        told = " in ".join(map(str, reversed(facts.proc_pids))) or "not known at all"
        return fail(
            name,
            Reason.PROC_UNAVAILABLE,
            f"/proc is that of another PID namespace: this process is {facts.pid}, and {told} there",
        )
    how = "children are listed" if facts.lists_children else "no list of children: every process is looked at instead"
    return ok(name, f"/proc is that of our own PID namespace; {how}")


def judge_pidfd(facts: SelfFacts) -> Check:
    """A pid alone may soon be another process; what we end and wait for we hold by a descriptor."""
    if facts.pidfd_fault:
        return fail("pidfd", Reason.PIDFD_UNAVAILABLE, f"no process can be held by a descriptor: {facts.pidfd_fault}")
    return ok("pidfd", "processes are held, signalled and waited for by descriptors")


def judge_capabilities(facts: SelfFacts) -> Check:
    """Without some of them no sandbox starts; without others an actor will meet what it cannot do."""
    name = "capabilities"
    held = facts.capabilities
    if held is None:
        return warn(name, Reason.CAPABILITY_MISSING, "the kernel does not tell which capabilities this process has")
    if not facts.is_root:
        return warn(
            name,
            Reason.CAPABILITY_MISSING,
            "this is not root, so it is not known which capabilities a worker would have",
            "Run it as root, in the pod.",
        )
    missing, wanted = _lacking(held, NEEDED_CAPABILITIES), _lacking(held, WANTED_CAPABILITIES)
    if missing:
        return fail(name, Reason.CAPABILITY_MISSING, f"no sandbox can be started without {_with_why(missing)}")
    if wanted:
        return warn(name, Reason.CAPABILITY_MISSING, f"some actors need {_with_why(wanted)}")
    return ok(name, f"{', '.join(NEEDED_CAPABILITIES)} and what durable volumes need are there")


def judge_system_calls(facts: SelfFacts) -> Check:
    """What is refused here, gVisor meets in the middle of a start, and tells as the end of its sandbox."""
    name, refused = "system-calls", ", ".join(facts.refused_calls)
    if not facts.is_root or facts.capabilities is None or _lacking(facts.capabilities, NEEDED_CAPABILITIES):
        return warn(
            name,
            Reason.SYSCALL_REFUSED,
            "without root and its capabilities it is not known which system calls a worker may make",
            "Run it as root, in the pod.",
        )
    if refused:
        return fail(name, Reason.SYSCALL_REFUSED, f"gVisor cannot do without {refused}, refused to this process")
    return ok(name, "mount, pivot_root and what else gVisor cannot do without is not refused")


def judge_open_files(facts: SelfFacts, *, max_actors: int) -> Check:
    """Each actor costs some descriptors; a worker that has none left can start nothing and end little."""
    name, needed = "open-files", FILES_OF_THE_WORKER + FILES_PER_ACTOR * max_actors
    if facts.files_max < needed:
        return warn(
            name,
            Reason.FILE_LIMIT_LOW,
            f"{facts.files_max} files may be open at most, and {max_actors} actors may need {needed}",
        )
    return ok(name, f"{facts.files_max} files may be open at once, enough for {max_actors} actors")


def _lacking(held: int, capabilities: Mapping[str, str]) -> dict[str, str]:
    return {name: why for name, why in capabilities.items() if not held >> CAPABILITY_NUMBERS[name] & 1}


def _with_why(capabilities: Mapping[str, str]) -> str:
    return ", ".join(f"CAP_{name} ({why})" for name, why in capabilities.items())
