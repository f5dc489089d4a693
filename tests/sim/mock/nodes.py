"""Mock nodes for tests, and what a process that loads their NVML through nvidia-ml-py is told."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import attrs
import pytest

import greenroom
from sim.mock.layout import LIBRARIES, MONITOR, STATE_FILE, TOOLKIT
from sim.mock.state import NodeState, read_state, write_state
from tests.needs import Tool, need

MINORS: Final = (7, 2, 5, 3)
# Loads the library as the monitor does, by its path: what pynvml then asks for by its SONAME is in the process.
_PREAMBLE: Final = """
import ctypes, faulthandler, json, sys
faulthandler.dump_traceback_later(300, exit=True)  # whoever waits for a word of this process does not wait for ever
library = ctypes.CDLL(sys.argv[1], ctypes.RTLD_GLOBAL)
from pynvml import *
def tell(value):
    print(json.dumps(value), flush=True)
def code(call, *arguments):
    try:
        call(*arguments)
    except NVMLError as error:
        return error.value
    return 0
def handles():
    return [nvmlDeviceGetHandleByIndex(index) for index in range(nvmlDeviceGetCount())]
"""


@attrs.frozen
class Node:
    """A mock node that was made."""

    directory: Path
    fresh: bytes

    @property
    def toolkit(self) -> Path:
        """Its nvidia-ctk."""
        return self.directory / TOOLKIT / "nvidia-ctk"

    @property
    def monitor(self) -> Path:
        """Its GPU monitor that needs no NVML."""
        return self.directory / MONITOR

    @property
    def nvml(self) -> Path:
        return self.directory / LIBRARIES / "libnvidia-ml.so.1"

    def state(self) -> NodeState:
        return read_state((self.directory / STATE_FILE).read_bytes())

    def reset(self) -> None:
        self.put(read_state(self.fresh))

    def put(self, state: NodeState) -> None:
        beside = self.directory / "new-state"
        beside.write_bytes(write_state(state))
        beside.rename(self.directory / STATE_FILE)

    def script(self, *words: str) -> None:
        run = greenroom.run(["mock-node", "--dir", str(self.directory), *(f"--set={word}" for word in words)])
        assert run == 0

    def child(self, code: str) -> "subprocess.Popen[str]":
        """A process that has loaded this NVML and runs some Python with all of pynvml's names in it."""
        argv = [sys.executable, "-c", _PREAMBLE + code, str(self.nvml)]
        return subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def asked(self, code: str) -> Any:
        """What such a process tells; it ends well."""
        with self.child(code) as child:
            out, err = child.communicate(timeout=300)
        assert (child.returncode, err) == (0, "")
        return json.loads(out)

    def init_code(self) -> int:
        """What nvmlInit returns."""
        answer = self.asked("tell(code(nvmlInit))")
        assert isinstance(answer, int)
        return answer


def make_node(directory: Path, *options: str) -> Node:
    """Make one with the command itself."""
    need(Tool.MKNOD, Tool.COMPILER)
    return _made(directory, options)


def make_node_without_compiler(directory: Path, *options: str) -> Node:
    """Make one whose NVML answers nothing, with the command itself, where no compiler is found."""
    need(Tool.MKNOD)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", "/nowhere")
        return _made(directory, options)


def _made(directory: Path, options: tuple[str, ...]) -> Node:
    run = greenroom.run(["mock-node", "--dir", str(directory), *options])
    assert run == 0
    return Node(directory, (directory / STATE_FILE).read_bytes())


def send(child: "subprocess.Popen[str]", line: object = "") -> None:
    """One line to a child's stdin."""
    assert child.stdin is not None
    child.stdin.write(f"{line}\n")
    child.stdin.flush()


def hear(child: "subprocess.Popen[str]") -> Any:
    """What a child tells next."""
    assert child.stdout is not None
    return json.loads(child.stdout.readline())
