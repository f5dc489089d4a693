"""The device nodes of the pod, the mode in which it got them, and whether more may appear by themselves."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import attrs

from actors.gpu.detection import LEGACY_HINT
from actors.gpu.driver_params import lets_libraries_make_nodes
from actors.gpu.inventory import MINOR_MAX
from actors.ports import FileKind
from statemachine.problem import Problem
from statemachine.reasons import Reason

from .check import fail, failed, listed, ok, warn

if TYPE_CHECKING:
    from pathlib import Path

    from actors.ports import DriverPlaces, Files

    from .check import Check

CONTROL_NAMES: Final = ("nvidiactl", "nvidia-uvm")
"""Without these two no program reaches a GPU."""
PARAMS_BYTES_MAX: Final = 1 << 20
_GPU_NAME: Final = re.compile(r"nvidia(\d+)", re.ASCII)


@attrs.frozen(kw_only=True)
class NodeFacts:
    """What stands in `dev`.

    Attributes:
        directory: the `dev` that was looked into.
        gpus: nodes of GPUs, by minor.
        control: those of `CONTROL_NAMES` that are character devices.
        odd: paths with a node's name that are no character device.
        unread: why it could not be looked into; empty when it could.
    """

    directory: Path
    gpus: tuple[str, ...] = ()
    control: frozenset[str] = frozenset()
    odd: tuple[str, ...] = ()
    unread: str = ""


async def look_at_nodes(files: Files, places: DriverPlaces) -> NodeFacts:
    """Look into `dev`, following no symlink."""
    directory = places.dev_root / "dev"
    try:
        names = await files.list_directory(directory)
        gpus = [name for name in names if (found := _GPU_NAME.fullmatch(name)) and int(found[1]) <= MINOR_MAX]
        wanted = [*sorted(gpus, key=lambda name: int(name.removeprefix("nvidia"))), *CONTROL_NAMES]
        kinds = {name: await _kind(files, directory / name) for name in wanted}
    except OSError as error:
        return NodeFacts(directory=directory, unread=error.strerror or str(error))
    devices = [name for name, kind in kinds.items() if kind is FileKind.CHARACTER_DEVICE]
    return NodeFacts(
        directory=directory,
        gpus=tuple(name for name in devices if name not in CONTROL_NAMES),
        control=frozenset(name for name in devices if name in CONTROL_NAMES),
        odd=tuple(
            str(directory / name) for name, kind in kinds.items() if kind not in {None, FileKind.CHARACTER_DEVICE}
        ),
    )


def judge_nodes(facts: NodeFacts) -> Check:
    """Without a GPU's node there is no GPU; without the control nodes nobody reaches it."""
    name = "device-nodes"
    if facts.unread:
        return fail(
            name, Reason.GPU_NOT_DETECTED, f"{facts.directory} cannot be looked into: {facts.unread}", _NO_NODES
        )
    if facts.odd:
        message = f"no character devices, whatever their names: {listed(facts.odd)}"
        return fail(name, Reason.GPU_NOT_DETECTED, message, "Remove them; real nodes are made by the driver.")
    if not facts.gpus:
        there = f"; only {listed(tuple(sorted(facts.control)))}" if facts.control else ""
        message = f"there is no GPU: {facts.directory} has no nvidia0, nvidia1, …{there}"
        return fail(name, Reason.GPU_NOT_DETECTED, message, _NO_NODES)
    absent = tuple(each for each in CONTROL_NAMES if each not in facts.control)
    if absent:
        message = f"{facts.directory} has {listed(facts.gpus)} and lacks {listed(absent)}"
        return fail(name, Reason.CDI_DEVICE_UNRESOLVED, message, _NO_CONTROL)
    return ok(name, f"{facts.directory} has {listed(facts.gpus)}, with {listed(CONTROL_NAMES)}")


def judge_cdi_mode(covers: tuple[str, ...] | Problem) -> Check:
    """In legacy mode the driver's /proc is covered, and no sandbox can be made under that.

    Args:
        covers: the mount points that do so, or why they could not be looked for.
    """
    name = "cdi-mode"
    if isinstance(covers, Problem):
        return failed(name, covers)
    if covers:
        message = f"the pod was started in NVIDIA's legacy mode: mounts at {listed(covers)}"
        return fail(name, Reason.CDI_MODE_REQUIRED, message, LEGACY_HINT)
    return ok(name, "nothing covers what the driver tells in /proc")


async def read_params(files: Files, places: DriverPlaces) -> str | None:
    """The parameters of the driver's module; None where there are none to be read."""
    try:
        return (await files.read(_params_file(places), limit_bytes=PARAMS_BYTES_MAX)).decode("utf-8", "replace")
    except OSError:
        return None


def judge_params(params: str | None, places: DriverPlaces) -> Check:
    """Nodes that the driver's libraries make by themselves would be taken for GPUs that the pod was given."""
    name = "driver-params"
    path = _params_file(places)
    if params is None:
        return warn(
            name,
            Reason.NVML_UNAVAILABLE,
            f"{path} cannot be read: no driver is loaded, or its part of /proc is not seen here",
            "Load the driver on the node; name another /proc with --proc-root.",
        )
    if lets_libraries_make_nodes(params):
        return warn(
            name,
            Reason.CDI_DEVICE_UNRESOLVED,
            f"{path} says ModifyDeviceFiles: 1: root who loads the driver's libraries in this pod may make nodes of "
            "GPUs that the pod was not given",
            "Let the container toolkit's hook disable-device-node-modification run for the pod, or load the driver's "
            "module with NVreg_ModifyDeviceFiles=0.",
        )
    return ok(name, f"{path} lets no library make device nodes")


def _params_file(places: DriverPlaces) -> Path:
    return places.proc_root / "driver/nvidia/params"


async def _kind(files: Files, path: Path) -> FileKind | None:
    found = await files.lstat(path)
    return None if found is None else found.kind


_NO_NODES: Final = (
    "Assign the pod to a node with a GPU, with a limit of nvidia.com/gpu; the device plugin makes the nodes. Another "
    "root of /dev is named with --dev-root."
)
_NO_CONTROL: Final = "On the node, `nvidia-modprobe -c 0 -u` makes them; the device plugin then passes them."
