"""Fuzz targets for what other programs say (runsc, nvidia-ctk, the GPU monitor), and for the driver's libraries."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

from actors.gpu.driver_params import without_device_files
from actors.gpu.elf import ElfError, read_linkage, soname_of
from actors.gpu.facts import FactError, InventoryFact, decode_lines, encode
from actors.gpu.inventory import Gpu, Inventory
from actors.gpu.toolkit_errors import problem_of
from actors.gpu.view import SILENT, after
from actors.ports import Exit, Finished
from actors.runsc.answers import (
    descendants,
    parse_exit_status,
    parse_list,
    parse_pid_file,
    parse_processes,
    parse_state,
)
from actors.runsc.errors import Call, classify
from actors.runsc.log import words
from actors.runsc.version import parse_version
from statemachine.problem import ProblemError, Step
from tests.actors.memory_files import MemoryFiles
from tests.fuzzing.promises import Target, finished, hold, hold_tellable, refused
from tests.gpu.libraries import library, program

if TYPE_CHECKING:
    from collections.abc import Iterable

_SECRET: Final = "hunter2-hunter2"
_STATE: Final = {"ociVersion": "1.0.2", "id": "c0", "status": "running", "pid": 77, "bundle": "/b", "annotations": {}}
_GPU: Final = Gpu(uuid="GPU-5a1e5a1e-0000-0000-0000-000000000000", minor=2, pci_bus_id="00000000:07:00.0", model="H200")


def check_tools(data: bytes) -> None:
    """The first byte says which tool said the rest."""
    _TOOLS[data[0] % len(_TOOLS) if data else 0](data[1:])


def _answer(parse: Callable[[bytes], object]) -> Callable[[bytes], None]:
    def check(data: bytes) -> None:
        try:
            parse(data)
        except ValueError:
            return

    return check


def _check_processes(data: bytes) -> None:
    """However the parents of processes stand to each other, who is below whom is found."""
    try:
        parents = parse_processes(data)
    except ValueError:
        return
    for pid in (1, *list(parents)[:3]):
        found = descendants(parents, pid)
        hold(len(found) == len(set(found)), "each process is found once")


def _check_words(data: bytes) -> None:
    """Whatever runsc says of a failure becomes a problem that can be told, without a secret."""
    log, _, stderr = data.partition(b"\xff")
    call = Call(step=Step.CREATE, verb="create", subject="web", secrets=(_SECRET,), nvidia_driver="570.1")
    problem = classify(call, words(log, stderr), status="exit code 128")
    hold_tellable(ProblemError(problem))
    hold(_SECRET not in repr(problem), "no secret is told")


def _check_version(data: bytes) -> None:
    ended = Finished(exit=Exit(code=0), stdout=data, stderr=data)
    refused(lambda: parse_version(ended, path=Path("/runsc"), step=Step.SUPERVISE))


def _check_toolkit(data: bytes) -> None:
    """Whatever nvidia-ctk says becomes a problem that can be told, without a secret."""
    code = data[0] - 20 if data else 1
    problem = problem_of(code, data[1:].decode("utf-8", "replace"), subject="/nvidia-ctk", secrets=(_SECRET,))
    hold_tellable(ProblemError(problem))
    hold(_SECRET not in repr(problem), "no secret is told")


def _check_monitor(data: bytes) -> None:
    """Facts come out as they went in, wherever the stream is cut, and every fact leads to a view."""
    try:
        facts, rest = decode_lines(data)
    except FactError as error:
        hold(str(error).isprintable(), "why the monitor is not believed can be printed")
        return
    hold(data.endswith(rest), "what is not read yet stays")
    view = SILENT
    for fact in facts:
        view = after(view, fact)
        hold(decode_lines(encode(fact)) == ((fact,), b""), "what is written is read again as it was")


def _check_params(data: bytes) -> None:
    text = data.decode("utf-8", "replace")
    changed = without_device_files(text)
    hold(changed is None or without_device_files(changed) is None, "switched off once is switched off")


_TOOLS: Final = (
    _answer(parse_state),
    _answer(parse_list),
    _answer(parse_exit_status),
    _answer(parse_pid_file),
    _check_processes,
    _check_words,
    _check_version,
    _check_toolkit,
    _check_monitor,
    _check_params,
)


def _tool_seeds() -> Iterable[tuple[str, bytes]]:
    entry = json.dumps({"msg": f"cannot load sandbox: {_SECRET}\ngoroutine 1", "level": "error", "time": "x"})
    said = (
        json.dumps(_STATE),
        json.dumps([_STATE, {**_STATE, "id": "c1", "status": "stopped", "pid": -1}]),
        '{"id":"c0","exitStatus":137}',
        "4242",
        "UID PID PPID C TTY STIME TIME CMD\n0 1 0 0 ? 10:00 10ms sh\n0 2 1 0 ? 10:00 10ms sleep\n",
        f"{entry}{entry}\xff{_SECRET} failed",
        "runsc version release-20240729.0\nspec: 1.1.0\n",
        f'\x15time="x" level=error msg="failed to initialize NVML: ERROR_LIBRARY_NOT_FOUND {_SECRET}"\n',
        encode(InventoryFact(driver="570.1", inventory=Inventory([_GPU]))).decode()
        + '{"v":1,"type":"xid","gpu":null,"xid":79}\n'
        + '{"v":1,"type":"processes","gpu":"GPU-1","pids":[1,2]}\n'
        + '{"v":1,"type":"error","call":"nvmlInit","error":"NVML_ERROR_UNKNOWN","gpu":null,"message":"x"}\n{"v"',
        "ResmanDebugLevel: 4294967295\nModifyDeviceFiles: 1\n",
    )
    for number, text in enumerate(said):
        yield f"tool-{number}", bytes([number]) + text.encode("latin-1")


_WORDS: Final = (
    "ociVersion", "id", "status", "pid", "exitStatus", "running", "paused", "stopped", "created", "msg", "level",
    "error", "goroutine", "no space left on device", "connection refused", "sandbox is not running",
    "unsupported Nvidia driver", "failed to load ", ": no such file or directory",
    "can't save with live nvproxy clients", 'level=error msg="', "panic: ", "symbol lookup error",
    "ERROR_LIBRARY_NOT_FOUND", "empty device edits", "runsc version ", "UID PID PPID", "inventory", "processes",
    "xid", "driver", "unread", "gpus", "uuid", "minor", "pciBusId", "model", "migDevices", "lost", "gpu", "pids",
    "call", "message", "null", "9223372036854775808", "1e400", _SECRET, _SECRET[:9], "hunter2\\\\",
    "ModifyDeviceFiles: 0",
)  # fmt: skip


# ----------------------------------------------------------------------------------------------------------------- ELF


def check_elf(data: bytes) -> None:
    """A library's name is told or refused, both from bytes and from a file, and no more is read than the bounds say."""
    path = Path("/lib")
    try:
        soname = soname_of(data)
        hold(soname is None or (soname.isascii() and len(soname) <= 255 and "\0" not in soname), "a name is bounded")
    except ElfError as error:
        hold(str(error).isprintable(), "why it is none can be printed")
    try:
        linkage = finished(read_linkage(MemoryFiles({path: data}), path))
    except ElfError as error:
        hold(str(error).isprintable(), "why it is none can be printed")
        return
    hold(len(linkage.needed) <= 256, "what it needs is bounded")


def _elf_seeds() -> Iterable[tuple[str, bytes]]:
    yield "library", library(b"libcuda.so.1")
    yield "program", program(b"/lib64/ld-linux-x86-64.so.2")


TOOLS: Final = Target(name="tools", check=check_tools, seeds=_tool_seeds, words=_WORDS)
ELF: Final = Target(name="elf", check=check_elf, seeds=_elf_seeds, words=("libcuda.so.1", "../x", "/lib64/ld"))
