"""What a restore does inside a sandbox: nothing, until as many containers have come as the image has.

The last one restores them all and meets all errors. What is then found wrong fails that one command; the others keep
their word that they are running, and live in limbo for ever.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import attrs

from .contained import CREATED, LIMBO, RUNNING, Contained, Process, first_difference, shape_of
from .image import CHECKPOINT, PAGES, PAGES_META, Image, ImageError, decode, read_metadata
from .machine import Handle
from .programs import Program, Run
from .refusals import PanicError, SandboxError
from .settings import Flavour

if TYPE_CHECKING:
    from .sentry import Sentry

_GOROUTINE: Final = ":\ngoroutine 28 [running]:\ngvisor.dev/gvisor/pkg/state.safely.func1()\n\tgvisor.dev/…"
_CRASH_AT_ONCE: Final = Program((("raise", 11),), name="damaged")
_CRASH: Final = Program((("sleep", 0.05, True), ("raise", 11)), name="damaged")
"""What an application is whose pages were damaged: it runs, for a moment."""
_SHARED_MEMORY: Final = frozenset({"root:memory", "all:memory", "none"})
"""Overlays without a memory file of each container's own: with those an image may lack a process of a container."""


@attrs.define(kw_only=True)
class Restore:
    """A restore on its way.

    Attributes:
        files: of the image, opened at the root's restore; those that were not there are absent.
        count: how many containers it takes.
        names: those that have come.
        is_complete: everything was restored.
        has_failed: it never will be.
    """

    files: Mapping[str, bytes]
    count: int
    names: list[str]
    is_complete: bool = False
    has_failed: bool = False


def restore_root(sentry: Sentry, argument: Mapping[str, Any], _stdio: Sequence[Handle], now_s: float) -> Any:
    """Open the image and read how many containers it has."""
    directory = argument["directory"]
    files = {}
    for name in (CHECKPOINT, PAGES_META, PAGES):
        try:
            files[name] = sentry.files.read(f"{directory}/{name}")
        except FileNotFoundError:
            continue
    try:
        metadata = read_metadata(files.get(CHECKPOINT, b""))
    except ImageError as error:
        raise SandboxError(str(error)) from None
    if sentry.settings.flavour is Flavour.HEAD and metadata.get("version") != sentry.settings.version:
        raise SandboxError(
            f'runsc version does not match across checkpoint restore: checkpoint "{metadata.get("version")}", '
            f'restore "{sentry.settings.version}"'
        )
    root = sentry.containers[argument["id"]]
    sentry.restore = Restore(files=files, count=int(metadata["container_count"]), names=[])
    return _register(sentry, root, now_s)


def restore_subcontainer(sentry: Sentry, argument: Mapping[str, Any], stdio: Sequence[Handle], now_s: float) -> Any:
    """Register one more container; its own image path counts for nothing."""
    restore = sentry.restore
    if restore is None or restore.is_complete or restore.has_failed:
        raise SandboxError("sandbox is not being restored, cannot restore subcontainer")
    container = sentry.containers[argument["id"]]
    if container.name in restore.names:
        raise SandboxError(f'container "{container.name}" already restored')
    container.stdio, container.gofer = (stdio[0], stdio[1]), argument["gofer"]
    return _register(sentry, container, now_s)


def _register(sentry: Sentry, container: Contained, now_s: float) -> Any:
    restore = sentry.restore
    if restore is None:
        raise SandboxError("sandbox is not being restored, cannot restore subcontainer")
    container.state, container.is_restored = LIMBO, True
    restore.names.append(container.name)
    if len(restore.names) < restore.count:
        return ["registered"]
    try:
        _restore_all(sentry, decode(restore.files), now_s)
    except (ImageError, SandboxError) as error:
        restore.has_failed = True
        if sentry.settings.flavour is Flavour.HEAD:
            for each in sentry.containers.values():
                each.stop(1)
        raise SandboxError(str(error)) from None
    restore.is_complete = True
    return ["restored"]


def _restore_all(sentry: Sentry, image: Image, now_s: float) -> None:
    """Bring every container back that had a process.

    Raises:
        SandboxError: the image and what has come do not go together.
        PanicError: the root never ran.
    """
    body = image.body
    saved = {each["name"]: each for each in body["containers"]}
    here = {each.name: each for each in sentry.containers.values() if each.state == LIMBO}
    if not all(each.gofer for each in here.values()):
        raise SandboxError("input/output error")
    _compare(sentry, body, saved, here)
    if saved[body["root"]]["state"] == CREATED:
        raise PanicError
    for name, each in saved.items():
        if each["state"] == RUNNING:
            _bring_back(sentry, here[name], image.memory[name], now_s)
            if body["flags"].get("platform") != sentry.flags.get("platform"):
                _lose_registers(here[name])


def _compare(sentry: Sentry, body: Mapping[str, Any], saved: Mapping[str, Any], here: Mapping[str, Contained]) -> None:
    overlay, is_r24 = body["flags"].get("overlay2"), sentry.settings.flavour is Flavour.R24
    is_shared = overlay in _SHARED_MEMORY
    fds = f"map[{' '.join(f'{name}:/:{number}' for number, name in enumerate(here, 30))}]"
    if body["orphans"]:
        unique = f"{body['orphans'][0]}:/"
        raise SandboxError(f"no server FD available for filesystem with unique ID {unique}, map: {fds}")
    if body["foreign"] and is_r24:
        message = f"error executing callbacks: no host FD available for :host:2, map: {fds}"
        raise SandboxError(message + _GOROUTINE)
    missing = next((name for name in saved if name not in here), None)
    if missing is not None and not is_shared:
        raise SandboxError(f'Memory file for "{missing}:/" not found')
    if missing is not None:
        message = f"error executing callbacks: no host FD available for {missing}:host:0, map: {fds}"
        raise SandboxError(message + _GOROUTINE)
    # Measured: between overlays without memory files of their own, such as root:memory and none, nothing is missed.
    if overlay != sentry.flags.get("overlay2") and not (is_shared and sentry.flags.get("overlay2") in _SHARED_MEMORY):
        raise SandboxError(f'Memory file for "{list(saved)[-1]}:/" not found')
    if body["flags"].get("network") != sentry.flags.get("network"):
        raise SandboxError("network stack of the image is another one")
    for name, each in saved.items():
        now = shape_of(here[name].spec)
        field = first_difference(each["shape"], now)
        if not is_r24 and field is not None and sentry.flags.get("restore-spec-validation") == "enforce":
            raise SandboxError(f'"{field}" does not match across checkpoint restore for container')
        if not is_shared and each["shape"]["Root.Readonly"] != now["Root.Readonly"]:
            raise SandboxError(f'Memory file for "{name}:/" not found')
        if not is_shared and each["state"] != RUNNING:
            owners = " ".join(f"{other}:/" for other in saved if saved[other]["state"] == RUNNING)
            raise SandboxError(
                f"inconsistent private memory files on restore: savedMFOwners = [{owners}], "
                f"CtxFilesystemMemoryFileMap = {fds}"
            )


def _lose_registers(container: Contained) -> None:
    """Let every process crash as soon as it executes: what another platform has saved, this one cannot run."""
    for process in container.processes.values():
        process.run.program, process.run.at, process.run.waking_at = _CRASH_AT_ONCE, 0, None


def _bring_back(sentry: Sentry, container: Contained, memory: Any, now_s: float) -> None:
    container.state = RUNNING
    container.processes.clear()
    stdout, stderr = container.stdio
    if memory is None:
        sentry.start_process(container, _CRASH, now_s, container.stdio)
        return
    container.files = set(memory["files"])
    container.devices = set(memory["devices"])
    for each in memory["processes"]:
        container.processes[each["pid"]] = Process(
            pid=each["pid"],
            parent=each["parent"],
            run=Run.from_json(each["run"], now_s),
            stdout=stdout,
            stderr=stderr,
            # Measured: what a process had when it was saved counts, whatever spec and flags say now.
            refused=frozenset(each["refused"]),
        )
        sentry.reserve_pid(each["pid"])
