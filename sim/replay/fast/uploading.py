"""Snapshots on their way to the store, beside whatever their actors do: so many at a time of one worker."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sim.fleet.facts import Dropped, Uploaded
from sim.replay.fast.chances import MIB
from sim.replay.fast.lives import Life, Node, Saved, trouble_of
from statemachine import events as e
from statemachine.reasons import Reason
from statemachine.states import State
from supervisor.uploading import UPLOADS_MAX

if TYPE_CHECKING:
    from sim.replay.fast.kernel import Kernel

TRIES_MAX: Final = 100
"""Of one snapshot: a config in which they always fail must end all the same."""


def upload(kernel: Kernel, life: Life) -> None:
    """Carry the newest snapshot of a life to the store, as soon as it has a turn."""
    if kernel.config.store.upload and not life.is_uploading and _is_due(life):
        life.is_uploading = True
        _take_turn(kernel, life)


def drop_upload(kernel: Kernel, life: Life) -> None:
    """What is being uploaded is not wanted any more: a newer one comes, or the life ends."""
    kernel.drop_transfer(life, up=True)
    if life.sending is not None:
        life.sending, life.is_uploading = None, False
        _end_turn(kernel, life.node)


def uploaded(kernel: Kernel, life: Life) -> None:
    """The bytes have gone: the store has them, or refuses them."""
    saved, life.sending = life.sending, None
    _end_turn(kernel, life.node)
    if saved is None:
        return
    trouble = kernel.chances.troubles.get("store")
    failure = trouble.meets() if trouble is not None else None
    if failure is None:
        life.is_uploading = False
        _is_there(kernel, life, saved)
        return
    _fails(kernel, life, saved, failure.reason, "the upload was let fail")
    life.uploads += 1
    if life.uploads < TRIES_MAX:
        _try_again(kernel, life)
    else:
        life.is_uploading = False  # the worker's copy is all there is


def _fails(kernel: Kernel, life: Life, saved: Saved, reason: Reason, message: str) -> None:
    kernel.feed(life, e.UploadFailed(snapshot=saved.copy.snapshot.id, problem=trouble_of(life, reason, message)))


def _try_again(kernel: Kernel, life: Life) -> None:
    kernel.after(kernel.config.store.retry_s, None, lambda: _take_turn(kernel, life))


def _is_due(life: Life) -> bool:
    # While the sandbox is being ended its GPUs are waited for, and everything else with them.
    saved = life.saved
    return saved is not None and saved.copy is saved.name.here and life.memory.state is not State.RELEASING


def _take_turn(kernel: Kernel, life: Life) -> None:
    node = life.node
    if node.uploading < UPLOADS_MAX:
        node.uploading += 1
        if not _begin(kernel, life):
            _end_turn(kernel, node)
    else:
        node.wanting.append(life)


def _end_turn(kernel: Kernel, node: Node) -> None:
    """Whoever has waited longest is next; what it wanted to upload may be gone by now, or followed by a newer one."""
    node.uploading -= 1
    while node.wanting and node.uploading < UPLOADS_MAX:
        node.uploading += _begin(kernel, node.wanting.popleft())


def _begin(kernel: Kernel, life: Life) -> bool:
    saved = life.saved
    if life.is_gone or saved is None or not _is_due(life):
        life.is_uploading = False
        return False
    life.sending = saved

    def ask() -> None:
        if life.sending is not saved or life.is_gone:
            return
        if kernel.is_store_down:
            life.sending = None
            _end_turn(kernel, life.node)
            _fails(kernel, life, saved, Reason.SNAPSHOT_NOT_UPLOADED, "the store does not answer")
            _try_again(kernel, life)
        else:
            kernel.carry(life, up=True, size_mib=saved.size_mib)

    kernel.after(kernel.chances.request_s(), None, ask)
    return True


def _is_there(kernel: Kernel, life: Life, saved: Saved) -> None:
    name, size_mib, left_s = saved.name, saved.size_mib, saved.left_s
    kernel.stored[life.actor] = Saved(name, name.there, size_mib, left_s)
    life.saved = Saved(name, name.both, size_mib, left_s)
    kernel.feed(life, name.uploaded)
    kernel.tell(Uploaded(kernel.at_s, life.actor, life.worker))
    _keep_copy(kernel, life, size_mib)


def _keep_copy(kernel: Kernel, life: Life, size_mib: float) -> None:
    """The worker's copy stays, and older ones go when all take more than they may."""
    node = life.node
    node.copies_bytes += size_mib * MIB - node.copies.pop(life.actor, 0.0)
    node.copies[life.actor] = size_mib * MIB
    while node.copies_bytes > kernel.config.retention.worker_bytes_max and len(node.copies) > 1:
        actor = next(iter(node.copies))
        node.copies_bytes -= node.copies.pop(actor)
        one = node.lives.get(actor)
        if one is not None and one.saved is not None and one.memory.state is State.SUSPENDED:
            one.saved = None
            kernel.tell(Dropped(kernel.at_s, actor, life.worker))
