"""The one-liners of `sh -c` that tests and the demo use, read as programs, and which commands there are at all.

Understood are, separated by `;`: `i=0`, `i=$((i+1))`, `echo WORDS [>&2] [> PATH]`, `sleep S`, `exec sleep S`, `exit N`,
`true`, `kill -SIG $$`, `trap "…" SIG…`, `touch PATH`, `rm PATH`, `dd … bs=1M count=N …`, `COMMAND &`, `echo $?`,
`mknod PATH KIND … 2>/dev/null`, `cat` of a device that cannot be opened, `test -e PATH && …`, `while :; do …; done`,
`while ! [ -e PATH ]; do …; done`. What is not understood is refused loudly: a program that silently did something else
would make a test lie.
"""

from __future__ import annotations

import math
import re
import signal
from typing import TYPE_CHECKING, Final

import attrs

from .programs import Instruction, Program

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_APPLETS: Final = frozenset(
    {"cat", "dd", "echo", "false", "grep", "id", "kill", "ls", "mknod", "sh", "sleep", "test", "touch", "true", "wc"}
)
_WORDS: Final = re.compile(r"""(?:'[^']*'|"(?:\\.|[^"])*"|[^;\s])+|;""")


class NotUnderstoodError(ValueError):
    """Raised when a command is none that the model knows how to run."""


class NoSuchCommandError(Exception):
    """Raised when there is no such command; the text is runsc's."""


def recognise(
    argv: Sequence[str], env: Sequence[str], programs: Mapping[tuple[str, ...], Program], *, rootfs_has_pause: bool
) -> Program:
    """Return the program that an argv starts.

    Raises:
        NoSuchCommandError: there is none; `failed to load` with a slash in its name, else not found in PATH.
        NotUnderstoodError: it is a shell's one-liner that is not understood.
    """
    given = programs.get(tuple(argv))
    if given is not None:
        return given
    if not argv:
        raise NoSuchCommandError("Spec.Process.Arg must be defined")
    directory, _, name = argv[0].rpartition("/")
    if argv[0] == "/pause" and rootfs_has_pause:
        return Program((("exit", 0),) if argv[1:] else (("sleep", math.inf, True),), name="pause")
    if name not in _APPLETS or directory not in {"", "/bin", "/usr/bin"}:
        raise NoSuchCommandError(_not_found(argv[0], env))
    return _applet(name, tuple(argv[1:]))


def _not_found(name: str, env: Sequence[str]) -> str:
    if "/" in name:
        return f"failed to load {name}: no such file or directory"
    path = next((each.removeprefix("PATH=") for each in env if each.startswith("PATH=")), "")
    folders = " ".join(path.split(":"))
    return f'error finding executable "{name}" in PATH [{folders}]: no such file or directory'


def _applet(name: str, arguments: tuple[str, ...]) -> Program:
    match name, arguments:
        case "sh", ("-c", script):
            return attrs.evolve(Program(_Reader().script(script)), name="sh")
        case "sleep", (seconds,):
            return Program((("sleep", _seconds(seconds), True), ("exit", 0)), name="sleep")
        case "true", _:
            return Program((("exit", 0),), name="true")
        case "false", _:
            return Program((("exit", 1),), name="false")
        case "echo", words:
            return Program((("write", " ".join(words) + "\n", 1),), name="echo")
        case _:
            raise NotUnderstoodError(f"the model does not run {name} {list(arguments)}")


def _seconds(word: str) -> float:
    return math.inf if word in {"inf", "infinity"} else float(word)


@attrs.define
class _Reader:
    """Compiles a script; jumps are absolute, so it all goes into one list. Traps are put behind the end."""

    code: list[Instruction] = attrs.field(factory=list)
    traps: list[tuple[int, str]] = attrs.field(factory=list)

    def script(self, text: str) -> tuple[Instruction, ...]:
        self.statements(_statements(text))
        self.code.append(("exit", 0))
        for index, commands in self.traps:
            word, number, _ = self.code[index]
            self.code[index] = (word, number, len(self.code))
            self.statements(_statements(commands))
        return tuple(self.code)

    def statements(self, statements: list[list[str]]) -> None:
        while statements:
            words = statements.pop(0)
            if words[0] == "while":
                self.loop(words[1:], statements)
            else:
                self.statement(words)

    def loop(self, condition: list[str], statements: list[list[str]]) -> None:
        begin = len(self.code)
        escape: int | None = None
        match condition:
            case [":"] | ["true"]:
                pass
            case ["!", "[", "-e", path, "]"]:
                # Out of the loop as soon as the file is there: `unless` jumps over the way out.
                self.code.extend((("unless", path, begin + 2), ("jump", -1)))
                escape = begin + 1
            case _:
                raise NotUnderstoodError(f"while {condition}")
        body: list[list[str]] = []
        while statements[0] != ["done"]:
            body.append(statements.pop(0))
        statements.pop(0)
        if body[0][0] != "do":
            raise NotUnderstoodError(f"do expected, not {body[0]}")
        body[0] = body[0][1:]
        self.statements(body)
        self.code.append(("jump", begin))
        if escape is not None:
            self.code[escape] = ("jump", len(self.code))

    def statement(self, words: list[str]) -> None:
        if words[-1] == "&":
            self.code.append(("fork", _Reader().script(" ".join(words[:-1]))))
            return
        if "&&" in words:
            index = words.index("&&")
            self.guarded(words[:index], words[index + 1 :])
            return
        self.code.extend(self.simple(words))

    def guarded(self, condition: list[str], then: list[str]) -> None:
        match condition:
            case ["test", "-e", path] | ["[", "-e", path, "]"]:
                pass
            case _:
                raise NotUnderstoodError(f"{condition} && …")
        at = len(self.code)
        self.code.append(("unless", path, -1))
        self.statement(then)
        self.code[at] = ("unless", path, len(self.code))

    def simple(  # noqa: C901, PLR0911, PLR0912 - a row for each command
        self, words: list[str]
    ) -> list[Instruction]:
        match words:
            case [":"] | ["true"]:
                return []
            case [assignment] if found := re.fullmatch(r"[in]=(\d+)", assignment):
                return [("set", int(found[1]))]
            case [assignment] if found := re.fullmatch(r"([in])=\$\(\(\1\+(\d+)\)\)", assignment):
                return [("add", int(found[2]))]
            case ["echo", *rest, ">", path]:
                return [("touch", path)]
            case ["echo", *rest, ">&2"]:
                return [("write", _echoed(rest), 2)]
            case ["echo", *rest]:
                return [("write", _echoed(rest), 1)]
            case ["exec", "sleep", seconds]:
                return [("sleep", _seconds(seconds), True), ("exit", 0)]
            case ["sleep", seconds]:
                return [("sleep", _seconds(seconds), False)]
            case ["exit", code]:
                return [("exit", int(code))]
            case ["kill", name, "$$"]:
                return [("raise", signal_number(name.removeprefix("-")))]
            case ["touch", path]:
                return [("touch", path)]
            case ["mknod", path, kind, *_numbers, "2>/dev/null"] if kind in {"b", "c", "p"}:
                return [("mknod", path, kind)]
            case ["cat", path] if path.startswith("/dev/nvidia"):
                return [("cat", path)]
            case ["rm", path]:
                return [("remove", path)]
            case ["trap", commands, *names]:
                for name in names:
                    self.code.append(self.trap(commands, signal_number(name)))
                return []
            case ["dd", *options]:
                return [("grow", _dd_bytes(options))]
            case ["test", "-e", path]:
                at = len(self.code)
                return [("unless", path, at + 2), ("exit", 0), ("exit", 1)]
            case _:
                raise NotUnderstoodError(f"the model's shell does not understand {words}")

    def trap(self, commands: str, number: int) -> Instruction:
        text = _unquoted(commands)
        if not text:
            return ("trap", number, None)
        self.traps.append((len(self.code), text))
        return ("trap", number, -1)


def signal_number(name: str) -> int:
    """Read a signal's name, with or without SIG, or its number.

    Raises:
        NotUnderstoodError: there is none such; 0 is none either.
    """
    if name.isdecimal():
        try:
            return int(signal.Signals(int(name)))
        except ValueError:
            raise NotUnderstoodError(name) from None
    found = getattr(signal.Signals, f"SIG{name.removeprefix('SIG')}", None)
    if found is None:
        raise NotUnderstoodError(name)
    return int(found)


def _statements(text: str) -> list[list[str]]:
    statements: list[list[str]] = [[]]
    for word in _WORDS.findall(text):
        if word == ";":
            statements.append([])
        else:
            statements[-1].append(word)
            if word == "&":
                statements.append([])
    return [each for each in statements if each]


def _unquoted(word: str) -> str:
    return word[1:-1] if word[:1] in {"'", '"'} and word[-1:] == word[:1] else word


def _echoed(words: list[str]) -> str:
    text = " ".join(_unquoted(word) for word in words)
    if re.search(r"\$(?![in]\b|\?)|`", text):
        raise NotUnderstoodError(f"echo {text}")
    return re.sub(r"\$n\b", "$i", text) + "\n"


def _dd_bytes(options: list[str]) -> int:
    given = dict(each.split("=", 1) for each in options if "=" in each)
    scale = {"M": 1 << 20, "k": 1 << 10}
    size = given.get("bs", "512")
    return int(size.rstrip("Mk")) * scale.get(size[-1], 1) * int(given.get("count", "1"))
