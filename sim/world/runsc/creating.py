"""create, start, run, restore: how containers come to be. Order and texts measured on runsc 20240729."""

from __future__ import annotations

import posixpath
from typing import Any, Final, NoReturn

import orjson

from . import state_files
from .command import CREATED, DONE, RUNNING, Command
from .ending import destroy
from .image import CHECKPOINT, PAGES_META
from .machine import Completion, Lock, RunscError, Sleep, Steps, Unlock
from .state_files import CONTAINER_TYPE, SANDBOX_ID, FullId, State, socket_path

_NO_DRIVER: Final = (
    "cannot create sandbox: cannot create sandbox process: failed to get Nvidia driver version: "
    "failed to open /dev/nvidiactl: no such file or directory"
)
_SECCOMP_ANNOTATION: Final = "dev.gvisor.flag.oci-seccomp"
_VERSION_FLAG: Final = "nvproxy-driver-version"
_NVPROXY: Final = "dev.gvisor.internal.nvproxy"
_EMPTY_MOUNTS: Final = "error unmarshaling mounts: unexpected end of JSON input\nJSON bytes:\n"


def create(command: Command) -> Steps[Completion]:
    """Make a container; a root's makes the sandbox, and takes stdio."""
    yield from _create(command)
    return DONE


def start(command: Command) -> Steps[Completion]:
    """Start a created container; a sub-container's stdio is taken here, and its file server made."""
    found = yield from command.load(command.words.arguments[0])
    yield command.lock(found)
    yield from _start(command, found)
    return DONE


def run(command: Command) -> Steps[Completion]:
    """Create and start; cleans up after itself. Attached, it ends with the container's status and removes it."""
    try:
        found = yield from _create(command, doing="running container: creating container")
    except RunscError as error:
        raise RunscError(error.text, earlier=error.earlier) from None
    try:
        yield from _start(command, found)
    except RunscError as error:
        yield from destroy(command, found, is_forced=True)
        raise RunscError(f"running container: {error.text}", earlier=error.earlier) from None
    if command.words.has("detach"):
        return DONE
    status = yield from command.ask(found, "Wait", "running container: waiting on container")
    yield from destroy(command, found, is_forced=True)
    return Completion(code=status[0])


def restore(command: Command) -> Steps[Completion]:
    """Restore a container, made by the same command when it is not there yet; then a failure removes it again."""
    options = command.words.options
    directory = options.get("image-path")
    if not directory:
        raise RunscError("image-path flag must be provided")
    container_id = command.words.arguments[0]
    is_ours = state_files.find(command.names(), container_id) is None
    if is_ours:
        found = yield from _create(command)
    else:
        found = yield from command.load(container_id)
        yield command.lock(found)
    try:
        yield from _restore(command, found, directory)
    except RunscError as error:
        if is_ours:
            try:
                yield from destroy(command, found, is_forced=True)
            except RunscError:
                # Its sandbox has died of the restore; the first error is the one that counts.
                command.forget(found.id)
        raise RunscError(f"starting container: {error.text}", earlier=error.earlier) from None
    found.status = RUNNING
    command.save(found)
    _write_pid(command, found)
    if command.words.has("detach"):
        return DONE
    status = yield from command.ask(found, "Wait", "waiting on container")
    return Completion(code=status[0])


# ------------------------------------------------------------------------------------------------------------- creating


def _create(command: Command, *, doing: str = "creating container") -> Steps[State]:
    container_id = command.words.arguments[0]
    if not state_files.is_valid(container_id):
        raise RunscError(f"{doing}: invalid container id: {container_id}")
    bundle = command.words.options.get("bundle", ".")
    spec = _read_spec(command, bundle)
    annotations = spec.get("annotations") or {}
    is_root = annotations.get(CONTAINER_TYPE, "sandbox") == "sandbox"
    full_id = FullId(container_id if is_root else annotations.get(SANDBOX_ID, ""), container_id)
    now = state_files.timestamp(command.machine.now_s())
    found = State(
        id=full_id,
        bundle=bundle,
        spec=spec,
        status=CREATED,
        gofer=0,
        pid=0,
        created_at=now,
        root=command.root,
        version=command.settings.version,
    )
    yield command.lock(found)
    try:
        _require_new(command, full_id)
        yield from _create_sandbox(command, found) if is_root else _create_sub(command, found)
    except RunscError as error:
        raise RunscError(f"{doing}: {error.text}", earlier=error.earlier) from None
    command.save(found)
    _write_pid(command, found)
    return found


def _require_new(command: Command, full_id: FullId) -> None:
    if posixpath.basename(full_id.path("")) not in command.names():
        return
    if command.is_r24:
        # Measured: the clean-up of the failed create removes the state of the container that lives.
        command.forget(full_id)
    raise RunscError("cannot lock container metadata file: container already exists")


def _read_spec(command: Command, bundle: str) -> dict[str, Any]:
    path = f"{bundle}/config.json"
    try:
        spec = orjson.loads(command.machine.read(path))
    except OSError as error:
        why = (error.strerror or str(error)).lower()
        raise RunscError(f'reading spec: error opening spec file "{path}": open {path}: {why}') from None
    except ValueError as error:
        raise RunscError(f'reading spec: error unmarshaling spec from file "{path}": {error}') from None
    if not isinstance(spec, dict) or not spec.get("process") or not (spec.get("root") or {}).get("path"):
        raise RunscError("reading spec: Spec.Process must be defined")
    wanted = (spec.get("annotations") or {}).get(_SECCOMP_ANNOTATION, "true")
    if wanted != "true":
        how = 'disabling "oci-seccomp" requires flag "allow-flag-override" to be enabled'
        raise RunscError(f'reading spec: error setting flag oci-seccomp="{wanted}": {how}')
    return spec


def _create_sandbox(command: Command, found: State) -> Steps[None]:
    machine = command.machine
    try:
        found.filestore = _make_filestore(command, found)
        _require_driver(command, found)
    except RunscError:
        machine.remove(found.id.path(command.root, "lock"))
        raise
    found.gofer = machine.spawn_gofer(command.root)
    boot = {"id": found.id.container, "spec": found.spec, "gofer": found.gofer, "flags": command.boot_flags()}
    machine.create_socket(socket_path(command.root, found.id.sandbox))
    found.pid = machine.spawn_sandbox(command.root, boot, command.stdio)
    yield Sleep(command.settings.latencies.create_root_s)
    unusable, unknown = _unusable_mounts(command, found), _unknown_driver(command, found)
    if unusable is not None:
        _give_up(command, found, unusable, f"Error reading mounts file: {_EMPTY_MOUNTS}")
    if unknown is not None:
        _give_up(command, found, unknown)
    if not machine.is_running(found.pid):
        raise RunscError("cannot create sandbox: cannot read client sync file: waiting for sandbox to start: EOF")
    machine.let_go(found.pid)


def _give_up(command: Command, found: State, *earlier: str) -> NoReturn:
    """The sandbox that was to boot has ended; only the log says why."""
    command.machine.kill(found.pid)
    command.machine.remove(socket_path(command.root, found.id.sandbox))
    command.machine.remove(found.id.path(command.root, "lock"))
    text = "cannot create sandbox: cannot read client sync file: waiting for sandbox to start: EOF"
    raise RunscError(text, earlier=earlier)


def _require_driver(command: Command, found: State) -> None:
    """Measured: with the flag, or the root's annotation, a sandbox needs the driver, whether it has a GPU or not."""
    is_named = _VERSION_FLAG in command.words.flags
    if _passes_calls_on(command, found) and not is_named and not command.settings.has_nvidia_driver:
        raise RunscError(_NO_DRIVER)


def _passes_calls_on(command: Command, found: State) -> bool:
    annotations = found.spec.get("annotations") or {}
    return command.words.flags.get("nvproxy") == "true" or annotations.get(_NVPROXY) == "true"


def _unknown_driver(command: Command, found: State) -> str | None:
    """Return what a sandbox says that does not know the driver. Measured: its numbers have two digits at least."""
    known = command.settings.known_drivers
    driver = command.words.flags.get(_VERSION_FLAG, command.settings.nvidia_driver)
    if driver in {"", "latest"} or known is None or driver in known or not _passes_calls_on(command, found):
        return None
    version = ".".join(f"{int(part):02}" for part in driver.split("."))
    failing = "creating loader: registering filesystems: registering nvproxy driver"
    return f"{failing}: unsupported Nvidia driver version: {version}"


def _create_sub(command: Command, found: State) -> Steps[None]:
    root_id = FullId(found.id.sandbox, found.id.sandbox)
    path = root_id.path(command.root)
    # Waits for a start of the root that is under way; measured: the file stays even when there is no such sandbox.
    yield Lock(root_id.path(command.root, "lock"))
    yield Unlock(root_id.path(command.root, "lock"))
    try:
        root = State.decode(command.machine.read(path))
    except OSError:
        command.machine.remove(found.id.path(command.root, "lock"))
        raise RunscError(f"cannot load sandbox: open {path}: no such file or directory") from None
    found.pid = root.pid
    failing = f'cannot create subcontainer: creating sub-container "{found.id.container}"'
    try:
        yield from command.ask(found, "CreateSubcontainer", failing, spec=found.spec)
    except RunscError:
        command.machine.remove(found.id.path(command.root, "lock"))
        raise


def _write_pid(command: Command, found: State) -> None:
    path = command.words.options.get("pid-file")
    if path is not None:
        command.machine.replace(path, str(found.pid).encode())


def _make_filestore(command: Command, found: State) -> str:
    """Make the file that takes what is written to a rootfs, and return its path; empty when none is needed.

    Measured: only the default, `root:self`, puts one into the rootfs; it stays when the sandbox is killed, and then no
    sandbox of that id can be made on that rootfs. Read-only rootfs have no overlay (source of HEAD).
    """
    rootfs = found.spec["root"]["path"]
    if command.overlay2 not in {"root:self", "all:self"} or found.spec["root"].get("readonly"):
        return ""
    if command.machine.directory_mode(rootfs) is None:
        return ""
    path = f"{rootfs}/.gvisor.filestore.{found.id.sandbox}"
    try:
        command.machine.create(path, 0o600)
    except FileExistsError:
        raise RunscError(
            f'"{rootfs}" mount source already has a filestore file at "{path}"; '
            "repeated submounts are not supported with overlay optimizations"
        ) from None
    return path


def _unusable_mounts(command: Command, found: State) -> str | None:
    """Return what a file server says when it cannot serve: the rootfs or the source of a bind mount is not there."""
    machine = command.machine
    if machine.directory_mode(found.spec["root"]["path"]) is None:
        return 'Error setting up root FS: mounting root on root ("/proc/fs/root") err: no such file or directory'
    for mount in found.spec.get("mounts") or ():
        source = mount.get("source", "")
        is_bind = mount.get("type") == "bind" or "bind" in (mount.get("options") or ())
        if is_bind and machine.directory_mode(source) is None and not machine.holds_file(source):
            where = f"Destination:{mount['destination']} Type:{mount.get('type', '')} Source:{source}"
            return f'error setting up FS: mounting {{{where}}}: stat("{source}") failed: no such file or directory'
    return None


def _require_mounts(command: Command, found: State) -> None:
    why = _unusable_mounts(command, found)
    if why is not None:
        raise RunscError(f"reading mounts file: {_EMPTY_MOUNTS}", earlier=(why,))


# ------------------------------------------------------------------------------------------------- starting, restoring


def _start(command: Command, found: State) -> Steps[None]:
    command.require(found, "starting container: cannot start", CREATED)
    try:
        if found.id.is_root:
            yield Sleep(command.settings.latencies.start_s)
            yield from command.ask(found, "StartRoot", "starting root container: starting sandbox")
        else:
            yield from _with_gofer(command, found, "StartSubcontainer", command.settings.latencies.start_s)
    except RunscError as error:
        raise RunscError(f"starting container: {error.text}", earlier=error.earlier) from None
    found.status = RUNNING
    command.save(found)


def _with_gofer(command: Command, found: State, method: str, seconds: float) -> Steps[Any]:
    """Start or restore a sub-container: its file server first; stdio goes with the question."""
    machine = command.machine
    filestore = _make_filestore(command, found)
    found.gofer = machine.spawn_gofer(command.root)
    args = " ".join(found.spec["process"].get("args") or ())
    try:
        _require_mounts(command, found)
        yield Sleep(seconds)
        result = yield from command.ask_with(
            found, method, f"starting sub-container [{args}]", command.stdio, gofer=found.gofer
        )
    except RunscError:
        machine.kill(found.gofer)
        found.gofer = 0
        if filestore:
            machine.remove(filestore)
        raise
    found.filestore = filestore
    return result


def _restore(command: Command, found: State, directory: str) -> Steps[None]:
    command.require(found, "cannot restore", CREATED)
    latencies = command.settings.latencies
    if not found.id.is_root:
        result = yield from _with_gofer(command, found, "RestoreSubcontainer", latencies.restore_s)
    else:
        yield Sleep(latencies.restore_s)
        _require_image(command, directory)
        failing = f'restoring container "{found.id.container}"'
        result = yield from command.ask(found, "Restore", failing, directory=directory)
    if result == ["restored"]:
        yield Sleep(latencies.last_restore_s - latencies.restore_s)


def _require_image(command: Command, directory: str) -> None:
    """Open what there must be before the sandbox is asked: the state, and the index of pages beside pages."""
    machine = command.machine
    path = f"{directory}/{CHECKPOINT}"
    if not machine.holds_file(path):
        raise RunscError(f'opening state file "{path}" failed: open {path}: no such file or directory')
    pages, meta = f"{directory}/pages.img", f"{directory}/{PAGES_META}"
    if machine.holds_file(pages) and not machine.holds_file(meta):
        raise RunscError(f'opening restore image file "{meta}" failed: open {meta}: no such file or directory')
