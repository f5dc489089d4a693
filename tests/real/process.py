"""`greenroom` as a process of its own: a worker that is started, signalled and killed, and commands that ask it."""

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Final

import anyio
import attrs

from actors.layout import StateDir
from supervisor.client import call
from supervisor.host.net import HostNet
from tests.leaks import temporaries_below
from tests.needs import ROOT, Tool, find
from tests.real.onlookers import kill_below, pids_below

GREENROOM: Final = (sys.executable, str(ROOT / "greenroom.py"))
ENVIRONMENT: Final = {name: value for name, value in os.environ.items() if not name.startswith("GREENROOM")}
SOON_S: Final = 120.0
"""Far more than anything takes that is waited for, for machines that do other things too."""
_POLL_S: Final = 0.01
_READY: Final = b'"ready"'


def greenroom(
    *arguments: object, cwd: Path | None = None, given: str | None = None
) -> "subprocess.CompletedProcess[str]":
    """Run a command to its end."""
    return subprocess.run(
        [*GREENROOM, *map(str, arguments)],
        capture_output=True,
        text=True,
        cwd=cwd,
        input=given,
        env=ENVIRONMENT,
        timeout=SOON_S,
        check=False,
    )


def wait_until(condition: Any, *, within_s: float = SOON_S) -> Any:
    """Look until something is so, and return it."""
    until_s = time.monotonic() + within_s
    while not (found := condition()):
        assert time.monotonic() < until_s, "it did not come"
        time.sleep(_POLL_S)
    return found


@attrs.define
class WorkerProcess:
    """A `greenroom run` below a directory, which can be started again on what it left."""

    directory: Path
    flags: tuple[str, ...] = ()
    before: tuple[str, ...] = ()
    stdout: int = subprocess.DEVNULL
    process: "subprocess.Popen[bytes] | None" = attrs.field(default=None, init=False)

    @property
    def state(self) -> StateDir:
        return StateDir(self.directory / "state")

    @property
    def run_dir(self) -> Path:
        return self.directory / "run"

    @property
    def log(self) -> Path:
        return self.directory / "worker.log"

    def begin(self, *flags: object) -> None:
        """Start it, and wait until it takes requests."""
        # A worker that was started before on the same directory has said so too.
        before = self.log.read_bytes().count(_READY) if self.log.exists() else 0
        process = self.begin_without_waiting(*flags)
        wait_until(lambda: self.log.read_bytes().count(_READY) > before or process.poll() is not None)
        assert process.poll() is None, self.log.read_text()

    def begin_without_waiting(self, *flags: object) -> "subprocess.Popen[bytes]":
        """Start it; it may be held before it takes requests."""
        argv = [*GREENROOM, "run", "--state-dir", self.state.root, "--run-dir", self.run_dir, "--log-format", "json"]
        argv += ["--on-drain", "stop"]  # most tests are over by then; tests/real/test_drains.py says otherwise
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [*self.before, *map(str, argv), *self.flags, *map(str, flags)],
                stdin=subprocess.DEVNULL,
                stdout=self.stdout,
                stderr=log,
                env=ENVIRONMENT,
            )
        return self.process

    @property
    def running(self) -> "subprocess.Popen[bytes]":
        assert self.process is not None
        return self.process

    def end(self, signum: int = signal.SIGTERM) -> int:
        """Signal it and wait for its end; returns the exit code."""
        self.running.send_signal(signum)
        code = self.running.wait(timeout=SOON_S)
        self.process = None
        return code

    def give_up(self) -> None:
        """After the test: whatever became of it, end it and its sandboxes."""
        if self.process is not None:
            self.process.kill()
            self.process.wait(timeout=SOON_S)
            # Killed while it replaced a file: the next start would have removed what is left of that.
            for path in list(temporaries_below(self.directory)):
                Path(path).unlink()
        kill_below(self.directory)

    def ask(self, op: str, **arguments: Any) -> Any:
        """One operation, from this process: what the commands themselves do is tests/real/test_cli.py's to see."""
        return anyio.run(partial(call, HostNet(), self.run_dir / "control.sock", op, bound_s=SOON_S, **arguments))

    def reach(self, uid: str, state: str) -> Any:
        """Wait for a state, and return the actor's status."""
        return self.ask("wait", uid=uid, state=state, timeout_s=SOON_S)

    def become(self, uid: str, op: str, state: str) -> Any:
        """Suspend, resume or stop an actor and wait until it is so."""
        self.ask(op, uid=uid)
        return self.reach(uid, state)

    def submit(self, document: dict[str, Any]) -> None:
        self.ask("submit", document=json.dumps(document), base=str(self.directory))

    def start(self, *documents: dict[str, Any]) -> None:
        """Hand in assignments and wait until all run."""
        for document in documents:
            self.submit(document)
        for document in documents:
            self.reach(document["metadata"]["uid"], "Running")

    def status_file(self, uid: str) -> dict[str, Any]:
        """What those see who only read files."""
        status: dict[str, Any] = json.loads(self.state.actor(uid).status.read_bytes())
        return status

    def descriptors(self) -> int:
        return len(os.listdir(f"/proc/{self.running.pid}/fd"))  # noqa: PTH208 - counted, not used as paths

    def left(self) -> list[str]:
        return [*map(str, self.state.sandboxes.glob("*")), *map(str, pids_below(self.state.root))]


@attrs.frozen
class SlowRunsc:
    """A runsc that holds a subcommand until it is let go: a script that waits at a fifo then becomes the real one."""

    directory: Path

    @property
    def path(self) -> Path:
        return self.directory / "runsc"

    @classmethod
    def in_(cls, directory: Path) -> "SlowRunsc":
        real = find(Tool.RUNSC)
        directory.mkdir()
        slow = cls(directory)
        slow.path.write_text(
            "#!/bin/sh\n"
            'for word; do case "$word" in -*) ;; *) verb=$word; break ;; esac; done\n'
            f"held={directory}/held-$verb\n"
            'if [ -e "$held" ]; then : > "$held.arrived"; read -r line < "$held"; fi\n'
            f'exec {real} "$@"\n'
        )
        slow.path.chmod(0o755)
        return slow

    def hold(self, verb: str) -> None:
        os.mkfifo(self.directory / f"held-{verb}")

    def await_arrival(self, verb: str) -> None:
        wait_until((self.directory / f"held-{verb}.arrived").exists)

    def let_go(self, verb: str) -> None:
        """Let whoever waits go on."""
        opened: list[int] = []

        def is_read() -> bool:
            with suppress(OSError):  # nobody reads there yet, or any more
                opened.append(os.open(self.directory / f"held-{verb}", os.O_WRONLY | os.O_NONBLOCK))
            return bool(opened)

        wait_until(is_read)
        self.forget(verb)
        os.close(opened[0])

    def forget(self, verb: str) -> None:
        """Hold it no longer; who waits, waits on."""
        (self.directory / f"held-{verb}").unlink()
