"""The processes of a simulated machine: pids, parents, sessions, signals, zombies. A model: nothing here waits.

Who is interested in a process hangs a function on it. Pids are never used twice; start times tell processes apart all
the same, as on a real machine.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator, Sequence
from typing import Final

import attrs

from actors.ports import ProcessIdentity

INIT_PID: Final = 1
_FIRST_PID: Final = 100
_TICKS_PER_S: Final = 100
_IGNORED: Final = frozenset({signal.SIGCHLD, signal.SIGURG, signal.SIGWINCH})


@attrs.define(kw_only=True, eq=False)
class SimProcess:
    """A process, until somebody has waited for it.

    Attributes:
        identity: pid and start time.
        parent: its parent's pid, which changes when that ends.
        session: pid of its session's leader.
        arguments: its command line.
        is_subreaper: orphans of its descendants become its children.
        reaps: how its strangers' zombies are dealt with: at once, or left for ever (a reaper that is stuck).
        exit_code: how it ended, a signal as its negative number; None while it runs.
        is_stopped: SIGSTOP has come and no SIGCONT.
        is_reaped: it is gone.
        cgroup: `<activation's>/<leaf>` among the worker's; empty where the worker itself is.
        handlers: what it does itself when a signal comes, instead of ending.
        ended: called once when it ends; it is a zombie then.
        reaped: called once when it is gone.
        continued: called whenever it is continued.
    """

    identity: ProcessIdentity
    parent: int
    session: int
    arguments: tuple[str, ...]
    is_subreaper: bool = False
    reaps: bool = True
    exit_code: int | None = None
    is_stopped: bool = False
    is_reaped: bool = False
    is_owned: bool = False
    cgroup: str = ""
    handlers: dict[int, Callable[[], None]] = attrs.field(factory=dict)
    ended: list[Callable[[], None]] = attrs.field(factory=list)
    reaped: list[Callable[[], None]] = attrs.field(factory=list)
    continued: list[Callable[[], None]] = attrs.field(factory=list)

    @property
    def pid(self) -> int:
        """Its process id."""
        return self.identity.pid

    @property
    def is_running(self) -> bool:
        """Whether it executes, or could; no zombie."""
        return self.exit_code is None


class ProcessTable:
    """All processes of one machine.

    Args:
        now_s: seconds of the machine's clock, for start times.
    """

    def __init__(self, *, now_s: Callable[[], float]) -> None:
        self._now_s = now_s
        self._next_pid = _FIRST_PID
        # By parent, so that a machine of thousands of processes need not be looked through when one of them ends.
        self._children: dict[int, dict[int, SimProcess]] = {}
        init = ProcessIdentity(pid=INIT_PID, start_ticks=0)
        self._processes = {
            INIT_PID: SimProcess(identity=init, parent=0, session=INIT_PID, arguments=("init",), is_subreaper=True)
        }

    def __iter__(self) -> Iterator[SimProcess]:
        """Iterate over every process and zombie, by pid."""
        return iter(tuple(self._processes.values()))

    def get(self, pid: int) -> SimProcess | None:
        """The process or zombie with this pid."""
        return self._processes.get(pid)

    def exactly(self, identity: ProcessIdentity) -> SimProcess | None:
        """That very process or its zombie."""
        found = self._processes.get(identity.pid)
        return found if found is not None and found.identity == identity else None

    def spawn(self, arguments: Sequence[str], *, parent: int, is_subreaper: bool = False) -> SimProcess:
        """Start a process in a session of its own, and in its parent's cgroup."""
        pid = self._next_pid
        self._next_pid += 1
        identity = ProcessIdentity(pid=pid, start_ticks=1000 + int(self._now_s() * _TICKS_PER_S))
        begetter = self._processes.get(parent)
        process = SimProcess(
            identity=identity,
            parent=parent,
            session=pid,
            arguments=tuple(arguments),
            is_subreaper=is_subreaper,
            cgroup="" if begetter is None else begetter.cgroup,
        )
        self._processes[pid] = process
        self._children.setdefault(parent, {})[pid] = process
        return process

    def signal(self, process: SimProcess, number: int) -> None:
        """Send a signal; a zombie takes none."""
        if not process.is_running:
            return
        if number == signal.SIGSTOP:
            process.is_stopped = True
        elif number == signal.SIGCONT:
            process.is_stopped = False
            for tell in tuple(process.continued):
                tell()
        elif number != signal.SIGKILL and number in process.handlers:
            process.handlers[number]()
        elif number not in _IGNORED and number != 0:
            self.end(process, -number)

    def end(self, process: SimProcess, code: int) -> None:
        """End a process: it becomes a zombie, its children somebody else's, and whoever asked is told."""
        if not process.is_running:
            return
        process.exit_code = code
        process.is_stopped = False
        heir = self._heir(process)
        orphans = self._children.pop(process.pid, {})
        self._children.setdefault(heir.pid, {}).update(orphans)
        for child in orphans.values():
            child.parent, child.is_owned = heir.pid, False
            self._reap_stranger(child)
        for tell in tuple(process.ended):
            tell()
        self._reap_stranger(process)

    def reap(self, process: SimProcess) -> None:
        """Wait for a zombie: it is gone."""
        if process.is_running or process.is_reaped:
            return
        process.is_reaped = True
        del self._processes[process.pid]
        del self._children[process.parent][process.pid]
        for tell in tuple(process.reaped):
            tell()

    def release(self, process: SimProcess) -> None:
        """Whoever owned it gives it up; its zombie is a stranger's now."""
        process.is_owned = False
        self._reap_stranger(process)

    def _reap_stranger(self, process: SimProcess) -> None:
        parent = self._processes.get(process.parent)
        if parent is None or (parent.is_subreaper and parent.reaps and not process.is_owned):
            self.reap(process)

    def _heir(self, process: SimProcess) -> SimProcess:
        """The nearest living subreaper above."""
        above = self._processes.get(process.parent)
        while above is not None and not (above.is_subreaper and above.is_running):
            above = self._processes.get(above.parent)
        return above if above is not None else self._processes[INIT_PID]
