"""The applications inside containers: short lists of instructions that stand still, are saved and go on.

A `Program` is a tuple of instructions; a `Run` is where one of them stands, plain JSON, so that it is part of an image.
The few behaviours that tests need have names here; `shell` reads the one-liners that run in real gVisor as well.
"""

from __future__ import annotations

import math
from typing import Any, Final, Protocol

import attrs

Instruction = tuple[Any, ...]
"""A word and its arguments:

("write", text, stream)     text with `$i` for the counter, to stdout (1) or stderr (2)
("set", n) ("add", n)       the counter
("sleep", seconds, prompt)  prompt: a trapped signal ends it; a shell looks at it only after its child
("jump", index)             go on there
("exit", code)              end
("raise", signal)           send it to oneself
("trap", signal, index)     go on there when that signal comes; index None ignores it
("grow", bytes)             hold so much more memory
("touch", path) ("remove", path)    a file that only this container sees
("mknod", path, kind)       a node; `$?` is then 0 or 1
("cat", path)               say why a device cannot be opened
("open", path) ("close", path)      hold a device open that can be; `$?` is then 0 or 1
("unless", path, index)     jump when the file is not there
("fork", code)              a child that goes on beside
"""

_IGNORED_BY_DEFAULT: Final = frozenset({17, 18, 23, 28})
"""CHLD, CONT, URG, WINCH: signal(7)."""
_KILL, _STOP = 9, 19
_ZERO_TIME_MAX: Final = 10_000
"""Instructions that one run may execute without time passing: a program that never sleeps is a mistake."""


@attrs.frozen
class Program:
    """What a container runs.

    Attributes:
        code: its instructions; it ends with 0 after the last.
        name: as `ps` shows it.
    """

    code: tuple[Instruction, ...]
    name: str = "app"

    @classmethod
    def from_json(cls, code: list[list[Any]], *, name: str) -> Program:
        """Read a program out of JSON, which has neither tuples nor infinity."""
        return cls(_code(code), name=name)


def counter(interval_s: float, *, first: int = 0, on_term: int | None = None) -> Program:
    """Write first, first+1, … one a line, for ever; on TERM exit with `on_term`, or die of it."""
    trap: tuple[Instruction, ...] = () if on_term is None else (("trap", 15, 6),)
    loop = len(trap) + 1
    body: tuple[Instruction, ...] = (
        *trap,
        ("set", first),
        ("write", "$i\n", 1),
        ("add", 1),
        ("sleep", interval_s, True),
        ("jump", loop),
    )
    return Program((*body, ("exit", on_term or 0)), name="counter")


def exits_with(code: int, *, after_s: float = 0.0) -> Program:
    """Exit with a code after a while."""
    return Program((("sleep", after_s, True), ("exit", code)), name="exits")


def runs_forever() -> Program:
    """Do nothing until a signal ends it."""
    return Program((("sleep", math.inf, True),), name="sleep")


def ignores_term() -> Program:
    """Do nothing, whatever TERM, INT and HUP say."""
    return Program((*(("trap", number, None) for number in (15, 2, 1)), ("sleep", math.inf, True)), name="deaf")


def exits_on_term(code: int, *, after_s: float = 0.0) -> Program:
    """Run until TERM comes, then exit with a code, after a while."""
    return Program(
        (("trap", 15, 2), ("sleep", math.inf, True), ("sleep", after_s, True), ("exit", code)), name="polite"
    )


def writes(*lines: str, then: Program | None = None) -> Program:
    """Write lines, then become another program (exit with 0 without one)."""
    head: tuple[Instruction, ...] = tuple(("write", f"{line}\n", 1) for line in lines)
    rest = () if then is None else tuple(_moved(each, len(head)) for each in then.code)
    return Program((*head, *rest), name="writes")


def _moved(instruction: Instruction, by: int) -> Instruction:
    match instruction:
        case ("jump", index):
            return ("jump", index + by)
        case ("trap", number, int(index)):
            return ("trap", number, index + by)
        case ("unless", path, index):
            return ("unless", path, index + by)
        case _:
            return instruction


@attrs.define
class Run:
    """One execution of a program, as far as it has come.

    Attributes:
        program: what is executed.
        at: index of the next instruction.
        count: the counter.
        wake_s: when the present sleep ends.
        waking_at: where a trapped signal leads once the present sleep ends.
        prompt: whether it leads there at once.
        traps: signal to index; None ignores.
        memory_bytes: what it holds beyond its code.
        last: `$?`, as far as it is kept.
        held: the devices that it has open.
        status: how it ended, 128 plus a signal's number; None while it runs.
    """

    program: Program
    at: int = 0
    count: int = 0
    wake_s: float = 0.0
    waking_at: int | None = None
    prompt: bool = True
    traps: dict[int, int | None] = attrs.field(factory=dict)
    memory_bytes: int = 0
    last: int = 0
    held: set[str] = attrs.field(factory=set)
    status: int | None = None

    def next_s(self) -> float:
        """When something will happen; never (infinity) when it has ended or waits for a signal."""
        return math.inf if self.status is not None else self.wake_s

    def advance(self, now_s: float, surroundings: Surroundings) -> None:
        """Execute what is due."""
        budget = _ZERO_TIME_MAX
        while self.status is None and self.wake_s <= now_s:
            if self.waking_at is not None:
                self.at, self.waking_at = self.waking_at, None
            if self.at >= len(self.program.code):
                self.status = 0
                return
            instruction = self.program.code[self.at]
            self.at += 1
            if instruction[0] != "sleep":
                budget -= 1
                if budget < 0:
                    message = f"{self.program.name} never sleeps"
                    raise ValueError(message)
            self._execute(instruction, surroundings)

    def _execute(  # noqa: C901, PLR0912 - a row for each instruction
        self, instruction: Instruction, surroundings: Surroundings
    ) -> None:
        match instruction:
            case ("write", text, stream):
                surroundings.write(stream, text.replace("$i", str(self.count)).replace("$?", str(self.last)))
            case ("set", number):
                self.count = number
            case ("add", number):
                self.count += number
            case ("sleep", seconds, prompt):
                self.wake_s, self.prompt = self.wake_s + seconds, prompt
            case ("jump", index):
                self.at = index
            case ("exit", code):
                self.status = code
            case ("raise", number):
                self.signal(number, self.wake_s)
            case ("trap", number, index):
                self.traps[number] = index
            case ("grow", size_bytes):
                self.memory_bytes += size_bytes
            case ("touch", path):
                surroundings.make_file(path)
            case ("mknod", path, kind):
                self.last = 0 if surroundings.make_node(path, kind) else 1
            case ("cat", path):
                surroundings.write(2, f"cat: can't open '{path}': {surroundings.cannot_open(path)}\n")
            case ("open", path):
                self.last = 0 if surroundings.has_file(path) else 1
                self.held |= {path} if self.last == 0 else set()
            case ("close", path):
                self.held.discard(path)
            case ("remove", path):
                surroundings.remove_file(path)
            case ("unless", path, index):
                self.at = self.at if surroundings.has_file(path) else index
            case ("fork", code):
                surroundings.fork(Program(code, name=self.program.name), self.wake_s)

    def signal(self, number: int, now_s: float) -> None:
        """Take a signal at a moment at which the program is not frozen."""
        if self.status is not None:
            return
        if number not in {_KILL, _STOP} and number in self.traps:
            index = self.traps[number]
            if index is not None:
                self.waking_at = index
                if self.prompt:
                    self.wake_s = now_s
            return
        if number != _STOP and number not in _IGNORED_BY_DEFAULT:
            self.status = 128 + number

    def as_json(self, now_s: float) -> dict[str, Any]:
        """Its memory, for an image; sleeps are saved as what is left of them."""
        return {
            "code": self.program.code,
            "name": self.program.name,
            "at": self.at,
            "count": self.count,
            "left_s": None if math.isinf(self.wake_s) else self.wake_s - now_s,
            "waking_at": self.waking_at,
            "prompt": self.prompt,
            "traps": sorted(self.traps.items()),
            "memory_bytes": self.memory_bytes,
            "last": self.last,
            "held": sorted(self.held),
        }

    @classmethod
    def from_json(cls, saved: dict[str, Any], now_s: float) -> Run:
        """Go on from an image.

        Raises:
            KeyError, TypeError, ValueError: it is no such memory.
        """
        left_s = saved["left_s"]
        return cls(
            program=Program.from_json(saved["code"], name=saved["name"]),
            at=saved["at"],
            count=saved["count"],
            wake_s=math.inf if left_s is None else now_s + left_s,
            waking_at=saved["waking_at"],
            prompt=saved["prompt"],
            traps=dict(saved["traps"]),
            memory_bytes=saved["memory_bytes"],
            last=saved["last"],
            held=set(saved["held"]),
        )


def _code(saved: list[list[Any]]) -> tuple[Instruction, ...]:
    """Instructions out of JSON, which has neither tuples nor infinity."""
    return tuple(_instruction(each) for each in saved)


def _instruction(saved: list[Any]) -> Instruction:
    match saved:
        case ["sleep", None, prompt]:
            return ("sleep", math.inf, prompt)
        case ["fork", code]:
            return ("fork", _code(code))
        case _:
            return tuple(saved)


class Surroundings(Protocol):
    """What a program reaches inside its container."""

    def write(self, stream: int, text: str) -> None:
        """Write to stdout or stderr."""
        ...

    def make_file(self, path: str) -> None:
        """Make a file."""
        ...

    def make_node(self, path: str, kind: str) -> bool:
        """Make a node of this kind (c, b, p); whether it may."""
        ...

    def cannot_open(self, path: str) -> str:
        """Why a device cannot be opened."""
        ...

    def remove_file(self, path: str) -> None:
        """Remove a file."""
        ...

    def has_file(self, path: str) -> bool:
        """Whether a file is there."""
        ...

    def fork(self, program: Program, now_s: float) -> None:
        """Start a child."""
        ...
