"""An nvidia-ctk that is none, for a mock node on a machine without the real one: the simulated one, as a program.

The model decides, this performs: what the program may look at (the node's driver root and device nodes, the directory
it writes into) is put on a simulated disk as it is on the real one, the simulated nvidia-ctk runs there, and what it
wrote is written where it should be. Hangs and crashes of NVML are its own.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from sim.mock.fake_ending import ending_with_nvml
from sim.mock.fake_hardware import faults_of
from sim.mock.layout import LIBRARIES, STATE_FILE, TOOLKIT
from sim.mock.state import NodeState, read_state
from sim.world import scenery
from sim.world.ctk_flags import UsageError, read_flags
from sim.world.disk import SimDisk
from sim.world.gpu_node import GpuNode
from sim.world.gpus import Driver, Toolkit
from sim.world.nodes import Special
from sim.world.nvidia_ctk import Ctk, Ended
from sim.world.nvml import NvmlCrashes, NvmlHangs

PROGRAM: Final = "nvidia-ctk"
_ELF: Final = b"\x7fELF"
_ELF_IN_THE_WORLD: Final = b"\x7fELF "
_SPEC_MODE: Final = 0o644
_SPECS: Final = (".json", ".yaml")
_UNWRITABLE: Final = 1


def main(directory: str, *arguments: str) -> None:
    """Be one call of nvidia-ctk on a mock node, and end this process with its code; or as its NVML makes it end."""
    with ending_with_nvml():
        ended = perform(arguments, Path(directory), os.environ)
    os.write(1, ended.stdout)
    os.write(2, ended.stderr)
    os._exit(ended.code)


def perform(arguments: Sequence[str], directory: Path, env: Mapping[str, str]) -> Ended:
    """Run one command line on a mock node.

    Raises:
        NvmlCrashes, NvmlHangs: as its NVML does; what it has logged until then is on stderr.
    """
    state = read_state((directory / STATE_FILE).read_bytes())
    disk = SimDisk(now_ns=time.time_ns)
    gpus = _node(disk, directory, state)
    output = _output(arguments, env)
    _mirror_specs(disk, output.parent if output else Path(env.get("TMPDIR") or "/tmp"))  # noqa: S108 - as the real one
    ctk = Ctk(disk, gpus, env)
    try:
        ended = ctk.call(arguments)
    except (NvmlCrashes, NvmlHangs):
        os.write(2, ctk.log())
        raise
    else:
        return _written(disk, output, ended) if output else ended


def _node(disk: SimDisk, directory: Path, state: NodeState) -> GpuNode:
    """The node on a simulated disk: what the state file says, with the files and nodes that really are there."""
    version = _library_version(directory) or "0"
    driver = Driver(
        version=version, root=directory / "driver", dev_root=directory, proc_root=directory / "proc", has_nodes=False
    )
    gpus = GpuNode(disk, state.gpus, driver=driver, toolkit=Toolkit(directory=directory / TOOLKIT, is_mounted=False))
    gpus.boot()
    gpus.loaded_version = state.loaded_version
    if not state.may_open_devices:
        gpus.deny_devices()
    gpus.nvml_faults += faults_of(state)
    _mirror_driver(disk, directory)
    _mirror_nodes(disk, directory / "dev")
    return gpus


def _library_version(directory: Path) -> str | None:
    """The version in the name of the NVML that is there."""
    for path in (directory / LIBRARIES).glob("libnvidia-ml.so.*.*"):
        return path.name.partition(".so.")[2]
    return None


def _mirror_driver(disk: SimDisk, directory: Path) -> None:
    libraries = directory / LIBRARIES
    here = disk.find_directory(libraries)
    for name in tuple(disk.names(here)):
        disk.remove(here, name)
    for path in sorted((directory / "driver").rglob("*")):
        told = path.lstat()
        if stat.S_ISLNK(told.st_mode):
            scenery.put_symlink(disk, path, str(path.readlink()))
        elif stat.S_ISREG(told.st_mode):
            with path.open("rb") as file:
                head = file.read(len(_ELF))
            content = _ELF_IN_THE_WORLD + path.name.partition(".so")[0].encode() if head == _ELF else head
            scenery.put_file(disk, path, content, mode=stat.S_IMODE(told.st_mode))


def _mirror_nodes(disk: SimDisk, dev: Path) -> None:
    for path in sorted(dev.rglob("*")):
        told = path.lstat()
        if stat.S_ISCHR(told.st_mode):
            device = os.major(told.st_rdev), os.minor(told.st_rdev)
            mode = stat.S_IMODE(told.st_mode)
            scenery.put_special(disk, path, Special.CHARACTER_DEVICE, mode=mode, device=device)
        elif stat.S_ISREG(told.st_mode):
            scenery.put_file(disk, path)


def _output(arguments: Sequence[str], env: Mapping[str, str]) -> Path | None:
    """Where a spec will be written."""
    if list(arguments[:2]) != ["cdi", "generate"]:
        return None
    with suppress(UsageError):
        path = read_flags(arguments[2:], env).output_path
        return None if path is None else Path.cwd() / path
    return None


def _mirror_specs(disk: SimDisk, folder: Path) -> None:
    """The specs that stand beside the output, which it parses too."""
    scenery.put_directory(disk, folder)
    for path in folder.glob("*"):
        if path.suffix in _SPECS and path.is_file():
            scenery.put_file(disk, path, path.read_bytes())


def _written(disk: SimDisk, output: Path, ended: Ended) -> Ended:
    """Write what the simulated one wrote where it belongs, as a new file that is renamed."""
    if ended.code != 0:
        return ended
    data = disk.read(disk.find_regular(output))
    temporary = output.with_name(f".{output.name}.{os.getpid()}.tmp")
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_bytes(data)
        temporary.chmod(_SPEC_MODE)
        temporary.replace(output)
    except OSError as error:
        with suppress(OSError):
            temporary.unlink()
        text = f"failed to write spec: {(error.strerror or str(error)).lower()}\n"
        return Ended(code=_UNWRITABLE, stderr=ended.stderr + text.encode())
    return ended
