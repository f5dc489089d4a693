"""What a checkpoint does inside a sandbox. It takes whatever is there, also what no restore will take back.

Measured on runsc 20240729: a save goes on inside to its end whatever becomes of the command that asked for it; several
come one after the other, and no pause or resume is taken before that.
"""

from __future__ import annotations

import errno
import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

import attrs

from . import cuda
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
INSIDE: Final = 2 / 3
"""The part of a save's time that it takes inside; before that, its command has not asked yet."""


@attrs.define(kw_only=True, eq=False)
class Save:
    """One save on its way.

    Attributes:
        directory, compression, leaves_running, cuda_checkpoint: what was asked for.
        due_s: when it is over; it has not begun while this is infinite.
        rest: what is still to be written, by name.
        error: what went wrong, which leaves the files half written.
        is_over: whether it has ended.
    """

    directory: str
    compression: str
    leaves_running: bool
    cuda_checkpoint: str = ""
    due_s: float = math.inf
    rest: list[tuple[str, bytes]] = attrs.field(factory=list)
    error: str | None = None
    is_over: bool = False

    def begin(self, sentry: Sentry, now_s: float) -> None:
        """Stop everything, take the image, and write the first half of it."""
        self.error = cuda.before_save(sentry, self.cuda_checkpoint, now_s)
        sentry.freeze(now_s)
        self.due_s = now_s
        if self.error is not None:
            return
        if sentry.save_fails is not None:
            self.error, sentry.save_fails = sentry.save_fails, None
            return
        state_bytes = sentry.settings.state_bytes
        files = encode(take_image(sentry, now_s), compression=self.compression, state_bytes=state_bytes)
        pieces = [(name, piece) for name, content in files.items() for piece in _pieces(content)]
        self._write(sentry, pieces[: len(pieces) // 2])
        if self.error is None:
            self.rest = pieces[len(pieces) // 2 :]
            self.due_s += sentry.settings.latencies.save_s * INSIDE

    def finish(self, sentry: Sentry, now_s: float) -> None:
        """Write the rest, and let everything go on.

        Without `leaves_running` the sandbox ends, with 0, whether or not the image could be written: that is how R24
        loses an actor on a full disk.
        """
        self._write(sentry, self.rest)
        self.is_over = True
        sentry.thaw(now_s)
        if not self.leaves_running:
            for container in sentry.containers.values():
                # Measured: whoever waits for any of it, also for a command inside, is told 0.
                container.stop(0, others=0)

    def _write(self, sentry: Sentry, pieces: Sequence[tuple[str, bytes]]) -> None:
        for name, piece in pieces:
            try:
                sentry.files.append(f"{self.directory}/{name}", piece)
            except OSError as error:
                # Measured: a disk that is full before the first page ends in the text of a panic.
                is_panic = error.errno == errno.ENOSPC and name == CHECKPOINT
                self.error = _NIL_POINTER if is_panic else f"statefile error: {(error.strerror or str(error)).lower()}"
                return

    def answer(self) -> bool | None:
        """Return what came of it; None before its end.

        Raises:
            SandboxError: it failed.
        """
        if not self.is_over:
            return None
        if self.error is not None:
            raise SandboxError(self.error)
        return True


def _pieces(content: bytes) -> list[bytes]:
    """At least two, so that a save can be met with a file half written."""
    size = max(1, min(_PIECE_BYTES, -(-len(content) // 2)))
    return [content[begin:end] for begin, end in pairwise([*range(0, len(content), size), len(content)])]


def checkpoint(sentry: Sentry, argument: Mapping[str, Any], _stdio: Sequence[Handle], now_s: float) -> Any:
    """Write the image into files that are there and empty."""
    if sentry.flags["network"] == "host" and sentry.settings.flavour is Flavour.R24:
        raise SandboxError("checkpoint not supported when using hostinet")
    save = Save(
        directory=argument["directory"],
        compression=argument["compression"],
        leaves_running=argument["leave_running"],
        cuda_checkpoint=argument["cuda_checkpoint"],
    )
    sentry.save(save, now_s)
    return save.answer


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
