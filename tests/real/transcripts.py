"""The commands in a document, typed: what stands in its code blocks after `# `, with what is said to come of each."""

from __future__ import annotations

import os
import subprocess
import time
from typing import TYPE_CHECKING, Final

import attrs

from tests.needs import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_INDENT: Final = "    "
_PROMPT: Final = "# "
_END: Final = "that was it"
_PATIENCE_S: Final = 90.0
_GLANCE_S: Final = 0.2


@attrs.define
class Typed:
    """A command, and the lines that it prints; what `cat FILE.yaml` prints is first written into the file."""

    command: str
    said: list[str] = attrs.field(factory=list)

    @property
    def file(self) -> str | None:
        """The file that it shows."""
        word, _, name = self.command.partition(" ")
        return name if word == "cat" and name.endswith(".yaml") else None


def typed_in(section: str) -> list[Typed]:
    """The commands of a section, in order."""
    found: list[Typed] = []
    for line in section.splitlines():
        if line.startswith(_INDENT + _PROMPT):
            found.append(Typed(line.removeprefix(_INDENT + _PROMPT)))
        elif line.startswith(_INDENT):
            found[-1].said.append(line.removeprefix(_INDENT))
    return found


class Shell:
    """A shell into which commands are typed, one after another."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        environment = {name: value for name, value in os.environ.items() if not name.startswith(("GREENROOM", "ATE_"))}
        self._process = subprocess.Popen(
            # With job control, so that `kill %1` finds the worker.
            ["/bin/bash", "--norc", "-m"],
            cwd=directory,
            env={**environment, "PATH": f"{ROOT / '.venv/bin'}:{os.environ['PATH']}", "LC_ALL": "C.UTF-8"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for _ in self._lines(":"):
            pass  # it complains that there is no terminal

    def type(self, typed: Typed) -> list[str]:
        """What comes of a command; of a log, as soon as there is in it what is expected."""
        if typed.file is not None:
            (self._directory / typed.file).write_text("\n".join(typed.said) + "\n")
        until_s = time.monotonic() + _PATIENCE_S
        said = list(self._lines(typed.command))
        while typed.command.startswith("greenroom logs") and said != typed.said and time.monotonic() < until_s:
            time.sleep(_GLANCE_S)
            said = list(self._lines(typed.command))
        return said

    def _lines(self, command: str) -> Iterator[str]:
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(f"{command}\necho; echo '{_END}'\n")
        process.stdin.flush()
        before: str | None = None
        for each in process.stdout:
            line = each.rstrip("\n")
            if line == _END:
                # The empty line is ours, where the last one of the command was ended.
                if before:
                    yield before
                return
            if before is not None:
                yield before
            before = line
        raise AssertionError(f"the shell ended at {command}")

    def close(self) -> None:
        """End the shell and what it started."""
        process = self._process
        assert process.stdin is not None
        if process.poll() is None:
            process.stdin.write("kill %1 2>/dev/null; wait; exit\n")
            process.stdin.close()
            process.wait(_PATIENCE_S)
        if process.stdout is not None:
            process.stdout.close()
