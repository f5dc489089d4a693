"""A sandbox of the fake runsc: a real process with the model's kernel in it, and its file servers' lifelines.

It lives in a session of its own and outlives the command that made it. A file server (gofer) is a shell that reads from
a socket until that ends: so it goes when the sandbox does, and the sandbox sees when it was killed.
"""

from __future__ import annotations

import math
import os
import select
import signal
import socket
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, NoReturn

import orjson

from sim.world.runsc import fake_socket
from sim.world.runsc.fake_files import OsFiles, write_output
from sim.world.runsc.machine import Answer
from sim.world.runsc.questions import boot
from sim.world.runsc.sentry import Effect, GoferEnds, Reply, SandboxEnds, Write

if TYPE_CHECKING:
    from sim.world.runsc.settings import RunscSettings

LET_GO: Final = b"!"
_WAIT_S_MAX: Final = 3600.0


class FakeSandbox:
    """The loop of a sandbox's process.

    Args:
        settings: which runsc it belongs to.
        facts: what `create` said of it.
        listener: its control socket.
        tie: a pipe from the command that makes it, whose end is that of both.
        gofer: the lifeline of the root's file server.
    """

    def __init__(
        self, settings: RunscSettings, facts: dict[str, Any], listener: socket.socket, tie: int, gofer: int
    ) -> None:
        self._sentry = boot(settings, OsFiles(), facts, (1, 2))
        self._listener = listener
        self._tie: int | None = tie
        self._gofers = {facts["gofer"]: gofer}
        self._connections: dict[int, socket.socket] = {}
        self._calls = 0
        self._outputs: set[int] = set()

    def run(self) -> NoReturn:
        """Go on until the end, which is the process's."""
        signal.signal(signal.SIGTERM, lambda *_: self._perform(self._sentry.terminate()))
        while True:
            wait_s = min(self._sentry.next_s() - time.monotonic(), _WAIT_S_MAX)
            self._look(max(0.0, wait_s))
            if self._sentry.next_s() <= time.monotonic():
                self._perform(self._sentry.advance(time.monotonic()))

    def _look(self, wait_s: float) -> None:
        gofers = {fd: pid for pid, fd in self._gofers.items()}
        calls = {connection.fileno(): call for call, connection in self._connections.items()}
        poll = select.poll()
        for fd in (self._listener.fileno(), *gofers, *calls, *(() if self._tie is None else (self._tie,))):
            poll.register(fd, select.POLLIN)
        for fd, _ in poll.poll(math.ceil(wait_s * 1000)):
            if fd == self._listener.fileno():
                self._take()
            elif fd == self._tie:
                self._untie()
            elif fd in gofers and self._gofers.get(gofers[fd]) == fd:
                os.close(self._gofers.pop(gofers[fd]))
                self._perform(self._sentry.gofer_died(gofers[fd], time.monotonic()))
            elif fd in calls and calls[fd] in self._connections:
                # Nobody writes twice: who asked is gone.
                self._sentry.forget(calls[fd])
                self._connections.pop(calls[fd]).close()

    def _take(self) -> None:
        question = fake_socket.take(self._listener)
        if question is None:
            return
        stdio = list(question.descriptors)
        if "gofer" in question.argument:
            self._gofers[question.argument["gofer"]] = stdio.pop()
        self._calls += 1
        self._connections[self._calls] = question.connection
        self._outputs.update(stdio)
        now_s = time.monotonic()
        self._perform(self._sentry.ask(self._calls, question.method, question.argument, stdio, now_s))

    def _untie(self) -> None:
        """The command has let go, or it was killed, and this goes with it."""
        if self._tie is None:
            return
        if os.read(self._tie, 1) != LET_GO:
            os._exit(-signal.SIGKILL & 0xFF)
        os.close(self._tie)
        self._tie = None

    def _perform(self, effects: Sequence[Effect]) -> None:
        for effect in effects:
            match effect:
                case Write(handle, data):
                    write_output(handle, data)
                case Reply(call, what):
                    self._answer(call, what)
                case GoferEnds(pid):
                    if pid in self._gofers:
                        os.close(self._gofers.pop(pid))
                case SandboxEnds(code):
                    os._exit(code)
        self._let_go()

    def _let_go(self) -> None:
        """Close the output that nothing inside has open any more, as a sandbox does."""
        used: set[Any] = set()
        for container in self._sentry.containers.values():
            used.update(container.stdio)
            for process in container.processes.values():
                used.update((process.stdout, process.stderr))
        for fd in self._outputs - used:
            os.close(fd)
        self._outputs &= used

    def _answer(self, call: int, what: Answer) -> None:
        connection = self._connections.pop(call, None)
        if connection is not None:
            fake_socket.answer(connection, what)


def run_sandbox(settings: RunscSettings, descriptors: Sequence[str]) -> NoReturn:
    """Be a sandbox, with the descriptors that `create` has put on the command line."""
    facts_fd, listener_fd, tie, gofer = map(int, descriptors)
    facts = orjson.loads(os.pread(facts_fd, os.fstat(facts_fd).st_size, 0))
    os.close(facts_fd)
    FakeSandbox(settings, facts, socket.socket(fileno=listener_fd), tie, gofer).run()
