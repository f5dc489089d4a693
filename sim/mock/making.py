"""Makes a mock GPU node on the real machine, and changes what it says."""

from __future__ import annotations

import json
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

import attrs

from actors.ports import DeadlineExceededError
from sim.mock import fake_ctk, fake_monitor
from sim.mock.layout import (
    BUILD,
    LIBRARIES,
    LIBRARY_MODE,
    MAJOR,
    MONITOR,
    NODE_MODE,
    OWN_NAMES,
    PROC_MODE,
    PROC_NVIDIA,
    STATE_FILE,
    TOOLKIT,
    MockNode,
    proc_paths,
)
from sim.mock.state import NodeState, StateError, read_state, write_state
from statemachine.problem import Problem, ProblemError, Step
from statemachine.reasons import Reason
from supervisor.host.furnishing import Furnishing, may_not_make_nodes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from actors.ports import Files, Processes

_SOURCE: Final = Path(__file__).with_name("nvml_stub.c")
_SOURCE_BYTES_MAX: Final = 1 << 20
_STATE_BYTES_MAX: Final = 4 << 20
_STATE_MODE: Final = 0o644
_COMPILE_S: Final = 60.0
_PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_FLAGS: Final = ("-std=gnu11", "-O1", "-shared", "-fPIC", "-fvisibility=hidden", "-pthread")
_UVM_MAJORS: Final = range(511, 383, -1)
"""From where the kernel takes the numbers that drivers do not fix, once 254 to 234 are taken."""


class NotPossibleError(Exception):
    """Raised when no mock node can be made on this machine, and why."""


class _CompileError(Exception):
    """Raised when the NVML cannot be compiled, and why."""


@attrs.frozen(kw_only=True)
class Workshop:
    """What a mock node is made with.

    Attributes:
        files: reads.
        processes: runs the compiler.
        compiler: the machine's, or None.
        interpreter: a Python for the programs of the node that are scripts.
        folders: where that one finds `sim` and what it needs.
    """

    files: Files
    processes: Processes
    compiler: Path | None
    interpreter: str
    folders: tuple[str, ...]


def choose_uvm_major(proc_devices: str) -> int:
    """A number for nvidia-uvm that no driver of this machine has, from what /proc/devices says.

    Raises:
        NotPossibleError: the number of the GPUs themselves is a driver's.
    """
    characters, _, _ = proc_devices.partition("Block devices:")
    words = [line.split() for line in characters.splitlines()]
    taken = {int(each[0]): each[1] for each in words if len(each) > 1 and each[0].isdecimal()}
    if MAJOR in taken:
        # Nodes with its numbers would not be mock ones: whoever gets one would have a real GPU.
        raise NotPossibleError(f"a driver ({taken[MAJOR]}) has the device number {MAJOR} here: this is a real GPU node")
    return next(number for number in _UVM_MAJORS if number not in taken)


async def make(node: MockNode, workshop: Workshop) -> str | None:
    """Make a node, or make what is there anew: as described, with nothing scripted. Its state file comes last.

    Returns: why its NVML is a library without symbols, like the others; None when it was compiled.

    Raises:
        NotPossibleError: we may make no device nodes; what was made is undone, unless a mock node was there before.
        ProblemError: the directory holds something else, or cannot be written.
    """
    furnishing = Furnishing(node.directory)
    with _told(node.directory):
        had_root = await workshop.files.lstat(node.directory) is not None
        before = furnishing.open_root()
        if others := sorted(before - OWN_NAMES):
            raise ProblemError(_occupied(node.directory, others))
        try:
            _make_nodes(node, furnishing)
            library, why_empty = await _nvml(node, furnishing, workshop)
        except BaseException:
            if not before:
                _undo(furnishing, node.directory, had_root=had_root)
            raise
        _put_programs(node.directory, furnishing, workshop)
        _furnish(node, furnishing, library)
    return why_empty


async def change(directory: Path, files: Files, state: NodeState) -> None:
    """Let a node be in another state from now on: its state file, and what /proc shows.

    Raises:
        ProblemError: it cannot be written.
    """
    furnishing = Furnishing(directory)
    with _told(directory):
        if proc_paths(directory, state) != proc_paths(directory, await current(directory, files)):
            _write_proc(directory, furnishing, state)
        furnishing.file(directory / STATE_FILE, write_state(state), mode=_STATE_MODE)


async def current(directory: Path, files: Files) -> NodeState:
    """How a node is.

    Raises:
        ProblemError: there is none, or its state file is damaged.
    """
    path = directory / STATE_FILE
    try:
        return read_state(await files.read(path, limit_bytes=_STATE_BYTES_MAX))
    except OSError as error:
        hint = "Make the mock node first: `greenroom mock-node --gpus N --dir DIR`."
        raise _no_state(path, Reason.UNREADABLE_FILE, error.strerror or str(error), hint) from None
    except StateError as error:
        hint = "Correct the state file, or make the node anew with `--gpus N`."
        raise _no_state(path, Reason.MALFORMED_DOCUMENT, str(error), hint) from None


def _no_state(path: Path, reason: Reason, why: str, hint: str) -> ProblemError:
    message = f"{path}: {why}"
    return ProblemError(Problem(step=Step.SUPERVISE, reason=reason, subject=str(path), message=message, hint=hint))


# ---- parts


def _make_nodes(node: MockNode, furnishing: Furnishing) -> None:
    dev = node.directory / "dev"
    furnishing.directory(dev)
    wanted = node.devices()
    for path, device in wanted.items():
        try:
            furnishing.character_device(path, device, mode=NODE_MODE)
        except OSError as error:
            if not may_not_make_nodes(error):
                raise
            raise NotPossibleError(
                "device nodes are made by root with CAP_MKNOD, which this process is not or has not"
            ) from None
    for name in furnishing.names(dev):
        if name.startswith("nvidia") and dev / name not in wanted:
            furnishing.remove(dev / name)


async def _nvml(node: MockNode, furnishing: Furnishing, workshop: Workshop) -> tuple[bytes, str | None]:
    """The node's NVML; and why it is one that answers nothing, where it cannot be compiled."""
    try:
        return await _compile(node, furnishing, workshop), None
    except _CompileError as error:
        return node.empty_nvml(), str(error)


async def _compile(node: MockNode, furnishing: Furnishing, workshop: Workshop) -> bytes:
    """The node's NVML, compiled. All that the compiler writes is in a directory that goes away."""
    compiler = workshop.compiler
    if compiler is None:
        raise _CompileError("there is no C compiler (`cc`) in PATH")
    build = node.directory / BUILD
    furnishing.directory(build)
    try:
        told = {
            "NODE_DIRECTORY": str(node.directory),
            "STATE_FILE": str(node.directory / STATE_FILE),
            "LIBRARY_VERSION": node.version,
        }
        lines = [f"#define {name} {_c_string(text)}\n" for name, text in told.items()]
        text = await workshop.files.read(_SOURCE, limit_bytes=_SOURCE_BYTES_MAX)
        furnishing.file(build / _SOURCE.name, "".join([*lines, "#line 1\n"]).encode() + text, mode=_STATE_MODE)
        argv = [str(compiler), *_FLAGS, "-Wl,-soname,libnvidia-ml.so.1", "-o", str(build / "library")]
        finished = await workshop.processes.run(
            [*argv, str(build / _SOURCE.name)],
            deadline_s=_COMPILE_S,
            env={"PATH": f"{compiler.parent}:{_PATH}", "TMPDIR": str(build), "LC_ALL": "C"},
        )
        if finished.exit.code != 0:
            said = finished.stderr.decode(errors="replace").strip().splitlines() or ["it said nothing"]
            raise _CompileError(f"{compiler} cannot compile it: {said[-1]}")
        return await workshop.files.read(build / "library", limit_bytes=_SOURCE_BYTES_MAX)
    except DeadlineExceededError as error:
        raise _CompileError(str(error)) from None
    finally:
        furnishing.remove(build)


def _c_string(text: str) -> str:
    """The text as a C string: what is no plain ASCII becomes octal escapes of its UTF-8."""
    plain = json.dumps(text, ensure_ascii=False)[1:-1]
    return (
        '"' + "".join(each if each.isascii() else "".join(f"\\{b:03o}" for b in each.encode()) for each in plain) + '"'
    )


def _furnish(node: MockNode, furnishing: Furnishing, library: bytes) -> None:
    files = {**node.driver_files(), node.nvml: library}
    for directory in dict.fromkeys(path.parent for path in files):
        furnishing.directory(directory)
    for path, data in files.items():
        furnishing.file(path, data, mode=LIBRARY_MODE)
    links = node.links()
    for path, target in links.items():
        furnishing.symlink(path, target)
    libraries = node.directory / LIBRARIES
    for name in furnishing.names(libraries):
        if libraries / name not in files | links:
            furnishing.remove(libraries / name)
    _write_proc(node.directory, furnishing, node.state)
    furnishing.file(node.directory / STATE_FILE, write_state(node.state), mode=_STATE_MODE)


def _put_programs(directory: Path, furnishing: Furnishing, workshop: Workshop) -> None:
    """What serves the node's facts without its NVML: the toolkit, and a monitor."""
    furnishing.directory(directory / TOOLKIT)
    for path, module in ((Path(TOOLKIT) / fake_ctk.PROGRAM, fake_ctk), (Path(MONITOR), fake_monitor)):
        text = _program(workshop, module.__name__, directory)
        furnishing.file(directory / path, text.encode(), mode=LIBRARY_MODE)


def _program(workshop: Workshop, module: str, directory: Path) -> str:
    """The text of an executable that is this module's `main`, for this node; it looks at no other folder."""
    return (
        f"#!{workshop.interpreter} -IS\n"
        "import sys\n"
        f"sys.path[:0] = {list(workshop.folders)!r}\n"
        f"from {module} import main\n"
        f"main({str(directory)!r}, *sys.argv[1:])\n"
    )


def _write_proc(directory: Path, furnishing: Furnishing, state: NodeState) -> None:
    furnishing.remove(directory / PROC_NVIDIA)
    furnishing.directory(directory / PROC_NVIDIA.parent)
    for path, data in proc_paths(directory, state).items():
        furnishing.directory(path.parent)
        furnishing.file(path, data, mode=PROC_MODE)


def _undo(furnishing: Furnishing, directory: Path, *, had_root: bool) -> None:
    for name in OWN_NAMES:
        furnishing.remove(directory / name)
    if not had_root:
        furnishing.remove_root()


def _occupied(directory: Path, others: list[str]) -> Problem:
    return Problem(
        step=Step.SUPERVISE,
        reason=Reason.INVALID_VALUE,
        subject="--dir",
        message=f"{directory} holds something that is not of a mock node: {', '.join(others)}",
        hint="Name a new or empty directory, or that of a mock node.",
    )


@contextmanager
def _told(directory: Path) -> Iterator[None]:
    """What the kernel refuses becomes a reason."""
    try:
        yield
    except OSError as error:
        where = error.filename or directory
        raise ProblemError(
            Problem(
                step=Step.SUPERVISE,
                reason=Reason.STATE_UNWRITABLE,
                subject=str(directory),
                message=f"the mock node cannot be written: {error.strerror or error}: {where}",
                hint="Name a directory that can be written, below one that exists.",
            )
        ) from None
