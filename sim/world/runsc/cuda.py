"""Open devices at a checkpoint: what refuses them, and what cuda-checkpoint does about them.

Source: gVisor 20260905, pkg/sentry/control/state_cuda.go and pkg/sentry/devices/nvproxy/save_restore.go; the text of
R24 is in its program. No GPU was used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from .settings import Flavour

if TYPE_CHECKING:
    from .contained import Contained
    from .sentry import Sentry

_LIVE: Final = {
    Flavour.R24: "can't save with live nvproxy clients",
    Flavour.HEAD: (
        "nvproxy: object handle 0xc1d00069:0x5c000001 (class 0x80, type *nvproxy.rmAllocObject) is not restorable:\n"
        "goroutine 81 [running]:\ngvisor.dev/gvisor/pkg/state.safely.func1()\n\tgvisor.dev/…"
    ),
}


def before_save(sentry: Sentry, program: str, now_s: float) -> str | None:
    """Take every process with an open device off its GPUs, by a program in its container; none was named without one.

    A frozen sandbox goes on for that moment, so that what was signalled meanwhile is delivered.

    Returns: what the save fails with.
    """
    holding = [each for each in sentry.containers.values() if each.held]
    if not program:
        return _LIVE[sentry.settings.flavour] if holding else None
    if sentry.pauses > 1:
        return "kernel is double paused before checkpoint"
    was_frozen = bool(sentry.pauses)
    if was_frozen:
        sentry.thaw(now_s)
        sentry.settle()
    failed = next((each for each in holding if not _has(sentry, each, program)), None)
    if was_frozen:
        sentry.freeze(now_s)
    if failed is None:
        return None
    what = f'cuda-checkpoint --toggle for PID {failed.init_pid} in container "{failed.id}"'
    return f"failed to exec {what}: failed to load {program}: no such file or directory"


def _has(sentry: Sentry, container: Contained, program: str) -> bool:
    return sentry.files.holds_file(f"{(container.spec.get('root') or {}).get('path', '')}{program}")
