"""What a checkpoint does inside a sandbox. It takes whatever is there, also what no restore will take back."""

from __future__ import annotations

import errno
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from .contained import RUNNING
from .image import CHECKPOINT, Image, encode
from .machine import Handle
from .refusals import SandboxError
from .settings import Flavour

if TYPE_CHECKING:
    from .sentry import Sentry

_NIL_POINTER: Final = (
    "runtime error: invalid memory address or nil pointer dereference:\n"
    "goroutine 81 [running]:\ngvisor.dev/gvisor/pkg/state.safely.func1()\n\tgvisor.dev/…"
)
_PIECE_BYTES: Final = 1 << 20


def checkpoint(sentry: Sentry, argument: Mapping[str, Any], _stdio: Sequence[Handle], now_s: float) -> Any:
    """Write the image into files that are there and empty.

    Without `leave_running` the sandbox ends, with 0, whether or not the image could be written: that is how R24 loses
    an actor on a full disk.
    """
    if sentry.flags["network"] == "host" and sentry.settings.flavour is Flavour.R24:
        raise SandboxError("checkpoint not supported when using hostinet")
    error = _write(sentry, argument, now_s)
    if not argument["leave_running"]:
        for container in sentry.containers.values():
            # Measured: whoever waits for any of it, also for a command inside, is told 0.
            container.stop(0, others=0)
    if error is not None:
        raise SandboxError(error)
    return True


def _write(sentry: Sentry, argument: Mapping[str, Any], now_s: float) -> str | None:
    """Write the files; returns what went wrong, which leaves them half written."""
    if sentry.save_fails is not None:
        error, sentry.save_fails = sentry.save_fails, None
        return error
    files = encode(
        take_image(sentry, now_s), compression=argument["compression"], state_bytes=sentry.settings.state_bytes
    )
    for name, content in files.items():
        try:
            for begin in range(0, len(content), _PIECE_BYTES):
                sentry.files.append(f"{argument['directory']}/{name}", content[begin : begin + _PIECE_BYTES])
        except OSError as error:
            if error.errno == errno.ENOSPC and name == CHECKPOINT:
                # Measured: a disk that is full before the first page ends in the text of a panic.
                return _NIL_POINTER
            return f"statefile error: {(error.strerror or str(error)).lower()}"
    return None


def take_image(sentry: Sentry, now_s: float) -> Image:
    """Look at everything as it stands at this moment; a pause is not part of it."""
    at_s = sentry.frozen_s if sentry.pauses else now_s
    containers = sentry.containers.values()
    foreign = [each.pid for container in containers for each in container.processes.values() if each.is_foreign]
    return Image(
        metadata={
            "container_count": str(len(sentry.containers)),
            "timestamp": f"{now_s:.9f}",
            "version": sentry.settings.version,
        },
        body={
            "containers": [each.saved() for each in containers],
            "root": sentry.containers[sentry.sandbox_id].name,
            "flags": dict(sentry.flags),
            "foreign": foreign,
            "orphans": sentry.orphans,
        },
        memory={each.name: each.memory(at_s) for each in containers if each.state == RUNNING},
    )
