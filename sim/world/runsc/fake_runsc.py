"""A runsc that is none: a real program on the model's code, for tests that want real processes without gVisor or root.

The model decides, this performs: sandboxes and file servers are long-lived processes in sessions of their own, with
`--root=` on their command lines, orphaned to the nearest subreaper; state, pid files and images are real files; exit
codes are real. `wrapper` is the text of the executable that tests put somewhere.
"""

from __future__ import annotations

import fcntl
import os
import signal
import socket
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

import attrs
import orjson

from sim.world.runsc import fake_socket
from sim.world.runsc.cli import call
from sim.world.runsc.fake_files import OsFiles, write_all, write_output
from sim.world.runsc.fake_sandbox import LET_GO, run_sandbox
from sim.world.runsc.machine import Answer, Ask, Completion, Invocation, Lock, Sleep, Steps, Unlock
from sim.world.runsc.programs import Program
from sim.world.runsc.settings import Flavour, Latencies, RunscSettings

BOOT: Final = "boot"
_STDIO: Final = (1, 2)
_PROGRAM_BYTES_MAX: Final = 1 << 16


def wrapper(interpreter: str, folders: Sequence[str], settings: RunscSettings) -> str:
    """Return the text of an executable that is this runsc.

    Args:
        interpreter: a Python.
        folders: where it finds `sim`, attrs and orjson; it looks at nothing else, which would cost as much again.
        settings: what the runsc is to be.
    """
    facts = {
        "flavour": settings.flavour,
        "version": settings.version,
        "latencies": attrs.asdict(settings.latencies),
        "programs": [[list(argv), program.name, program.code] for argv, program in settings.programs.items()],
        "has_nvidia_driver": settings.has_nvidia_driver,
        "nvidia_driver": settings.nvidia_driver,
        "known_drivers": settings.known_drivers,
        "state_bytes": settings.state_bytes,
    }
    return (
        f"#!{interpreter} -IS\n"
        "import sys\n"
        f"sys.path[:0] = {list(folders)!r}\n"
        "from sim.world.runsc.fake_runsc import main\n"
        f"main(sys.argv, {orjson.dumps(facts)!r})\n"
    )


def main(argv: Sequence[str], facts: bytes) -> None:
    """Be one command of runsc, or a sandbox, and end this process with its code."""
    settings = _settings(orjson.loads(facts))
    if BOOT in argv[2:3]:
        run_sandbox(settings, argv[4:])
    completion = FakeMachine(argv[0]).perform(settings, argv[1:])
    write_all(1, completion.stdout)
    write_all(2, completion.stderr)
    # Nothing is to be flushed or torn down, and a sandbox that was let go lives on.
    os._exit(completion.code)


def _settings(facts: dict[str, Any]) -> RunscSettings:
    return RunscSettings(
        flavour=Flavour(facts["flavour"]),
        version=facts["version"],
        latencies=Latencies(**facts["latencies"]),
        programs={tuple(argv): Program.from_json(code, name=name) for argv, name, code in facts["programs"]},
        has_nvidia_driver=facts["has_nvidia_driver"],
        nvidia_driver=facts["nvidia_driver"],
        known_drivers=None if facts["known_drivers"] is None else tuple(facts["known_drivers"]),
        state_bytes=facts["state_bytes"],
    )


def _stdin(argv: Sequence[str]) -> bytes:
    """What is to be executed instead of a file of the container, when a descriptor is named that has it."""
    named = (word.lstrip("-").partition("=")[2] for word in argv if word.lstrip("-").startswith("exec-fd="))
    return next((os.pread(int(fd), _PROGRAM_BYTES_MAX, 0) for fd in named), b"")


class FakeMachine(OsFiles):
    """The machine of one command: real files, real processes, a real clock.

    Args:
        program: what to execute to be a sandbox.
    """

    def __init__(self, program: str) -> None:
        self._program = program
        self._root = ""
        self._listener: socket.socket | None = None
        self._ties: dict[int, int] = {}
        self._lifelines: dict[int, socket.socket] = {}
        self._locks: dict[str, int] = {}

    def perform(self, settings: RunscSettings, argv: Sequence[str]) -> Completion:
        """Give a command what it wishes for until it has what it needs."""
        invocation = Invocation(argv=argv, stdin=_stdin(argv), stdout=_STDIO[0], stderr=_STDIO[1])
        steps: Steps[Completion] = call(self, settings, invocation)
        result: Any = None
        while True:
            try:
                wish = steps.send(result)
            except StopIteration as end:
                completion: Completion = end.value
                return completion
            result = None
            match wish:
                case Sleep(seconds):
                    time.sleep(seconds)
                case Lock(path):
                    self._lock(path)
                case Unlock(path):
                    os.close(self._locks.pop(path))
                case Ask():
                    result = self._ask(wish)

    def _ask(self, wish: Ask) -> Answer:
        descriptors = list(wish.stdio)
        if "gofer" in wish.argument:
            descriptors.append(self._lifelines[wish.argument["gofer"]].fileno())
        return fake_socket.ask(wish.address, wish.method, wish.argument, descriptors)

    def _lock(self, path: str) -> None:
        """Take a lock; whoever held it may have removed the file, and then it is the lock of nothing."""
        while path not in self._locks:
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            fcntl.flock(fd, fcntl.LOCK_EX)
            try:
                is_same = os.stat(path).st_ino == os.fstat(fd).st_ino
            except FileNotFoundError:
                is_same = False
            if is_same:
                self._locks[path] = fd
            else:
                os.close(fd)

    def now_s(self) -> float:
        """The clock that the whole machine shares."""
        return time.monotonic()

    def write(self, handle: int, data: bytes) -> None:
        """Write to a descriptor."""
        write_output(handle, data)

    # --------------------------------------------------------------------------------------------------- its processes

    def create_socket(self, path: str) -> None:
        """Listen for the sandbox that is about to be spawned."""
        self._listener = fake_socket.listen(path)

    def spawn_gofer(self, root: str) -> int:
        """Start a shell that reads from its lifeline until that ends."""
        ours, theirs = socket.socketpair()
        argv = ["sh", "-c", "read -r _", "runsc-gofer", f"--root={root}", "gofer"]
        actions = [
            (os.POSIX_SPAWN_DUP2, theirs.fileno(), 0),
            (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
            (os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_WRONLY, 0),
        ]
        pid = os.posix_spawn("/bin/sh", argv, {}, file_actions=actions, setsid=True)
        theirs.close()
        self._lifelines[pid] = ours
        return pid

    def spawn_sandbox(
        self,
        root: str,
        facts: Mapping[str, Any],
        stdio: Sequence[int],  # noqa: ARG002 - the child inherits it
    ) -> int:
        """Execute this program again, as a sandbox; it inherits our output."""
        if self._listener is None:
            raise RuntimeError("a sandbox has a socket")
        said = os.memfd_create("facts", 0)
        write_all(said, orjson.dumps(facts))
        read_end, write_end = os.pipe()
        descriptors = (said, self._listener.fileno(), read_end, self._lifelines[facts["gofer"]].fileno())
        for fd in descriptors:
            os.set_inheritable(fd, True)  # noqa: FBT003 - the function takes it so
        argv = [self._program, f"--root={root}", BOOT, facts["id"], *map(str, descriptors)]
        pid = os.posix_spawn(self._program, argv, os.environ, setsid=True)
        for fd in descriptors:
            os.set_inheritable(fd, False)  # noqa: FBT003 - the function takes it so
        os.close(read_end)
        os.close(said)
        self._ties[pid] = write_end
        return pid

    def let_go(self, pid: int) -> None:
        """From now on that sandbox outlives the command."""
        write_all(self._ties[pid], LET_GO)

    def kill(self, pid: int) -> None:
        """SIGKILL a process."""
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            return

    def is_there(self, pid: int) -> bool:
        """What kill(pid, 0) says, after a zombie of our own has been waited for."""
        with suppress(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return False
        return True

    def is_running(self, pid: int) -> bool:
        """Whether it is there and no zombie."""
        try:
            text = self.read(f"/proc/{pid}/stat")
        except (FileNotFoundError, ProcessLookupError):
            return False
        return text[text.rindex(b")") + 2 :][:1] not in {b"Z", b"X"}
