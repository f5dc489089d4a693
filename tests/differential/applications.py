"""What the containers of a random life run: values, which both the fake's shell and busybox understand."""

from __future__ import annotations

import signal
from typing import Final

import attrs

KILLED: Final = 137


@attrs.frozen(kw_only=True)
class Counter:
    """Counts for ever.

    Attributes:
        on_term: what TERM does to it: it `exits` with 0, it `dies`, or it is `deaf`.
        on_usr1: the code that it exits with on USR1.
        stream: where it counts: stdout (1) or stderr (2).
        has_child: a process beside it sleeps.
        keeps_file: it counts only as long as a file is there that it wrote at its beginning.
        probe: a command that must succeed before the actor counts as Running.
    """

    on_term: str = "exits"
    on_usr1: int = 0
    stream: int = 1
    has_child: bool = False
    keeps_file: bool = False
    probe: str | None = None

    starts = True
    counts = True

    @property
    def argv(self) -> list[str]:
        traps = {"exits": 'trap "exit 0" TERM; ', "dies": "", "deaf": 'trap "" TERM; '}
        count = "echo $i >&2" if self.stream == 2 else "echo $i"
        script = (
            f'{traps[self.on_term]}trap "exit {self.on_usr1}" USR1; '
            f"{'sleep 1000 & ' if self.has_child else ''}"
            f"{'echo here > /tmp/here; ' if self.keeps_file else ''}"
            "i=0; while :; do "
            f"{'test -e /tmp/here && ' if self.keeps_file else ''}{count}; i=$((i+1)); sleep 0.02; done"
        )
        return ["sh", "-c", script]

    def ended_by(self, name: str) -> int | None:
        """The code it ends with when this signal comes; None when it goes on."""
        if name == "TERM":
            return {"exits": 0, "dies": 128 + signal.SIGTERM, "deaf": None}[self.on_term]
        return {"USR1": self.on_usr1, "KILL": KILLED}[name]


@attrs.frozen(kw_only=True)
class Sleeper:
    """Does nothing for ever, and knows no signal."""

    starts = True
    counts = False
    probe = None

    @property
    def argv(self) -> list[str]:
        return ["sleep", "10000"]

    def ended_by(self, name: str) -> int | None:
        return 128 + getattr(signal, f"SIG{name}")


@attrs.frozen(kw_only=True)
class Ending:
    """Ends at once.

    Attributes:
        code: what it exits with; 137 by killing itself.
        says: what it writes before.
    """

    code: int = 0
    says: str = ""

    starts = True
    counts = False
    probe = None

    @property
    def argv(self) -> list[str]:
        end = "kill -9 $$" if self.code == KILLED else f"exit {self.code}"
        return ["sh", "-c", f"echo {self.says}; {end}" if self.says else end]

    def ended_by(self, name: str) -> int | None:
        return None


@attrs.frozen(kw_only=True)
class Missing:
    """Cannot be started: there is no such command."""

    command: str = "/bin/nope"

    starts = False
    counts = False
    probe = None

    @property
    def argv(self) -> list[str]:
        return [self.command]

    def ended_by(self, name: str) -> int | None:
        return None


Application = Counter | Sleeper | Ending | Missing
